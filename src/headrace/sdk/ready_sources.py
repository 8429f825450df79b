"""Base classes for common sources, and a decorator that turns a function into a source."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, overload

from typing_extensions import override

from headrace.sdk.config import Config, Settings
from headrace.sdk.connector import DeliveryGuarantee, TaskContext
from headrace.sdk.errors import SourceError
from headrace.sdk.position import Position, ReadLimit, check_range
from headrace.sdk.record import Record
from headrace.sdk.sources import (
    CapturedBatch,
    CaptureSource,
    Gear,
    SourceConnector,
    Split,
    SplitSource,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sdk.schema import Schema

    Rows: TypeAlias = pa.RecordBatch | Sequence[Mapping[str, Any]]
    SourceFunction: TypeAlias = Callable[
        [Any, Any], Iterable[Mapping[str, Any] | pa.RecordBatch | pa.Table]
    ]
    _Piece: TypeAlias = Mapping[str, Any] | pa.RecordBatch


_OFFSET = "number"
_CURSOR = "cursor"


class NumberedSource(SplitSource):
    """A split source whose records have increasing integers, such as ids.

    Its position is the number of the last record read. Numbers may have gaps; records added
    later must have higher numbers than all that ``last_number`` has returned.
    """

    split_size: ClassVar[int] = 100_000
    """The range of numbers in one split."""

    @property
    @abstractmethod
    def partition(self) -> Mapping[str, str]:
        """The source partition, such as ``{"table": "events"}``; each has its own position."""

    @abstractmethod
    def last_number(self, after: int, until: int | None, limit: int | None) -> int | None:
        """Return the number of the last record of the next batch; None if nothing is new.

        ``after`` is the number of the last record read, 0 at the beginning; the batch must not
        contain numbers above ``until``, nor more than ``limit`` records.
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


def _captured(
    rows: Rows,
    partition: Mapping[str, str],
    offset: Mapping[str, Any],
    schema: Schema | None = None,
) -> CapturedBatch | Sequence[Record]:
    """Return rows in the form that a capture returns, with the position after them."""
    if not len(rows):  # an empty batch moves the position too
        import pyarrow as pa  # noqa: PLC0415 - listing plugins does not wait for it

        rows = pa.record_batch({})
    if not isinstance(rows, Sequence):
        return CapturedBatch(rows, Position.of(partition, offset))
    record = Record(
        "", None, value_schema=schema, source_partition=partition, source_offset=offset
    )
    return [replace(record, value=row) for row in rows]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of results: rows, and the cursor of the next page; None at the end.

    If the rows are mappings, their schema is inferred.
    """

    rows: Rows
    cursor: str | None


class PagedSource(CaptureSource):
    """A capture of pages requested with an opaque cursor, as in most APIs.

    Its position is the cursor of the next page, stored with the rows of the previous page.
    """

    @property
    def partition(self) -> Mapping[str, str]:
        """The source partition; each has its own position."""
        return {"pages": "all"}

    @abstractmethod
    def page(self, cursor: str | None) -> Page | None:
        """Return the page at a cursor; the cursor None is the first page.

        Return None if nothing is new yet. May block for up to a second. Raises RetriableError
        if the system is busy.
        """

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._position = context.position()

    @override
    def poll(self) -> CapturedBatch | Sequence[Record] | None:
        if self.ended(self._position):
            return None
        offset = self._position.offset(self.partition)
        page = self.page(None if offset is None else offset[_CURSOR])
        if page is None:
            return None
        offset = {_CURSOR: page.cursor}
        self._position = Position.of(self.partition, offset)
        return _captured(page.rows, self.partition, offset)

    @override
    def ended(self, position: Position) -> bool:
        return position.offset(self.partition) == {_CURSOR: None}


_CHUNK_ROWS, _CHUNK_SECONDS = 10_000, 1.0


class _FunctionTask(CaptureSource):
    """Collects the rows that a function yields, and calls it again after it ends."""

    function: ClassVar[SourceFunction]
    cursor: ClassVar[str | None]
    schema: ClassVar[Schema | None]
    partition: ClassVar[Mapping[str, str]] = {"rows": "all"}

    _pieces: Iterator[_Piece] | None = None
    _held: _Piece | None = None
    """The first piece of the next poll."""
    _seen: Any = None
    """The last cursor value that this call of the function yielded."""

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        offset = context.position().offset(self.partition)
        first = None if self.cursor else 0
        self._after: Any = first if offset is None else offset[_CURSOR]

    @override
    def poll(self) -> CapturedBatch | Sequence[Record] | None:
        if self._pieces is None:
            self._held = self._seen = None
            self._pieces = _pieces(type(self).function(self.settings, self._after))
        try:
            pieces = self._gathered(self._pieces)
        except BaseException:
            self._pieces = None  # the next call continues after the rows already returned
            raise
        if not pieces:
            return None
        rows = _joined(pieces)
        self._after = self._cursors(pieces[-1])[-1] if self.cursor else self._after + len(rows)
        return _captured(rows, self.partition, {_CURSOR: self._after}, self.schema)

    @override
    def stop(self) -> None:
        self._pieces = self._held = None

    def _gathered(self, pieces: Iterator[_Piece]) -> list[_Piece]:
        """Return the rows of a poll. Rows with the same cursor value stay together."""
        found: list[_Piece] = []
        end = time.monotonic() + _CHUNK_SECONDS
        while (piece := self._held or next(pieces, None)) is not None:
            self._held = None
            if (new := self._new(piece)) is None:
                continue
            full = len(found) >= _CHUNK_ROWS or time.monotonic() > end
            if found and (full or not isinstance(found[-1], Mapping)):
                cursors = [] if self.cursor is None else self._cursors(found[-1])
                if not cursors or cursors[-1] != self._cursors(new)[0]:
                    self._held = new
                    return found
            found.append(new)
        self._pieces = None
        return found

    def _new(self, piece: _Piece) -> _Piece | None:
        """Return the rows after those already returned; None if there are none."""
        if self.cursor is None:
            return piece if len(piece) else None
        cursors = self._cursors(piece)
        for cursor in cursors:
            if self._seen is not None and (
                type(cursor) is not type(self._seen) or cursor < self._seen
            ):
                problem = (
                    f"Invalid order of rows: {self.cursor} {cursor!r} after {self._seen!r}."
                )
                fix = f"Yield rows in ascending order of {self.cursor}."
                raise SourceError(problem, fix=fix, field=self.cursor)
            self._seen = cursor
        known = 0 if self._after is None else sum(each <= self._after for each in cursors)
        if known == len(cursors):
            return None
        return piece if isinstance(piece, Mapping) else piece.slice(known)

    def _cursors(self, piece: _Piece) -> list[Any]:
        assert self.cursor is not None
        if isinstance(piece, Mapping):
            found = [piece.get(self.cursor)]
        else:
            here = self.cursor in piece.schema.names
            found = piece.column(self.cursor).to_pylist() if here else [None]
        for cursor in found:
            if not isinstance(cursor, int | str):
                problem = f"Expected an integer or a string in {self.cursor}, got {cursor!r}."
                raise SourceError(problem, field=self.cursor)
        return found


def _pieces(items: Iterable[Mapping[str, Any] | pa.RecordBatch | pa.Table]) -> Iterator[_Piece]:
    for item in items:
        if hasattr(item, "to_batches"):
            yield from item.to_batches()
        else:
            yield item


def _joined(pieces: Sequence[_Piece]) -> Rows:
    """Return rows as one piece: mappings unchanged, or a single Arrow batch."""
    arrow = [piece for piece in pieces if not isinstance(piece, Mapping)]
    if not arrow:
        return pieces
    if len(arrow) < len(pieces):
        problem = "Mappings and Arrow tables are mixed."
        raise SourceError(problem, fix="Yield only mappings or only Arrow data.")
    import pyarrow as pa  # noqa: PLC0415 - listing plugins does not wait for it

    return pa.concat_batches(arrow)


class _FunctionSource(SourceConnector):
    """Base class of the connectors that ``source`` creates."""

    delivery = DeliveryGuarantee.EXACTLY_ONCE
    function_task: ClassVar[type[_FunctionTask]]

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[Gear]:
        return cls.function_task


@overload
def source(function: SourceFunction, /) -> type[SourceConnector]: ...


@overload
def source(
    *,
    cursor: str | None = None,
    schema: Schema | None = None,
    settings: type[Settings] = Settings,
    version: str = "0",
) -> Callable[[SourceFunction], type[SourceConnector]]: ...


def source(
    function: SourceFunction | None = None,
    /,
    *,
    cursor: str | None = None,
    schema: Schema | None = None,
    settings: type[Settings] = Settings,
    version: str = "0",
) -> type[SourceConnector] | Callable[[SourceFunction], type[SourceConnector]]:
    """Create a source connector from a function that yields rows.

        @source(cursor="id")
        def orders(settings: Settings, after: int | None) -> Iterator[Mapping[str, Any]]:
            yield from shop.orders(since=after)

    The function is called with the settings and the point to continue from, and yields rows as
    mappings, Arrow batches or Arrow tables, until no more rows are available. It is called
    again for later rows, and after a restart or an error. Its docstring describes the
    connector. The rows are captured like those of any ``CaptureSource``: appended to a topic
    exactly once, with the position. It may raise RetriableError if the system is busy.

    Args:
        function: The function.
        cursor: The field that increases from row to row, an integer or a string. Rows must be
            in its order, and later rows must not reuse a value. The function is called with the
            value of the last row captured, None at first; rows up to that value are skipped if
            they are yielded again. Without a cursor, the function is called with the number of
            rows captured so far, and must begin after that many rows.
        schema: The schema of mappings, a STRUCT; None to infer it from their values.
        settings: The settings class.
        version: The version of the connector.
    """

    def made(function: SourceFunction) -> type[SourceConnector]:
        names = {
            "__module__": function.__module__,
            "__doc__": function.__doc__,
            "__annotations__": {"settings": settings},
        }
        task = {"function": staticmethod(function), "cursor": cursor, "schema": schema}
        kind = type(f"{function.__name__}_task", (_FunctionTask,), names | task)
        connector = {
            "__qualname__": function.__qualname__,
            "version": version,
            "function_task": kind,
        }
        return type(function.__name__, (_FunctionSource,), names | connector)

    return made if function is None else made(function)
