"""Bases for sources whose positions are one number, or one cursor."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk.position import Position, check_range
from headrace.sdk.source import CapturedBatch, CaptureSource, Split, SplitSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.sdk.connector import TaskContext
    from headrace.sdk.position import ReadLimit

_OFFSET = "number"
_CURSOR = "cursor"


class NumberedSource(SplitSource):
    """A split source whose records have whole numbers that grow, such as ids.

    Its position is the number of the last record that was read. Numbers may have gaps; what
    is added later must have a higher number than all that ``last_number`` has told of.
    """

    split_size: ClassVar[int] = 100_000
    """How many numbers a split has."""

    @property
    @abstractmethod
    def partition(self) -> Mapping[str, str]:
        """What is read, such as ``{"table": "events"}``: a position is kept for each."""

    @abstractmethod
    def last_number(self, after: int, until: int | None, limit: int | None) -> int | None:
        """Return the number of the last record of the next batch; None if nothing is new.

        Args:
            after: The number of the last record that was read; 0 at the beginning.
            until: The batch has no number beyond this one.
            limit: The most records of the batch.
        """

    @abstractmethod
    def read_numbers(self, after: int, to: int) -> Iterator[pa.RecordBatch]:
        """Yield the records with ``after`` < number <= ``to``; see ``SplitSource.read``."""

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        until = None if limit.until is None else self.number(limit.until)
        last = self.last_number(self.number(start), until, limit.rows)
        return start if last is None else Position.of(self.partition, {_OFFSET: last})

    @override
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        check_range(start, end, [self.partition])
        first, last, size = self.number(start), self.number(end), self.split_size
        return [
            Split({"after": after, "to": min(after + size, last)})
            for after in range(first, last, size)
        ]

    @override
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        after, to = (int(str(split.payload[name])) for name in ("after", "to"))
        return self.read_numbers(after, to)

    def number(self, position: Position) -> int:
        """Return the number of the last record before a position."""
        return int((position.offset(self.partition) or {_OFFSET: 0})[_OFFSET])


@dataclass(frozen=True, slots=True)
class Page:
    """What a system gave at once.

    Args:
        rows: Its rows.
        cursor: What to ask with for the page after it; None if nothing can come any more.
    """

    rows: pa.RecordBatch
    cursor: str | None


class PagedSource(CaptureSource):
    """A capture of pages that are asked for with an opaque cursor, as those of most APIs.

    Its position is the cursor of the next page, kept with the rows of the page before it. No
    page is asked for before the one in front of it was taken.
    """

    @property
    def partition(self) -> Mapping[str, str]:
        """What is read; a position is kept for each."""
        return {"pages": "all"}

    @abstractmethod
    def page(self, cursor: str | None) -> Page | None:
        """Return the page at a cursor, the first at None; None where nothing is new yet.

        May block for up to a second. Raises RetriableError when the system is busy.
        """

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._position = context.position()

    @override
    def poll(self) -> CapturedBatch | None:
        if self.ended(self._position):
            return None
        offset = self._position.offset(self.partition)
        page = self.page(None if offset is None else offset[_CURSOR])
        if page is None:
            return None
        self._position = Position.of(self.partition, {_CURSOR: page.cursor})
        return CapturedBatch(page.rows, self._position)

    @override
    def ended(self, position: Position) -> bool:
        return position.offset(self.partition) == {_CURSOR: None}
