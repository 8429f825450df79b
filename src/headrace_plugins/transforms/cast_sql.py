"""Casts between Kafka Connect's types as Java does them, in Spark SQL.

Whole numbers wrap, floating point numbers saturate at the bounds of 32 or 64 bits, texts
must be numbers to the letter, and nothing raises: what cannot be cast is null, with a
condition and a message that say so.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk import Schema, Type
from headrace.sdk.schema import DATE, DECIMAL, FLOATS, NUMBERS, TIME, scale_of
from headrace.sdk.sqltext import literal, sql_null, sql_type
from headrace.sdk.struct_exprs import java_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CAST_TARGETS = (*NUMBERS, Type.BOOLEAN, Type.STRING)
"""The types that values can be cast to; those and BYTES can be cast."""

_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_WHOLE = literal(r"\A[+-]?[0-9]+\z")
# What Java reads and what Spark reads on top of it, as names of special numbers.
_SPECIAL = literal(r"\A[\x00-\x20]*[+-]?(NaN|Infinity)[\x00-\x20]*\z")
_LETTERS = literal(r"\A[\x00-\x20]*[+-]?(?i:nan|inf|infinity)[\x00-\x20]*\z")
_LONG_MAX = 2**63 - 1
_LINE_END = literal("\r\n")
_CLOCK = literal("HH:mm:ss.SSS'Z'")
# BigDecimal.toString writes smaller numbers with an exponent.
_PLAIN_SCALE = 6


@dataclass(frozen=True)
class SqlCast:
    """A cast value, and which values cannot be cast.

    Args:
        sql: The new value; null where it cannot be cast.
        fault: SQL condition, never null, for what cannot be cast; None if all can.
        message: SQL text that says why.
        shared: A function call that both hold, which never raises.
    """

    sql: str
    fault: str | None = None
    message: str = "''"
    shared: str | None = None


def supported(types: tuple[Type, ...]) -> str:
    """Name types as Java prints a set of them."""
    return f"[{', '.join(types)}]"


def unsupported(kind: Type) -> str:
    """Say that values of a type cannot be cast."""
    types = supported((*CAST_TARGETS, Type.BYTES))
    return (
        f"Cast transformation does not support casting from {kind}; supported types are {types}"
    )


def sql_cast(sql: str, schema: Schema, target: Type, *, schemaless: bool) -> SqlCast:
    """Give the cast of a value, which must be used more than once, to another type.

    Args:
        sql: The value.
        schema: Its schema.
        target: One of CAST_TARGETS.
        schemaless: Whether the value travels without the schema.
    """
    if schema.is_logical and schemaless:
        message = (
            f"Cast transformation was passed a value of type class {java_class(schema)} "
            "which is not supported by Connect's data API"
        )
        return _refused(sql, target, message)
    if schema.is_logical and schema.name != DECIMAL:
        if target is Type.STRING:
            return SqlCast(moment_text(sql, schema))
        encoded, bits = _encoded(sql, schema)
        return SqlCast(_from_whole(encoded, bits, target))
    if schema.is_logical:
        return SqlCast(_from_decimal(sql, scale_of(schema.parameters) or 0, target))
    if schema.type in _BITS:
        return SqlCast(_from_whole(sql, _BITS[schema.type], target))
    cast = _CASTS.get(schema.type)
    if cast is None:
        # Without a schema there are no structs.
        kind = Type.MAP if schemaless and schema.type is Type.STRUCT else schema.type
        return _refused(sql, target, unsupported(kind))
    return cast(sql, target)


def moment_text(sql: str, schema: Schema) -> str:
    """Give the text of a Date, Time or Timestamp.

    Kafka Connect chooses the form by the instant and not by the type: a time of day before
    1970-01-02, a date at midnight, and an instant else.
    """
    if schema.name == TIME:
        return _clock(f"timestamp_micros({sql})")
    day = literal("yyyy-MM-dd")
    if schema.name == DATE:
        text = f"trim(LEADING '+' FROM date_format({sql}, {day}))"
        return f"IF({sql} <= DATE'1970-01-01', '00:00:00.000Z', {text})"
    millis = f"unix_millis({sql})"
    date = f"trim(LEADING '+' FROM date_format({sql}, {day}))"
    return (
        f"CASE WHEN {millis} < 86400000 THEN {_clock(sql)} "
        f"WHEN {millis} % 86400000 = 0 THEN {date} "
        f"ELSE concat({date}, 'T', {_clock(sql)}) END"
    )


def _clock(sql: str) -> str:
    return f"date_format({sql}, {_CLOCK})"


def _refused(sql: str, target: Type, message: str) -> SqlCast:
    return SqlCast(sql_null(Schema(target)), f"({sql} IS NOT NULL)", literal(message))


def _encoded(sql: str, schema: Schema) -> tuple[str, int]:
    """Give the whole number that a logical type is laid over, and its bits."""
    if schema.name == DATE:
        return f"unix_date({sql})", 32
    if schema.name == TIME:
        return f"CAST({sql} DIV 1000 AS INT)", 32
    return f"unix_millis({sql})", 64


def _from_whole(sql: str, bits: int, target: Type) -> str:
    if target is Type.BOOLEAN:
        return f"({sql} <> 0)"
    if _BITS.get(target, 64) < bits:
        return _wrapped(sql, target)
    return f"CAST({sql} AS {sql_type(Schema(target))})"


def _wrapped(sql: str, target: Type) -> str:
    """Keep the lowest bits, the highest of them as the sign."""
    mask, half = 2 ** _BITS[target] - 1, 2 ** (_BITS[target] - 1)
    return f"CAST((({sql} & {mask}L) ^ {half}L) - {half}L AS {sql_type(Schema(target))})"


def _from_float(sql: str, target: Type) -> SqlCast:
    if target is Type.BOOLEAN:
        return SqlCast(f"(NOT isnan({sql}) AND abs({sql}) >= 1)")
    if target is Type.INT64:
        return SqlCast(_saturated(sql, 64))
    if target in (Type.INT8, Type.INT16):
        return SqlCast(_wrapped(_saturated(sql, 32), target))
    if target is Type.INT32:
        return SqlCast(_saturated(sql, 32))
    return SqlCast(f"CAST({sql} AS {sql_type(Schema(target))})")


def _saturated(sql: str, bits: int) -> str:
    name = "INT" if bits == 32 else "BIGINT"  # noqa: PLR2004 - one of two
    high = 2 ** (bits - 1)
    edge = float(high)
    return (
        f"CASE WHEN isnan({sql}) THEN CAST(0 AS {name}) "
        f"WHEN {sql} >= {edge!r}D THEN CAST('{high - 1}' AS {name}) "
        f"WHEN {sql} <= -{edge!r}D THEN CAST('-{high}' AS {name}) "
        f"ELSE try_cast({sql} AS {name}) END"
    )


def _from_decimal(sql: str, scale: int, target: Type) -> str:
    if target is Type.STRING:
        return _decimal_text(sql, scale)
    if target in FLOATS:
        return f"CAST({sql} AS {sql_type(Schema(target))})"
    whole = sql if scale == 0 else f"IF({sql} < 0, ceil({sql}), floor({sql}))"
    low = f"pmod(CAST({whole} AS DECIMAL(38, 0)), 18446744073709551616BD)"
    signed = f"IF({low} > {_LONG_MAX}BD, {low} - 18446744073709551616BD, {low})"
    return _from_whole(
        f"coalesce(try_cast({whole} AS BIGINT), CAST({signed} AS BIGINT))", 64, target
    )


def _decimal_text(sql: str, scale: int) -> str:
    plain = f"CAST({sql} AS STRING)"
    if scale <= _PLAIN_SCALE:
        return plain
    digits = f"regexp_replace({plain}, '^-?0[.]?0*(?=.)', '')"
    exponent = f"length({digits}) - {scale + 1}"
    return (
        f"IF(abs({sql}) >= 0.000001BD, {plain}, concat(IF({sql} < 0, '-', ''), "
        f"left({digits}, 1), IF(length({digits}) > 1, concat('.', substr({digits}, 2)), ''), "
        f"'E', CAST({exponent} AS STRING)))"
    )


def _from_boolean(sql: str, target: Type) -> SqlCast:
    return SqlCast(
        sql if target is Type.BOOLEAN else f"CAST({sql} AS {sql_type(Schema(target))})"
    )


def _from_string(sql: str, target: Type) -> SqlCast:
    if target is Type.STRING:
        return SqlCast(sql)
    if target is Type.BOOLEAN:
        return SqlCast(f"(lower({sql}) = 'true')")
    cast = f"try_cast({sql} AS {sql_type(Schema(target))})"
    if target in FLOATS:
        # Words give what no digits do but by far too many, so that few texts are looked at.
        word = f"{sql} RLIKE {_LETTERS} AND NOT {sql} RLIKE {_SPECIAL}"
        number = f"IF(abs({cast}) > {sys.float_info.max!r}D AND {word}, NULL, {cast})"
    else:
        cast = f"try_cast(IF({sql} RLIKE {_WHOLE}, {sql}, NULL) AS {sql_type(Schema(target))})"
        number = cast
    message = f"concat('Value (', {sql}, ') was out of range for requested data type')"
    return SqlCast(number, f"({sql} IS NOT NULL AND {number} IS NULL)", message, shared=cast)


def _from_bytes(sql: str, target: Type) -> SqlCast:
    if target is Type.STRING:
        # Spark breaks the text into lines.
        return SqlCast(f"translate(base64({sql}), {_LINE_END}, '')")
    return _refused(
        sql, target, f"Unexpected type in Cast transformation: class {_BYTES_CLASS}"
    )


_BYTES_CLASS = java_class(Schema.bytes())
_CASTS: Mapping[Type, Callable[[str, Type], SqlCast]] = {
    Type.FLOAT32: _from_float,
    Type.FLOAT64: _from_float,
    Type.BOOLEAN: _from_boolean,
    Type.STRING: _from_string,
    Type.BYTES: _from_bytes,
}
