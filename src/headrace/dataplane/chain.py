"""A chain of transforms, laid over a record frame; steps of code run between expressions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.code_rows import CodeRows, takes_spared
from headrace.dataplane.predicate_merge import merged_where
from headrace.dataplane.python_frames import map_in_arrow, with_texts, with_variants
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.sql import constant_text
from headrace.sdk import (
    ArrowTransform,
    CodeTransform,
    ConfigError,
    FrameTransform,
    RecordExpr,
    RecordTransform,
    Schema,
    TransformBatch,
    UnfitRecordError,
    ValueExpr,
)
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import literal, literal_text, quote
from headrace.sdk.transform import TypedTransform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import Predicate, Transform
    from headrace.sdk.transform import Types


def run_code(
    records: RecordFrame, transform: CodeTransform, condition: str, batch: TransformBatch
) -> RecordFrame:
    """Return the records after a step of code.

    Args:
        records: The records before it.
        transform: The code.
        condition: SQL that is true for the records that the step is meant for.
        batch: What they belong to.
    """
    shape, transform = records.shape, transform.running
    if shape.value.schema is None:
        return records
    output = transform.output(shape.value.schema)
    if condition != "true" and not takes_spared(output, shape.value.schema):
        raise ConfigError(
            problem="gives the value another shape, but its predicate spares some records.",
            field=f"transforms.{transform.alias}.predicate",
            fix="Let it keep all fields and add only such as may be null, remove the "
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
        records.kept,
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
    shape = records.shape
    columns = {"value": shape.value.sql()}
    if shape.key.schema is not None:
        columns["key"] = shape.key.sql()
    columns |= {
        "headers": shape.headers,
        "timestamp": shape.timestamp,
        "topic": shape.topic,
        "partition": shape.partition,
        "dropped": shape.dropped or "CAST(NULL AS STRING)",
        "error": shape.error or f"CAST(NULL AS {ERROR_TYPE})",
    }
    if shape.offset is not None:
        columns["offset"] = shape.offset
    if records.position is not None:
        columns["position"] = records.position
    return columns | {name: name for name in records.kept}


def _part(column: str, before: ValueExpr, schema: Schema | None) -> ValueExpr:
    if schema is None:
        return before
    optional = schema.replaced(optional=True)
    return ValueExpr.of(column, optional, schemaless=before.schemaless)


_FIRST = TransformBatch(1, "", datetime.fromtimestamp(0, UTC))
_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"


# Conditions that are known before any record is seen, such as one on a constant topic.
_SAME_FOR_ALL = {"true": True, "false": False}


@dataclass(frozen=True)
class Step:
    """A transform with the predicate that limits it.

    Args:
        transform: What to do.
        predicate: To which records; None for all.
        negate: Whether to do it where the predicate is false.
    """

    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    @property
    def uses_names(self) -> bool:
        """Return whether the step holds SQL that names fields."""
        return self.transform.uses_names or bool(self.predicate and self.predicate.uses_names)

    def apply(self, shape: RecordExpr, types: Types | None = None) -> RecordExpr:
        """Return the shape after this step; records that do not fit are rejected in it.

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
        """Return SQL that is true for the records that the step is meant for."""
        if self.predicate is None:
            return "true"
        condition = self.predicate.condition(shape)
        if condition in _SAME_FOR_ALL:
            return "true" if _SAME_FOR_ALL[condition] is not self.negate else "false"
        return f"NOT ({condition})" if self.negate else f"({condition})"


def apply_chain(
    records: RecordFrame, steps: Sequence[Step], batch: TransformBatch | None = None
) -> RecordFrame:
    """Return the records after all steps, which belong to ``batch``.

    Builds expressions; a job runs only where a step of code needs one for its state.
    Without a batch the records are taken for a first one.
    """
    for step in steps:
        records = _apply(records, step, batch or _FIRST)
    return records


def _apply(records: RecordFrame, step: Step, batch: TransformBatch) -> RecordFrame:
    before = records.named() if step.uses_names else records
    try:
        if isinstance(step.transform, CodeTransform):
            return _run_code(before, step, step.transform, batch)
        shape = step.apply(before.shape, before.types)
        if shape.shared and not before.is_flat:
            # A struct that goes through two projections is made anew for each record.
            before = before.named()
            shape = step.apply(before.shape, before.types)
        return replace(before, shape=shape).settled()
    except AnalysisException as error:
        wrong = _not_analysed(before, step, error)
    except ConfigError as error:
        wrong = error
    if not before.shape.unfit:
        raise wrong
    # A step before has rejected records, so these fields are not those that this step was
    # made for: that it does not fit says nothing about its configuration.
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
        fix=f"The fields here are: {', '.join(before.shape.value.fields) or 'none'}.",
    )
    wrong.__cause__ = error
    return wrong


def constant_topic(steps: Sequence[Step], topic: str) -> str | None:
    """Return the topic that records of ``topic`` have after all steps; None if unknown.

    Tells it without any record, and so only where no step looks at more than the topic.
    """
    # Nothing is to be constant but the topic: a part that is not there is a tombstone.
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
