"""What a capture has polled and not yet appended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.sdk import CapturedBatch, Position, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.capture.spec import Pace

Polled = CapturedBatch | list[Record]
"""What one poll gave."""


@dataclass(slots=True)
class Gathering:
    """The polls since the last append, in order, and where the source stands after them.

    Args:
        start: Where it stood before them.
    """

    start: Position
    end: Position = field(init=False)
    polls: list[Polled] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        """Stand at the start."""
        self.end = self.start

    def add(self, polled: CapturedBatch | Sequence[Record]) -> None:
        """Take what one poll gave."""
        if isinstance(polled, CapturedBatch):
            self.polls.append(polled)
            self.end = polled.position
            self.rows += polled.values.num_rows + len(polled.rejected)
            self.size_bytes += polled.values.nbytes
            return
        self.polls.append(list(polled))
        self.end = self.end.merged(_stand(polled))
        self.rows += len(polled)

    @property
    def records(self) -> list[Record]:
        """Return the single records, in order."""
        return [r for polled in self.polls if isinstance(polled, list) for r in polled]

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to append and nothing to remember."""
        return not self.rows and self.end == self.start

    def full(self, pace: Pace) -> bool:
        """Return whether it is time to append, however recent the last append is."""
        return self.rows >= pace.max_rows or self.size_bytes >= pace.max_bytes


def _stand(records: Sequence[Record]) -> Position:
    """Return the newest offset of each source partition.

    Partitions are told apart by identity first, which spares writing each as JSON.
    """
    newest: dict[int, Record] = {}
    for record in records:
        newest.pop(id(record.source_partition), None)
        newest[id(record.source_partition)] = record
    return Position(
        (r.source_partition, r.source_offset)
        for r in newest.values()
        if r.source_partition is not None and r.source_offset is not None
    )
