"""Rejected records: the tolerated number, and the log lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from headrace.model.batch import Counts


MOST_LINES = 10
"""The maximum log lines per batch: many bad records usually have the same cause."""


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
                ``headrace.topics.rows``, and ``timestamp``.
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
