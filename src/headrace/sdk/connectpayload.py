"""Payloads as Kafka Connect's JSON converter writes them.

A payload holds days since 1970 for a Date, milliseconds since midnight for a Time, milliseconds
since 1970 for a Timestamp, base64 for bytes, and a number or base64 for a Decimal.

The other side of a payload here is *native*: what Arrow takes for the type that `to_arrow`
gives. That is a dictionary for a struct, a list of pairs for a map, and whole numbers for the
logical types of time: days, and microseconds. A Variant is a JSON text on both sides.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from headrace.sdk.errors import RecordError
from headrace.sdk.logical import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    scale_of,
)
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema
from headrace.sdk.struct import Struct
from headrace.sdk.value_text import to_float32
from headrace.sdk.variants import check_json

__all__ = ["json_from_native", "native_from_json", "native_from_value", "value_from_native"]

_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLI = 1_000
DAY_MILLIS = 86_400_000
"""The most milliseconds that a Time of Kafka Connect's may have."""
_FLOAT32 = struct.Struct("<f")
_DIGITS = Context(prec=MAX_PRECISION)


def native_from_json(schema: Schema, payload: object, *, path: str = "") -> Any:
    """Give a payload as Arrow takes it.

    A null stays null where the schema is optional; where it is required its default is taken.

    Raises:
        RecordError: The payload does not fit the schema; `field` is the path.
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
    """Give the payload of a native value, which `native_from_json` reads as the same value.

    A Decimal becomes a number where a floating point number says it exactly, else, or if it is
    to be a text, base64 of its digits. Numbers that JSON has no word for become texts, "NaN"
    and "Infinity".
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
            return _number(schema, value)
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


def _number(schema: Schema, value: float) -> float | str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value if schema.type is Type.FLOAT64 else _shortest(value)


def _shortest(value: float) -> float:
    """Give the number with the fewest digits that is the same float of 32 bits."""
    for digits in (7, 8):
        short = float(f"{value:.{digits}g}")
        with suppress(OverflowError):  # rounded up beyond the largest
            if _FLOAT32.unpack(_FLOAT32.pack(short))[0] == value:
                return short
    return float(f"{value:.9g}")


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
    except (TypeError, ValueError) as error:  # an item that is no pair
        raise _misfit(schema, payload, path) from error
    return list(dict(read).items())  # as in any map, the last of equal keys stays


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
    """Read a text that holds JSON: Connect has no type for values of any kind."""
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


def _times(factor: int) -> Callable[[Schema, object, str], int]:
    return lambda schema, payload, path: _whole(schema, payload, path) * factor


_LOGICAL_READERS: Mapping[str, Callable[[Schema, object, str], Any]] = {
    DECIMAL: _decimal,
    DATE: _whole,
    TIME: _time,
    TIMESTAMP: _times(_MILLI),
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
    """Give a native value as the data API has it."""
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
    """Give a value of the data API as Arrow takes it."""
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
            since = datetime.combine(_EPOCH, value, tzinfo=UTC) - _EPOCH
            return since // _MICROSECOND
        case _:
            return value
