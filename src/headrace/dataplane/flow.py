"""The flow: one batch from the source through the chain into every sink.

It is the same for real time and offline, for topics and direct copies: only the reader
and the sinks differ (Guarantee 7).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.dataplane.chain import (
    Routes,
    Step,
    apply_chain,
    constant_topic,
    inserted_rows,
)
from headrace.dataplane.conversion import PartConverter, encoded
from headrace.dataplane.dead_letters import (
    DeadLetterPart,
    DeadLetterWriter,
    RejectedFrame,
)
from headrace.dataplane.failures import refusals_passed_over, translate, translated
from headrace.dataplane.packed import PackedCopy
from headrace.dataplane.records import RecordFrame, record_frame
from headrace.dataplane.sink_part import (
    RowCount,
    SinkPart,
    StagedPart,
    StagedRows,
    check_balance,
    counted,
    good_rows,
    refused_of,
    refusing,
    sink_marks,
    with_refused,
)
from headrace.dataplane.small_streams import StagedFew, keyed_rows, plan_few, write_few
from headrace.dataplane.sources import SourceFrame, SourceReader, frame_of_parts, frame_of_rows
from headrace.dataplane.straight_copies import copy_straight
from headrace.dataplane.streams import (
    CommitsTogether,
    Delivery,
    StreamFrame,
    TopicStream,
    TransformedStream,
)
from headrace.dataplane.topic_sinks import TopicWriter, attempt_folder
from headrace.evolution import Evolution, Target
from headrace.model import (
    Batch,
    Counts,
    Fingerprint,
    SchemaChangeError,
    ToleranceExceededError,
    TooManyRejectedError,
)
from headrace.sdk import (
    ArrowParts,
    CodeTransform,
    ConfigError,
    DataLostError,
    FrameSink,
    HeadraceError,
    Position,
    RecordError,
    SinkBatch,
    SourceError,
    StateError,
    StreamRows,
    TransformBatch,
)
from headrace.sdk.errors import RangeChangedError
from headrace.sdk.location import Location
from headrace.sdk.sink import ArrowWrite

_OF_VALUES = (ConfigError, RecordError, ToleranceExceededError)
"""Errors that a sink raises for values that its target cannot store."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Moves the batches of one task.

    Args:
        application: The task's permanent name in marks.
        topic: The topic or stream of the records of a single-stream source.
        sinks: The sinks; each gets all records.
        names: The sinks' names in marks, appended to the application; empty for a single sink.
        chain: The digest of the transforms and converters; empty if it is not known.
        source_keys: The settings that determine the source's rows, see Fingerprint.
        staging: A folder on the topics' file system for dividing batches by topic.
        dead_letters: Writes rejected records; None stops the task at the first one.
        check_limits: Raises if a batch has more rejected records than are tolerated.
        evolution: How the sinks handle schema changes of the records.
        converters: Encode parts of the records as bytes, after the chain.
        explain: Raises the cause of a failed job from its range, if the cause is known.
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
    source_keys: Mapping[str, str] | None = None
    dead_letters: DeadLetterWriter | None = None
    evolution: Evolution = field(default_factory=Evolution)
    check_limits: Callable[[Batch, Counts], None] | None = None
    converters: Sequence[PartConverter] = ()
    explain: Callable[[SparkSession, Position, Position], None] | None = None

    _committing: threading.Event = field(default_factory=threading.Event, init=False)
    """Set as soon as a sink may have committed part of the running batch."""

    _read: list[SourceFrame] = field(default_factory=list, init=False)
    _width: list[int] = field(default_factory=list, init=False)
    """How many columns the current stream has; read by other threads."""

    @property
    def columns(self) -> int | None:
        """How many columns the current stream has; None if not yet known."""
        return self._width[-1] if self._width else None

    @property
    def untouched(self) -> bool:
        """Whether the last run ended before any sink could commit part of it."""
        return not self._committing.is_set()

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Identifies everything that determines the records of a range."""
        return Fingerprint(self.chain, self.source_keys)

    @cached_property
    def _topic_stream(self) -> TopicStream | None:
        if not self.steps or self.converters:
            return None
        return TopicStream.of(self.topic, self.sinks, self.evolution.memory)

    @cached_property
    def routing(self) -> str:
        """The digests of what determines each record's topic; empty for a constant topic."""
        is_one = constant_topic(self.steps, self.topic) is not None
        return "" if is_one else self.fingerprint.to_text()

    def run(self, batch: Batch) -> Counts:
        """Move the batch; return only when it is durable. Idempotent.

        Reads the range, applies the chain to each stream, and delivers each stream: a sink
        that has already committed the batch returns its receipt; for the others, rows that
        fit their schema are staged with the dead letters; the limits are checked; then all
        sinks commit. Packed rows that go only to topics bypass the JVM (PackedCopy).

        Raises RangeChangedError only while no sink has committed any part of the batch.
        """
        self._committing.clear()
        self._width.clear()
        if batch.again and batch.routing is not None:
            Fingerprint.require_same_routing(self.routing, batch.routing)
        with translated(f"running batch {batch.id} of {batch.task}"):
            for step in self.steps:
                if isinstance(step.transform, CodeTransform):
                    step.transform.running.begin(batch.id, batch.after)
            try:
                data = self.source.read(self.spark, batch.start, batch.end)
            except (DataLostError, StateError):
                if held := self._held_by_all(batch):
                    return held
                raise
            self._read[:] = [data]
            with self._explained(batch):
                packed = data.to_pack() if self._copies_packed else None
                if packed is not None:
                    stage = PackedCopy(self.spark, packed, self.evolution, batch).stage
                    parts = self._parts(batch, self.application, self.topic)
                    counts = self._deliver(Delivery(parts, stage), batch)
                else:
                    counts = self._carry(data, batch)
        return replace(counts, size_bytes=data.size_bytes)

    def _carry(self, data: SourceFrame, batch: Batch) -> Counts:
        """Apply the chain to each stream, and deliver the streams one after the other."""
        counts = Counts()
        with ExitStack() as undo:
            deliveries = self._deliveries(data, batch, undo)
            together = CommitsTogether(self.spark, self._commit, self._accept)
            if has_few := any(each.is_few for each in deliveries):
                undo.callback(together.abort)
            for each in deliveries:
                commit: Callable[[Sequence[StagedPart]], None] = self._commit
                if has_few:
                    commit = together.commit_of(each, self._priority(each))
                # The records that sinks refuse are known only here, stream by stream: a stream
                # may depend on the table that the stream before it has created or changed.
                counts = counts.plus(self._deliver(each, batch, counts, commit))
                if each.cache is not None:
                    each.cache.unpersist()
            if has_few:
                together.finish()
        if self._topic_stream is not None:
            self._topic_stream.accept()
        return counts

    def _deliveries(self, data: SourceFrame, batch: Batch, undo: ExitStack) -> list[Delivery]:
        """Return the streams in the order of delivery.

        Streams of few rows are already written; the chain is applied to the others.
        """
        few = self._few(data.streams, batch, undo) if data.streams else []
        taken = {each.stream.stream for each in few}
        rest = [each for each in data.streams if each.stream not in taken]
        streams = self._streams(replace(data, streams=rest)) if rest or not few else []
        chains = [self._transform(stream, batch, undo) for stream in streams]
        if self._topic_stream is not None:
            self._topic_stream.require_one(chains)
        parts = [self._parts_of(transformed, batch) for transformed in chains]
        if chains and len(chains) + len(few) > 1:
            self._check(chains, parts, batch, [each.counts for each in few])
        written = {
            each.stream.stream: Delivery(
                each.parts, partial(self._stage_few, each, batch, undo), is_few=True
            )
            for each in few
        }
        others = (
            Delivery(own, partial(self._stage, each, batch), each.stream.rows, each.cache)
            for each, own in zip(chains, parts, strict=True)
        )
        # Streams of the same priority keep the order of the source.
        found = [written.get(each.stream) or next(others) for each in data.streams]
        return sorted([*found, *others], key=self._priority)

    def _few(
        self, streams: Sequence[StreamRows], batch: Batch, undo: ExitStack
    ) -> list[StagedFew]:
        """Write the streams of few rows in one job; return them for delivery.

        A batch that may have run before takes the general path, which checks receipts.
        Registers callbacks in ``undo`` that remove staged data that is not delivered.
        """
        found = []
        for stream in () if batch.again or batch.resumed or self.converters else streams:
            keyed = keyed_rows(self.steps, stream)
            if keyed is None:
                continue
            parts = self._parts(batch, f"{self.application}/{stream.stream}", stream.stream)
            planned = plan_few(self.spark, stream, keyed, parts, self.evolution)
            if planned is not None:
                undo.callback(planned.abort)
                found.append(planned)
        return write_few(self.spark, found)

    def _stage_few(
        self, few: StagedFew, batch: Batch, undo: ExitStack, part: SinkPart
    ) -> StagedRows:
        # After a RecordError, use a frame: its record ids identify the refused records.
        with suppress(RecordError):
            return few.stage(part, batch)
        [stream] = self._streams(SourceFrame(None, streams=[few.stream]))
        return self._stage(self._transform(stream, batch, undo), batch, part)

    def _deliver(
        self,
        delivery: Delivery,
        batch: Batch,
        before: Counts | None = None,
        commit: Callable[[Sequence[StagedPart]], None] | None = None,
    ) -> Counts:
        """Write the records of a stream; return the counts when they are durable in every sink.

        Guarantee 4: all sinks have staged their part, and the counts were checked, before any
        part becomes visible in the first sink.
        """
        receipts = [(part, part.receipt(batch)) for part in delivery.parts]
        if any(there is None for _, there in receipts):
            # Guarantee 4: a changed chain or source may accept what was rejected before.
            for part, there in receipts:
                if there:
                    self.fingerprint.require_same(Fingerprint.of_receipt(there), part.title)
        held = [
            None if there is None else p.held(there, delivery.rows) for p, there in receipts
        ]
        counts_of_sinks: list[Counts] = []
        staged: list[StagedPart] = []
        with ExitStack() as undo:
            for part, committed in zip(delivery.parts, held, strict=True):
                if committed is not None:
                    counts_of_sinks.append(committed)
                    continue
                with self._of_part(part):
                    done = delivery.stage(part)
                if done.write is not None:
                    undo.callback(done.write.abort)
                undo.callback(part.letters.discard)
                staged.append(StagedPart.of(part, done, batch))
                counts_of_sinks.append(staged[-1].counts)
            counts = Counts.of_sinks(counts_of_sinks)
            if staged:
                # Rows read while files were replaced may mix the old and the new state.
                for data in self._read:
                    data.require_unchanged()
                self._check_limits(batch, (before or Counts()).plus(counts), staged)
            undo.pop_all()
        self._committing.set()
        (commit or self._commit)(staged)
        return counts

    def _commit(self, staged: Sequence[StagedPart]) -> None:
        """Make all parts visible, one by one."""
        for number, each in enumerate(staged):
            try:
                each.commit()
                self._accept(each)
            except BaseException:
                for later in staged[number + 1 :]:
                    later.abort()
                raise

    def _accept(self, committed: StagedPart) -> None:
        if committed.rows.schema is not None:
            self.evolution.accept(committed.part.target, committed.rows.schema)

    def _streams(self, data: SourceFrame) -> list[StreamFrame]:
        if data.frame is not None:
            topic = data.topic or self.topic
            return [
                StreamFrame(
                    data.frame,
                    topic,
                    self.application,
                    data.rows,
                    data.only_sink,
                    arrow=self._past_jvm(data.arrow),
                )
            ]
        streams = [
            StreamFrame(
                frame_of_rows(self.spark, each.rows),
                each.stream,
                f"{self.application}/{each.stream}",
                each.count,
                arrow=self._past_jvm(each.rows, inserts=each.inserts),
                continues=each.continues,
            )
            for each in data.streams
        ]
        if data.packed is None:
            return streams  # may be empty, for example if the range has only a schema change
        for stream in data.packed.streams(self.spark, self.evolution.keeps_apart):
            frame = data.packed.rows(self.spark, stream)
            # Each stream is delivered separately, under its own mark.
            again = f"~{stream.number}" if stream.number else ""
            application = f"{self.application}/{stream.name}{again}"
            streams.append(
                StreamFrame(frame, stream.name, application, stream.rows, part=stream.number)
            )
        return streams

    def _past_jvm(
        self, rows: ArrowParts | DataFrame | None, *, inserts: bool = False
    ) -> ArrowParts | None:
        """Return the rows after the chain as Arrow; None without columns, or if Spark must."""
        if not isinstance(rows, ArrowParts) or self.converters or not rows.schema.fields:
            return None
        return inserted_rows(self.steps, rows) if inserts or not self.steps else None

    def _priority(self, delivery: Delivery) -> tuple[int, ...]:
        """Return the sort key of a stream in its batch.

        The first sink's priority decides, then the next's: no order suits conflicting sinks.
        """
        topic = delivery.parts[0].target.topic
        return tuple(sink.priority(topic) for sink in self.sinks)

    def _transform(
        self, stream: StreamFrame, batch: Batch, cached: ExitStack
    ) -> TransformedStream:
        """Apply the chain to a stream; ``cached`` gets callbacks that free Spark's caches."""
        # The time of the intent, so that a retried batch has the same records.
        begun = int(batch.begun.timestamp() * 1_000_000)
        came = record_frame(stream.frame, stream.topic, timestamp=f"timestamp_micros({begun})")
        self._width[:] = [max(1, len(came.shape.value.fields))]
        routes = Routes(stream.topic, self.topic, self.staging, batch)
        if not self._caches(1 if stream.only_sink is not None else len(self.sinks)):
            records, topic = self._chained(came, stream, routes, batch)
            return TransformedStream(stream, came, records, routes, topic)
        whole = came if self.dead_letters is None else came.with_original()
        records, topic = self._chained(whole, stream, routes, batch)
        frame = records.frame.persist()
        cached.callback(frame.unpersist)
        records = replace(records, frame=frame)
        return TransformedStream(stream, came, records, routes, topic, cache=frame)

    def _chained(
        self, records: RecordFrame, stream: StreamFrame, routes: Routes, batch: Batch
    ) -> tuple[RecordFrame, str | None]:
        """Return the records after the chain, and their topic if it is constant."""
        of = TransformBatch(batch.id, stream.topic, batch.begun, stream.part)
        records = apply_chain(records, self.steps, of)
        if self.converters:
            records = encoded(records, self.converters)
        return routes.checked(records, self.sinks)

    def _caches(self, sinks: int) -> bool:
        """Return whether to cache the records after the chain.

        A cache costs more than evaluating expressions again, but usually less than running
        code again. Code that is not repeatable must not run again for the letters: their
        causes would differ from the counted ones.
        """
        code = [s.transform for s in self.steps if isinstance(s.transform, CodeTransform)]
        if self.dead_letters is not None and not all(c.running.repeatable for c in code):
            return True
        return bool(code) and sinks > 1

    def _check(
        self,
        chains: Sequence[TransformedStream],
        parts: Sequence[Sequence[SinkPart]],
        batch: Batch,
        few: Sequence[Counts],
    ) -> None:
        """Check all streams before any of them is written.

        Raises:
            SchemaChangeError: A policy rejects a schema change of the records.
            TooManyRejectedError: The chain rejects more records than are tolerated.
        """
        if self.evolution.may_reject:
            rehearsal = self.evolution.rehearsal()
            for transformed, own in zip(chains, parts, strict=True):
                for part in () if transformed.records.shape.unfit else own:
                    if part.receipt(batch) is None:
                        with self._of_part(part):
                            rehearsal.fitted(transformed.records.shape, part.target)
        if self.check_limits is not None and self.steps:
            surveyed = [counted(transformed.records, ()) for transformed in chains]
            self.check_limits(batch, reduce(Counts.plus, [*few, *surveyed], Counts()))

    def _parts_of(self, transformed: TransformedStream, batch: Batch) -> list[SinkPart]:
        stream, topic = transformed.stream, transformed.topic
        routes = transformed.routes if topic is None else None
        at, only = topic or stream.topic, stream.only_sink
        return self._parts(batch, stream.application, at, only_sink=only, routes=routes)

    def _parts(
        self,
        batch: Batch,
        application: str,
        topic: str,
        *,
        only_sink: str | None = None,
        routes: Routes | None = None,
    ) -> list[SinkPart]:
        """Return each sink's part of a stream.

        Args:
            batch: The batch.
            application: Names the task and the stream in marks.
            topic: The topic of all records, or the topic that they come from.
            only_sink: The only sink that gets the records; None for all sinks.
            routes: Divides the records by topic; None if all have the same topic.
        """
        parts: list[SinkPart] = []
        marks = sink_marks(application, self.sinks, self.names, batch)
        if only_sink is not None:
            marks = [marks[self.names.index(only_sink)]]
        for number, sink, mark in marks:
            letters = DeadLetterPart(
                self.dead_letters,
                mark,
                application,
                self.fingerprint,
                sink=number,
                first=not parts,
                alone=only_sink is not None,
            )
            part = SinkPart(
                sink=sink if routes is None else routes.divided(sink),
                target=Target(sink, number, self.names[number], topic, is_one=routes is None),
                mark=mark,
                letters=letters,
            )
            parts.append(part)
        return parts

    def _none_good(self, transformed: TransformedStream) -> Counts | None:
        """Return the counts if a step cannot process any of the records; otherwise None.

        The records then have the schema from before the step. Good records of later batches
        will have another one, so no sink may see it.
        """
        if not transformed.records.shape.unfit:
            return None
        counts = counted(transformed.records, self._aliases)
        # If no errors are tolerated, the write raises the first error.
        tolerated = self.dead_letters is not None or not counts.rejected
        return counts if tolerated and counts.balanced else None

    def _stage(
        self, transformed: TransformedStream, batch: Batch, part: SinkPart
    ) -> StagedRows:
        """Stage the good records in the sink, with the schema of its target."""
        tolerant, sink = self.dead_letters is not None, part.sink
        if (none_good := self._none_good(transformed)) is not None:
            check_balance(none_good, batch)
            marked = sink.write_mark(self.spark, part.mark, part.target.topic)
            rejected = partial(self._rejected, transformed, batch)
            return StagedRows(write=marked, counts=none_good, rejected=rejected)
        fitted = self._fitted(transformed.records, part.target)
        value, key = fitted.schemas
        policy = self.evolution.policy(part.target.number)
        stream = transformed.stream
        to = SinkBatch(
            part.mark, part.target.topic, value, key, policy, continues=stream.continues
        )
        if stream.arrow is not None and fitted is transformed.records:
            of_all = replace(to, rows=stream.rows, schema=value.replaced(optional=False))
            past_jvm = sink.arrow_write(fitted.frame.selectExpr(*fitted.columns()), of_all)
            if past_jvm is not None:
                # After a refusal, use a frame: its record ids identify the refused records.
                with refusals_passed_over():
                    done = self._stage_straight(transformed, past_jvm, of_all, batch)
                    return replace(done, schema=value)
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
        good, columns = good_rows(
            count.over(records), sink, tolerant=tolerant, transformed=bool(self.steps)
        )
        write = sink.write(good, replace(to, rows=count.expected, columns=columns))
        try:
            refused = refused_of(write)
            counts = count.counts(records, write, len(refused))
            check_balance(counts, batch)
        except BaseException:
            write.abort()
            raise

        def of_sink(again: RecordFrame) -> RecordFrame:
            again = refusing(self._fitted(again, part.target), refusals, part.title)
            return with_refused(again, refused, part.title)

        rejected = partial(self._rejected, transformed, batch, of_sink)
        return StagedRows(write=write, counts=counts, rejected=rejected, schema=value)

    def _stage_straight(
        self,
        transformed: TransformedStream,
        write: ArrowWrite,
        to: SinkBatch,
        batch: Batch,
    ) -> StagedRows:
        """Stage the records in the sink as Arrow, bypassing the JVM; without their schema."""
        stream, tolerant = transformed.stream, self.dead_letters is not None
        assert stream.arrow is not None
        has_topic = self.dead_letters is not None and self.dead_letters.topic is not None
        with ExitStack() as failed:
            folder = failed.enter_context(attempt_folder(self.staging, to.mark))
            keep = folder if has_topic and not self.steps else None
            copy = copy_straight(
                self.spark, stream.arrow, write, to, batch, tolerant=tolerant, keep=keep
            )
            needed = failed.pop_all()

        def rejected() -> RejectedFrame:
            if self.steps:
                return self._rejected(transformed, batch)
            few = replace(stream, frame=frame_of_parts(self.spark, copy.rejected))
            return self._rejected(self._transform(few, batch, ExitStack()), batch)

        return StagedRows(
            write=copy.write, counts=copy.counts, rejected=rejected, needed=needed
        )

    def _fitted(self, records: RecordFrame, target: Target) -> RecordFrame:
        """Return the records with the schema of the target. Runs no job."""
        shape = self.evolution.fitted(records.shape, target)
        return records if shape is records.shape else replace(records, shape=shape).settled()

    def _rejected(
        self,
        transformed: TransformedStream,
        batch: Batch,
        of_sink: Callable[[RecordFrame], RecordFrame] = lambda records: records,
    ) -> RejectedFrame:
        """Return the records that the chain rejected or the sink refused, as they came.

        ``of_sink`` marks the records that the sink refused.
        """
        again = transformed.records
        if transformed.cache is None:
            whole = transformed.source.with_original()
            again = self._chained(whole, transformed.stream, transformed.routes, batch)[0]
        records = of_sink(again.keeping("__chain_error", again.outcome()["error"]))
        error = f"{records.outcome()['error']} AS error"
        columns = [*records.original(), error, "__chain_error AS chain_error"]
        frame = records.frame.selectExpr(*columns).where("error IS NOT NULL")
        return RejectedFrame(frame, *transformed.source.schemas)

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
        """Whether packed rows are copied unchanged from topic to topic, without the JVM."""
        into_topics = all(isinstance(sink, TopicWriter) for sink in self.sinks)
        return into_topics and not self.steps and not self.converters

    def _held_by_all(self, batch: Batch) -> Counts | None:
        """Return the counts if all sinks have committed the batch; otherwise None.

        Such a batch need not be read again.
        """
        if not batch.again:
            return None
        topic = constant_topic(self.steps, self.topic) or self.topic
        counts: list[Counts] = []
        for part in self._parts(batch, self.application, topic):
            if (receipt := part.receipt(batch)) is None:
                return None
            counts.append(part.held(receipt, None))
        return Counts.of_sinks(counts)

    @contextmanager
    def _explained(self, batch: Batch) -> Iterator[None]:
        """Raise the cause of a failed job from its range, if the cause is known."""
        try:
            try:
                yield
            except (PySparkException, Py4JError, SourceError):
                for data in self._read:
                    data.require_unchanged()
                if self.explain is not None:
                    self.explain(self.spark, batch.start, batch.end)
                raise
        except RangeChangedError as error:
            if self.untouched:
                raise
            raise DataLostError(error.problem, fix=error.fix) from error

    @contextmanager
    def _of_part(self, part: SinkPart) -> Iterator[None]:
        """Add the records, the sink and the changed types to errors of a changed schema."""
        try:
            yield
        except (PySparkException, Py4JError, HeadraceError) as error:
            found = error
            if not isinstance(found, HeadraceError):
                found = translate(found, "staging")
            is_topic, target = isinstance(part.sink, TopicWriter), part.target
            sink = "the topic" if is_topic else f"sinks[{target.number}]"
            where = f"{target.topic}, for {sink}"
            retypes = "; ".join(map(str, self.evolution.retypes(target)))
            if isinstance(found, SchemaChangeError):
                found.problem += f" The records are of {where}."
            elif retypes and isinstance(found, _OF_VALUES):
                found.problem += f" Types have changed in records of {where}: {retypes}."
                found.fix += (
                    " Or set schema.evolution.retype to lenient, which writes the new values "
                    "to an additional column."
                )
            else:
                raise
            raise found from error

    @property
    def _aliases(self) -> list[str]:
        return [step.transform.alias for step in self.steps]
