"""The flow: one batch from the source through the chain into every sink.

It is the same for real time and offline, for topics and direct copies: only the reader
and the sinks differ (Guarantee 7).
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.dataplane.chain import Routes, apply_chain, constant_topic
from headrace.dataplane.conversion import encoded
from headrace.dataplane.dead_letters import (
    DeadLetterPart,
    LetterScope,
    RejectedFrame,
    StagedDeadLetters,
    changed_chain,
)
from headrace.dataplane.delivery import (
    AlreadyCommitted,
    RowCount,
    SinkPart,
    StagedPart,
    StagedRows,
    check_balance,
    counted,
    good_rows,
    held_receipt,
    refused_of,
    sink_marks,
)
from headrace.dataplane.failures import translated
from headrace.dataplane.packed import PackedCopy
from headrace.dataplane.records import record_frame
from headrace.dataplane.refusals import refusing, with_refused
from headrace.dataplane.topic_sinks import TopicWriter
from headrace.evolution import Evolution, Target
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
from headrace.sdk.expressions import ERROR_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.chain import Step
    from headrace.dataplane.conversion import PartConverter
    from headrace.dataplane.dead_letters import DeadLetterWriter
    from headrace.dataplane.packed import Packed
    from headrace.dataplane.records import RecordFrame
    from headrace.dataplane.sources import SourceFrame, SourceReader
    from headrace.model import Batch
    from headrace.sdk import FrameSink, Position, Schema
    from headrace.sdk.location import Location

_NO_ERROR = f"CAST(NULL AS {ERROR_TYPE})"


@dataclass(frozen=True)
class StreamFrame:
    """The records of one stream in one batch.

    Args:
        frame: The records, as the source gave them.
        topic: The topic or stream that they belong to.
        application: Names the task and the stream in marks.
        rows: How many there are, where the source knows.
        only_sink: What marks call the one sink that they go to; None for all.
        part: Which of the stream's parts in this batch they are, from 0, see TransformBatch.
    """

    frame: DataFrame
    topic: str
    application: str
    rows: int | None = None
    only_sink: str | None = None
    part: int = 0


@dataclass(frozen=True)
class TransformedStream:
    """The records of one stream with the chain laid over them.

    Where the chain has code it runs once, for all sinks, for what is counted beforehand and
    for the dead letters: it need not give the same twice. Its records are then kept.

    Args:
        stream: The stream.
        source: The records as they came.
        records: The records after the chain.
        routes: Where they go.
        topic: Their one topic; None where it depends on the data.
        kept: Whether Spark keeps the records after the chain.
    """

    stream: StreamFrame
    source: RecordFrame
    records: RecordFrame
    routes: Routes
    topic: str | None
    kept: bool = False


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
        check_limits: Raises when a batch brings more rejected records than are tolerated.
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
    staging: Location
    names: Sequence[str] = ("",)
    chain: str = ""
    dead_letters: DeadLetterWriter | None = None
    evolution: Evolution = field(default_factory=Evolution)
    check_limits: Callable[[Batch, Counts], None] | None = None
    converters: Sequence[PartConverter] = ()
    explain: Callable[[SparkSession, Position, Position], None] | None = None

    _committing: threading.Event = field(default_factory=threading.Event, init=False)
    """Set as soon as a sink may hold some of the batch that runs."""

    @property
    def untouched(self) -> bool:
        """Whether the newest run came to its end before any sink could hold some of it."""
        return not self._committing.is_set()

    @cached_property
    def routing(self) -> str:
        """What decides which topic each record goes to, as a digest; nothing for one topic."""
        is_one = constant_topic(self.steps, self.topic) is not None
        return "" if is_one else self.chain

    def run(self, batch: Batch) -> Counts:
        """Move the batch; return only when it is durable. Running it again adds nothing.

        It reads the range, lays the chain over each stream of it, and delivers each: a sink
        that has committed the batch already is asked for its receipt, the others get rows that
        fit them, staged with their dead letters; the limits are checked; then all commit.
        Packed rows that only go to topics are copied without the JVM, see PackedCopy.

        Raises RangeChangedError only while no sink has committed any of it.
        """
        self._committing.clear()
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
                if held := self._held_by_all(batch):
                    return held
                raise
            with self._explained(batch):
                if data.packed is not None and self._copies_packed:
                    counts = self._copy(data.packed, batch)
                else:
                    counts = self._carry(self._streams(data), batch)
        return replace(counts, size_bytes=data.size_bytes)

    def _carry(self, streams: Sequence[StreamFrame], batch: Batch) -> Counts:
        """Lay the chain over the records of each stream, and deliver one after the other."""
        counts = Counts()
        with ExitStack() as kept:
            chains = [self._transform(stream, batch, kept) for stream in streams]
            if len(chains) > 1:
                self._check(chains, batch)
            for transformed in chains:
                # What sinks refuse is known only here, stream by stream: one may have to see
                # what the one before it has made of its table.
                counts = counts.plus(self._deliver(transformed, batch, before=counts))
        return counts

    def _deliver(self, transformed: TransformedStream, batch: Batch, before: Counts) -> Counts:
        """Write the records of a stream; return the counts when every sink has them for good.

        Guarantee 4: all sinks have staged their part, and it was judged, before any of it
        becomes visible in the first.
        """
        parts = self._parts(transformed, batch)
        held = [part.held(batch, transformed.stream.rows) for part in parts]
        self._check_one_chain(parts, held)
        none_good = self._none_good(transformed) if None in held else None
        counts_of_sinks: list[Counts] = []
        staged: list[StagedPart] = []
        with ExitStack() as undo:
            for part, committed in zip(parts, held, strict=True):
                if committed is not None:
                    counts_of_sinks.append(committed.counts)
                    continue
                if none_good is not None:
                    rows = self._leave(part, none_good, batch)
                else:
                    rows = self._stage(transformed, part, batch)
                if rows.write is not None:
                    undo.callback(rows.write.abort)
                undo.callback(part.letters.discard)
                letters = StagedDeadLetters()
                if rows.counts.rejected:
                    rejected = self._rejected(transformed, part, rows, batch)
                    letters = part.letters.stage(rejected, rows.counts.rejected, batch)
                staged.append(StagedPart.of(part, rows, letters))
                counts_of_sinks.append(staged[-1].counts)
            counts = Counts.of_sinks(counts_of_sinks)
            if staged:
                self._check_limits(batch, before.plus(counts), staged)
            undo.pop_all()
        if transformed.kept:
            transformed.records.frame.unpersist()
        self._committing.set()
        self._commit(staged)
        return counts

    def _commit(self, staged: Sequence[StagedPart]) -> None:
        """Make all parts visible, one by one."""
        for number, each in enumerate(staged):
            try:
                each.commit()
                if each.rows.schema is not None:
                    self.evolution.accept(each.part.target, each.rows.schema)
            except BaseException:
                for later in staged[number + 1 :]:
                    later.abort()
                raise

    def _streams(self, data: SourceFrame) -> list[StreamFrame]:
        if data.frame is not None:
            topic = data.topic or self.topic
            return [StreamFrame(data.frame, topic, self.application, data.rows, data.only_sink)]
        if data.packed is None:
            return []  # the range holds no records, only a change of schema, say
        streams = []
        for stream in data.packed.streams(self.spark, self.evolution.keeps_apart):
            frame = data.packed.rows(self.spark, stream).selectExpr("struct(*) AS value")
            # Each stream goes by itself, under a mark of its own.
            again = f"~{stream.number}" if stream.number else ""
            application = f"{self.application}/{stream.name}{again}"
            streams.append(
                StreamFrame(frame, stream.name, application, stream.rows, part=stream.number)
            )
        return streams

    def _transform(
        self, stream: StreamFrame, batch: Batch, kept: ExitStack
    ) -> TransformedStream:
        """Lay the chain over the records of a stream; ``kept`` ends what Spark keeps."""
        # The time of the intent, so that a batch that runs again gives the same records.
        begun = int(batch.begun.timestamp() * 1_000_000)
        came = record_frame(stream.frame, stream.topic, timestamp=f"timestamp_micros({begun})")
        routes = Routes(stream.topic, self.topic, self.staging, batch)
        if not self._keeps(len(self._marks(stream, batch))):
            records, topic = self._chained(came, stream, routes, batch)
            return TransformedStream(stream, came, records, routes, topic)
        whole = came if self.dead_letters is None else came.with_original()
        records, topic = self._chained(whole, stream, routes, batch)
        frame = records.frame.persist()
        kept.callback(frame.unpersist)
        records = replace(records, frame=frame)
        return TransformedStream(stream, came, records, routes, topic, kept=True)

    def _chained(
        self, records: RecordFrame, stream: StreamFrame, routes: Routes, batch: Batch
    ) -> tuple[RecordFrame, str | None]:
        """Return records after the chain, and their one topic if they have one."""
        of = TransformBatch(batch.id, stream.topic, batch.begun, batch.after, stream.part)
        records = apply_chain(records, self.steps, of)
        if self.converters:
            records = encoded(records, self.converters)
        return routes.checked(records, self.sinks)

    def _keeps(self, sinks: int) -> bool:
        """Return whether the records after the chain are kept, dearer than expressions are.

        Code is as a rule dearer. What may differ from call to call must not be called again
        for the letters, or their causes are not those that were counted.
        """
        code = [s.transform for s in self.steps if isinstance(s.transform, CodeTransform)]
        if self.dead_letters is not None and not all(c.running.repeatable for c in code):
            return True
        return bool(code) and sinks > 1

    def _check(self, chains: Sequence[TransformedStream], batch: Batch) -> None:
        """Let no stream be written where another one is not let through.

        Raises:
            SchemaChangeError: A policy rejects a change that the records bring.
            TooManyRejectedError: The chain rejects more of them than are tolerated.
        """
        if self.evolution.may_reject:
            rehearsal = self.evolution.rehearsal()
            for transformed in chains:
                for part in (
                    () if transformed.records.shape.unfit else self._parts(transformed, batch)
                ):
                    if part.receipt(batch) is None:
                        rehearsal.fitted(transformed.records.shape, part.target)
        if self.check_limits is not None and self.steps:
            surveyed = [counted(transformed.records, ()) for transformed in chains]
            self.check_limits(batch, reduce(Counts.plus, surveyed, Counts()))

    def _parts(self, transformed: TransformedStream, batch: Batch) -> list[SinkPart]:
        stream, topic = transformed.stream, transformed.topic
        parts: list[SinkPart] = []
        for number, sink, mark in self._marks(stream, batch):
            whose = LetterScope(number, first=not parts, alone=stream.only_sink is not None)
            at, name = topic or stream.topic, self.names[number]
            part = SinkPart(
                sink=sink if topic else transformed.routes.divided(sink),
                target=Target(sink, number, name, at, is_one=topic is not None),
                mark=mark,
                letters=DeadLetterPart(
                    self.dead_letters, mark, stream.application, whose, self.chain
                ),
            )
            parts.append(part)
        return parts

    def _check_one_chain(
        self, parts: Sequence[SinkPart], held: Sequence[AlreadyCommitted | None]
    ) -> None:
        """Raise if some sink holds the batch of another chain, and some other does not."""
        others = [
            p for p, there in zip(parts, held, strict=True) if there and there.other_chain
        ]
        if others and None in held:
            # Guarantee 4: what one chain rejects another may let through.
            raise changed_chain(others[0].title)

    def _none_good(self, transformed: TransformedStream) -> Counts | None:
        """Return the counts of records of which a step can take none; None if any is good.

        Their schema is that of before the step. It says nothing about what the good ones of
        later batches will have, so no sink may see it.
        """
        if not transformed.records.shape.unfit:
            return None
        counts = counted(transformed.records, self._aliases)
        # Where nothing is tolerated the write is what raises the first error.
        tolerated = self.dead_letters is not None or not counts.rejected
        return counts if tolerated and counts.balanced else None

    def _leave(self, part: SinkPart, counts: Counts, batch: Batch) -> StagedRows:
        """Pass a batch of which no record is good: the sink gets its mark at most."""
        check_balance(counts, batch)
        write = part.sink.write_mark(self.spark, part.mark, part.target.topic)
        return StagedRows(write=write, counts=counts)

    def _stage(
        self, transformed: TransformedStream, part: SinkPart, batch: Batch
    ) -> StagedRows:
        """Give the sink the records that are good, in the schema that it is to have."""
        tolerant, sink = self.dead_letters is not None, part.sink
        fitted = self._fitted(transformed.records, part.target)
        value, key = _schemas(fitted)
        policy = self.evolution.policy(part.target.number)
        to = SinkBatch(part.mark, part.target.topic, value, key, policy)
        refusals = (
            sink.refusals(fitted.frame.selectExpr(*fitted.columns()), to) if tolerant else ()
        )
        records = refusing(fitted, refusals, part.title) if refusals else fitted
        count = RowCount.of(
            records.shape,
            known=transformed.stream.rows,
            counting=sink.counting,
            aliases=self._aliases,
            tolerant=tolerant,
        )
        good = good_rows(
            count.over(records), sink, tolerant=tolerant, transformed=bool(self.steps)
        )
        write = sink.write(good, replace(to, rows=count.expected))
        try:
            refused = refused_of(write)
            counts = count.counts(records, write.rows, len(refused))
            check_balance(counts, batch)
        except BaseException:
            write.abort()
            raise
        return StagedRows(
            write=write, counts=counts, schema=value, refusals=refusals, refused=refused
        )

    def _fitted(self, records: RecordFrame, target: Target) -> RecordFrame:
        """Return the records with the schema that a target is to be given. No job runs."""
        shape = self.evolution.fitted(records.shape, target)
        return records if shape is records.shape else replace(records, shape=shape).settled()

    def _rejected(
        self, transformed: TransformedStream, part: SinkPart, rows: StagedRows, batch: Batch
    ) -> RejectedFrame:
        """Return what the chain rejected and the sink refused, as it came."""
        again = transformed.records
        if not transformed.kept:
            whole = transformed.source.with_original()
            again = self._chained(whole, transformed.stream, transformed.routes, batch)[0]
        again = again.keeping("__chain_error", again.shape.error or _NO_ERROR)
        if rows.schema is not None:
            again = self._fitted(again, part.target)
        records = refusing(again, rows.refusals, part.title)
        records = with_refused(records, rows.refused, part.title)
        error = records.shape.error or _NO_ERROR
        columns = [*records.original(), f"{error} AS error", "__chain_error AS chain_error"]
        frame = records.frame.selectExpr(*columns).where("error IS NOT NULL")
        return RejectedFrame(frame, *_schemas(transformed.source))

    def _check_limits(self, batch: Batch, counts: Counts, staged: Sequence[StagedPart]) -> None:
        if self.check_limits is None:
            return
        try:
            self.check_limits(batch, counts)
        except TooManyRejectedError as error:
            examples = {c: text for p in staged for c, text in p.letters.examples.items()}
            shown = " ".join(f"{cause}: {text}" for cause, text in examples.items())
            problem = f"{error.problem} For example: {shown}"
            raise TooManyRejectedError(problem, fix=error.fix) from error

    @property
    def _copies_packed(self) -> bool:
        """Return whether packed rows go as they are from topic to topic, without the JVM."""
        into_topics = all(isinstance(sink, TopicWriter) for sink in self.sinks)
        return into_topics and not self.steps and not self.converters

    def _copy(self, packed: Packed, batch: Batch) -> Counts:
        """Copy packed rows into topics."""
        each: list[Counts] = []
        self._committing.set()
        for number, sink, mark in sink_marks(self.application, self.sinks, self.names, batch):
            assert isinstance(sink, TopicWriter)
            whose = LetterScope(number, first=not each)
            copy = PackedCopy(
                spark=self.spark,
                packed=packed,
                topic=sink,
                number=number,
                evolution=self.evolution,
                letters=DeadLetterPart(self.dead_letters, mark, self.application, whose),
                batch=batch,
                check_limits=self.check_limits,
            )
            each.append(copy.run())
        return Counts.of_sinks(each)

    def _held_by_all(self, batch: Batch) -> Counts | None:
        """Return the counts of a batch that all sinks hold; None if any may not, or none has.

        Such a batch need not be read again.
        """
        if not batch.again:
            return None
        topic = constant_topic(self.steps, self.topic) or self.topic
        each: list[Counts] = []
        for number, sink, mark in sink_marks(self.application, self.sinks, self.names, batch):
            receipt = held_receipt(sink, mark, topic, batch)
            if receipt is None:
                return None
            whose = LetterScope(number, first=not each)
            letters = DeadLetterPart(self.dead_letters, mark, self.application, whose)
            each.append(letters.settled(receipt))
        return Counts.of_sinks(each)

    @contextmanager
    def _explained(self, batch: Batch) -> Iterator[None]:
        """Say of a job that fails what was wrong in its range, if that is known."""
        try:
            try:
                yield
            except (PySparkException, Py4JError):
                if self.explain is not None:
                    self.explain(self.spark, batch.start, batch.end)
                raise
        except RangeChangedError as error:  # one of several streams may be written by now
            raise DataLostError(error.problem, fix=error.fix) from error

    def _marks(self, stream: StreamFrame, batch: Batch) -> list[tuple[int, FrameSink, Mark]]:
        """Give each sink its number and a mark of its own: two of them may share a target."""
        marks = sink_marks(stream.application, self.sinks, self.names, batch)
        only = stream.only_sink
        return marks if only is None else [marks[self.names.index(only)]]

    @property
    def _aliases(self) -> list[str]:
        return [step.transform.alias for step in self.steps]


def _schemas(records: RecordFrame) -> tuple[Schema, Schema | None]:
    shape = records.shape
    assert shape.value.schema is not None
    return shape.value.schema, shape.key.schema
