"""Records of one batch that go to several topics: checked names, and sinks that divide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.dataplane.constant import constant_text
from headrace.dataplane.sinks import SinkFront
from headrace.dataplane.topics import (
    ByTopic,
    StagedTopics,
    TopicsWriter,
    TopicWriter,
    rows_in,
    topic_mark,
)
from headrace.sdk import literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from headrace.dataplane.records import RecordFrame
    from headrace.sdk import FrameSink, Mark, SinkBatch, StagedWrite

_NAME = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"


@dataclass(frozen=True)
class Routes:
    """Where the records of one stream go.

    Args:
        stream: The topic that they come with.
        own: The topic of the task, where a stream stays that no step has renamed.
        staging: A folder on the topics' file system to divide batches in.
        again: Whether some topics may hold the batch.
    """

    stream: str
    own: str
    staging: Path
    again: bool

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
        return self._writer.write_divided(frame, batch, routes.staging, again=routes.again)


class _Divided(SinkFront):
    """Gives a sink the records of one topic after the other.

    They are staged as Parquet first, so that the source is read once: reading it once for
    each topic costs more, and a source that gives other rows when it is read again would
    lose some between two topics.
    """

    def __init__(self, sink: FrameSink, routes: Routes) -> None:
        super().__init__(sink)
        self._sink, self._routes = sink, routes

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        # Parquet has no type for columns that are nothing but null.
        types = {field.name: field.dataType.typeName() for field in frame.schema.fields}
        voids = [name for name, kind in types.items() if kind == "void"]
        kept = frame.drop(*voids)
        writes: list[StagedWrite] = []
        held = 0
        with ByTopic(kept, self._routes.staging, batch.mark) as by_topic:
            try:
                for topic, folder in by_topic.folders.items():
                    mark = topic_mark(batch.mark, topic)
                    if self._routes.again and self._sink.committed(mark, topic) is not None:
                        held += rows_in(folder)
                        continue
                    part = frame.sparkSession.read.schema(kept.drop("topic").schema)
                    sqls = {"topic": literal(topic)} | dict.fromkeys(voids, "NULL")
                    columns = [f"{sqls.get(name, name)} AS {name}" for name in frame.columns]
                    rows = part.parquet(str(folder)).selectExpr(*columns)
                    to = replace(batch, mark=mark, topic=topic)
                    writes.append(self._sink.write(rows, to))
            except BaseException:
                StagedTopics(writes, held).abort()
                raise
        return StagedTopics(writes, held)
