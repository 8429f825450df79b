"""Applies the chain of transforms, with predicates, to records; finds each record's topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from typing_extensions import override

from headrace.dataplane.code_rows import run_code
from headrace.dataplane.records import RecordFrame, constant_text
from headrace.dataplane.sink_part import (
    filtered_in,
    filtered_of,
    held_receipt,
    receipt_with,
    refused_in,
    refused_of,
    without_refused,
)
from headrace.dataplane.sinks import SinkFront
from headrace.dataplane.topic_sinks import (
    TopicsWriter,
    TopicWriter,
    by_topic,
    rows_in,
    topic_mark,
)
from headrace.evolution.diff import EXACT
from headrace.model import Batch
from headrace.sdk import (
    ArrowParts,
    CodeTransform,
    ConfigError,
    FrameSink,
    Mark,
    Predicate,
    RecordError,
    RecordExpr,
    Schema,
    SinkBatch,
    Transform,
    TransformBatch,
    Type,
    UnfitRecordError,
    ValueExpr,
)
from headrace.sdk.keyed_rows import DELETED, KeyedRows, NotKeyedError
from headrace.sdk.location import Location
from headrace.sdk.sink import RECORD_ID, Refused, StagedWrite
from headrace.sdk.sqltext import literal, literal_text, sql_null, sql_type
from headrace.sdk.struct_exprs import Column
from headrace.sdk.transform import TypedTransform, Types

_ArrowRows: TypeAlias = Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]

_FIRST = TransformBatch(1, "", datetime.fromtimestamp(0, UTC))
_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"


# Conditions that are constant without reading a record, such as one on a constant topic.
_SAME_FOR_ALL = {"true": True, "false": False}


@dataclass(frozen=True)
class Step:
    """A transform with its predicate.

    Args:
        predicate: Selects the records to transform; None for all.
        negate: Whether to transform the records for which the predicate is false.
    """

    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    @property
    def uses_names(self) -> bool:
        return self.transform.uses_names or bool(self.predicate and self.predicate.uses_names)

    def apply(self, shape: RecordExpr, types: Types | None = None) -> RecordExpr:
        """Return the shape after this step; it rejects records that do not fit.

        A TypedTransform needs ``types``.
        """
        condition = self.condition(shape)
        if condition == "false":
            return shape
        transform = self.transform
        try:
            if isinstance(transform, TypedTransform):
                assert types is not None
                after = transform.apply_typed(shape, types)
            else:
                after = transform.apply(shape)
        except UnfitRecordError as error:
            after = replace(transform.refusing(shape, error), unfit=True)
        if condition == "true":
            return after
        return merged_where(condition, after, shape, self.transform)

    def condition(self, shape: RecordExpr) -> str:
        """Return SQL that is true for the records that the step applies to."""
        if self.predicate is None:
            return "true"
        condition = self.predicate.condition(shape)
        if condition in _SAME_FOR_ALL:
            return "true" if _SAME_FOR_ALL[condition] is not self.negate else "false"
        return f"NOT ({condition})" if self.negate else f"({condition})"


def apply_chain(
    records: RecordFrame, steps: Sequence[Step], batch: TransformBatch | None = None
) -> RecordFrame:
    """Return the records of ``batch`` after all steps.

    Builds expressions; a job runs only if a code transform needs one for its state.
    Without ``batch``, the records count as the first batch.
    """
    return chain_frames(records, steps, batch)[-1]


def _apply(records: RecordFrame, step: Step, batch: TransformBatch) -> RecordFrame:
    before = records.named() if step.uses_names else records
    try:
        if isinstance(step.transform, CodeTransform):
            return _run_code(before, step, step.transform, batch)
        shape = step.apply(before.shape, before.types)
        if shape.shared and not before.is_wide and not before.is_flat:
            # Spark rebuilds a struct for each record if two projections use it.
            before = before.named()
            shape = step.apply(before.shape, before.types)
        return replace(before, shape=shape).settled()
    except AnalysisException as error:
        wrong = _not_analysed(before, step, error)
    except ConfigError as error:
        wrong = error
    if not before.shape.unfit:
        raise wrong
    # An earlier step has rejected records, so this step does not get the fields that it was
    # configured for: its failure does not mean that its configuration is wrong.
    refusal = UnfitRecordError(message=wrong.problem, exception=_CONFIG_EXCEPTION)
    return replace(before, shape=step.transform.refusing(before.shape, refusal)).settled()


def _run_code(
    before: RecordFrame, step: Step, transform: CodeTransform, batch: TransformBatch
) -> RecordFrame:
    try:
        return run_code(before, transform, step.condition(before.shape), batch)
    except UnfitRecordError as error:
        refused = transform.refusing(before.shape, error)
        return replace(before, shape=replace(refused, unfit=True)).settled()


def _not_analysed(before: RecordFrame, step: Step, error: AnalysisException) -> ConfigError:
    message = (error.getMessage() or str(error)).partition("\n")[0]
    wrong = ConfigError(
        problem=f"Spark cannot run this step: {message}",
        field=f"transforms.{step.transform.alias}",
        fix=f"The available fields are: {', '.join(before.shape.value.fields) or 'none'}.",
    )
    wrong.__cause__ = error
    return wrong


def constant_topic(steps: Sequence[Step], topic: str) -> str | None:
    """Return the topic that records of ``topic`` have after all steps; None if unknown.

    Reads no record, so the topic is known only if no step depends on anything but the topic.
    """
    # Only the topic may be constant here; a missing part would be a (constant) tombstone.
    key = ValueExpr.of("key", Schema.string(optional=True))
    value = ValueExpr.of("value", Schema.struct({}, optional=True))
    shape = RecordExpr(key, value, literal(topic), "partition", "headers", "timestamp")
    try:
        for step in steps:
            if not step.transform.routes:
                continue
            condition = step.condition(shape)
            if isinstance(step.transform, CodeTransform | TypedTransform) or condition not in (
                _SAME_FOR_ALL
            ):
                return None
            shape = replace(shape, topic=step.apply(shape).topic)
    except Exception:  # noqa: BLE001 - plugins may raise anything
        return None
    return literal_text(shape.topic)


def chain_frames(
    records: RecordFrame, steps: Sequence[Step], batch: TransformBatch | None = None
) -> list[RecordFrame]:
    """Return the records before the first step and after each, for a preview."""
    frames = [records]
    for step in steps:
        frames.append(_apply(frames[-1], step, batch or _FIRST))
    return frames


_NAME = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"


@dataclass(frozen=True)
class Routes:
    """Routes the records of one stream to their topics.

    Args:
        stream: The topic of the incoming records.
        own: The task's topic, the target of a stream that no step has renamed.
        staging: A folder on the topics' file system for dividing batches by topic.
    """

    stream: str
    own: str
    staging: Location
    batch: Batch

    def checked(
        self, records: RecordFrame, sinks: Sequence[FrameSink]
    ) -> tuple[RecordFrame, str | None]:
        """Return the records and their topic; None for a topic that depends on the data.

        Rejects records whose topic name is invalid.
        """
        into_topics = any(isinstance(sink, TopicWriter) for sink in sinks)
        topic = constant_text(records.frame, records.shape.topic)
        if topic is not None:
            return records, self.own if into_topics and topic == self.stream else topic
        # The topic expression may be used often below: compute it once, as a column.
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
            "' is not a valid topic name.')",
        )
        return replace(named, shape=shape), None

    def divided(self, sink: FrameSink) -> FrameSink:
        """Return a sink that accepts records of many topics in one frame."""
        return sink if sink.takes_many_topics else _Divided(sink, self)


class _Divided(SinkFront):
    """Passes a sink the records of one topic after the other.

    Stages the records as Parquet first, so that the source is read once: reading it once per
    topic costs more, and a source that returns different rows on the second read would lose
    some between two topics. For a Headrace topic, the files then stay in the topic's folder.
    """

    def __init__(self, sink: FrameSink, routes: Routes) -> None:
        super().__init__(sink)
        # Refusals depend on the topic, so the sink must verify the records of each topic.
        self.verifies = True  # type: ignore[misc]
        self._sink, self._routes = sink, routes

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        staged = _StagedByTopic()
        topics = self._sink if isinstance(self._sink, TopicsWriter) else None
        rows = topics.rows(frame, batch) if topics else frame.drop(*_voids(frame))
        with by_topic(rows, self._routes.staging, batch.mark) as folders:
            try:
                for topic, folder in folders.items():
                    mark = topic_mark(batch.mark, topic)
                    to = replace(batch, mark=mark, topic=topic, rows=None)
                    receipt = held_receipt(self._sink, mark, topic, self._routes.batch)
                    if receipt is not None:
                        staged.hold(rows_in(folder), receipt)
                    elif topics is not None:
                        staged.parts.append((topics.take(folder, rows, to), ()))
                    else:
                        self._stage(_part_of_topic(frame, rows, topic, folder), to, staged)
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
    """Each topic's write, and the records that were refused."""
    held_rows: int = 0
    held_refused: list[Refused] = field(default_factory=list)
    held_filtered: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        return self.held_rows + sum(write.rows for write, _ in self.parts)

    def refused(self) -> Sequence[Refused]:
        return [*self.held_refused, *(each for _, found in self.parts for each in found)]

    def filtered(self) -> Mapping[str, int]:
        found = Counter(self.held_filtered)
        for write, _ in self.parts:
            found.update(filtered_of(write))
        return found

    def hold(self, rows: int, receipt: str) -> None:
        refused, filtered = refused_in(receipt), filtered_in(receipt)
        self.held_rows += rows - len(refused) - sum(filtered.values())
        self.held_refused += refused
        self.held_filtered.update(filtered)

    def commit(self, receipt: str) -> None:
        """Commit the topics one by one, each under its own mark.

        Guarantee 2: after a crash in the middle, the batch runs again and skips the topics
        that already contain its mark; their receipts list the refused records.
        """
        for write, refused in self.parts:
            write.commit(receipt_with(receipt, refused, filtered_of(write)))

    def abort(self) -> None:
        for write, _ in self.parts:
            write.abort()


def _voids(frame: DataFrame) -> list[str]:
    """Return the columns of Spark's void type, which Parquet cannot store."""
    return [f.name for f in frame.schema.fields if f.dataType.typeName() == "void"]


def _part_of_topic(
    frame: DataFrame, staged: DataFrame, topic: str, folder: Location
) -> DataFrame:
    """Return the records of one topic, with the columns of ``frame``."""
    part = frame.sparkSession.read.schema(staged.drop("topic").schema)
    sqls = {"topic": literal(topic)} | dict.fromkeys(_voids(frame), "NULL")
    columns = [f"{sqls.get(name, name)} AS {name}" for name in frame.columns]
    return part.parquet(folder.spark_path).selectExpr(*columns)


def keyed_chain(steps: Sequence[Step], records: ArrowParts) -> KeyedRows | None:
    """Return the Arrow equivalent of a chain; None if only SQL can run the chain.

    Only chains of one step can have an equivalent.
    """
    if len(steps) != 1 or steps[0].predicate is not None:
        return None
    return steps[0].transform.keyed_rows(records.schema)


def inserted_rows(steps: Sequence[Step], records: ArrowParts) -> ArrowParts | None:
    """Return the output rows of a chain for inserts; None if only SQL can run the chain.

    Reading the rows raises RecordError for a record that is not an insert.
    """
    if not steps:
        return records
    keyed = keyed_chain(steps, records)
    if keyed is None:
        return None
    return replace(records, read=partial(_inserted, records.read, keyed), raw={})


def _inserted(read: Callable[[Any], _ArrowRows], keyed: KeyedRows, part: Any) -> _ArrowRows:
    for records, rejected in read(part):
        try:
            made = keyed.make(records)
        except NotKeyedError:
            made = None
        if made is None or pc.any(made.column(DELETED)).as_py():
            raise RecordError(
                problem="The source declares inserts only, but a record is not an insert."
            )
        yield made.drop_columns([DELETED]), rejected


_INTS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
# For each type, the types that it can represent without loss; the narrowest comes first.
_HOLDS: Mapping[Type, frozenset[Type]] = {
    **{kind: frozenset(_INTS[: place + 1]) for place, kind in enumerate(_INTS)},
    Type.FLOAT32: EXACT[Type.FLOAT32] | {Type.FLOAT32},
    Type.FLOAT64: EXACT[Type.FLOAT64] | {Type.FLOAT32, Type.FLOAT64},
}


@dataclass(frozen=True)
class _Misfit:
    """Values of skipped records that the merged schema cannot represent."""

    sql: str
    what: str
    new: Schema
    old: Schema


def merged_where(
    condition: str, after: RecordExpr, before: RecordExpr, transform: Transform
) -> RecordExpr:
    """Return ``after`` where the SQL condition (never null) is true, else ``before``.

    In Kafka Connect each record has its own schema; here all records of a stream share one. A
    field that one side lacks is null there, and numbers get the wider type. If the types are
    incompatible, the step's type wins: a skipped record with a value of the other type is
    rejected.
    """

    def choose(new: str | None, old: str | None) -> str | None:
        if new == old or new is None:
            return new
        other = old if old is not None else "NULL"
        return f"CASE WHEN {condition} THEN {new} ELSE {other} END"

    key, of_key = _part_where(condition, after.key, before.key, "The key")
    value, of_value = _part_where(condition, after.value, before.value, "The value")
    shape = RecordExpr(
        key=key,
        value=value,
        topic=choose(after.topic, before.topic) or before.topic,
        partition=choose(after.partition, before.partition) or before.partition,
        headers=choose(after.headers, before.headers) or before.headers,
        timestamp=choose(after.timestamp, before.timestamp) or before.timestamp,
        offset=before.offset,
        dropped=choose(after.dropped, before.dropped),
        error=choose(after.error, before.error),
        unfit=after.unfit,
        shared=after.shared,
    )
    for misfit in (*of_key, *of_value):
        held = f"NOT ({condition}) AND {misfit.sql} IS NOT NULL"
        message = (
            f"{misfit.what} has type {_name(misfit.old)} and the predicate skips the record, "
            f"but this step changes the type in its stream to {_name(misfit.new)}"
        )
        shape = transform.rejecting(shape, held, literal(message))
    return shape


def _part_where(
    condition: str, after: ValueExpr, before: ValueExpr, what: str
) -> tuple[ValueExpr, list[_Misfit]]:
    """Merge both outcomes into one schema."""
    if after == before:
        return after, []
    if after.schema is None or before.schema is None:
        return _one_where(condition, after, before), []
    if not (after.is_struct and before.is_struct):
        return _whole_where(condition, after, before, what)
    new, old = after.columns(), before.columns()
    columns, misfits = {}, []
    for name in [*old, *(name for name in new if name not in old)]:
        column, misfit = _column_where(condition, new.get(name), old.get(name), f"Field {name}")
        columns[name] = column
        misfits += misfit
    missing = _missing(condition, after, before)
    merged = replace(before.with_fields(columns), missing=missing)
    return (_optional(merged) if missing else merged), misfits


def _missing(condition: str, after: ValueExpr, before: ValueExpr) -> str | None:
    if after.missing == before.missing:
        return after.missing
    return _choice(condition, after.missing or "false", before.missing or "false")


def _column_where(
    condition: str, new: Column | None, old: Column | None, what: str
) -> tuple[Column, list[_Misfit]]:
    if new is None or old is None:
        sql, schema = new or old or ("NULL", Schema.string())
        sides = (sql, "NULL") if new else ("NULL", sql)
        return (_choice(condition, *sides), schema.replaced(optional=True)), []
    optional = new[1].optional or old[1].optional
    if _same(new[1], old[1]):
        return (_choice(condition, new[0], old[0]), new[1].replaced(optional=optional)), []
    wider = _wider(new[1], old[1])
    if wider is not None:
        kind = sql_type(wider)
        sides = (f"CAST({new[0]} AS {kind})", f"CAST({old[0]} AS {kind})")
        return (_choice(condition, *sides), wider.replaced(optional=optional)), []
    sql = _choice(condition, new[0], sql_null(new[1]))
    return (sql, new[1].replaced(optional=True)), [_Misfit(old[0], what, new[1], old[1])]


def _whole_where(
    condition: str, after: ValueExpr, before: ValueExpr, what: str
) -> tuple[ValueExpr, list[_Misfit]]:
    assert after.schema is not None
    assert before.schema is not None
    if after.is_struct or before.is_struct:
        merged = _only(after, condition)
        return merged, [_Misfit(before.sql(), what, after.schema, before.schema)]
    new, old = (after.sql(), after.schema), (before.sql(), before.schema)
    (sql, schema), misfits = _column_where(condition, new, old, what)
    return replace(after, whole=sql, schema=schema, missing=None), misfits


def _one_where(condition: str, after: ValueExpr, before: ValueExpr) -> ValueExpr:
    """Merge a part that only one side has; it is null on the other side."""
    if before.schema is None:
        return _only(after, condition)
    return _only(before, f"NOT ({condition})")


def _only(part: ValueExpr, condition: str) -> ValueExpr:
    """Return a part that is null unless the condition is true."""
    if part.schema is None:
        return part
    if part.is_struct:
        return _optional(replace(part, missing=f"(NOT ({condition}) OR {part.is_null()})"))
    return _optional(replace(part, whole=f"IF({condition}, {part.sql()}, NULL)", missing=None))


def _choice(condition: str, new: str, old: str) -> str:
    return new if new == old else f"CASE WHEN {condition} THEN {new} ELSE {old} END"


def _optional(part: ValueExpr) -> ValueExpr:
    assert part.schema is not None
    return replace(part, schema=part.schema.replaced(optional=True))


def _same(one: Schema, other: Schema) -> bool:
    # Spark uses the same type for a time of day and an integer.
    alike = one.is_logical == other.is_logical and sql_type(one) == sql_type(other)
    return alike and (not one.is_logical or one.name == other.name)


def _wider(one: Schema, other: Schema) -> Schema | None:
    if one.is_logical or other.is_logical:
        return None
    both = {one.type, other.type}
    return next((Schema(kind) for kind, held in _HOLDS.items() if both <= held), None)


def _name(schema: Schema) -> str:
    name = schema.name if schema.is_logical else None
    return (name or schema.type.value).rpartition(".")[2]
