"""Cast: converts fields to other types, in SQL, or in Python for constants."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, RecordError, Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import Importance, Lambda, setting
from headrace.sdk.connectjson import to_float32, to_string
from headrace.sdk.schema import DATE, DECIMAL, FLOATS, NUMBERS, TIME, scale_of
from headrace.sdk.sqltext import FieldSyntax, literal, sql_null, sql_type
from headrace.sdk.struct_exprs import java_class
from headrace_plugins.transforms.fields import NullDefaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.sqltext import FieldPath
    from headrace.sdk.struct_exprs import Change, Column


CAST_TARGETS = (*NUMBERS, Type.BOOLEAN, Type.STRING)
"""The types that values can be cast to. Values of these types and BYTES can be cast."""

_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_WHOLE = literal(r"\A[+-]?[0-9]+\z")
# Names of special numbers: those that Java parses, and those that Spark parses.
_SPECIAL = literal(r"\A[\x00-\x20]*[+-]?(NaN|Infinity)[\x00-\x20]*\z")
_LETTERS = literal(r"\A[\x00-\x20]*[+-]?(?i:nan|inf|infinity)[\x00-\x20]*\z")
_LONG_MAX = 2**63 - 1
_LINE_END = literal("\r\n")
_CLOCK = literal("HH:mm:ss.SSS'Z'")
# BigDecimal.toString writes smaller numbers with an exponent.
_PLAIN_SCALE = 6


@dataclass(frozen=True)
class SqlCast:
    """SQL of a cast value and of the condition under which it cannot be cast.

    Args:
        sql: The new value; null where it cannot be cast.
        fault: SQL condition, never null, for values that cannot be cast; None if all can.
        message: SQL of the error message.
        shared: A function call that is part of both `sql` and `fault`, and never raises.
    """

    sql: str
    fault: str | None = None
    message: str = "''"
    shared: str | None = None


def unsupported(kind: Type) -> str:
    """Return the error message for a type whose values cannot be cast."""
    types = ", ".join((*CAST_TARGETS, Type.BYTES))
    return (
        f"Cast transformation does not support casting from {kind}; supported types are "
        f"[{types}]"
    )


def sql_cast(sql: str, schema: Schema, target: Type, *, schemaless: bool) -> SqlCast:
    """Return the cast of a value to one of CAST_TARGETS. Repeats the value's SQL."""
    if schema.is_logical and schemaless:
        message = (
            f"Cast transformation was passed a value of type class {java_class(schema)} "
            "which is not supported by Connect's data API"
        )
        return _refused(sql, target, message)
    if schema.is_logical and schema.name == DECIMAL:
        return SqlCast(_from_decimal(sql, scale_of(schema.parameters) or 0, target))
    if schema.is_logical and target is Type.STRING:
        return SqlCast(moment_text(sql, schema))
    if schema.is_logical:
        # The integer that the logical type is based on.
        number, bits = {
            DATE: (f"unix_date({sql})", 32),
            TIME: (f"CAST({sql} DIV 1000 AS INT)", 32),
        }.get(str(schema.name), (f"unix_millis({sql})", 64))
        return SqlCast(_from_whole(number, bits, target))
    if schema.type in _BITS:
        return SqlCast(_from_whole(sql, _BITS[schema.type], target))
    cast = _CASTS.get(schema.type)
    if cast is None:
        # Schemaless values have no structs, only maps.
        kind = Type.MAP if schemaless and schema.type is Type.STRUCT else schema.type
        return _refused(sql, target, unsupported(kind))
    return cast(sql, target)


def moment_text(sql: str, schema: Schema) -> str:
    """Return SQL that formats a Date, Time or Timestamp as text.

    Kafka Connect chooses the format by the instant and not by the type: a time of day before
    1970-01-02, a date at midnight, and a timestamp otherwise.
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


def _from_whole(sql: str, bits: int, target: Type) -> str:
    if target is Type.BOOLEAN:
        return f"({sql} <> 0)"
    if _BITS.get(target, 64) < bits:
        return _wrapped(sql, target)
    return f"CAST({sql} AS {sql_type(Schema(target))})"


def _wrapped(sql: str, target: Type) -> str:
    """Keep the lowest bits, as a signed number (two's complement)."""
    mask, half = 2 ** _BITS[target] - 1, 2 ** (_BITS[target] - 1)
    return f"CAST((({sql} & {mask}L) ^ {half}L) - {half}L AS {sql_type(Schema(target))})"


def _from_float(sql: str, target: Type) -> SqlCast:
    if target is Type.BOOLEAN:
        return SqlCast(f"(NOT isnan({sql}) AND abs({sql}) >= 1)")
    if target in (Type.INT8, Type.INT16):
        return SqlCast(_wrapped(_saturated(sql, 32), target))
    if target in (Type.INT32, Type.INT64):
        return SqlCast(_saturated(sql, _BITS[target]))
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


def _from_string(sql: str, target: Type) -> SqlCast:
    if target is Type.STRING:
        return SqlCast(sql)
    if target is Type.BOOLEAN:
        return SqlCast(f"(lower({sql}) = 'true')")
    cast = f"try_cast({sql} AS {sql_type(Schema(target))})"
    if target in FLOATS:
        # Words parse to infinity or NaN, as digits do only if there are far too many of them:
        # checking the number first spares most texts the regular expressions.
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
    return _refused(sql, target, _BYTES_ERROR)


_BYTES_ERROR = f"Unexpected type in Cast transformation: class {java_class(Schema.bytes())}"
_CASTS: Mapping[Type, Callable[[str, Type], SqlCast]] = {
    Type.FLOAT32: _from_float,
    Type.FLOAT64: _from_float,
    Type.BOOLEAN: lambda sql, to: SqlCast(f"CAST({sql} AS {sql_type(Schema(to))})"),
    Type.STRING: _from_string,
    Type.BYTES: _from_bytes,
}


_COMPOUND = (Type.ARRAY, Type.MAP, Type.STRUCT)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY_MILLIS = 86_400_000
_WHOLE_TEXT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_HEX = re.compile(
    r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


def cast_value(schema: Schema, value: Any, target: Type) -> Any:
    """Cast a value, not None, of a schema to another type; see `sql_cast`.

    Raises RecordError with Kafka Connect's message if the value cannot be cast.
    """
    if not schema.is_logical and schema.type in _COMPOUND:
        raise RecordError(problem=unsupported(schema.type))
    if target is Type.STRING:
        return _text(value, float32=schema.type is Type.FLOAT32)
    if isinstance(value, str):
        return _parsed(value, target)
    if isinstance(value, bytes | bytearray | memoryview):
        raise RecordError(problem=_BYTES_ERROR)
    number = _number(value)
    if target is Type.BOOLEAN:
        if isinstance(number, float):
            return _saturated_value(number, 64) != 0
        return _wrapped_value(int(number), 64) != 0
    if target is Type.FLOAT64:
        return float(number)
    if target is Type.FLOAT32:
        return to_float32(float(number))
    bits = _BITS[target]
    whole = (
        _saturated_value(number, max(bits, 32)) if isinstance(number, float) else int(number)
    )
    return _wrapped_value(whole, bits)


def _number(value: Any) -> int | float | Decimal:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, date):
        return value.toordinal() - _EPOCH.toordinal()
    if isinstance(value, time):
        return (datetime.combine(_EPOCH, value, UTC) - _EPOCH) // _MILLISECOND
    number: int | float | Decimal = int(value) if isinstance(value, bool) else value
    return number


def _parsed(text: str, target: Type) -> bool | int | float:
    if target is Type.BOOLEAN:
        return text.lower() == "true"
    bits = _BITS.get(target)
    if bits is None:
        number = _parsed_float(text.strip("".join(map(chr, range(33)))))
        if number is not None:
            return number if target is Type.FLOAT64 else to_float32(number)
    elif _WHOLE_TEXT.fullmatch(text) and _wrapped_value(int(text), bits) == int(text):
        return int(text)
    raise RecordError(problem=f"Value ({text}) was out of range for requested data type")


def _parsed_float(text: str) -> float | None:
    if _FLOAT.fullmatch(text):
        return float(text.rstrip("fFdD"))
    found = _HEX.fullmatch(text)
    return float.fromhex(found[1]) if found else None


def _wrapped_value(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _saturated_value(number: float, bits: int) -> int:
    if math.isnan(number):
        return 0
    half = 1 << (bits - 1)
    return int(number) if -half <= number < half else (half - 1 if number > 0 else -half)


def _text(value: Any, *, float32: bool) -> str:
    match value:
        case datetime():
            return _moment(value)
        case date():
            return _moment(datetime.combine(value, time(), UTC))
        case time():
            return _moment(datetime.combine(_EPOCH, value, UTC))
        case _:
            return to_string(value, float32=float32) or ""


def _moment(instant: datetime) -> str:
    millis = (instant - _EPOCH) // _MILLISECOND
    clock = instant.astimezone(UTC).time().isoformat("milliseconds") + "Z"
    if millis < _DAY_MILLIS:
        return clock
    day = instant.astimezone(UTC).date().isoformat()
    return day if millis % _DAY_MILLIS == 0 else f"{day}T{clock}"


_PURPOSE = "cast types"


def _check_spec(_: str, value: object) -> None:
    pairs = list(value) if isinstance(value, list | tuple) else []
    if not pairs:
        raise _wrong(problem="Must specify at least one field to cast.")
    kinds = [_check_pair(str(pair), pairs) for pair in pairs]
    if None in kinds and len(pairs) > 1:
        raise _wrong(
            problem="Cast transformations that specify a type to cast the entire value to may "
            "only specify a single cast in their spec"
        )


def _check_pair(pair: str, pairs: list[str]) -> str | None:
    """Return the field; None if the pair is a single type for the whole key or value."""
    # Java's split drops empty strings at the end.
    parts = pair.rstrip(":").split(":")
    if len(parts) > 2:  # noqa: PLR2004 - a field and a type
        raise _wrong(
            problem=f"Invalid value [{', '.join(pairs)}] for configuration renames: "
            f"Invalid rename mapping: {pair}"
        )
    kind = parts[-1].strip().upper()
    if kind not in Type.__members__:
        raise _wrong(problem=f"Invalid type found in casting spec: {parts[-1].strip()}")
    if Type(kind) not in CAST_TARGETS:
        raise _wrong(
            problem=f"Cast transformation does not support casting to {kind}; supported types "
            f"are [{', '.join(CAST_TARGETS)}]"
        )
    return parts[0] if len(parts) > 1 else None


def _wrong(*, problem: str) -> ConfigError:
    fix = "Write field:type pairs, or a single type for the whole key or value."
    return ConfigError(problem=problem, field="spec", fix=fix)


class CastSettings(NullDefaults, FieldSyntax):
    """The settings of ``Cast``."""

    spec: tuple[str, ...] = setting(
        "field:type pairs, or a single type for the whole key or value. Types: "
        f"{', '.join(CAST_TARGETS).lower()}. Bytes can only be cast to string.",
        validator=Lambda(_check_spec, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz"),
        importance=Importance.HIGH,
    )


class Cast(Transform):
    """Converts fields, or the whole key or value, to another type, with Java's rules.

    Integers that are too large wrap. Floating point numbers lose their fraction and saturate
    at the limits of the type. Strings must contain a number and nothing else. A record with a
    value that cannot be cast is rejected. Null stays null.
    """

    aliases = ("org.apache.kafka.connect.transforms.Cast",)

    settings: CastSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        spec = self.settings.spec
        if ":" not in spec[0]:
            return self._apply_whole(shape, Type(spec[0].upper()))
        part = self._struct(shape)
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        pairs = [pair.split(":") for pair in spec]
        targets = {
            self.settings.field_path(name.strip()): Type(kind.strip().upper())
            for name, kind in pairs
        }
        casts = self._casts(part, targets)
        changes: dict[FieldPath, Change] = {}
        for path, new in casts.items():
            if path.parent is not None and changes:
                # A nested field may be inside a field that is changed before.
                part, changes = part.changed(changes), {}
            found = _found(part, path)
            if found is None:
                part = self._absent(part, path, new)
                continue
            shape = self._faulty(shape, part, found, new)
            changes[path] = self._change(part, new)
            if path.parent is not None:
                part, changes = part.changed(changes), {}
        return self.with_part(shape, part.changed(changes) if changes else part)

    def _struct(self, shape: RecordExpr) -> ValueExpr:
        part = self.part(shape)
        if part.schema is None or part.schemaless or part.is_struct:
            return self.struct(shape, _PURPOSE)
        # Kafka Connect checks the schema before the value.
        message = "Cannot list fields on non-struct type"
        raise UnfitRecordError(message=message, where=f"NOT {part.is_null()}")

    def _casts(
        self, part: ValueExpr, targets: Mapping[FieldPath, Type]
    ) -> dict[FieldPath, Schema]:
        """Return the new schema of each field, in the record's order.

        The order decides which error a record gets; defaults are cast before values.
        """
        places = {name: number for number, name in enumerate(part.columns())}
        casts = {}
        for path in sorted(targets, key=lambda path: places.get(path.steps[0], len(places))):
            found = _found(part, path)
            bare = Schema(targets[path], optional=True)
            try:
                casts[path] = bare if found is None else self._schema(found[1], targets[path])
            except UnfitRecordError as error:
                where = f"NOT {part.is_null()}"
                raise UnfitRecordError(message=error.message, where=where) from error
        return casts

    def _faulty(
        self, shape: RecordExpr, part: ValueExpr, found: Column, new: Schema
    ) -> RecordExpr:
        """Reject the records whose field cannot be cast."""
        cast = sql_cast(*found, new.type, schemaless=part.schemaless)
        if cast.fault is None:
            return shape
        fault = f"NOT {part.is_null()} AND {cast.fault}"
        return self.rejecting(shape, fault, cast.message).sharing(cast.shared)

    def _change(self, part: ValueExpr, new: Schema) -> Change:
        def change(own: str, own_schema: Schema) -> Column:
            changed = sql_cast(own, own_schema, new.type, schemaless=part.schemaless)
            return changed.sql, new.replaced(optional=own_schema.optional)

        return change

    def _absent(self, part: ValueExpr, path: FieldPath, new: Schema) -> ValueExpr:
        """Skip a missing field, as Kafka Connect does; in schemaless values add it as null."""
        parent_missing = path.parent is not None and _found(part, path.parent) is None
        if not part.schemaless or parent_missing:
            return part
        return part.inserted(path, sql_null(new), new)

    def _schema(self, schema: Schema, target: Type) -> Schema:
        if schema.default is None:
            return Schema(target, optional=schema.optional)
        try:
            default = cast_value(schema, schema.default, target)
        except RecordError as error:
            raise UnfitRecordError(message=error.problem) from error
        return Schema(target, optional=schema.optional, default=default)

    def _apply_whole(self, shape: RecordExpr, target: Type) -> RecordExpr:
        part = self.part(shape)
        if part.schema is None:
            return shape
        cast = sql_cast(part.sql(), part.schema, target, schemaless=part.schemaless)
        if cast.fault is not None:
            shape = self.rejecting(shape, cast.fault, cast.message).sharing(cast.shared)
        try:
            schema = self._schema(part.schema, target)
        except UnfitRecordError as error:
            where = f"NOT {part.is_null()}"
            raise UnfitRecordError(message=error.message, where=where) from error
        if not part.schema.is_logical:
            # A Date that became a number must not keep the name of the logical type.
            schema = schema.replaced(
                name=part.schema.name,
                version=part.schema.version,
                doc=part.schema.doc,
                parameters=part.schema.parameters,
            )
        return self.with_part(shape, part.with_whole(cast.sql, schema))


def _found(part: ValueExpr, path: FieldPath) -> Column | None:
    """Find a field. Unlike Kafka Connect, a path through a value without fields is no error."""
    try:
        return part.find(path)
    except UnfitRecordError:
        return None
