"""Policies for errors: backoff of retries, restarts, tolerance, and the log's lines."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.model.batch import Counts

_FIRST = timedelta(milliseconds=300)
_DOUBLINGS = 40
"""Enough to reach any ``longest``, without overflowing a timedelta."""
MOST_LINES = 10
"""The maximum log lines per batch: many bad records usually have the same cause."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits ``0.3 s * 2 ** (failures - 1)``: 0.3, 0.6, 1.2, 2.4, 4.8 s...

    If that exceeds ``longest``, the wait is random, up to ``longest``, so that many tasks do
    not return to a busy system all at once. A wait never exceeds the rest of ``timeout``. This
    is Kafka Connect's formula.

    Args:
        longest: The maximum wait (``errors.retry.delay.max.ms``).
        timeout: How long to retry; zero for no retries, None for no limit. Kafka Connect also
            retries a busy system without a limit.
        random: Returns a number from 0 to below 1.
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
        """Return the wait before the next retry.

        Args:
            failures: The number of consecutive failures, at least 1.
            asked: The minimum wait that the system requested, if any.
            trying_for: The time since the first failure.
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

    Each wait is reduced by a random part of up to half, so that many tasks that failed because
    of the same system do not return to it all at once.

    Args:
        attempts: The maximum number of consecutive attempts; None for no limit.
        quiet: A task that ran this long before it failed starts again at the first attempt.
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
        """Return the policy for failures that are certain to pass: enabled, without a limit."""
        return replace(self, enabled=True, attempts=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartKeys:
    """A connector's overrides of the restart policy; None for the server's value.

    ``attempts`` is -1 for no limit.
    """

    enabled: bool | None = None
    first: timedelta | None = None
    longest: timedelta | None = None
    attempts: int | None = None
    quiet: timedelta | None = None

    def over(self, policy: RestartPolicy) -> RestartPolicy:
        """Return the server's policy with the connector's overrides."""
        attempts = policy.attempts if self.attempts is None else self.attempts
        return RestartPolicy(
            enabled=policy.enabled if self.enabled is None else self.enabled,
            first=self.first or policy.first,
            longest=self.longest or policy.longest,
            attempts=None if attempts == -1 else attempts,
            quiet=self.quiet or policy.quiet,
        )


@dataclass(frozen=True, slots=True)
class ErrorLog:
    """Logs at most ``MOST_LINES`` records of a batch, then the number of omitted ones.

    Args:
        say: Writes one line.
        messages: Whether a line includes the record's position and the error's message, which
            may quote the record (``errors.log.include.messages``).
    """

    say: Callable[[str], object]
    messages: bool = False

    def log(self, causes: Sequence[Mapping[str, Any]], rejected: int) -> None:
        """Log the rejected records of a batch.

        Args:
            causes: Some of the rejected records, each with the fields of ``CAUSE`` in
                ``headrace.topics.segments``, and ``timestamp``.
            rejected: The total number of rejected records.
        """
        for cause in causes[:MOST_LINES]:
            self.say(self._line(cause))
        left_out = rejected - min(len(causes), MOST_LINES)
        if left_out:
            self.say(f"{left_out} more records of this batch were rejected")

    def _line(self, cause: Mapping[str, Any]) -> str:
        text = (
            f"Error encountered in task {cause['connector']}-{cause['task']}. "
            f"Executing stage '{cause['stage']}' with class '{cause['class']}'"
        )
        if not self.messages:
            return f"{text}. {cause['exception']}"
        time: datetime | None = cause["timestamp"]
        millis = None if time is None else int(time.timestamp() * 1000)
        where = (
            f"topic='{cause['topic']}', partition={cause['partition'] or 0}, "
            f"offset={cause['position']}, timestamp={millis}, "
            "timestampType=CreateTime"
        )
        return (
            f"{text}, where consumed record is {{{where}}}. "
            f"{cause['exception']}: {cause['message']}"
        )


@dataclass(frozen=True, slots=True)
class ToleranceLimits:
    """The tolerance limits of a connector, checked separately for each of its tasks.

    Args:
        count: The maximum number of rejected records; None for no limit.
        share: The maximum share of the read records that may be rejected, 0 to 1; None for
            no limit.
        window: The time over which both are checked, up to the start of the checked batch;
            None for the time since the task first ran.
    """

    count: int | None = None
    share: float | None = None
    window: timedelta | None = None

    @property
    def are_set(self) -> bool:
        return self.count is not None or self.share is not None

    def exceeded(self, counts: Counts) -> str | None:
        """Return a message if a limit is exceeded, otherwise None."""
        since = f" within {self.window.total_seconds():g} s" if self.window else " so far"
        text = f"{counts.rejected} of {counts.read} records were rejected{since}"
        if self.count is not None and counts.rejected > self.count:
            return f"{text}; errors.tolerance.max.count allows {self.count}."
        if self.share is not None and counts.rejected > self.share * counts.read:
            return f"{text}; errors.tolerance.max.share allows {self.share:g} of them."
        return None
