"""Records of one batch that go to several topics: checked names, and sinks that divide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.dataplane.delivery import held_receipt, refused_of
from headrace.dataplane.refusals import receipt_with, refused_in, without_refused
from headrace.dataplane.sinks import SinkFront
from headrace.dataplane.sql import constant_text
from headrace.dataplane.topic_sinks import (
    ByTopic,
    TopicsWriter,
    TopicWriter,
    rows_in,
    topic_mark,
)
from headrace.sdk.sink import RECORD_ID
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headrace.dataplane.records import RecordFrame
    from headrace.model import Batch
    from headrace.sdk import FrameSink, Mark, SinkBatch, StagedWrite
    from headrace.sdk.location import Location
    from headrace.sdk.sink import Refused

_NAME = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"


@dataclass(frozen=True)
class Routes:
    """Where the records of one stream go.

    Args:
        stream: The topic that they come with.
        own: The topic of the task, where a stream stays that no step has renamed.
        staging: A folder on the topics' file system to divide batches in.
        batch: The batch, which some topics may hold.
    """

    stream: str
    own: str
    staging: Location
    batch: Batch

    def checked(
        self, records: RecordFrame, sinks: Sequence[FrameSink]
    ) -> tuple[RecordFrame, str | None]:
        """Return the records, those without a good topic rejected, and their one topic.

        The topic is None when it depends on the data.
        """
        into_topics = any(isinstance(sink, TopicWriter) for sink in sinks)
        topic = constant_text(records.frame, records.shape.topic)
        if topic is not None:
            return records, self.own if into_topics and topic == self.stream else topic
        # What is computed from data may be used often below: it becomes a column once.
        named = records.named()
        shape = named.shape
        if into_topics and self.own != self.stream:
            own, stream = literal(self.own), literal(self.stream)
            shape = replace(shape, topic=f"IF({shape.topic} = {stream}, {own}, {shape.topic})")
        name = _NAME if into_topics else "(?s)."
        shape = shape.failing(
            f"NOT coalesce({shape.topic} RLIKE {literal(name)}, false)",
            stage="TRANSFORMATION",
            plugin="topic",
            exception="org.apache.kafka.common.errors.InvalidTopicException",
            message=f"concat('The name ', coalesce(concat('\"', {shape.topic}, '\"'), 'null'), "
            "' cannot be that of a topic.')",
        )
        return replace(named, shape=shape), None

    def divided(self, sink: FrameSink) -> FrameSink:
        """Return a sink that takes records of many topics in one frame."""
        if sink.takes_many_topics:
            return sink
        if isinstance(sink, TopicsWriter):
            return _DividedTopics(sink, self)
        return _Divided(sink, self)


class _DividedTopics(SinkFront):
    """Divides frames into topics."""

    def __init__(self, writer: TopicsWriter, routes: Routes) -> None:
        super().__init__(writer)
        self._writer, self._routes = writer, routes

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        routes = self._routes
        return self._writer.write_divided(frame, batch, routes.staging, self._holds)

    def _holds(self, mark: Mark, topic: str) -> bool:
        return held_receipt(self._writer, mark, topic, self._routes.batch) is not None


class _Divided(SinkFront):
    """Gives a sink the records of one topic after the other.

    They are staged as Parquet first, so that the source is read once: reading it once for
    each topic costs more, and a source that gives other rows when it is read again would
    lose some between two topics.
    """

    def __init__(self, sink: FrameSink, routes: Routes) -> None:
        super().__init__(sink)
        # What the sink refuses depends on the topic, so it is asked for each.
        self.verifies = True  # type: ignore[misc]
        self._sink, self._routes = sink, routes

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        staged = _StagedByTopic()
        kept = frame.drop(*_voids(frame))
        with ByTopic(kept, self._routes.staging, batch.mark) as by_topic:
            try:
                for topic, folder in by_topic.folders.items():
                    mark = topic_mark(batch.mark, topic)
                    to = replace(batch, mark=mark, topic=topic, rows=None)
                    receipt = held_receipt(self._sink, mark, topic, self._routes.batch)
                    if receipt is not None:
                        staged.hold(rows_in(folder), refused_in(receipt))
                    else:
                        self._stage(_part(frame, kept, topic, folder), to, staged)
            except BaseException:
                staged.abort()
                raise
        return staged

    def _stage(self, rows: DataFrame, to: SinkBatch, staged: _StagedByTopic) -> None:
        found: Sequence[Refused] = ()
        if RECORD_ID in rows.columns:
            rows, found = without_refused(rows, self._sink.refusals(rows, to))
            if not self._sink.verifies:
                rows = rows.drop(RECORD_ID)
        write = self._sink.write(rows, to)
        staged.parts.append((write, [*found, *refused_of(write)]))


@dataclass
class _StagedByTopic:
    """What a batch staged for each of its topics."""

    parts: list[tuple[StagedWrite, Sequence[Refused]]] = field(default_factory=list)
    """Each topic's write, and what was refused of it."""
    held_rows: int = 0
    held_refused: list[Refused] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.held_rows + sum(write.rows for write, _ in self.parts)

    def refused(self) -> Sequence[Refused]:
        return [*self.held_refused, *(each for _, found in self.parts for each in found)]

    def hold(self, rows: int, refused: Sequence[Refused]) -> None:
        """Count a topic that holds the batch already."""
        self.held_rows += rows - len(refused)
        self.held_refused += refused

    def commit(self, receipt: str) -> None:
        """Commit the topics one by one, each under its own mark.

        Guarantee 2: when this ends in the middle, the batch runs again, and the topics that
        hold their mark are left as they are; what they refused is in their receipts.
        """
        for write, refused in self.parts:
            write.commit(receipt_with(receipt, refused))

    def abort(self) -> None:
        for write, _ in self.parts:
            write.abort()


def _voids(frame: DataFrame) -> list[str]:
    """Return the columns that are nothing but null, for which Parquet has no type."""
    return [f.name for f in frame.schema.fields if f.dataType.typeName() == "void"]


def _part(frame: DataFrame, kept: DataFrame, topic: str, folder: Location) -> DataFrame:
    """Return the records of one topic, with the columns of ``frame``."""
    part = frame.sparkSession.read.schema(kept.drop("topic").schema)
    sqls = {"topic": literal(topic)} | dict.fromkeys(_voids(frame), "NULL")
    columns = [f"{sqls.get(name, name)} AS {name}" for name in frame.columns]
    return part.parquet(folder.spark_path).selectExpr(*columns)
