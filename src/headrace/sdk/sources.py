"""The gears of a source, bases for the common cases, and a source as a function."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, overload

from typing_extensions import override

from headrace.sdk.boundaries import Boundaries, BoundaryKind
from headrace.sdk.config import Config, Settings
from headrace.sdk.connector import (
    Connector,
    ConnectorContext,
    DeliveryGuarantee,
    Task,
    TaskContext,
)
from headrace.sdk.errors import SourceError
from headrace.sdk.position import Lag, Position, ReadLimit, check_range
from headrace.sdk.record import Record

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.schema import Schema
    from headrace.sdk.table_rows import TableRows

    Rows: TypeAlias = pa.RecordBatch | Sequence[Mapping[str, Any]]
    SourceFunction: TypeAlias = Callable[
        [Any, Any], Iterable[Mapping[str, Any] | pa.RecordBatch | pa.Table]
    ]
    _Piece: TypeAlias = Mapping[str, Any] | pa.RecordBatch


class SourceTask(Task):
    """A running part of a source; see the gears below for what it does."""

    def ended(self, position: Position) -> bool:
        """Return whether nothing can come after ``position`` any more.

        Asked where ``latest`` or ``poll`` gave nothing: a source whose next rows have only
        to be waited for has not ended.
        """
        return False


class ReplayableSource(SourceTask):
    """A source that can read the same range again: the frame and split gears."""

    @abstractmethod
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Return the end of the next batch that begins at ``start``.

        Equal to ``start`` when nothing new is there. It should stay within ``limit.rows`` and
        ``limit.size_bytes`` but always make progress, and never passes ``limit.until``. Without
        rows and bytes in the limit it is the end of all that is there. ``Position()`` is the
        very beginning. Called before every batch and by idle polling, so it must be cheap.
        """

    def size_bytes(self, start: Position, end: Position) -> int | None:
        """Return the size of the range's input, or None when it is not known cheaply."""
        return None

    def rows(self, start: Position, end: Position) -> int | None:
        """Return how many records the range holds, or None when that is not known cheaply.

        It must be exact: the balance of the batch is drawn from it (Guarantee 4).
        """
        return None

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """Return how much lies between ``start`` and all that is there, or ``until``.

        Called now and then while batches run, so it must be cheap.
        """
        end = self.latest(start, ReadLimit(until=until))
        return Lag(self.rows(start, end), self.size_bytes(start, end))

    def measured_lag(self) -> Lag | None:
        """Return how far the task is behind, as the source measures it by itself.

        Asked by any thread while the task runs, also while a batch waits for its sinks, so it
        may not wait for anything. None, the default, to have ``lag`` asked as batches begin.
        """
        return None

    def acknowledge(self, position: Position) -> None:
        """Learn that everything up to ``position`` is durable in the target.

        Called after each finished batch and again after a restart: it must be idempotent.
        """


@dataclass(frozen=True, slots=True)
class ArrowParts:
    """The rows of a range as Arrow, in parts that executors read.

    Args:
        schema: Of the rows, a STRUCT; or of the one column that they have.
        parts: What each Spark partition reads, in the order of the rows; they are pickled.
        read: Yields the rows of a part, and with them texts that are not rows, each with the
            reason; it is pickled too.
        plugin: What dead letters call the source.
        raw: Readers of a part as bytes, by the name of the format, for a sink that takes the
            same format as it is, see ``ArrowWrite.raw``. The name says all that both have to
            agree about, such as the types of the columns. They are pickled.
    """

    schema: Schema
    parts: Sequence[Any]
    read: Callable[[Any], Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]]
    plugin: str
    raw: Mapping[str, Callable[[Any], Iterator[bytes]]] = field(default_factory=dict)


class FrameSource(ReplayableSource):
    """Reads what Spark reads natively, as a DataFrame."""

    reader: str | None = None
    """What reads the last range, and why, for a person who looks at a preview."""

    @abstractmethod
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        """Return the records after ``start`` up to and including ``end``.

        The frame has a column ``value`` (the row as a struct, or a single value) and
        may have ``key``, ``headers``, ``timestamp``, ``partition`` and ``error``
        (see ``headrace.sdk.sqltext``). The same range must give the same rows again;
        raise DataLostError when that is no longer possible, and StateError for a range of
        partitions that this task does not read (see ``check_range``): an unfinished batch
        outlives a change of the configuration. It must not run a job.
        """

    def arrow_parts(
        self, spark: SparkSession, start: Position, end: Position
    ) -> ArrowParts | None:
        """Return the records of ``read`` as Arrow, where executors read them in Python.

        The runtime then makes the frame, or gives the rows to sinks that take Arrow without
        a way through the JVM. A job may run that looks at the range. None, the default, where
        Spark reads them.
        """
        return None

    def require_unchanged(self, start: Position, end: Position) -> None:
        """Look again at a range that has been read, before any of it becomes visible.

        Raises RangeChangedError: what was read may not be what there was when the batch was
        planned, as a file has been replaced. Nothing by default, where a range cannot change.
        """

    def read_strict(
        self, spark: SparkSession, start: Position, end: Position
    ) -> DataFrame | None:
        """Return the records of ``read`` in a frame that has no ``error`` and fails instead.

        Asked of a task that tolerates no bad record, where that is cheaper. It must fail for
        the same records, whichever columns are used. When a job fails, ``read`` is asked for
        the reason. None, the default, when there is no such frame.
        """
        return None


@dataclass(frozen=True, slots=True)
class StreamRows:
    """The rows of one stream in a range; see ``StreamFrameSource``.

    Args:
        stream: The stream's name, which is the topic of its records.
        rows: Its rows: as Arrow where executors read them in Python, else a frame as
            ``FrameSource.read`` returns one. No row of them may be in another ``StreamRows``.
        count: How many there are, where that is known exactly without reading them.
        continues: Whether they go on with what an earlier batch has begun, as the next part of
            a table does: a sink that replaces what its target holds adds them.
        size_bytes: How large they are about, where that is known.
        inserts: Whether each is a row by itself, or a change that creates or reads one, and no
            key is there twice: then no order of them counts.
    """

    stream: str
    rows: ArrowParts | DataFrame
    count: int | None = None
    continues: bool = False
    size_bytes: int | None = None
    inserts: bool = False


class StreamFrameSource(ReplayableSource):
    """Reads many streams whose schemas it knows before it reads, such as a database's tables.

    Each stream keeps its own schema: it goes to sinks by itself, under a mark of its own, and
    into a topic packed with the others. Unlike a StreamSplitSource it says which part of a
    range belongs to which stream, so that none is read for another.
    """

    @abstractmethod
    def streams(
        self, spark: SparkSession, start: Position, end: Position
    ) -> Sequence[StreamRows]:
        """Return the streams that have rows in the range, in the order they are written in.

        Each at most once; see ``FrameSource.read`` for what holds of a range. No job may run.
        """


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a range, read by one Spark partition. JSON values only.

    Args:
        payload: What ``read`` needs to find the part.
        rows: Expected number of rows, if known; used for progress only.
    """

    payload: Mapping[str, object]
    rows: int | None = None


class SplitSource(ReplayableSource):
    """Plans parts in Python and reads each as Arrow batches on an executor.

    The task object itself is pickled to the executors after ``start``: keep
    connections out of its state, or drop them in ``__getstate__``.
    """

    @abstractmethod
    def schema(self) -> Schema:
        """Return the schema of the rows, a STRUCT. It may change between batches."""

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range; the same range gives the same splits again.

        Raises as ``FrameSource.read`` does: a range that cannot be read is never empty.
        """

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, on an executor.

        May run more than once, also at the same time, for one split, and must give
        the same rows. Raises RetriableError when the system is busy: before the first
        ``yield`` the runtime reads this split again, up to five times within some ten
        seconds, or after ``after`` where that is no longer than half a minute. After a
        ``yield`` the whole batch runs again, as rows that were given cannot be taken back.
        So plan one request for each split, or try the later ones again here.
        """


class StreamSplitSource(ReplayableSource):
    """A split source that carries many streams, each with another schema.

    Its batches travel packed (Arrow IPC bytes in one row), so that types stay exact
    and any stream's schema may change in mid-stream.
    """

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range; see ``SplitSource.splits``."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield ``(stream, rows)`` of one split, oldest first; see ``SplitSource.read``."""


@dataclass(frozen=True, slots=True)
class CapturedBatch:
    """What a capture hands over at once, in Arrow instead of single records.

    Args:
        values: The rows; each becomes the value of a record.
        topic: The topic to append to; None for the connector's own.
        scalar: Whether the single column is the value itself and not a field of it.
        rejected: Raw input that could not be read, with the reason for each.
    """

    values: pa.RecordBatch
    position: Position
    topic: str | None = None
    scalar: bool = False
    rejected: Sequence[tuple[bytes, str]] = field(default=())


class CaptureSource(SourceTask):
    """Kafka Connect's SourceTask: polled in a thread of a plugin host process.

    For what cannot be read again: a queue, a webhook, a growing file. What ``poll``
    returns is appended to a topic exactly once, together with its position.
    """

    @abstractmethod
    def poll(self) -> Sequence[Record] | CapturedBatch | None:
        """Return what is new, or None (or nothing) when there is nothing yet.

        May block for up to a second. What one call returns is appended in one transaction.
        """

    def commit(self, position: Position) -> None:
        """Learn that everything up to ``position`` is durable in its topic."""

    def commit_record(self, record: Record) -> None:
        """Learn that one record is durable. Only called for records, after each poll."""


Gear = FrameSource | SplitSource | StreamFrameSource | StreamSplitSource | CaptureSource
"""What a source's task is, one of."""


class SourceConnector(Connector):
    """A connector that reads a system.

    The runtime makes one with no arguments, calls ``start`` once, then ``task_configs``, and
    ``stop`` at the end, one call at a time. Tasks are made of their configurations, without
    the connector, wherever they run.

    On a server it lives as long as it is to run, and ``task_configs`` is called again when
    it asks its context for that: tasks whose configuration stays run on, the others are
    restarted. Positions belong to a task's number: what a task reads must keep its
    number, so new things come last, or in tasks of their own.
    """

    row_keys: ClassVar[tuple[str, ...]] = ()
    """The keys that decide which rows a range gives, and what is in them, such as a schema or
    a dialect; not those that say where the range is, how large it is or how fast it is read. A
    batch that some of its sinks hold is not read again while one of these has another value,
    as the other sinks would get other rows."""
    boundary_kinds: ClassVar[frozenset[BoundaryKind]] = frozenset()
    """The kinds of boundaries that ``fill_in_boundaries`` takes."""

    def start(self, config: Config, context: ConnectorContext) -> None:
        """Keep the parsed configuration; connect to what planning needs."""
        self.config = config
        self.context = context

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the work into at most ``max_tasks`` task configurations; by default one."""
        return [dict(self.config.originals)]

    @classmethod
    @abstractmethod
    def task_class(cls, config: Config) -> type[Gear]:
        """Return the class of the tasks with a configuration: Kafka Connect's ``taskClass``."""

    @classmethod
    def task(cls, config: Config) -> Gear:
        """Make the task for one of the ``task_configs``, parsed."""
        return cls.task_class(config)(config)

    def stop(self) -> None:
        """Let go of what ``start`` took. Called once, also after a failed start."""

    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows] | None:
        """Return what a configuration reads now, a table for each stream, for ``verify``.

        None, the default, for a source that is no set of tables, such as a queue.
        """
        return None

    @classmethod
    def position_at(cls, config: Config, position: Position, time: datetime) -> Position | None:
        """Return where a task goes that is to read again what came at ``time`` or later.

        Called when a person rewinds a connector that is stopped, for each of its tasks, with
        where the task stands. None says that the source cannot tell: the task goes back to
        where it stood at that time, as its batches tell.
        """
        return None

    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that reads what lies in boundaries and has ended then.

        An offline job runs with it, for each of its windows. Windows that have a bound in
        common share no row, whenever they run and in whatever order. Called as a job is made,
        too, so it must not connect. Bounds are of one of ``boundary_kinds``.

        Raises ConfigError: the configuration lacks what bounds need, such as a column.
        """
        raise NotImplementedError


_OFFSET = "number"
_CURSOR = "cursor"


class NumberedSource(SplitSource):
    """A split source whose records have whole numbers that grow, such as ids.

    Its position is the number of the last record that was read. Numbers may have gaps; what
    is added later must have a higher number than all that ``last_number`` has returned.
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

        ``after`` is the number of the last record that was read, 0 at the beginning; the batch
        has no number beyond ``until``, and at most ``limit`` records.
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
    """Return rows as a capture hands them over, with where it stands after them."""
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
    """What a system gave at once: rows, and the cursor of the next page, None for the end.

    The schema of rows that are mappings is inferred.
    """

    rows: Rows
    cursor: str | None


class PagedSource(CaptureSource):
    """A capture of pages that are asked for with an opaque cursor, as those of most APIs.

    Its position is the cursor of the next page, kept with the rows of the page before it.
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
    """Gathers what a function yields, and calls it again once it has ended."""

    function: ClassVar[SourceFunction]
    cursor: ClassVar[str | None]
    schema: ClassVar[Schema | None]
    partition: ClassVar[Mapping[str, str]] = {"rows": "all"}

    _pieces: Iterator[_Piece] | None = None
    _held: _Piece | None = None
    """The first piece of the next poll."""
    _seen: Any = None
    """The last cursor that this call of the function gave."""

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
            self._pieces = None  # called again, it goes on after what was taken
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
        """Return the rows of a poll. Those with the same cursor stay together."""
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
        """Return what comes after the rows that were taken; None for nothing."""
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
    """Return rows in one piece: mappings as they are, or one Arrow batch of all."""
    arrow = [piece for piece in pieces if not isinstance(piece, Mapping)]
    if not arrow:
        return pieces
    if len(arrow) < len(pieces):
        problem = "Mappings and Arrow tables are mixed."
        raise SourceError(problem, fix="Yield either.")
    import pyarrow as pa  # noqa: PLC0415 - listing plugins does not wait for it

    return pa.concat_batches(arrow)


class _FunctionSource(SourceConnector):
    """What ``source`` makes of a function."""

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
    """Make a source connector of a function that yields rows.

        @source(cursor="id")
        def orders(settings: Settings, after: int | None) -> Iterator[Mapping[str, Any]]:
            yield from shop.orders(since=after)

    The function is called with the settings and where to continue, and yields rows as
    mappings, Arrow batches or Arrow tables, until there are no more at present. It is called
    again for those that come later, and after a restart or an error. Its docstring describes
    the connector. What it yields is captured, as by any ``CaptureSource``: appended to a topic
    exactly once, with the position. It raises RetriableError when the system is busy.

    Args:
        function: The function.
        cursor: The field that grows from row to row, an integer or a string; rows must come in
            its order, and none later with a value that was given. The function is called with
            the value of the last row that was taken, None at first, and rows up to it are left
            out if they come again. Without a cursor it is called with the number of rows that
            were taken, and begins after so many.
        schema: The schema of mappings, a STRUCT; None to infer it from their values.
        settings: The class of its settings.
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
