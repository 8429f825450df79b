"""When what has failed is started anew by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

_DOUBLINGS = 40
"""Enough for any ``longest``, and few enough for a timedelta."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Waits ``first * 2 ** (attempt - 1)``, at most ``longest``: 5, 10, 20, 40, 80 s...

    Of each wait up to half is taken off at random, so that many tasks that failed with one
    system do not return to it all at once.

    Args:
        enabled: Whether anything is started anew at all.
        first: The wait before the first attempt.
        longest: The longest wait.
        attempts: After how many attempts in a row to give up; None for never.
        quiet: What ran for so long before it failed has failed for the first time.
    """

    enabled: bool = False
    first: timedelta = timedelta(seconds=5)
    longest: timedelta = timedelta(minutes=5)
    attempts: int | None = 10
    quiet: timedelta = timedelta(minutes=10)

    def wait(self, attempt: int, chance: float) -> timedelta:
        """Return the wait before an attempt, from 1; ``chance`` is from 0 to below 1."""
        full: timedelta = min(self.first * 2 ** min(attempt - 1, _DOUBLINGS), self.longest)
        return full * (1 - chance / 2)

    def gives_up(self, attempt: int) -> bool:
        """Return whether so many attempts, counted from 1, are too many."""
        return self.attempts is not None and attempt > self.attempts

    def patient(self) -> RestartPolicy:
        """Return the policy for what is certain to pass: enabled, without end."""
        return replace(self, enabled=True, attempts=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartKeys:
    """What a connector says of its restarts; None where the server's word stands.

    ``attempts`` is -1 for no end.
    """

    enabled: bool | None = None
    first: timedelta | None = None
    longest: timedelta | None = None
    attempts: int | None = None
    quiet: timedelta | None = None

    def over(self, policy: RestartPolicy) -> RestartPolicy:
        """Return the server's policy with what the connector says instead."""
        attempts = policy.attempts if self.attempts is None else self.attempts
        return RestartPolicy(
            enabled=policy.enabled if self.enabled is None else self.enabled,
            first=self.first or policy.first,
            longest=self.longest or policy.longest,
            attempts=None if attempts == -1 else attempts,
            quiet=self.quiet or policy.quiet,
        )
