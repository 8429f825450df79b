"""The streams of a batch: as read, after the chain, for delivery, and committed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from headrace.dataplane.chain import Routes
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.sink_part import SinkPart, StagedPart, StagedRows
from headrace.dataplane.topic_sinks import TopicWriter
from headrace.sdk import ArrowParts, ConfigError, FrameSink, Schema, SchemaMemory
from headrace.sdk.sink import WorkerCommit, run_in_workers


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


@dataclass
class CommitsTogether:
    """Collects staged parts and commits them in one job.

    Waiting is safe: the parts are staged and checked, and if a crash leaves only some of them
    committed, the next attempt commits the rest.

    Args:
        spark: Runs the job.
        commit: Commits the parts of one stream immediately.
        accept: Called with each committed part.
    """

    spark: SparkSession
    commit: Callable[[Sequence[StagedPart]], None]
    accept: Callable[[StagedPart], None]
    _waiting: list[StagedPart] = field(default_factory=list, init=False)
    _targets: set[str] = field(default_factory=set, init=False)
    _place: tuple[int, ...] = field(default=(), init=False)

    def commit_of(
        self, delivery: Delivery, place: tuple[int, ...]
    ) -> Callable[[Sequence[StagedPart]], None]:
        """Return the commit function of a stream; first commits the streams of other places."""
        if not delivery.is_few or place != self._place:
            self.finish()
        self._place = place
        return self._add if delivery.is_few else self.commit

    def _add(self, staged: Sequence[StagedPart]) -> None:
        """Queue the parts of a stream, or commit them now if they cannot wait."""
        writes = [part.rows.write for part in staged]
        shared = [write for write in writes if isinstance(write, WorkerCommit)]
        targets = {write.target for write in shared}
        if len(targets) < len(staged) or targets & self._targets:
            self.finish()
        if len(targets) < len(staged):
            self.commit(staged)
        else:
            self._waiting += staged
            self._targets |= targets

    def finish(self) -> None:
        """Commit the waiting parts."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._targets.clear()
        works = [part.work() for part in waiting]
        run_in_workers(self.spark, [work for work in works if work is not None])
        for part in waiting:
            part.finish()
            self.accept(part)

    def abort(self) -> None:
        """Abort the waiting parts."""
        for part in self._waiting:
            part.abort()
        self._waiting.clear()
