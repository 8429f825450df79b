"""The three gears of a source: frame, split and capture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk.connector import Connector
from headrace.sdk.position import Lag, Position, ReadLimit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.config import Config
    from headrace.sdk.connector import TaskContext
    from headrace.sdk.record import Record
    from headrace.sdk.schema import Schema


class SourceTask(ABC):  # noqa: B024 - its gears have the abstract methods
    """A running part of a source; see the three gears below for what it does.

    Call order: ``start``, any number of gear calls, ``stop``. A task is used by one
    thread at a time.
    """

    ends: ClassVar[bool] = False
    """Whether the source has an end, after which no more data can come."""

    def start(self, context: TaskContext) -> None:
        """Take what is needed to plan and read. May block briefly."""
        self.context = context

    @override
    def __getstate__(self) -> dict[str, object]:
        """Leave the context behind: it holds the runtime's store, and stays on the driver."""
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    def stop(self) -> None:  # noqa: B027 - optional
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
        the same rows. Raises RetriableError when the system is busy.
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
        """Yield ``(stream, rows)`` of one split, on an executor, oldest first."""


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


class SourceConnector(Connector):
    """A connector that reads a system."""

    @abstractmethod
    def task(
        self, config: Config
    ) -> FrameSource | SplitSource | StreamSplitSource | CaptureSource:
        """Make the task for one of the ``task_configs``, parsed."""

    def position_at(self, position: Position, time: datetime) -> Position | None:
        """Return where a task goes that is to read again what came at ``time`` or later.

        Called when a person rewinds a connector that is stopped, for each of its tasks, with
        where the task stands, on a connector that was not started: ``self.config`` is all that
        there is. None says that the source cannot tell.
        """
        return None
