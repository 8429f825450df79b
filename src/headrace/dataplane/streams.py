"""The streams of a batch: as they came, with the chain laid over them, and to be delivered."""

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
        rows: How many there are, where the source knows.
        only_sink: What marks call the one sink that they go to; None for all.
        part: Which of the stream's parts in this batch they are, from 0, see TransformBatch.
        arrow: The same records as Arrow, if they are to be had so.
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
    """The records of one stream with the chain laid over them.

    Where the chain has code it runs once, for all sinks, for what is counted beforehand and
    for the dead letters: it need not give the same twice. Its records are then cached.

    Args:
        source: The records as they came.
        topic: Their one topic; None where it depends on the data.
        cache: The records after the chain, where Spark caches them.
    """

    stream: StreamFrame
    source: RecordFrame
    records: RecordFrame
    routes: Routes
    topic: str | None
    cache: DataFrame | None = None


@dataclass(frozen=True)
class Delivery:
    """A stream that is to be delivered.

    Args:
        parts: The sinks' parts.
        stage: Stages one of them.
        rows: How many records there are, where that is known.
        cache: What Spark caches of them.
        is_few: Whether they are few, and written already.
    """

    parts: Sequence[SinkPart]
    stage: Callable[[SinkPart], StagedRows]
    rows: int | None = None
    cache: DataFrame | None = None
    is_few: bool = False


@dataclass
class TopicStream:
    """Sees to it that the transforms of a task make no one stream of several in its topic.

    Only packed rows have their streams apart there, and those have no transforms before them.

    Args:
        topic: The topic.
        memory: Where the stream is remembered that it has rows of; None for in here only.
    """

    topic: str
    memory: SchemaMemory | None
    _known: set[str] = field(default_factory=set)
    _sent: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, topic: str, sinks: Sequence[FrameSink], memory: SchemaMemory | None
    ) -> TopicStream | None:
        """Return the same for the sinks of a task; None if none of them is a topic."""
        topics = [sink.topic(topic) for sink in sinks if isinstance(sink, TopicWriter)]
        if not topics:
            return None
        found = cls(topic, memory)
        # A topic that was deleted has rows of none.
        if memory is not None and any(each.exists() for each in topics):
            kept = memory.get(found._key)
            found._known |= set() if kept is None else {kept.parameters[_STREAM]}
        return found

    @property
    def _key(self) -> str:
        return f"sink *: {self.topic}"  # as of a sink that no one has named

    def require_one(self, streams: Sequence[TransformedStream]) -> None:
        """Raise ConfigError where a batch with these would make one stream of several."""
        self._sent = {each.stream.topic for each in streams if each.topic == self.topic}
        if len(both := self._known | self._sent) > 1:
            raise ConfigError(
                problem=f"The streams {', '.join(sorted(both))} would be one in the topic "
                f"{self.topic}, as transforms stand before it: rows of one would replace those "
                "of another that have the same key.",
                fix="Move the transforms to the connectors that read the topic, or let one of "
                "them give each stream a topic of its own, such as RegexRouter.",
                field="transforms",
            )

    def accept(self) -> None:
        """Remember the stream of the batch. Called once that is durable."""
        for stream in self._sent - self._known:
            self._known.add(stream)
            if self.memory is not None and stream != self.topic:
                self.memory.put(self._key, Schema.string(parameters={_STREAM: stream}))


_STREAM = "stream"
