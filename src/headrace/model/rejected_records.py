"""Rejected records: how many are tolerated, and what the log says of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from headrace.model.batch import Counts


MOST_LINES = 10
"""Lines for one batch; a thousand bad records have one cause more often than a thousand."""


@dataclass(frozen=True, slots=True)
class ErrorLog:
    """Writes at most ``MOST_LINES`` lines for a batch, and says once how many it left out.

    Args:
        say: Writes one line.
        messages: Whether a line tells the record's place and the error's text, which
            may quote the record (``errors.log.include.messages``).
    """

    say: Callable[[str], object]
    messages: bool = False

    def log(self, causes: Sequence[Mapping[str, Any]], rejected: int) -> None:
        """Log the rejected records of a batch, given some and how many there are in all.

        Each has the fields of ``CAUSE`` in ``headrace.topics.rows``, and ``timestamp``.
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
    """The limits of a connector, each judged for each of its tasks.

    Args:
        count: The most records that may be rejected; None for any number.
        share: The most of what was read that may be rejected, 0 to 1; None for all.
        window: Over which time both are judged, up to the start of the batch that is
            judged; None: since the task first ran.
    """

    count: int | None = None
    share: float | None = None
    window: timedelta | None = None

    @property
    def are_set(self) -> bool:
        return self.count is not None or self.share is not None

    def exceeded(self, counts: Counts) -> str | None:
        """Return what is exceeded, as a sentence, or None."""
        since = f" within {self.window.total_seconds():g} s" if self.window else " so far"
        text = f"{counts.rejected} of {counts.read} records were rejected{since}"
        if self.count is not None and counts.rejected > self.count:
            return f"{text}; errors.tolerance.max.count allows {self.count}."
        if self.share is not None and counts.rejected > self.share * counts.read:
            return f"{text}; errors.tolerance.max.share allows {self.share:g} of them."
        return None
