"""The streams of a batch: as read, after the chain, and for delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from headrace.dataplane.chain import Routes
from headrace.dataplane.delivery import SinkPart, StagedRows
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.topic_sinks import TopicWriter
from headrace.sdk import ArrowParts, ConfigError, FrameSink, Schema, SchemaMemory


@dataclass(frozen=True)
class StreamFrame:
    """The records of one stream in one batch.

    Args:
        application: Names the task and the stream in marks.
        rows: How many records there are, if the source knows.
        only_sink: The name in marks of the only sink that gets the records; None for all sinks.
        part: The number of the stream's part in this batch, from 0, see TransformBatch.
        arrow: The same records as Arrow, after the chain, if available.
        continues: See SinkBatch.
    """

    frame: DataFrame
    topic: str
    application: str
    rows: int | None = None
    only_sink: str | None = None
    part: int = 0
    arrow: ArrowParts | None = None
    continues: bool = False


@dataclass(frozen=True)
class TransformedStream:
    """The records of one stream after the chain.

    A chain with code may return different results on a second run. So its records are cached,
    and it runs once for all sinks, for the counts beforehand and for the dead letters.

    Args:
        source: The records as they came.
        topic: The topic of all records; None if it depends on the data.
        cache: The records after the chain, if Spark caches them.
    """

    stream: StreamFrame
    source: RecordFrame
    records: RecordFrame
    routes: Routes
    topic: str | None
    cache: DataFrame | None = None


@dataclass(frozen=True)
class Delivery:
    """A stream ready for delivery.

    Args:
        parts: The sinks' parts.
        stage: Stages one part.
        rows: How many records there are, if known.
        cache: The cached frame of the records, if any.
        is_few: Whether the stream has few records, which are already written.
    """

    parts: Sequence[SinkPart]
    stage: Callable[[SinkPart], StagedRows]
    rows: int | None = None
    cache: DataFrame | None = None
    is_few: bool = False


@dataclass
class TopicStream:
    """Checks that a task with transforms does not mix several streams in its topic.

    Only packed rows keep streams separate in a topic, and packed rows cannot have transforms.

    Args:
        topic: The topic.
        memory: Stores the name of the stream in the topic; None to keep it in memory only.
    """

    topic: str
    memory: SchemaMemory | None
    _known: set[str] = field(default_factory=set)
    _sent: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, topic: str, sinks: Sequence[FrameSink], memory: SchemaMemory | None
    ) -> TopicStream | None:
        """Return the check for a task's sinks; None if none of them is a topic."""
        topics = [sink.topic(topic) for sink in sinks if isinstance(sink, TopicWriter)]
        if not topics:
            return None
        found = cls(topic, memory)
        # A deleted topic has no rows of any stream.
        if memory is not None and any(each.exists() for each in topics):
            kept = memory.get(found._key)
            found._known |= set() if kept is None else {kept.parameters[_STREAM]}
        return found

    @property
    def _key(self) -> str:
        return f"sink *: {self.topic}"  # as for a sink, with "*" for all sinks

    def require_one(self, streams: Sequence[TransformedStream]) -> None:
        """Raise ConfigError if the batch would mix several streams in the topic."""
        self._sent = {each.stream.topic for each in streams if each.topic == self.topic}
        if len(both := self._known | self._sent) > 1:
            raise ConfigError(
                problem=f"The transforms would merge the streams {', '.join(sorted(both))} in "
                f"the topic {self.topic}: rows of one stream would replace rows of another "
                "that have the same key.",
                fix="Move the transforms to the connectors that read the topic, or route each "
                "stream to a topic of its own, for example with RegexRouter.",
                field="transforms",
            )

    def accept(self) -> None:
        """Remember the stream of the batch. Called when the batch is durable."""
        for stream in self._sent - self._known:
            self._known.add(stream)
            if self.memory is not None and stream != self.topic:
                self.memory.put(self._key, Schema.string(parameters={_STREAM: stream}))


_STREAM = "stream"
