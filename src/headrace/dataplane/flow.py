"""The flow: one batch from the source through the chain into every sink.

It is the same for real time and offline, for topics and direct copies: only the reader
and the sinks differ (Guarantee 7).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.dataplane.chain import apply_chain
from headrace.dataplane.conversion import encoded
from headrace.dataplane.deadletters import RejectedFrame
from headrace.dataplane.delivery import Delivery
from headrace.dataplane.evolution import Evolution, Target
from headrace.dataplane.failures import translated
from headrace.dataplane.packedcopy import PackedCopy
from headrace.dataplane.records import RecordFrame, record_frame
from headrace.dataplane.rejects import Rejects
from headrace.dataplane.routing import Routes
from headrace.dataplane.tally import Tally
from headrace.dataplane.topics import TopicWriter
from headrace.model import Counts
from headrace.sdk import ERROR_TYPE, CodeTransform, Mark, SinkBatch, TransformBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.chain import Step
    from headrace.dataplane.conversion import PartConverter
    from headrace.dataplane.deadletters import DeadLetters
    from headrace.dataplane.packed import Packed, Stream
    from headrace.dataplane.sources import SourceFrame, SourceReader
    from headrace.model import Batch
    from headrace.sdk import FrameSink, Position, Schema


@dataclass(frozen=True)
class StreamFrame:
    """The records of one stream in one batch.

    Args:
        frame: The records, as the source gave them.
        topic: The topic or stream that they belong to.
        application: Names the task and the stream in marks.
        rows: How many there are, where the source knows.
    """

    frame: DataFrame
    topic: str
    application: str
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Carries the batches of one task.

    Args:
        spark: The worker's session.
        application: Names the task in marks, for ever.
        topic: The topic or stream that records of a single-stream source belong to.
        source: The reader.
        steps: The chain of transforms.
        sinks: Where the records go; each gets all of them.
        staging: A folder on the topics' file system, to divide batches by topic in.
        dead_letters: What becomes of rejected records; None stops the task at the first.
        judge: Raises when a batch brings more rejected records than are tolerated.
        evolution: What the sinks do when the schema of the records changes.
        converters: What makes bytes of the records' parts, after the chain.
        explain: Raises what was wrong in a range whose job failed, if that is known.
    """

    spark: SparkSession
    application: str
    topic: str
    source: SourceReader
    steps: Sequence[Step]
    sinks: Sequence[FrameSink]
    staging: Path
    dead_letters: DeadLetters | None = None
    evolution: Evolution = field(default_factory=Evolution)
    judge: Callable[[Batch, Counts], None] | None = None
    converters: Sequence[PartConverter] = ()
    explain: Callable[[SparkSession, Position, Position], None] | None = None

    def run(self, batch: Batch) -> Counts:
        """Move one batch; return its counts when it is durable in every sink."""
        with translated(f"running batch {batch.id} of {batch.task}"):
            data = self.source.read(self.spark, batch.start, batch.end)
            try:
                counts = self._run(data, batch)
            except (PySparkException, Py4JError):
                if self.explain is not None:
                    self.explain(self.spark, batch.start, batch.end)
                raise
        return replace(counts, size_bytes=data.size_bytes)

    def _run(self, data: SourceFrame, batch: Batch) -> Counts:
        if data.frame is not None:
            topic = data.topic or self.topic
            whole = StreamFrame(data.frame, topic, self.application, data.rows)
            return self._run_stream(whole, batch, self.judge)
        if data.packed is None:
            return Counts()  # the range holds no records, only a change of schema, say
        topics = [sink for sink in self.sinks if isinstance(sink, TopicWriter)]
        if not self.steps and not self.converters and len(topics) == len(self.sinks):
            return self._copy_packed(data.packed, topics, batch)
        total = Counts()
        streams = data.packed.streams(self.spark, self.evolution.keeps_apart)
        parts = [self._part(data.packed, stream) for stream in streams]
        if len(parts) > 1 and self.evolution.may_reject:
            self._rehearse(parts, batch)
        if self.judge is not None and self.steps:
            # All streams are judged before the first of them is written.
            self.judge(batch, self._survey(parts, batch))
        for part in parts:
            total = total.plus(self._run_stream(part, batch))
        return total

    def _part(self, packed: Packed, stream: Stream) -> StreamFrame:
        frame = packed.rows(self.spark, stream).selectExpr("struct(*) AS value")
        # Each stream goes by itself, under a mark of its own.
        again = f"~{stream.number}" if stream.number else ""
        return StreamFrame(frame, stream.name, f"{self.application}/{stream.name}{again}")

    def _survey(self, parts: Sequence[StreamFrame], batch: Batch) -> Counts:
        """Count what the chain rejects, and write nothing."""
        total = Counts()
        for part in parts:
            of = TransformBatch(batch.id, part.topic, batch.begun)
            records = self._through(self._records(part, batch), of)
            error = records.shape.error or "CAST(NULL AS STRING)"
            seen = records.frame.selectExpr("count(1)", f"count_if({error} IS NOT NULL)")
            read, rejected = seen.collect()[0]
            total = total.plus(Counts(read=int(read), rejected=int(rejected)))
        return total

    def _copy_packed(
        self, packed: Packed, topics: Sequence[TopicWriter], batch: Batch
    ) -> Counts:
        """Copy packed rows into topics, without the JVM."""
        each = []
        marks = self._marks(self.application, batch)
        for number, (topic, (_, mark)) in enumerate(zip(topics, marks, strict=True)):
            first = number == 0
            copy = PackedCopy(
                spark=self.spark,
                packed=packed,
                topic=topic,
                number=number,
                evolution=self.evolution,
                rejects=Rejects(self.dead_letters, mark, first=first, judge=self.judge),
                batch=batch,
            )
            each.append(copy.run())
        return Counts.of_sinks(each)

    def _rehearse(self, parts: Sequence[StreamFrame], batch: Batch) -> None:
        """Raise SchemaChangeError for any of the parts before the first is written."""
        evolution = self.evolution.rehearsal()
        for part in parts:
            of = TransformBatch(batch.id, part.topic, batch.begun)
            routes = Routes(part.topic, self.topic, self.staging, again=batch.again)
            through = self._through(self._records(part, batch), of)
            records, target = routes.checked(through, self.sinks)
            if records.shape.unfit:
                continue
            for number, (sink, mark) in enumerate(self._marks(part.application, batch)):
                place = Target(sink, number, target or part.topic, is_one=target is not None)
                if not batch.again or sink.committed(mark, place.topic) is None:
                    evolution.fitted(records, place)

    def _run_stream(
        self,
        stream: StreamFrame,
        batch: Batch,
        judge: Callable[[Batch, Counts], None] | None = None,
    ) -> Counts:
        of = TransformBatch(batch.id, stream.topic, batch.begun)
        routes = Routes(stream.topic, self.topic, self.staging, again=batch.again)

        def chained(records: RecordFrame) -> tuple[RecordFrame, str | None]:
            return routes.checked(self._through(records, of), self.sinks)

        came = self._records(stream, batch)
        records, target = chained(came)

        def rejected(
            place: Target | None, judged: Callable[[RecordFrame], RecordFrame]
        ) -> RejectedFrame:
            again = chained(came.with_original())[0]
            again = again.keeping("__told", again.shape.error or f"CAST(NULL AS {ERROR_TYPE})")
            fitted = self.evolution.fitted(again, place) if place else again
            return _rejected(judged(fitted), came)

        def delivery(sink: FrameSink, number: int, mark: Mark) -> Delivery:
            return Delivery(
                sink=sink if target else routes.divided(sink),
                rejects=Rejects(self.dead_letters, mark, first=number == 0, judge=judge),
                batch=batch,
                known=stream.rows,
                aliases=self._aliases,
                tolerant=self.dead_letters is not None,
            )

        counts = []
        with self._computed_once(records) as once:
            none_good = self._none_good(once)
            for number, (sink, mark) in enumerate(self._marks(stream.application, batch)):
                place = Target(sink, number, target or stream.topic, is_one=target is not None)
                part = delivery(sink, number, mark)
                held = part.held(place.topic)
                if held is not None:
                    counts.append(held)
                    continue
                if none_good is not None:
                    why = partial(rejected, None)
                    counts.append(part.leave(self.spark, none_good, place.topic, why))
                    continue
                fitted = self.evolution.fitted(once, place)
                policy = self.evolution.policy(number)
                to = SinkBatch(mark, place.topic, *_schemas(fitted), policy)
                counts.append(part.write(fitted, to, partial(rejected, place)))
                self.evolution.accept(place, to.schema)
        return Counts.of_sinks(counts)

    @contextmanager
    def _computed_once(self, records: RecordFrame) -> Iterator[RecordFrame]:
        """Keep what code has made of the records, where several sinks would run it again.

        Expressions are cheaper to compute again than to keep.
        """
        code = any(isinstance(step.transform, CodeTransform) for step in self.steps)
        if not code or len(self.sinks) == 1:
            yield records
            return
        frame = records.frame.persist()
        try:
            yield replace(records, frame=frame)
        finally:
            frame.unpersist()

    def _none_good(self, records: RecordFrame) -> Counts | None:
        """Return the counts of records of which a step can take none; None if any is good.

        Their schema is that of before the step. It says nothing about what the good ones of
        later batches will have, so no sink may see it.
        """
        if not records.shape.unfit:
            return None
        counts = Tally.counted(records.frame, records.shape, self._aliases)
        # Where nothing is tolerated the write is what raises the first error.
        tolerated = self.dead_letters is not None or not counts.rejected
        return counts if tolerated and counts.balanced else None

    def _marks(self, application: str, batch: Batch) -> list[tuple[FrameSink, Mark]]:
        """Give each sink a mark of its own: two of them may share one target."""
        names = (
            [application]
            if len(self.sinks) == 1
            else [f"{application}.{number}" for number in range(len(self.sinks))]
        )
        marks = [Mark(name, batch.id, batch.epoch) for name in names]
        return list(zip(self.sinks, marks, strict=True))

    def _through(self, records: RecordFrame, of: TransformBatch) -> RecordFrame:
        return encoded(apply_chain(records, self.steps, of), self.converters)

    def _records(self, stream: StreamFrame, batch: Batch) -> RecordFrame:
        # The time of the intent, so that a batch that runs again gives the same records.
        begun = f"timestamp_micros({int(batch.begun.timestamp() * 1_000_000)})"
        return record_frame(stream.frame, stream.topic, timestamp=begun)

    @property
    def _aliases(self) -> list[str]:
        return [step.transform.alias for step in self.steps]


def _schemas(records: RecordFrame) -> tuple[Schema, Schema | None]:
    shape = records.shape
    assert shape.value.schema is not None
    return shape.value.schema, shape.key.schema


def _rejected(records: RecordFrame, came: RecordFrame) -> RejectedFrame:
    """Return the rejected records as they came. Only a batch that has any runs it."""
    error = records.shape.error or f"CAST(NULL AS {ERROR_TYPE})"
    columns = [*records.original(), f"{error} AS error", "__told AS told"]
    rejected = records.frame.selectExpr(*columns)
    return RejectedFrame(rejected.where("error IS NOT NULL"), *_schemas(came))
