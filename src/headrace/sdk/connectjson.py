"""Schemas and values in the forms that Kafka Connect writes: JSON, and the texts of headers.

A payload contains days since 1970 for a Date, milliseconds since midnight for a Time,
milliseconds since 1970 for a Timestamp, base64 for bytes, and a number or base64 for a Decimal.

The functions convert between payloads and *native* values: the values that Arrow accepts for
the type from `to_arrow`. These are a dictionary for a struct, a list of pairs for a map, and
integers for the logical types of time: days or microseconds. A Variant is a JSON text on both
sides.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from headrace.sdk.config.values import java_double
from headrace.sdk.errors import ConfigError, RecordError
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    Schema,
    Type,
    day_micros,
    scale_of,
)
from headrace.sdk.struct import Struct
from headrace.sdk.struct_exprs import check_json

_LOGICAL = {DECIMAL: "decimal", DATE: "date", TIME: "time", TIMESTAMP: "timestamp"}
_FLOAT32_DIGITS = 9


def type_name(schema: Schema | None) -> str | None:
    """Return the name of a header's type: `int8`, `string`, `array` and so on.

    The logical types are `decimal`, `date`, `time` and `timestamp`. A value without a schema
    has no type.
    """
    if schema is None:
        return None
    logical = _LOGICAL[str(schema.name)] if schema.is_logical else None
    return logical or schema.type.value.lower()


def to_string(value: object, *, float32: bool = False) -> str | None:
    """Return a value as text, like Kafka's `Values.convertToString`; None for None.

    One difference: dates, times and timestamps are each written in their own form. Kafka
    chooses the form by the instant, so a timestamp at midnight becomes a date, and anything
    before 1970-01-02 a time of day. With `float32`, floats in the value have 32 bits, and so
    fewer digits. Raises RecordError: Kafka Connect does not have the value's type.
    """
    return None if value is None else _text(value, float32=float32, embedded=False)


def _text(value: object, *, float32: bool, embedded: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return java_double(value, _shortest_float32(value) if float32 else "")
        case int() | Decimal():
            return str(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"' if embedded else value
        case bytes() | bytearray() | memoryview():
            text = base64.b64encode(bytes(value)).decode()
            return f'"{text}"' if embedded else text
        case date() | time():
            return _moment(value)
        case _:
            return _compound_text(value, float32=float32)


def _compound_text(value: object, *, float32: bool) -> str:
    def text(item: object) -> str:
        return _text(item, float32=float32, embedded=True)

    if isinstance(value, list | tuple):
        return f"[{','.join(map(text, value))}]"
    if isinstance(value, Struct):
        value = {f.name: value[f.name] for f in value.schema.fields}
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{text(key)}:{text(item)}' for key, item in value.items())}}}"
    raise RecordError(
        problem=f"Failed to serialize unexpected value type {type(value).__name__}: {value}"
    )


def _moment(value: date | time) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"
    if isinstance(value, time):
        return value.isoformat("milliseconds") + "Z"
    return value.isoformat()


def _shortest_float32(value: float) -> str:
    """Return the shortest decimal text that parses to the same 32-bit float."""
    texts = (f"{value:.{digits}g}" for digits in range(1, _FLOAT32_DIGITS + 1))
    # A value beyond 32 bits has no such text.
    return next((text for text in texts if to_float32(float(text)) == value), repr(value))


def to_float32(value: float | Decimal) -> float:
    """Round a number to a 32-bit float; a number that is too large becomes infinite."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLI = 1_000
DAY_MILLIS = 86_400_000
"""The maximum number of milliseconds of a Kafka Connect Time."""
_DIGITS = Context(prec=MAX_PRECISION)


def native_from_json(schema: Schema, payload: object, *, path: str = "") -> Any:
    """Convert a payload to a native value, which Arrow accepts.

    A null stays null if the schema is optional; otherwise it becomes the schema's default.
    Raises RecordError: the payload does not fit the schema; `field` is the path.
    """
    if payload is None:
        if schema.optional:
            return None
        if schema.default is None:
            problem = f"Invalid null value for required {schema.type.value} field"
            raise RecordError(problem, field=path or None)
        return native_from_value(schema, schema.default)
    if schema.is_logical:
        return _LOGICAL_READERS[str(schema.name)](schema, payload, path)
    return _READERS[schema.type](schema, payload, path)


def json_from_native(schema: Schema, value: Any, *, decimals_as_text: bool = False) -> Any:
    """Convert a native value to a payload; `native_from_json` returns the same value.

    A Decimal becomes a number if a floating point number represents it exactly; otherwise, or
    with `decimals_as_text`, it becomes base64 of its digits. Numbers that JSON lacks become the
    strings "NaN" and "Infinity".
    """
    if value is None:
        return None
    if schema.is_logical:
        as_text = decimals_as_text and schema.name == DECIMAL
        write = _base64_digits if as_text else _LOGICAL_WRITERS[str(schema.name)]
        return write(schema, value)
    match schema.type:
        case Type.STRUCT | Type.ARRAY | Type.MAP:
            return _compound(schema, value, decimals_as_text=decimals_as_text)
        case Type.BYTES:
            return base64.b64encode(value).decode()
        case Type.FLOAT32 | Type.FLOAT64:
            if not math.isfinite(value):
                return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
            short = schema.type is Type.FLOAT32
            return float(_shortest_float32(value)) if short else value
        case _:
            return value


def _compound(schema: Schema, value: Any, *, decimals_as_text: bool) -> Any:
    def inner(part: Schema, item: Any) -> Any:
        return json_from_native(part, item, decimals_as_text=decimals_as_text)

    if schema.type is Type.STRUCT:
        return {f.name: inner(f.schema, value[f.name]) for f in schema.fields}
    keys, values = schema.key_schema, schema.value_schema
    assert values is not None
    if keys is None:
        return [inner(values, item) for item in value]
    pairs = [[inner(keys, key), inner(values, item)] for key, item in value]
    return dict(pairs) if keys.type is Type.STRING else pairs


def _bad(*, problem: str, at: str) -> RecordError:
    return RecordError(problem, field=at or None)


def _misfit(schema: Schema, payload: object, path: str) -> RecordError:
    shown = str(payload)[:50]  # enough to find it by
    kind = schema.type.value
    return _bad(problem=f"Invalid JSON for schema of type {kind}: {shown}", at=path)


def _whole(schema: Schema, payload: object, path: str) -> int:
    bits = _BITS[schema.type]
    if type(payload) is not int or not -(1 << bits - 1) <= payload < 1 << bits - 1:
        raise _misfit(schema, payload, path)
    return payload


def _float(schema: Schema, payload: object, path: str) -> float:
    if type(payload) in {int, float, Decimal} or payload in ("NaN", "Infinity", "-Infinity"):
        number = float(payload)  # type: ignore[arg-type]  # one of the three kinds just named
        return to_float32(number) if schema.type is Type.FLOAT32 else number
    raise _misfit(schema, payload, path)


def _exactly(kind: type) -> Callable[[Schema, object, str], Any]:
    def read(schema: Schema, payload: object, path: str) -> Any:
        if type(payload) is not kind:
            raise _misfit(schema, payload, path)
        return payload

    return read


def _bytes(schema: Schema, payload: object, path: str) -> bytes:
    if not isinstance(payload, str):
        raise _misfit(schema, payload, path)
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise _misfit(schema, payload, path) from error


def _array(schema: Schema, payload: object, path: str) -> list[Any]:
    if not isinstance(payload, list) or schema.value_schema is None:
        raise _misfit(schema, payload, path)
    items = schema.value_schema
    return [
        native_from_json(items, item, path=f"{path}[{number}]")
        for number, item in enumerate(payload)
    ]


def _map(schema: Schema, payload: object, path: str) -> list[tuple[Any, Any]]:
    keys, values = schema.key_schema, schema.value_schema
    form = Mapping if keys is not None and keys.type is Type.STRING else list
    if keys is None or values is None or not isinstance(payload, form):
        raise _misfit(schema, payload, path)
    try:
        pairs = list(payload.items()) if isinstance(payload, Mapping) else payload
        read = [
            (
                native_from_json(keys, key, path=f"{path} key"),
                native_from_json(values, item, path=f"{path}[{key!r}]"),
            )
            for key, item in pairs
        ]
    except (TypeError, ValueError) as error:  # an item that is not a pair
        raise _misfit(schema, payload, path) from error
    return list(dict(read).items())  # as in any map, the last of equal keys wins


def _struct(schema: Schema, payload: object, path: str) -> dict[str, Any]:
    if not isinstance(payload, Mapping):
        raise _misfit(schema, payload, path)
    return {
        member.name: native_from_json(
            member.schema, payload.get(member.name), path=f"{path}.{member.name}".strip(".")
        )
        for member in schema.fields
    }


_READERS: Mapping[Type, Callable[[Schema, object, str], Any]] = {
    **dict.fromkeys(_BITS, _whole),
    Type.FLOAT32: _float,
    Type.FLOAT64: _float,
    Type.BOOLEAN: _exactly(bool),
    Type.STRING: _exactly(str),
    Type.BYTES: _bytes,
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}


def _decimal(schema: Schema, payload: object, path: str) -> Decimal:
    scale = scale_of(schema.parameters) or 0
    if isinstance(payload, str):
        unscaled = int.from_bytes(_bytes(schema, payload, path), "big", signed=True)
        return Decimal(unscaled).scaleb(-scale, _DIGITS)
    if type(payload) not in {int, float, Decimal}:
        raise _misfit(schema, payload, path)
    try:
        return Decimal(str(payload)).quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
    except InvalidOperation as error:
        raise _misfit(schema, payload, path) from error


def _json_text(schema: Schema, payload: object, path: str) -> str:
    """Read a JSON text: Kafka Connect has no type for arbitrary values."""
    if not isinstance(payload, str):
        raise _misfit(schema, payload, path)
    check_json(payload, path=path)
    return payload


def _time(schema: Schema, payload: object, path: str) -> int:
    millis = _whole(schema, payload, path)
    if not 0 <= millis <= DAY_MILLIS:
        problem = (
            "Time values must use number of milliseconds greater than 0 and less than "
            f"{DAY_MILLIS}"
        )
        raise _bad(problem=problem, at=path)
    return millis * _MILLI


def _timestamp(schema: Schema, payload: object, path: str) -> int:
    micros = _whole(schema, payload, path) * _MILLI
    if not -(1 << 63) <= micros < 1 << 63:
        raise _misfit(schema, payload, path)
    return micros


_LOGICAL_READERS: Mapping[str, Callable[[Schema, object, str], Any]] = {
    DECIMAL: _decimal,
    DATE: _whole,
    TIME: _time,
    TIMESTAMP: _timestamp,
    VARIANT: _json_text,
}


def _digits(schema: Schema, value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value)
    if Decimal(str(float(value))) == value:
        return float(value)
    return _base64_digits(schema, value)


def _base64_digits(schema: Schema, value: Decimal) -> str:
    unscaled = int(value.scaleb(scale_of(schema.parameters) or 0, _DIGITS))
    width = (unscaled.bit_length() + 8) // 8
    return base64.b64encode(unscaled.to_bytes(width, "big", signed=True)).decode()


_LOGICAL_WRITERS: Mapping[str, Callable[[Schema, Any], Any]] = {
    DECIMAL: _digits,
    DATE: lambda _, value: value,
    TIME: lambda _, value: value // _MILLI,
    TIMESTAMP: lambda _, value: value // _MILLI,
    VARIANT: lambda _, value: value,
}


def value_from_native(schema: Schema, native: Any) -> Any:
    """Convert a native value to a value of Kafka Connect's data API."""
    if native is None:
        return None
    if schema.is_logical:
        return _LOGICAL_TYPED[str(schema.name)](native)
    match schema.type:
        case Type.STRUCT:
            values = {
                f.name: value_from_native(f.schema, native[f.name]) for f in schema.fields
            }
            return Struct(schema, {name: v for name, v in values.items() if v is not None})
        case Type.ARRAY if schema.value_schema is not None:
            return [value_from_native(schema.value_schema, item) for item in native]
        case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
            keys, values_ = schema.key_schema, schema.value_schema
            return {
                value_from_native(keys, key): value_from_native(values_, item)
                for key, item in native
            }
        case _:
            return native


_LOGICAL_TYPED: Mapping[str, Callable[[Any], Any]] = {
    DECIMAL: lambda value: value,
    DATE: lambda days: date.fromordinal(_EPOCH.toordinal() + days),
    TIME: lambda micros: (_EPOCH + timedelta(microseconds=micros)).time(),
    TIMESTAMP: lambda micros: _EPOCH + timedelta(microseconds=micros),
    VARIANT: lambda text: text,
}


def native_from_value(schema: Schema, value: Any) -> Any:
    """Convert a value of Kafka Connect's data API to a native value, which Arrow accepts."""
    match value:
        case Struct():
            return {
                field.name: native_from_value(field.schema, value.get_without_default(field))
                for field in value.schema.fields
            }
        case Mapping() if schema.key_schema is not None and schema.value_schema is not None:
            keys, values = schema.key_schema, schema.value_schema
            return [
                (native_from_value(keys, key), native_from_value(values, item))
                for key, item in value.items()
            ]
        case list() | tuple() if schema.value_schema is not None:
            return [native_from_value(schema.value_schema, item) for item in value]
        case datetime():
            return (value - _EPOCH) // _MICROSECOND
        case date():
            return value.toordinal() - _EPOCH.toordinal()
        case time():
            return day_micros(value)
        case _:
            return value


_NAMES: Mapping[Type, str] = {
    **{type_: type_.value.lower() for type_ in Type},
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
}
_TYPES = {name: type_ for type_, name in _NAMES.items()}


def connect_schema(tree: object) -> Schema | None:
    """Return the schema for a JSON form; None for null, which means no schema.

    Raises RecordError: the JSON is not a valid schema; `field` is the path to the invalid part.
    """
    return None if tree is None else _schema(tree, "")


def connect_json(
    schema: Schema | None, *, decimals_as_text: bool = False
) -> dict[str, Any] | None:
    """Return the JSON form of a schema; None for no schema.

    With `decimals_as_text`, Decimal defaults are base64 of their digits, never numbers.
    """
    if schema is None:
        return None

    def inner(part: Schema | None) -> dict[str, Any]:
        return connect_json(part, decimals_as_text=decimals_as_text) or {}

    tree: dict[str, Any] = {"type": _NAMES[schema.type], "optional": schema.optional}
    if schema.type is Type.STRUCT:
        tree["fields"] = [{**inner(own.schema), "field": own.name} for own in schema.fields]
    elif schema.key_schema is not None:
        tree["keys"] = inner(schema.key_schema)
        tree["values"] = inner(schema.value_schema)
    elif schema.value_schema is not None:
        tree["items"] = inner(schema.value_schema)
    native = native_from_value(schema, schema.default)
    facts = {
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters) or None,
        "default": json_from_native(schema, native, decimals_as_text=decimals_as_text),
    }
    return tree | {name: fact for name, fact in facts.items() if fact is not None}


def _schema(tree: object, path: str) -> Schema:
    if not isinstance(tree, Mapping) or not isinstance(tree.get("type"), str):
        raise _bad(problem="Schema must contain 'type' field", at=path)
    if (type_ := _TYPES.get(tree["type"])) is None:
        raise _bad(problem=f"Unknown schema type: {tree['type']}", at=path)
    try:
        bare = Schema(
            type_,
            optional=_attribute(tree, "optional", bool, path) or False,
            name=_attribute(tree, "name", str, path),
            version=_attribute(tree, "version", int, path),
            doc=_attribute(tree, "doc", str, path),
            parameters=_parameters(tree, path),
            **_parts(type_, tree, path),
        )
        if tree.get("default") is None:
            return bare
        default = native_from_json(bare, tree["default"], path=path)
        return bare.replaced(default=value_from_native(bare, default))
    except ConfigError as error:
        raise _bad(problem=error.problem, at=error.field or path) from error


def _attribute(tree: Mapping[str, Any], name: str, kind: type, path: str) -> Any:
    value = tree.get(name)
    if value is not None and type(value) is not kind:
        raise _bad(problem=f"Invalid schema {name}: must be a {_WORDS[kind]}", at=path)
    return value


_PARTS = {"items": "element type", "keys": "key type", "values": "value type"}
_WORDS = {bool: "boolean", str: "string", int: "whole number"}


def _parameters(tree: Mapping[str, Any], path: str) -> Mapping[str, str]:
    texts = tree.get("parameters") or {}
    if not isinstance(texts, Mapping) or not all(isinstance(v, str) for v in texts.values()):
        raise _bad(problem="Schema parameters must map strings to strings", at=path)
    return texts


def _parts(type_: Type, tree: Mapping[str, Any], path: str) -> dict[str, Any]:
    match type_:
        case Type.ARRAY:
            return {"value_schema": _part(tree, "items", path)}
        case Type.MAP:
            keys, values = _part(tree, "keys", path), _part(tree, "values", path)
            return {"key_schema": keys, "value_schema": values}
        case Type.STRUCT:
            return {"fields": Schema.struct(_members(tree, path)).fields}
        case _:
            return {}


def _part(tree: Mapping[str, Any], name: str, path: str) -> Schema:
    if tree.get(name) is None:
        part = _PARTS[name]
        raise _bad(problem=f"{tree['type'].title()} schema did not specify the {part}", at=path)
    return _schema(tree[name], f"{path} {name}".strip())


def _members(tree: Mapping[str, Any], path: str) -> dict[str, Schema]:
    fields = tree.get("fields")
    if not isinstance(fields, list):
        raise _bad(problem='Struct schema\'s "fields" argument is not an array.', at=path)
    members: dict[str, Schema] = {}
    for field in fields:
        name = field.get("field") if isinstance(field, Mapping) else None
        if not isinstance(name, str) or not name:
            raise _bad(problem="Struct schema's field name not specified properly", at=path)
        if name in members:
            problem = f"Cannot create field because of field name duplication {name}"
            raise _bad(problem=problem, at=path)
        members[name] = _schema(field, f"{path}.{name}".strip("."))
    return members
