"""Moves values from one schema to another, as SQL over their columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.sdk import RecordExpr, Schema, Type
from headrace.sdk.schema import DATE, DECIMAL, NUMBERS, TIMESTAMP, VARIANT
from headrace.sdk.sqltext import literal, quote, sql_type, sql_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.evolution.targets import Move

STAGE = "TASK_PUT"
PLUGIN = "schema.evolution"
"""The stage and the plugin in dead letters of records that do not fit."""

NESTED = {Type.STRUCT, Type.ARRAY, Type.MAP}


@dataclass(frozen=True, slots=True)
class Misfit:
    """Values that do not fit the target.

    Args:
        kind: The type that the values do not fit, as SQL.
        condition: SQL that is true for these values, and never null.
    """

    path: str
    kind: str
    condition: str


def moved_shape(shape: RecordExpr, move: Move) -> RecordExpr:
    """Return the shape with the target's schema; it rejects values that do not fit."""
    part = shape.value
    if not move.is_needed:
        same = part.schema == move.target
        return shape if same else replace(shape, value=replace(part, schema=move.target))
    if not (part.is_struct and move.members):
        shape = _rejecting(shape, move, part.sql(), "", part.missing)
        return replace(shape, value=part.with_whole(moved(move, part.sql()), move.target))
    columns = {}
    for member in move.members:
        sql = None if member.source is None else part.fields[member.source]
        columns[member.name] = moved(member.move, sql), member.move.target
        if sql is not None:
            shape = _rejecting(shape, member.move, sql, member.name, part.missing)
    return replace(shape, value=part.with_fields(columns))


def _rejecting(
    shape: RecordExpr, move: Move, sql: str, path: str, missing: str | None
) -> RecordExpr:
    for found in misfits(move, sql, path):
        condition = found.condition
        if missing is not None:  # a tombstone has no fields to check
            condition = f"NOT ({missing}) AND {condition}"
        where = f"The field {found.path}" if found.path else "The value"
        message = f"{where} does not fit the target's {found.kind}, which does not change."
        shape = shape.failing(
            condition,
            stage=STAGE,
            plugin=PLUGIN,
            exception="RecordError",
            message=literal(message),
        )
    return shape


def moved(move: Move, sql: str | None, depth: int = 0) -> str:
    """Return the SQL of the value in the target's type; null if it does not fit.

    ``sql`` is None if there is no value; ``depth`` makes the variables of nested lambdas
    distinct.
    """
    if move.source is None or sql is None:
        return sql_value(move.target, move.target.default)
    if not move.is_needed:
        return sql
    if move.members:
        pairs = ", ".join(
            f"{literal(m.name)}, {moved(m.move, _member(sql, m.source), depth)}"
            for m in move.members
        )
        return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
    if move.item is None:
        return _scalar(move.source, move.target, sql, sql_type(move.target))
    item = f"x{depth}"
    inner = moved(move.item, item, depth + 1)
    if move.key is None:
        return f"transform({sql}, {item} -> {inner})"
    keys = moved(move.key, item, depth + 1)
    return (
        f"map_from_arrays(transform(map_keys({sql}), {item} -> {keys}), "
        f"transform(map_values({sql}), {item} -> {inner}))"
    )


def misfits(move: Move, sql: str, path: str = "", depth: int = 0) -> Iterator[Misfit]:
    """Yield the conditions under which a value, or a part of it, does not fit."""
    if move.source is None:
        return
    yield from _in_fields(move, sql, path, depth)
    item = f"x{depth}"
    values = f"map_values({sql})" if move.key else sql
    for part, of, items in ((move.key, "key", f"map_keys({sql})"), (move.item, "item", values)):
        for found in misfits(part, item, f"{path} {of}", depth + 1) if part else ():
            condition = f"coalesce(exists({items}, {item} -> {found.condition}), false)"
            yield Misfit(found.path, found.kind, condition)
    if move.strict:
        yield from _of_value(move, sql, path)


def _in_fields(move: Move, sql: str, path: str, depth: int) -> Iterator[Misfit]:
    for member in move.members:
        if member.source is None:
            continue
        where = f"{path}.{member.name}".strip(".")
        for found in misfits(member.move, f"{sql}.{quote(member.source)}", where, depth):
            # A null struct has no fields to check.
            inside = f"({sql} IS NOT NULL AND {found.condition})"
            yield Misfit(found.path, found.kind, inside)


def _of_value(move: Move, sql: str, path: str) -> Iterator[Misfit]:
    kind = sql_type(move.target)
    whole = not move.members and move.item is None
    bent = _bent(move.source, move.target, sql, kind) if whole and move.source else None
    if bent is not None:
        yield Misfit(path, kind, bent)
    if not move.target.optional:
        yield Misfit(path, f"{kind} NOT NULL", f"({sql} IS NULL)")


def _member(sql: str, name: str | None) -> str | None:
    return None if name is None else f"{sql}.{quote(name)}"


def _scalar(source: Schema, target: Schema, sql: str, kind: str) -> str:
    if target.name == VARIANT:
        return (
            f"to_variant_object({sql})" if source.type in NESTED else f"CAST({sql} AS VARIANT)"
        )
    if source.type in NESTED and target.type is Type.STRING:
        return f"to_json({sql})"
    if not castable(source, target):
        return f"CAST(NULL AS {kind})"
    return f"try_cast({sql} AS {kind})"


def _bent(source: Schema, target: Schema, sql: str, kind: str) -> str | None:
    """Return SQL that is true if the cast changes the value; None if it never does."""
    if sql_type(source) == kind or (source.type in NESTED and target.type is Type.STRING):
        return None
    if not castable(source, target):
        return f"({sql} IS NOT NULL)"
    there = f"try_cast({sql} AS {kind})"
    back = f"try_cast({there} AS {sql_type(source)})"
    return f"({sql} IS NOT NULL AND NOT coalesce({back} = {sql}, false))"


def castable(source: Schema, target: Schema) -> bool:
    """Return whether casts between the types, and back, are meaningful in Spark."""
    families = {_family(source), _family(target)}
    return None not in families and (len(families) == 1 or "text" in families)


def _family(schema: Schema) -> str | None:
    if schema.is_logical:
        families = {DECIMAL: "number", DATE: DATE, TIMESTAMP: TIMESTAMP}
        return families.get(str(schema.name))
    families = {Type.STRING: "text", Type.BOOLEAN: "boolean"}
    return "number" if schema.type in NUMBERS else families.get(schema.type)
