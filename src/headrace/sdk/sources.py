"""The gears of a source, and its connector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk.boundaries import Boundaries, BoundaryKind
from headrace.sdk.config import Config
from headrace.sdk.connector import (
    Connector,
    ConnectorContext,
    Task,
)
from headrace.sdk.errors import ConfigError
from headrace.sdk.position import Lag, Position, ReadLimit
from headrace.sdk.record import Record

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.schema import Schema
    from headrace.sdk.table_rows import TableRows


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
    def origin(cls, config: Config) -> str:
        """Return what a configuration reads, such as a path or the address of a database.

        What has begun to read one origin does not go on at another, where its positions mean
        something else. So it must say the same as long as they mean the same: what is tuned, or
        how one gets there and logs in, is not part of it. It is never shown, and must not
        connect. The default is nothing.
        """
        return ""

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
    def is_ordered(cls, config: Config) -> bool:
        """Return whether windows have to be read in their order, each once.

        So it is where records are changes of rows: an older one would undo a newer one. By
        default they may be read in any order.
        """
        return False

    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that reads what lies in boundaries and has ended then.

        An offline job runs with it, for each of its windows. Windows that have a bound in
        common share no row, whenever they run and in whatever order. Called as a job is made,
        too, so it must not connect. Bounds are of one of ``boundary_kinds``.

        Raises ConfigError: the configuration lacks what bounds need, such as a column.
        """
        raise NotImplementedError

    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that reads on from a lower bound in real time.

        It reads what windows of ``fill_in_boundaries`` that end there have left, each row once,
        and goes on with what comes. A job that was offline does so once it is in real time.
        Like that method it must not connect; the boundaries have no upper bound.

        Raises ConfigError: that is not possible, which is the default.
        """
        raise ConfigError(
            problem="The source cannot go on in real time where an offline job has stood.",
            fix="Make another job in real time; it reads from the beginning.",
            field="mode",
        )
