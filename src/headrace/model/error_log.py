"""Says in the log which records were rejected, in Kafka Connect's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

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

    def tell(self, causes: Sequence[Mapping[str, Any]], rejected: int) -> None:
        """Tell of a batch.

        Args:
            causes: At most ``MOST_LINES`` of its rejected records: the fields of
                ``CAUSE`` in ``headrace.topics.letters``, and ``timestamp``.
            rejected: How many there are in all.
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
        where = (
            f"topic='{cause['topic']}', partition={cause['partition'] or 0}, "
            f"offset={cause['position']}, timestamp={_millis(cause['timestamp'])}, "
            "timestampType=CreateTime"
        )
        return (
            f"{text}, where consumed record is {{{where}}}. "
            f"{cause['exception']}: {cause['message']}"
        )


def _millis(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)
