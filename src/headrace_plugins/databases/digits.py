"""Precision of columns: types to widen, and values that would lose digits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.sdk import Refusal, Schema, Type
from headrace.sdk.schema import (
    DECIMAL,
    FLOATS,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    WHOLE_NUMBERS,
    precision_of,
    scale_of,
)
from headrace.sdk.schema_evolution import evolve
from headrace_plugins.databases.catalog import stated_type

if TYPE_CHECKING:
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Database
    from headrace_plugins.databases.rows import RecordRows

_MICROSECONDS = 6
"""The fractional-second digits of time values."""


def wider_type(database: Database, column: Column, comes: Schema) -> str | None:
    """Return the column type for both the existing and the new values.

    None if the column already accepts the new values, or if there is no such type.
    """
    larger = _wider(column.schema, comes)
    if larger is not None:
        return database.column_type(larger)
    own, stated = stated_type(comes)
    is_same = comes.name == column.schema.name and comes.is_local == column.schema.is_local
    if own == database.kind and is_same and _is_timed(comes):
        grown = replace(column, type=stated)
        if database.second_digits(column) < database.second_digits(grown):
            return stated
    return None


def _wider(there: Schema, comes: Schema) -> Schema | None:
    """Return the schema of a number column for both the existing and the new values."""
    if _is_decimal(there) and _is_decimal(comes):
        return _more_digits(there, comes)
    numbers = {*WHOLE_NUMBERS, *FLOATS}
    if {there.type, comes.type} - numbers or there.is_logical or comes.is_logical:
        return None
    bare = there.replaced(parameters={}, optional=True, default=None)
    wider = evolve(bare, comes.replaced(parameters={}, optional=True, default=None))
    return None if wider.type is there.type else wider


def _more_digits(there: Schema, comes: Schema) -> Schema | None:
    old, new = _decimal_digits(there), _decimal_digits(comes)
    if (precision_of(comes.parameters) or MAX_PRECISION) == MAX_PRECISION:
        new = 0, new[1]  # with unknown precision, the integer digits are unknown too
    whole, scale = max(old[0], new[0]), max(old[1], new[1])
    if (whole, scale) == old or whole + scale > MAX_PRECISION:
        return None
    return Schema.decimal(scale, precision=whole + scale, optional=True)


def _decimal_digits(schema: Schema) -> tuple[int, int]:
    """Return the integer digits and the scale of a Decimal."""
    scale = scale_of(schema.parameters) or 0
    return (precision_of(schema.parameters) or MAX_PRECISION) - scale, scale


def lost_digits(database: Database, rows: RecordRows, columns: list[Column]) -> list[Refusal]:
    """Return refusals of records whose values have more digits than their columns.

    Databases round or truncate such values, most of them silently.
    """
    found = []
    for column in columns:
        field = rows.schema.field(column.name)
        if field is None:
            continue
        lost = _lost(database, column, field.schema, rows.value_sql(column.name))
        if lost is not None:
            found.append(
                Refusal(
                    condition=f"coalesce({lost}, false)",
                    problem=f"A value has more digits than the column {column.name} of type "
                    f"{column.type} can store.",
                    fix="Change the column to a type with more digits, or round the values "
                    "with a transform.",
                    field=column.name,
                )
            )
    return found


def _lost(database: Database, column: Column, schema: Schema, sql: str) -> str | None:
    """Return the condition that a value loses digits in a column; None if none can."""
    own, stated = stated_type(schema)
    if own == database.kind and stated == column.type and not _is_decimal(schema):
        return None
    if (scale := database.kept_scale(column)) is not None:
        return _lost_of_number(schema, sql, scale)
    is_timed = _is_timed(column.schema) or column.type.startswith("interval")
    if not database.cuts_seconds or not is_timed:
        return None
    digits = database.second_digits(column)
    if digits >= _MICROSECONDS:
        return None
    if schema.type is Type.STRING and not schema.is_logical:
        return _lost_of_text(sql, digits)
    if not _is_timed(schema):
        return None
    if schema.name == TIME:
        return f"{sql} % {10 ** (_MICROSECONDS - digits)} <> 0"
    return f"extract(SECOND FROM {sql}) % CAST('1E-{digits}' AS DECIMAL(7, 6)) <> 0"


def _lost_of_number(schema: Schema, sql: str, scale: int) -> str | None:
    if _is_decimal(schema) or (schema.type in WHOLE_NUMBERS and not schema.is_logical):
        if (scale_of(schema.parameters) or 0) <= scale:
            return None
        # Spark rounds in comparisons with DECIMAL(38); a remainder is exact.
        least = max(scale, 1 - MAX_PRECISION)
        unit = f"DECIMAL({abs(least) + 1}, {max(least, 0)})"
        return f"CAST({sql} % CAST('1E{-least}' AS {unit}) AS BOOLEAN)"
    if schema.is_logical:
        return None
    if schema.type is Type.STRING:
        return _lost_of_text(sql, max(scale, 0))
    return f"{sql} <> round({sql}, {scale})" if schema.type in FLOATS else None


def _lost_of_text(sql: str, digits: int) -> str:
    return f"{sql} RLIKE '[.][0-9]{{{digits}}}0*[1-9]|[0-9][eE]-'"


def _is_decimal(schema: Schema) -> bool:
    return schema.is_logical and schema.name == DECIMAL


def _is_timed(schema: Schema) -> bool:
    return schema.is_logical and schema.name in {TIME, TIMESTAMP}
