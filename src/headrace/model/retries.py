"""When what has failed is tried again: batches of a running task, and tasks that have ended."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

_FIRST = timedelta(milliseconds=300)
_DOUBLINGS = 40
"""Enough for any ``longest``, and few enough for a timedelta."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits ``0.3 s * 2 ** (failures - 1)``: 0.3, 0.6, 1.2, 2.4, 4.8 s...

    Where that is longer than ``longest`` it waits a random time up to ``longest``, so that
    many tasks do not return to a busy system all at once, and it never waits past the
    end of ``timeout``. This is Kafka Connect's formula.

    Args:
        longest: The longest wait (``errors.retry.delay.max.ms``).
        timeout: How long to go on trying; zero for not at all, None for ever. Kafka Connect
            too retries a busy system without end.
        random: Gives a number from 0 to below 1.
    """

    longest: timedelta = timedelta(minutes=1)
    timeout: timedelta | None = None
    random: Callable[[], float] = random.random

    def wait(
        self,
        failures: int,
        asked: timedelta | None = None,
        trying_for: timedelta = timedelta(),
    ) -> timedelta:
        """Return the wait after so many failures in a row, at least 1.

        It is at least what the system asked for, if it did; ``trying_for`` is the time since
        the first failure.
        """
        wait: timedelta = _FIRST * 2 ** min(failures - 1, _DOUBLINGS)
        if wait > self.longest:
            wait = self.longest * self.random()
        wait = max(wait, asked or timedelta())
        if self.timeout is None:
            return wait
        return max(timedelta(), min(wait, self.timeout - trying_for))

    def expired(self, trying_for: timedelta) -> bool:
        return self.timeout is not None and trying_for >= self.timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Waits ``first * 2 ** (attempt - 1)``, at most ``longest``: 5, 10, 20, 40, 80 s...

    Of each wait up to half is taken off at random, so that many tasks that failed with one
    system do not return to it all at once.

    Args:
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
        return self.attempts is not None and attempt > self.attempts

    def without_end(self) -> RestartPolicy:
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
