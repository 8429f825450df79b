"""Base classes of source tasks (the gears) and of source connectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk.config import Config
from headrace.sdk.connector import (
    Connector,
    ConnectorContext,
    Task,
)
from headrace.sdk.errors import ConfigError
from headrace.sdk.position import Boundaries, BoundaryKind, Lag, Position, ReadLimit
from headrace.sdk.record import Record

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.schema import Schema
    from headrace.sdk.tables import TableRows


class SourceTask(Task):
    """A running task of a source; the gears below define its methods."""

    def ended(self, position: Position) -> bool:
        """Return whether no more records can follow ``position``.

        Called after ``latest`` or ``poll`` returned nothing new. A source that may receive rows
        later has not ended.
        """
        return False


class ReplayableSource(SourceTask):
    """A source that can read the same range again: base class of the frame and split gears."""

    @abstractmethod
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Return the end position of the next batch, which begins at ``start``.

        Return ``start`` if there are no new records. The batch should stay within
        ``limit.rows`` and ``limit.size_bytes`` but must always make progress, and must never
        pass ``limit.until``. If the limit has neither rows nor bytes, return the end of all
        available records. ``Position()`` is the beginning of the source. Called before every
        batch and by idle polling, so it must be cheap.
        """

    def size_bytes(self, start: Position, end: Position) -> int | None:
        """Return the input size of the range, or None if computing it is not cheap."""
        return None

    def rows(self, start: Position, end: Position) -> int | None:
        """Return the number of records in the range, or None if computing it is not cheap.

        It must be exact: the balance of the batch is computed from it (Guarantee 4).
        """
        return None

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """Return the lag from ``start`` to ``until``, or to the end of all available records.

        Called periodically while batches run, so it must be cheap.
        """
        end = self.latest(start, ReadLimit(until=until))
        return Lag(self.rows(start, end), self.size_bytes(start, end))

    def measured_lag(self) -> Lag | None:
        """Return the task's lag as measured by the source itself.

        Any thread may call it while the task runs, also while a batch waits for its sinks, so
        it must not block. If it returns None (the default), the runtime calls ``lag`` when
        batches begin.
        """
        return None

    def acknowledge(self, position: Position) -> None:
        """Acknowledge that everything up to ``position`` is durable in the target.

        Called after each finished batch and again after a restart, so it must be idempotent.
        """


@dataclass(frozen=True, slots=True)
class ArrowParts:
    """The rows of a range as Arrow, in parts that executors read.

    Args:
        schema: The schema of the rows: a STRUCT, or the schema of their single column.
        parts: The input of each Spark partition, in row order; pickled.
        read: Yields the rows of a part, together with the raw texts that could not be parsed
            as rows, each with the reason; pickled.
        plugin: The name of the source in dead letters.
        raw: Functions that read a part as bytes, by format name, for a sink that accepts the
            same format unchanged; see ``ArrowWrite.raw``. The format name must cover everything
            that both sides have to agree on, such as the column types. Pickled.
    """

    schema: Schema
    parts: Sequence[Any]
    read: Callable[[Any], Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]]
    plugin: str
    raw: Mapping[str, Callable[[Any], Iterator[bytes]]] = field(default_factory=dict)


class FrameSource(ReplayableSource):
    """A source that returns Spark DataFrames, for formats that Spark reads natively."""

    reader: str | None = None
    """Which reader read the last range, and why; shown in previews."""

    @abstractmethod
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        """Return the records after ``start`` up to and including ``end``.

        The frame has a column ``value`` (the row as a struct, or a single value) and
        may have ``key``, ``headers``, ``timestamp``, ``partition`` and ``error``
        (see ``headrace.sdk.sqltext``). The same range must return the same rows again. Raise
        DataLostError if that is no longer possible, and StateError for a range of partitions
        that this task does not read (see ``check_range``): an unfinished batch keeps its range
        when the configuration changes. It must not run a Spark job.
        """

    def arrow_parts(
        self, spark: SparkSession, start: Position, end: Position
    ) -> ArrowParts | None:
        """Return the records of ``read`` as Arrow, if executors read them in Python.

        The runtime then builds the frame, or passes the rows to sinks that accept Arrow,
        bypassing the JVM. It may run a Spark job to inspect the range. Return None (the
        default) if Spark reads the records.
        """
        return None

    def require_unchanged(self, start: Position, end: Position) -> None:
        """Check that a range did not change while it was read; called before the commit.

        Raises RangeChangedError: the data may differ from the data at the time the batch was
        planned, for example because a file was replaced. By default it does nothing, for
        sources whose ranges cannot change.
        """


@dataclass(frozen=True, slots=True)
class StreamRows:
    """The rows of one stream in a range; see ``StreamFrameSource``.

    Args:
        stream: The name of the stream, which is the topic of its records.
        rows: The rows: Arrow if executors read them in Python, else a frame as returned by
            ``FrameSource.read``. No row may be in another ``StreamRows``.
        count: The exact number of rows, if known without reading them.
        continues: Whether the rows continue data from an earlier batch, such as the next part
            of a table. A sink that replaces the data in its target then appends them.
        size_bytes: The approximate size of the rows, if known.
        inserts: Whether each record is a plain row or a change that creates or reads a row, and
            no key occurs twice. The order of the records then does not matter.
    """

    stream: str
    rows: ArrowParts | DataFrame
    count: int | None = None
    continues: bool = False
    size_bytes: int | None = None
    inserts: bool = False


class StreamFrameSource(ReplayableSource):
    """A source of many streams with schemas known before reading, such as database tables.

    Each stream has its own schema. Sinks receive each stream separately, with its own mark; in
    a topic the streams are packed together. Unlike a StreamSplitSource, it returns which part
    of a range belongs to which stream, so reading one stream never reads another.
    """

    @abstractmethod
    def streams(
        self, spark: SparkSession, start: Position, end: Position
    ) -> Sequence[StreamRows]:
        """Return the streams that have rows in the range, in the order to write them.

        Return each stream at most once. The rules for ranges of ``FrameSource.read`` apply. It
        must not run a Spark job.
        """


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a range, read by one Spark partition. JSON values only.

    Args:
        payload: The data that ``read`` needs to find the part.
        rows: The expected number of rows, if known; used for progress only.
    """

    payload: Mapping[str, object]
    rows: int | None = None


class SplitSource(ReplayableSource):
    """A source that plans splits in Python and reads each as Arrow batches on an executor.

    The task object itself is pickled to the executors after ``start``: keep
    connections out of its state, or drop them in ``__getstate__``.
    """

    @abstractmethod
    def schema(self) -> Schema:
        """Return the schema of the rows, a STRUCT. It may change between batches."""

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range into splits; the same range must return the same splits again.

        Raises the same errors as ``FrameSource.read``: a range that cannot be read is an error,
        not an empty list.
        """

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, on an executor.

        It may run more than once for the same split, also concurrently, and must yield the
        same rows. Raise RetriableError if the system is busy. Before the first ``yield``, the
        runtime retries this split, up to five times within about ten seconds, or after
        ``after`` if that is at most half a minute. After a ``yield`` the whole batch is
        retried, because rows already yielded cannot be taken back. So plan one request per
        split, or retry later requests in this method.
        """


class StreamSplitSource(ReplayableSource):
    """A split source of many streams with different schemas.

    Its Arrow batches are packed (Arrow IPC bytes in one row), so types stay exact and the
    schema of any stream may change mid-stream.
    """

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range; see ``SplitSource.splits``."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield ``(stream, rows)`` of one split, oldest first; see ``SplitSource.read``."""


@dataclass(frozen=True, slots=True)
class CapturedBatch:
    """Records that a capture returns as one Arrow batch instead of single records.

    Args:
        values: The rows; each becomes the value of a record.
        topic: The topic to append to; None for the connector's own topic.
        scalar: Whether the single column is the value itself rather than a field of it.
        rejected: Raw input that could not be parsed, each with the reason.
    """

    values: pa.RecordBatch
    position: Position
    topic: str | None = None
    scalar: bool = False
    rejected: Sequence[tuple[bytes, str]] = field(default=())


class CaptureSource(SourceTask):
    """Kafka Connect's SourceTask: polled in a thread of a plugin host process.

    For sources that cannot be read again: a queue, a webhook, a growing file. The records that
    ``poll`` returns are appended to a topic exactly once, together with their position.
    """

    @abstractmethod
    def poll(self) -> Sequence[Record] | CapturedBatch | None:
        """Return the new records; None or an empty sequence if there are none yet.

        May block for up to a second. The records of one call are appended in one transaction.
        """

    def commit(self, position: Position) -> None:
        """Acknowledge that everything up to ``position`` is durable in its topic."""

    def commit_record(self, record: Record) -> None:
        """Acknowledge that a record is durable. Called after polls that return records."""


Gear = FrameSource | SplitSource | StreamFrameSource | StreamSplitSource | CaptureSource
"""The base classes of source tasks."""


class SourceConnector(Connector):
    """A connector that reads from a system.

    The runtime creates it without arguments, calls ``start`` once, then ``task_configs``, and
    ``stop`` at the end, one call at a time. Tasks are created from their configurations,
    without the connector, wherever they run.

    On a server the connector exists while it is running, and ``task_configs`` is called again
    when it requests that from its context: tasks with unchanged configurations continue, the
    others are restarted. Positions are stored by task number, so an input must stay with
    its task number: put new inputs last, or in new tasks.
    """

    row_keys: ClassVar[tuple[str, ...]] = ()
    """The keys that determine which rows a range contains and their contents, such as a schema
    or a dialect; not the keys for the location, size or read speed of a range. If a batch is
    already in some of its sinks, it is not read again while one of these keys has a different
    value, because the other sinks would receive different rows."""
    boundary_kinds: ClassVar[frozenset[BoundaryKind]] = frozenset()
    """The kinds of boundaries that ``fill_in_boundaries`` supports."""

    def start(self, config: Config, context: ConnectorContext) -> None:
        """Store the parsed configuration; connect to the systems that planning needs."""
        self.config = config
        self.context = context

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the work into at most ``max_tasks`` task configurations; by default one."""
        return [dict(self.config.originals)]

    @classmethod
    def origin(cls, config: Config) -> str:
        """Return what a configuration reads, such as a path or the address of a database.

        A connector that has started on one origin does not continue on another, because its
        positions have a different meaning there. So the origin must stay the same as long as
        positions keep their meaning: leave out tuning, network routes and credentials. It is
        never shown, and the method must not connect. The default is an empty string.
        """
        return ""

    @classmethod
    def reads(cls, config: Config, target: str) -> bool:
        """Return whether it would read what a sink writes to ``SinkConnector.target``.

        Such a copy would read its own rows again, without end. The default is False.
        """
        return False

    @classmethod
    @abstractmethod
    def task_class(cls, config: Config) -> type[Gear]:
        """Return the task class for a configuration: Kafka Connect's ``taskClass``."""

    @classmethod
    def task(cls, config: Config) -> Gear:
        """Create the task for one of the ``task_configs``, parsed."""
        return cls.task_class(config)(config)

    def stop(self) -> None:
        """Release what ``start`` acquired. Called once, also after a failed start."""

    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows] | None:
        """Return the current rows of the source, one table per stream, for ``verify``.

        Return None (the default) if the source is not a set of tables, such as a queue.
        """
        return None

    @classmethod
    def position_at(cls, config: Config, position: Position, time: datetime) -> Position | None:
        """Return the position from which a task reads again what arrived at ``time`` or later.

        Called when a user rewinds a stopped connector, for each of its tasks, with the task's
        current position. Return None if the source cannot tell: the task then goes back to its
        own position at that time, taken from its batch history.
        """
        return None

    @classmethod
    def is_ordered(cls, config: Config) -> bool:
        """Return whether windows must be read in order, each once.

        This is required if records are row changes: an older change would undo a newer one. By
        default windows may be read in any order.
        """
        return False

    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that reads the records within the boundaries and then ends.

        An offline job uses it for each of its windows. Adjacent windows, which have a bound in
        common, must share no row, whenever they run and in whatever order. It is also called
        when a job is created, so it must not connect. Bounds are of one of ``boundary_kinds``.

        Raises ConfigError: a setting that bounds need is missing, such as a column.
        """
        raise NotImplementedError

    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that continues from a lower bound in real time.

        It reads the rows that windows of ``fill_in_boundaries`` ending at that bound did not
        read, each once, and continues with new rows. Used when an offline job is switched to
        real time. Like ``fill_in_boundaries`` it must not connect; the boundaries have no upper
        bound.

        Raises ConfigError: the source does not support this, which is the default.
        """
        raise ConfigError(
            problem="The source cannot continue in real time from the end of an offline job.",
            fix="Create another job in real time; it reads from the beginning.",
            field="mode",
        )
