"""Marks the records that a sink refuses as rejected records of their frame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.json_sql import json_sql
from headrace.dataplane.records import RecordFrame
from headrace.sdk import RecordExpr, Refusal, Schema, Type, ValueExpr
from headrace.sdk.sink import RECORD_ID, Refused
from headrace.sdk.sqltext import literal
from headrace.sdk.struct_exprs import has_variant

STAGE = "TASK_PUT"
_REFUSED = "refused"
_FILTERED = "left_out"
_ERROR, _DROPPED, _REASONS = "__error", "__dropped", "__refused"


def without_refused(
    rows: DataFrame, refusals: Sequence[Refusal]
) -> tuple[DataFrame, list[Refused]]:
    """Return the rows that a sink accepts, and the refused records. May run a job."""
    if not refusals:
        return rows, []
    whens = " ".join(f"WHEN {each.condition} THEN {n}" for n, each in enumerate(refusals))
    which = f"CASE {whens} END"
    bad = rows.where(f"{which} IS NOT NULL").selectExpr(RECORD_ID, f"{which} AS which")
    found = [
        Refused(record, refusals[n].exception, refusals[n].message)
        for record, n in bad.collect()
    ]
    return rows.where(f"{which} IS NULL"), found


def receipt_with(receipt: str, refused: Sequence[Refused], filtered: Mapping[str, int]) -> str:
    """Return the receipt with the refused and the filtered records of its topic added."""
    if not refused and not filtered:
        return receipt
    figures = json.loads(receipt) if receipt else {}
    own = {_REFUSED: [astuple(each) for each in refused], _FILTERED: dict(filtered)}
    return json.dumps(figures | {k: each for k, each in own.items() if each}, sort_keys=True)


def refused_in(receipt: str) -> list[Refused]:
    """Return the refused records that ``receipt_with`` stored."""
    figures = json.loads(receipt) if receipt else {}
    return [Refused(*each) for each in figures.get(_REFUSED, ())]


def filtered_in(receipt: str) -> dict[str, int]:
    """Return the counts of filtered records that ``receipt_with`` stored."""
    figures = json.loads(receipt) if receipt else {}
    return dict(figures.get(_FILTERED, {}))


def refusing(records: RecordFrame, refusals: Sequence[Refusal], title: str) -> RecordFrame:
    """Return the same records; those that the sink refuses get an error in its name."""
    if not refusals:
        return records
    records = _whole(records)
    shape = records.shape
    for refusal in refusals:
        shape = shape.failing(
            refusal.condition,
            stage=STAGE,
            plugin=title,
            exception=refusal.exception,
            message=literal(refusal.message),
        )
    return replace(records, shape=shape).settled()


def record_id(records: RecordFrame) -> str:
    """Return the SQL of the ``record_id`` of records, over the columns that sinks get.

    The id is a hash of all parts of a record only, so that a recomputed record has the same
    id in any partition.
    """
    shape = records.shape
    schemas = {"key": shape.key.schema, "value": shape.value.schema}
    parts = [_hashed(name, schema) for name, schema in schemas.items() if schema is not None]
    parts += ["headers", "timestamp", "topic", "partition"]
    parts += [] if records.position is None else ["position"]
    return f"xxhash64({', '.join(parts)})"


def with_refused(records: RecordFrame, refused: Sequence[Refused], title: str) -> RecordFrame:
    """Return the rejected records, including those that the sink refused.

    For each refusal, one record with its id is rejected; equal records share an id.
    """
    if not refused:
        return records
    numbered = record_id(records)
    whole = _whole(records)
    frame = whole.frame.selectExpr("*", f"{numbered} AS {RECORD_ID}")
    before = frame.where(f"{_ERROR} IS NOT NULL").drop(RECORD_ID)
    alive = frame.where(f"{_ERROR} IS NULL AND {_DROPPED} IS NULL")
    reasons = F.broadcast(_reasons(frame, refused))
    # Two equal records have two entries in the list of reasons of their id.
    turn = f"row_number() OVER (PARTITION BY {RECORD_ID} ORDER BY {RECORD_ID})"
    found = alive.join(reasons, RECORD_ID).selectExpr("*", f"{turn} AS __turn")
    found = found.where(f"__turn <= size({_REASONS})")
    said = f"element_at({_REASONS}, __turn)"
    error = (
        f"named_struct('stage', {literal(STAGE)}, 'plugin', {literal(title)}, "
        f"'exception', {said}.exception, 'message', {said}.message, "
        f"'raw', CAST(NULL AS STRING)) AS {_ERROR}"
    )
    columns = [error if name == _ERROR else name for name in before.columns]
    return replace(whole, frame=before.unionByName(found.selectExpr(*columns)))


def _reasons(frame: DataFrame, refused: Sequence[Refused]) -> DataFrame:
    by_id: dict[int, list[tuple[str, str]]] = {}
    for each in refused:
        by_id.setdefault(each.record, []).append((each.exception, each.message))
    kind = f"{RECORD_ID} bigint, {_REASONS} array<struct<exception:string,message:string>>"
    return frame.sparkSession.createDataFrame(list(by_id.items()), kind)


def _whole(records: RecordFrame) -> RecordFrame:
    """Return the same records with the columns that sinks get, under their names."""
    shape = records.shape
    frame = records.frame.selectExpr(
        *records.columns(),
        *(f"{sql} AS __{name}" for name, sql in records.outcome().items()),
        *records.carried,
    )
    whole = RecordExpr(
        key=_part("key", shape.key),
        value=_part("value", shape.value),
        topic="topic",
        partition="partition",
        headers="headers",
        timestamp="timestamp",
        dropped=_DROPPED,
        error=_ERROR,
        unfit=shape.unfit,
    )
    position = None if records.position is None else "position"
    return RecordFrame(frame, whole, position, records.carried)


def _part(column: str, part: ValueExpr) -> ValueExpr:
    if part.schema is None:
        return part
    return ValueExpr.of(column, part.schema, schemaless=part.schemaless)


def _hashed(column: str, schema: Schema) -> str:
    """Return SQL that Spark can hash; it cannot hash maps and variants."""
    return json_sql(column, schema) if has_variant(schema) or _has_map(schema) else column


def _has_map(schema: Schema) -> bool:
    parts = [field.schema for field in schema.fields]
    parts += [part for part in (schema.key_schema, schema.value_schema) if part is not None]
    return schema.type is Type.MAP or any(_has_map(part) for part in parts)
