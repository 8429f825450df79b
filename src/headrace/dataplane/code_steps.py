"""Steps of a chain that are code: they run over the record columns, between expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.code_rows import CodeRows, takes_spared
from headrace.dataplane.nulllists import map_in_arrow
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.sql import constant_text
from headrace.dataplane.variants import with_texts, with_variants
from headrace.sdk import (
    ArrowTransform,
    ConfigError,
    FrameTransform,
    RecordExpr,
    RecordTransform,
    Schema,
    ValueExpr,
)
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sdk import CodeTransform, TransformBatch


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
