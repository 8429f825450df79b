"""Casts of single values as Java does them: those of defaults, when a chain is compiled."""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.connectjson import to_string
from headrace_plugins.transforms.cast_sql import unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPOUND = (Type.ARRAY, Type.MAP, Type.STRUCT)

_BITS: Mapping[Type, int] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY_MILLIS = 86_400_000
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_HEX = re.compile(
    r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


def cast_value(schema: Schema, value: Any, target: Type) -> Any:
    """Cast a value, not None, of a schema to another type; see `sql_cast`.

    Raises:
        RecordError: It cannot be cast; the problem is what Kafka Connect says.
    """
    if not schema.is_logical and schema.type in _COMPOUND:
        raise RecordError(problem=unsupported(schema.type))
    if target is Type.STRING:
        return _text(value, float32=schema.type is Type.FLOAT32)
    if isinstance(value, str):
        return _parsed(value, target)
    if isinstance(value, bytes | bytearray | memoryview):
        raise RecordError(problem="Unexpected type in Cast transformation: class [B")
    number = _number(value)
    if target is Type.BOOLEAN:
        return _long(number) != 0
    if target is Type.FLOAT64:
        return float(number)
    if target is Type.FLOAT32:
        return _float32(float(number))
    bits = _BITS[target]
    whole = _saturated(number, max(bits, 32)) if isinstance(number, float) else int(number)
    return _wrapped(whole, bits)


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
            return number if target is Type.FLOAT64 else _float32(number)
    elif _WHOLE.fullmatch(text) and _wrapped(int(text), bits) == int(text):
        return int(text)
    raise RecordError(problem=f"Value ({text}) was out of range for requested data type")


def _parsed_float(text: str) -> float | None:
    if _FLOAT.fullmatch(text):
        return float(text.rstrip("fFdD"))
    found = _HEX.fullmatch(text)
    return float.fromhex(found[1]) if found else None


def _wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _saturated(number: float, bits: int) -> int:
    if math.isnan(number):
        return 0
    half = 1 << (bits - 1)
    return int(number) if -half <= number < half else (half - 1 if number > 0 else -half)


def _long(number: float | Decimal) -> int:
    if isinstance(number, float):
        return _saturated(number, 64)
    return _wrapped(int(number), 64)


def _float32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


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
