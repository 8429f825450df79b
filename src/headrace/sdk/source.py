"""The three gears of a source: frame, split and capture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk.config import Configured
from headrace.sdk.connector import Connector
from headrace.sdk.position import Lag, Position, ReadLimit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.config import Config
    from headrace.sdk.connector import ConnectorContext, TaskContext
    from headrace.sdk.record import Record
    from headrace.sdk.schema import Schema


class SourceTask(Configured, ABC):
    """A running part of a source; see the three gears below for what it does.

    Call order: ``start``, any number of gear calls, ``stop``. A task is used by one
    thread at a time. To make one takes nothing: ``start`` connects.
    """

    def __init__(self, config: Config) -> None:
        """Keep the task's parsed configuration."""
        self.config = config
        self.settings = self.settings_class().from_config(config)

    def start(self, context: TaskContext) -> None:
        """Take what is needed to plan and read. May block briefly."""
        self.context = context

    def ended(self, position: Position) -> bool:
        """Return whether nothing can come after ``position`` any more.

        Asked where ``latest`` or ``poll`` gave nothing: a source whose next rows have only
        to be waited for has not ended.
        """
        return False

    @override
    def __getstate__(self) -> dict[str, object]:
        """Leave the context behind: it holds the runtime's store, and stays on the driver."""
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    def stop(self) -> None:
        """Let go of everything, promptly. Called once, also after a failed start."""


class ReplayableSource(SourceTask):
    """A source that can read the same range again: the frame and split gears."""

    @abstractmethod
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Return the end of the next batch that begins at ``start``.

        Equal to ``start`` when nothing new is there. It should stay within
        ``limit.rows`` and ``limit.size_bytes`` but always make progress, and never
        passes ``limit.until``. Without rows and bytes in the limit it is the end of all
        that is there. ``Position()`` is the very beginning. Called before
        every batch and by idle polling, so it must be cheap.
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

        Called now and then while batches run, to show how far behind the task is, so it
        must be cheap.
        """
        end = self.latest(start, ReadLimit(until=until))
        return Lag(self.rows(start, end), self.size_bytes(start, end))

    def acknowledge(self, position: Position) -> None:
        """Learn that everything up to ``position`` is durable in the target.

        Called after each finished batch and again after a restart, so it must be
        idempotent.
        """


class FrameSource(ReplayableSource):
    """Reads what Spark reads natively, as a DataFrame."""

    @abstractmethod
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        """Return the records after ``start`` up to and including ``end``.

        The frame has a column ``value`` (the row as a struct, or a single value) and
        may have ``key``, ``headers``, ``timestamp``, ``partition`` and ``error``
        (see ``headrace.sdk.frames``). The same range must give the same rows again;
        raise DataLostError when that is no longer possible, and StateError for a range of
        partitions that this task does not read (see ``check_range``): an unfinished batch
        outlives a change of the configuration. It must not run a job.
        """

    def read_strict(
        self, spark: SparkSession, start: Position, end: Position
    ) -> DataFrame | None:
        """Return the records of ``read`` in a frame that has no ``error`` and fails instead.

        Asked of a task that tolerates no bad record, when a job that fails at the first
        is cheaper than a column that tells of each. It must fail for the same records,
        whichever columns are used. When a job fails, ``read`` is asked for the reason.
        None, the default, when there is no such frame.
        """
        return None


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
    """A split source that carries many streams, each with a schema of its own.

    Its batches travel packed (Arrow IPC bytes in one row), so that types stay exact
    and any stream's schema may change in mid-stream.
    """

    @abstractmethod
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Divide the range; the same range gives the same splits again.

        Raises as ``FrameSource.read`` does: a range that cannot be read is never empty.
        """

    @abstractmethod
    def read(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield ``(stream, rows)`` of one split, on an executor, oldest first.

        See ``SplitSource.read`` for when it is called again.
        """


@dataclass(frozen=True, slots=True)
class CapturedBatch:
    """What a capture hands over at once, in Arrow instead of single records.

    Args:
        values: The rows; each becomes the value of a record.
        position: Where the capture stands after them.
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

        May block for up to a second. The records of one call are appended together
        in one transaction.
        """

    def commit(self, position: Position) -> None:
        """Learn that everything up to ``position`` is durable in its topic."""

    def commit_record(self, record: Record) -> None:
        """Learn that one record is durable. Only called for records, after each poll."""


Gear = FrameSource | SplitSource | StreamSplitSource | CaptureSource
"""What a source's task is, one of."""


class SourceConnector(Connector):
    """A connector that reads a system.

    The runtime makes one with no arguments, calls ``start`` once, then ``task_configs``, and
    ``stop`` at the end, one call at a time. Tasks are made of their configurations, without
    the connector, wherever they run.

    On a server it lives as long as it is to run, and ``task_configs`` is called again when
    it asks its context for that: tasks whose configuration stays run on, the others are
    started anew. Positions belong to a task's number: what a task reads must keep its
    number, so new things come last, or in tasks of their own.
    """

    def start(self, config: Config, context: ConnectorContext) -> None:
        """Keep the parsed configuration; connect to what planning needs."""
        self.config = config
        self.context = context

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the work into at most ``max_tasks`` task configurations.

        The default is a single task with the connector's own configuration.
        """
        return [dict(self.config.originals)]

    @classmethod
    @abstractmethod
    def task_class(cls, config: Config) -> type[Gear]:
        """Return the class of the tasks with a configuration, which says how they read.

        Kafka Connect's ``taskClass``.
        """

    @classmethod
    def task(cls, config: Config) -> Gear:
        """Make the task for one of the ``task_configs``, parsed.

        The default gives the configuration to the class of tasks.
        """
        return cls.task_class(config)(config)

    def stop(self) -> None:
        """Let go of what ``start`` took. Called once, also after a failed start."""

    @classmethod
    def position_at(cls, config: Config, position: Position, time: datetime) -> Position | None:
        """Return where a task goes that is to read again what came at ``time`` or later.

        Called when a person rewinds a connector that is stopped, for each of its tasks, with
        where the task stands. None says that the source cannot tell: the task goes back to
        where it stood at that time, as its batches tell.
        """
        return None
