"""Applies the chain of transforms to records, and finds the topic of each record."""

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
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.dataplane.code_rows import CodeRows, takes_unchanged
from headrace.dataplane.delivery import (
    filtered_in,
    filtered_of,
    held_receipt,
    receipt_with,
    refused_in,
    refused_of,
    without_refused,
)
from headrace.dataplane.predicate_merge import merged_where
from headrace.dataplane.python_frames import map_in_arrow, with_texts, with_variants
from headrace.dataplane.records import RecordFrame, constant_text
from headrace.dataplane.sinks import SinkFront
from headrace.dataplane.topic_sinks import (
    TopicsWriter,
    TopicWriter,
    by_topic,
    rows_in,
    topic_mark,
)
from headrace.model import Batch
from headrace.sdk import (
    ArrowParts,
    ArrowTransform,
    CodeTransform,
    ConfigError,
    FrameSink,
    FrameTransform,
    Mark,
    Predicate,
    RecordError,
    RecordExpr,
    RecordTransform,
    Schema,
    SinkBatch,
    Transform,
    TransformBatch,
    UnfitRecordError,
    ValueExpr,
)
from headrace.sdk.keyed_rows import DELETED, KeyedRows, NotKeyedError
from headrace.sdk.location import Location
from headrace.sdk.sink import RECORD_ID, Refused, StagedWrite
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import literal, literal_text, quote
from headrace.sdk.transform import TypedTransform, Types

_ArrowRows: TypeAlias = Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]


def run_code(
    records: RecordFrame, transform: CodeTransform, condition: str, batch: TransformBatch
) -> RecordFrame:
    """Return the records after a transform that runs Python code."""
    shape, transform = records.shape, transform.running
    if shape.value.schema is None:
        return records
    output = transform.output(shape.value.schema)
    if condition != "true" and not takes_unchanged(output, shape.value.schema):
        raise ConfigError(
            problem="Records that the predicate skips do not fit the transform's schema.",
            field=f"transforms.{transform.alias}.predicate",
            fix="Make the transform keep all fields and add only optional fields, remove the "
            "predicate, or send these records to a topic of their own.",
        )
    columns = _columns(records) | {"applies": shape.alive(condition)}
    named = [f"{sql} AS {quote(name)}" for name, sql in columns.items()]
    before = records.frame.selectExpr(*named)
    after = _ran(transform, before, shape, output, batch)
    settled = {name: name for name in ("headers", "timestamp", "partition", "dropped", "error")}
    topic = constant_text(records.frame, shape.topic)
    return RecordFrame(
        after,
        RecordExpr(
            key=_part("key", shape.key, shape.key.schema),
            value=_part("value", shape.value, output),
            topic="topic" if topic is None or transform.routes else literal(topic),
            offset="offset" if shape.offset is not None else None,
            unfit=shape.unfit,
            shared=(),
            **settled,
        ),
        "position" if records.position else None,
        records.carried,
    )


def _ran(
    transform: CodeTransform,
    before: DataFrame,
    shape: RecordExpr,
    output: Schema,
    batch: TransformBatch,
) -> DataFrame:
    if isinstance(transform, FrameTransform):
        return transform.frame(before, batch).drop("applies")
    assert isinstance(transform, ArrowTransform | RecordTransform)
    assert shape.value.schema is not None
    rows = CodeRows(transform, shape.value.schema, shape.key.schema, output)
    before = with_texts(before, shape.value.schema, shape.key.schema)
    value = Schema.struct({"value": output.replaced(optional=True)})
    kind = T.StructType.fromJson(to_spark_json(value))["value"]
    fields = [
        kind if field.name == "value" else field
        for field in before.schema.fields
        if field.name != "applies"
    ]
    after = map_in_arrow(before, rows.run, T.StructType(fields))
    return with_variants(after, output.replaced(optional=True), shape.key.schema)


def _columns(records: RecordFrame) -> dict[str, str]:
    columns = records.parts() | records.outcome()
    if records.shape.key.schema is None:
        del columns["key"]
    if records.shape.offset is not None:
        columns["offset"] = records.shape.offset
    if records.position is not None:
        columns["position"] = records.position
    return columns | {name: name for name in records.carried}


def _part(column: str, before: ValueExpr, schema: Schema | None) -> ValueExpr:
    if schema is None:
        return before
    optional = schema.replaced(optional=True)
    return ValueExpr.of(column, optional, schemaless=before.schemaless)


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
