"""Merges the shape of the records that a step changes with that of the records it skips.

In Kafka Connect each record has its own schema; here all records of a stream share one. A field
that one side lacks is null there, and numbers get the wider type. If the types are
incompatible, the step's type wins: a skipped record with a value of the other type is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.evolution.diff import EXACT
from headrace.sdk import RecordExpr, Schema, Transform, Type, ValueExpr
from headrace.sdk.sqltext import literal, sql_null, sql_type
from headrace.sdk.struct_exprs import Column

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
    """Return ``after`` where the SQL condition (never null) is true, else ``before``."""

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
