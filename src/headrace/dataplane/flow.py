"""The flow: one batch from the source through the chain into every sink.

It is the same for real time and offline, for topics and direct copies: only the reader
and the sinks differ (Guarantee 7).
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.dataplane.chain import apply_chain, constant_topic
from headrace.dataplane.conversion import encoded
from headrace.dataplane.deadletters import RejectedFrame, Whose, changed_chain
from headrace.dataplane.delivery import Delivery, Prepared, held_by_all
from headrace.dataplane.evolution import Evolution, Target
from headrace.dataplane.failures import translated
from headrace.dataplane.packedcopy import PackedCopy
from headrace.dataplane.records import record_frame
from headrace.dataplane.rejects import Rejects
from headrace.dataplane.routing import Routes
from headrace.dataplane.sink_receipts import held_receipt, sink_marks
from headrace.dataplane.tally import Tally
from headrace.dataplane.topic_sinks import TopicWriter
from headrace.model import Counts, TooManyRejectedError
from headrace.sdk import (
    CodeTransform,
    DataLostError,
    Mark,
    RangeChangedError,
    SinkBatch,
    StateError,
    TransformBatch,
)
from headrace.sdk.transform import ERROR_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.chain import Step
    from headrace.dataplane.conversion import PartConverter
    from headrace.dataplane.deadletters import DeadLetters
    from headrace.dataplane.packed import Packed, Stream
    from headrace.dataplane.records import RecordFrame
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
        only_sink: What marks call the one sink that they go to; None for all.
    """

    frame: DataFrame
    topic: str
    application: str
    rows: int | None = None
    only_sink: str | None = None


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
        names: What each is called in marks, behind the application; nothing for one alone.
        chain: Names the transforms and converters, as a digest; nothing where it is not known.
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
    names: Sequence[str] = ("",)
    chain: str = ""
    dead_letters: DeadLetters | None = None
    evolution: Evolution = field(default_factory=Evolution)
    judge: Callable[[Batch, Counts], None] | None = None
    converters: Sequence[PartConverter] = ()
    explain: Callable[[SparkSession, Position, Position], None] | None = None

    _commits: threading.Event = field(default_factory=threading.Event, init=False)
    """Set as soon as a sink may hold some of the batch that runs."""

    @property
    def untouched(self) -> bool:
        return not self._commits.is_set()

    @cached_property
    def routing(self) -> str:
        is_one = constant_topic(self.steps, self.topic) is not None
        return "" if is_one else self.chain

    def commits(self) -> None:
        """Take note that sinks may hold some of the batch from now on."""
        self._commits.set()

    def run(self, batch: Batch) -> Counts:
        self._commits.clear()
        if batch.again and batch.routing not in {None, self.routing}:
            # Guarantee 2: each topic has a mark of its own, and which rows it stands for is
            # known only to the chain that has divided them.
            raise StateError(
                problem="Other transforms or converters than those of the unfinished batch "
                "decide which topic each record goes to.",
                fix="Set them back to what they were until the batch is finished.",
            )
        with translated(f"running batch {batch.id} of {batch.task}"):
            try:
                data = self.source.read(self.spark, batch.start, batch.end)
            except (DataLostError, StateError):
                marks = self.marks(self.application, batch)
                topic = constant_topic(self.steps, self.topic) or self.topic
                if held := held_by_all(
                    marks, batch, self.dead_letters, self.application, topic
                ):
                    return held
                raise
            try:
                counts = self._explained(data, batch)
            except RangeChangedError as error:  # one of several streams may be written by now
                raise DataLostError(error.problem, fix=error.fix) from error
        return replace(counts, size_bytes=data.size_bytes)

    def _explained(self, data: SourceFrame, batch: Batch) -> Counts:
        try:
            return self._run(data, batch)
        except (PySparkException, Py4JError):
            if self.explain is not None:
                self.explain(self.spark, batch.start, batch.end)
            raise

    def _run(self, data: SourceFrame, batch: Batch) -> Counts:
        if data.frame is not None:
            topic = data.topic or self.topic
            whole = StreamFrame(data.frame, topic, self.application, data.rows, data.only_sink)
            with _StreamRun(self, whole, batch) as run:
                return run.run(self.judge)
        if data.packed is None:
            return Counts()  # the range holds no records, only a change of schema, say
        topics = [sink for sink in self.sinks if isinstance(sink, TopicWriter)]
        if not self.steps and not self.converters and len(topics) == len(self.sinks):
            return self._copy_packed(data.packed, topics, batch)
        streams = data.packed.streams(self.spark, self.evolution.keeps_apart)
        parts = [self._part(data.packed, stream) for stream in streams]
        total = Counts()
        with ExitStack() as opened:
            runs = [opened.enter_context(_StreamRun(self, part, batch)) for part in parts]
            if len(runs) > 1 and self.evolution.may_reject:
                self._rehearse(runs)
            if self.judge is not None and self.steps:
                # All streams are judged before the first of them is written.
                surveyed = [run.survey() for run in runs]
                self.judge(batch, reduce(Counts.plus, surveyed, Counts()))
            for run in runs:
                # What sinks refuse is known only here, stream by stream: one may have to see
                # what the one before it has made of its table.
                total = total.plus(run.run(partial(self._judge_all, total)))
        return total

    def _judge_all(self, before: Counts, batch: Batch, counts: Counts) -> None:
        if self.judge is not None:
            self.judge(batch, before.plus(counts))

    def _part(self, packed: Packed, stream: Stream) -> StreamFrame:
        frame = packed.rows(self.spark, stream).selectExpr("struct(*) AS value")
        # Each stream goes by itself, under a mark of its own.
        again = f"~{stream.number}" if stream.number else ""
        application = f"{self.application}/{stream.name}{again}"
        return StreamFrame(frame, stream.name, application, stream.rows)

    def _copy_packed(
        self, packed: Packed, topics: Sequence[TopicWriter], batch: Batch
    ) -> Counts:
        """Copy packed rows into topics, without the JVM."""
        each: list[Counts] = []
        self.commits()
        marks = self.marks(self.application, batch)
        for topic, (number, _, mark) in zip(topics, marks, strict=True):
            copy = PackedCopy(
                spark=self.spark,
                packed=packed,
                topic=topic,
                number=number,
                evolution=self.evolution,
                rejects=Rejects(
                    self.dead_letters,
                    mark,
                    self.application,
                    Whose(number, first=not each),
                    judge=self.judge,
                ),
                batch=batch,
            )
            each.append(copy.run())
        return Counts.of_sinks(each)

    def _rehearse(self, runs: Sequence[_StreamRun]) -> None:
        """Raise SchemaChangeError for any of the streams before the first is written."""
        evolution = self.evolution.rehearsal()
        for run in runs:
            run.rehearse(evolution)

    def marks(self, application: str, batch: Batch) -> list[tuple[int, FrameSink, Mark]]:
        """Give each sink its number and a mark of its own: two of them may share a target."""
        return sink_marks(application, self.sinks, self.names, batch)


class _StreamRun:
    """The records of one stream on their way through the chain into the sinks.

    The chain is laid once. Where it has code it also runs once, for all sinks, for what is
    counted beforehand and for the dead letters: it need not give the same twice.
    """

    def __init__(self, flow: Flow, stream: StreamFrame, batch: Batch) -> None:
        """Carry ``stream`` through ``flow`` in ``batch``. Use it as a context."""
        self._flow, self._stream, self._batch = flow, stream, batch
        self._routes = Routes(stream.topic, flow.topic, flow.staging, batch)
        self._kept = ExitStack()
        self._otherwise: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def survey(self) -> Counts:
        """Count what the chain rejects, and write nothing."""
        records = self._chained[0]
        error = records.shape.error or "CAST(NULL AS STRING)"
        seen = records.frame.selectExpr("count(1)", f"count_if({error} IS NOT NULL)")
        read, rejected = seen.collect()[0]
        return Counts(read=int(read), rejected=int(rejected))

    def rehearse(self, evolution: Evolution) -> None:
        """Raise SchemaChangeError if ``evolution`` rejects a change that the records bring."""
        records, batch = self._chained[0], self._batch
        if records.shape.unfit:
            return
        for number, sink, mark in self._marks():
            place = self._place(sink, number)
            if held_receipt(sink, mark, place.topic, batch) is None:
                evolution.fitted(records, place)

    def run(self, judge: Callable[[Batch, Counts], None] | None = None) -> Counts:
        """Write the records; return the counts when they are durable in every sink.

        Guarantee 4: all sinks have staged their part, and it was judged, before any of it
        becomes visible in the first.
        """
        parts: list[Prepared | Counts] = []
        with ExitStack() as staged:
            for number, sink, mark in self._marks():
                part = self._part(sink, number, mark)
                if isinstance(part, Prepared):
                    staged.callback(part.abort)
                parts.append(part)
            if self._otherwise and any(isinstance(part, Prepared) for part in parts):
                # Guarantee 4: what one chain rejects another may let through.
                raise changed_chain(self._otherwise[0])
            self._judge(parts, judge)
            staged.pop_all()
        self._kept.close()
        self._flow.commits()
        return Counts.of_sinks(_committed(parts))

    def _judge(
        self,
        parts: Sequence[Prepared | Counts],
        judge: Callable[[Batch, Counts], None] | None,
    ) -> None:
        staged = [part for part in parts if isinstance(part, Prepared)]
        if judge is None or not staged:
            return
        counts = [part.counts if isinstance(part, Prepared) else part for part in parts]
        try:
            judge(self._batch, Counts.of_sinks(counts))
        except TooManyRejectedError as error:
            examples = {c: text for part in staged for c, text in part.letters.examples.items()}
            told = " ".join(f"{cause}: {text}" for cause, text in examples.items())
            problem = f"{error.problem} For example: {told}"
            raise TooManyRejectedError(problem, fix=error.fix) from error

    def _part(self, sink: FrameSink, number: int, mark: Mark) -> Prepared | Counts:
        flow, batch = self._flow, self._batch
        delivery = Delivery(
            sink=sink if self._chained[1] else self._routes.divided(sink),
            rejects=Rejects(
                flow.dead_letters,
                mark,
                self._stream.application,
                self._whose(number),
                flow.chain,
            ),
            batch=batch,
            known=self._stream.rows,
            aliases=self._aliases,
            tolerant=flow.dead_letters is not None,
            otherwise=self._otherwise,
        )
        place = self._place(sink, number)
        held = delivery.held(place.topic)
        if held is not None:
            return held
        if self._none_good is not None:
            why = partial(self._rejected, None)
            return delivery.leave(flow.spark, self._none_good, place.topic, why)
        fitted = flow.evolution.fitted(self._chained[0], place)
        to = SinkBatch(mark, place.topic, *_schemas(fitted), flow.evolution.policy(number))
        prepared = delivery.stage(fitted, to, partial(self._rejected, place))
        return prepared.then(partial(flow.evolution.accept, place, to.schema))

    def _rejected(
        self, place: Target | None, judged: Callable[[RecordFrame], RecordFrame]
    ) -> RejectedFrame:
        """Return the rejected records as they came. Only a batch that has any runs it."""
        again = self._chained[0]
        if not self._is_kept:
            again = self._chain(self._came.with_original())[0]
        again = again.keeping("__told", again.shape.error or _NO_ERROR)
        records = judged(self._flow.evolution.fitted(again, place) if place else again)
        error = records.shape.error or _NO_ERROR
        columns = [*records.original(), f"{error} AS error", "__told AS told"]
        rejected = records.frame.selectExpr(*columns).where("error IS NOT NULL")
        return RejectedFrame(rejected, *_schemas(self._came))

    @cached_property
    def _came(self) -> RecordFrame:
        # The time of the intent, so that a batch that runs again gives the same records.
        begun = int(self._batch.begun.timestamp() * 1_000_000)
        stream = self._stream
        return record_frame(stream.frame, stream.topic, timestamp=f"timestamp_micros({begun})")

    @cached_property
    def _chained(self) -> tuple[RecordFrame, str | None]:
        """The records after the chain, and their topic if they have one."""
        if not self._is_kept:
            return self._chain(self._came)
        tolerant = self._flow.dead_letters is not None
        records, target = self._chain(self._came.with_original() if tolerant else self._came)
        frame = records.frame.persist()
        self._kept.callback(frame.unpersist)
        return replace(records, frame=frame), target

    @cached_property
    def _is_kept(self) -> bool:
        """Whether the records after the chain are kept, which costs more than expressions do.

        Code is as a rule dearer. What may differ from call to call must not be called again
        for the letters, or their causes are not those that were counted.
        """
        flow = self._flow
        code = [s.transform for s in flow.steps if isinstance(s.transform, CodeTransform)]
        if flow.dead_letters is not None and not all(c.running.repeatable for c in code):
            return True
        return bool(code) and len(self._marks()) > 1

    @cached_property
    def _none_good(self) -> Counts | None:
        """The counts of records of which a step can take none; None if any is good.

        Their schema is that of before the step. It says nothing about what the good ones of
        later batches will have, so no sink may see it.
        """
        records = self._chained[0]
        if not records.shape.unfit:
            return None
        counts = Tally.counted(records.frame, records.shape, self._aliases)
        # Where nothing is tolerated the write is what raises the first error.
        tolerated = self._flow.dead_letters is not None or not counts.rejected
        return counts if tolerated and counts.balanced else None

    def _chain(self, records: RecordFrame) -> tuple[RecordFrame, str | None]:
        flow, batch = self._flow, self._batch
        of = TransformBatch(batch.id, self._stream.topic, batch.begun)
        through = encoded(apply_chain(records, flow.steps, of), flow.converters)
        return self._routes.checked(through, flow.sinks)

    def _place(self, sink: FrameSink, number: int) -> Target:
        topic, name = self._chained[1], self._flow.names[number]
        at = topic or self._stream.topic
        return Target(sink, number, name, at, is_one=topic is not None)

    def _whose(self, number: int) -> Whose:
        alone = self._stream.only_sink is not None
        return Whose(number, first=number == self._marks()[0][0], alone=alone)

    def _marks(self) -> list[tuple[int, FrameSink, Mark]]:
        marks = self._flow.marks(self._stream.application, self._batch)
        only = self._stream.only_sink
        return marks if only is None else [marks[self._flow.names.index(only)]]

    @property
    def _aliases(self) -> list[str]:
        return [step.transform.alias for step in self._flow.steps]


def _committed(parts: Sequence[Prepared | Counts]) -> list[Counts]:
    """Make all parts visible, one by one."""
    counts = []
    for number, part in enumerate(parts):
        try:
            counts.append(part.commit() if isinstance(part, Prepared) else part)
        except BaseException:
            for later in parts[number + 1 :]:
                if isinstance(later, Prepared):
                    later.abort()
            raise
    return counts


_NO_ERROR = f"CAST(NULL AS {ERROR_TYPE})"


def _schemas(records: RecordFrame) -> tuple[Schema, Schema | None]:
    shape = records.shape
    assert shape.value.schema is not None
    return shape.value.schema, shape.key.schema
