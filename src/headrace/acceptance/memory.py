"""The kit's own connectors: a target and a source in memory, and a sink with hooks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from typing_extensions import override

from headrace.dataplane import SinkFront, as_frame_sink, refused_of
from headrace.sdk import (
    BatchSink,
    DeliveryGuarantee,
    FrameSink,
    FrameSource,
    Mark,
    Position,
    ReadLimit,
    RecordSink,
    Refusal,
    Schema,
    SinkBatch,
    SinkConnector,
    SourceConnector,
    TaskContext,
)
from headrace.sdk.arrow import to_batch
from headrace.sdk.config import Config, ConfigDef
from headrace.sdk.sink import StagedWrite
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import rows
from headrace.sdk.testing.driver import Arrived, Point, Row, fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.sink import Refused

_FEED: Mapping[str, str] = {"feed": "memory"}
_TASK = "task"


@dataclass
class Target:
    """The target of in-memory sinks; stores a mark for each batch, as a real target does."""

    records: list[Arrived] = field(default_factory=list)
    receipts: dict[tuple[str, int], str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, mark: Mark, records: Sequence[Arrived], receipt: str) -> None:
        with self.lock:
            if not mark.wrote(self.receipts.get((mark.application, mark.batch))):
                self.receipts[mark.application, mark.batch] = receipt
                self.records += records


@dataclass
class MemorySink(FrameSink):
    """Writes to a target in memory."""

    ordered: ClassVar[bool] = True
    target: Target
    task: int = 0

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self.task = context.task

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self.target.receipts.get((mark.application, mark.batch))

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        table = frame.toArrow().to_pylist()
        table.sort(key=lambda row: row["position"])
        at = (self.task, batch.mark.batch)
        records = [
            Arrived(fitted(batch.schema, row["value"]), row["key"], row["topic"], at)
            for row in table
        ]
        return _Staged(self.target, batch.mark, records)


@dataclass(frozen=True)
class _Staged:
    target: Target
    mark: Mark
    records: Sequence[Arrived]

    @property
    def rows(self) -> int:
        return len(self.records)

    def commit(self, receipt: str) -> None:
        self.target.add(self.mark, self.records, receipt)

    def abort(self) -> None:
        """Do nothing: nothing was stored."""


class _MemorySinkConnector(SinkConnector):
    """Writes to memory."""

    delivery = DeliveryGuarantee.EXACTLY_ONCE
    memory: ClassVar[Target]

    @override
    @classmethod
    def task(cls, config: Config) -> FrameSink:
        return MemorySink(cls.memory)


@dataclass
class Feed:
    """The batches that are fed to a sink, for each task; ``line`` distinguishes copies."""

    batches: dict[int, list[tuple[Sequence[Row], Schema]]] = field(default_factory=dict)
    line: int = 0

    def copied(self) -> Feed:
        """Return a feed that continues from this state with its own batches."""
        return Feed({task: [*fed] for task, fed in self.batches.items()}, self.line + 1)


@dataclass
class FeedSource(FrameSource):
    """Reads the batches of a feed, one by one."""

    batches: Sequence[tuple[Sequence[Row], Schema]]
    line: int = 0

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        done = _number(start)
        return start if done >= len(self.batches) else _place(done + 1, self.line)

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        ((values, schema),) = self.batches[_number(start) : _number(end)]
        table = pa.Table.from_batches([to_batch(values, schema)])
        # Only the data plane may import pyspark; a frame's schema provides its types.
        types: Any = type(spark.range(0).schema)
        return rows(spark.createDataFrame(table, schema=types.fromJson(to_spark_json(schema))))


class _FeedConnector(SourceConnector):
    """Reads a feed."""

    feed: ClassVar[Feed]

    @override
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{_TASK: str(number)} for number in range(max_tasks)]

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[FeedSource]:
        return FeedSource

    @override
    @classmethod
    def task(cls, config: Config) -> FeedSource:
        batches = cls.feed.batches.setdefault(int(config.originals[_TASK]), [])
        return FeedSource(batches, cls.feed.line)


class Hooked(SinkFront):
    """A sink of any kind, with a hook at the points where a process may die."""

    def __init__(
        self, sink: FrameSink | BatchSink | RecordSink, hook: Callable[[Point], None]
    ) -> None:
        """Call ``hook`` around the writes and commits of ``sink``."""
        self._sink = sink
        self._frame_sink = as_frame_sink(sink)
        super().__init__(self._frame_sink)
        self._hook = hook

    @override
    def start(self, context: TaskContext) -> None:
        self._sink.start(context)

    @override
    def stop(self) -> None:
        self._sink.stop()

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._frame_sink.committed(mark, topic)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        self._hook(Point.BEFORE_WRITE)
        return _HookedWrite(self._frame_sink.write(frame, batch), self._hook)

    @override
    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        return self._frame_sink.refusals(frame, batch)

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        self._hook(Point.BEFORE_WRITE)
        staged = self._frame_sink.write_mark(spark, mark, topic)
        return None if staged is None else _HookedWrite(staged, self._hook)


@dataclass(frozen=True)
class _HookedWrite:
    staged: StagedWrite
    hook: Callable[[Point], None]

    @property
    def rows(self) -> int:
        return self.staged.rows

    def refused(self) -> Sequence[Refused]:
        return refused_of(self.staged)

    def commit(self, receipt: str) -> None:
        self.hook(Point.BEFORE_COMMIT)
        self.staged.commit(receipt)
        self.hook(Point.AFTER_COMMIT)

    def abort(self) -> None:
        self.staged.abort()


class _HookedConnector(SinkConnector):
    """The sink connector under test, with a hook in its tasks."""

    inner: ClassVar[type[SinkConnector]]
    hook: ClassVar[Callable[[Point], None]]

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls.inner.config_def()

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        return cls.inner.target(config)

    @override
    @classmethod
    def task(cls, config: Config) -> FrameSink:
        return Hooked(cls.inner.task(config), cls.hook)


def memory_sink(target: Target) -> type[SinkConnector]:
    """Return a connector class that writes to ``target``: the runtime makes its objects."""
    return type("MemorySinkConnector", (_MemorySinkConnector,), {"memory": target})


def feed_source(feed: Feed) -> type[SourceConnector]:
    """Return a connector class that reads ``feed``."""
    return type("FeedConnector", (_FeedConnector,), {"feed": feed})


def hooked_sink(
    connector: type[SinkConnector], hook: Callable[[Point], None] | None
) -> type[SinkConnector]:
    """Return the connector class with a hook in its tasks."""
    if hook is None:
        return connector
    # It has the connector's name, as marks contain the name.
    names = {name: getattr(connector, name) for name in ("__module__", "__qualname__")}
    members = {"inner": connector, "hook": staticmethod(hook), "delivery": connector.delivery}
    return type(connector.__name__, (_HookedConnector,), members | names)


def _number(position: Position) -> int:
    offset = position.offset(_FEED)
    return 0 if offset is None else int(offset["batches"])


def _place(number: int, line: int) -> Position:
    return Position.of(_FEED, {"batches": number, "line": line})
