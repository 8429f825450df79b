"""Values made into values of another type, by Kafka Connect's rules."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.sdk.errors import RecordError
from headrace.sdk.logical import DATE, DECIMAL, TIME, TIMESTAMP, scale_of
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema, StructValue
from headrace.sdk.values.texts import to_float32, to_string

__all__ = ["Parse", "converted"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_MILLISECOND = timedelta(milliseconds=1)
_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1

Parse = Callable[[str], Any]
"""Gives the value that a text stands for; passed in, as parsing converts and converting
parses."""


def converted(schema: Schema, value: object, parse: Parse) -> Any:
    """Give a value as one of `schema`; see `headrace.sdk.values.convert`."""
    if value is None:
        if schema.optional:
            return None
        raise RecordError(
            problem="Unable to convert a null value to a schema that requires a value"
        )
    if schema.is_logical:
        return _LOGICAL[str(schema.name)](schema, value, parse)
    if schema.type in _BITS:
        return _wrapped(_long(value), _BITS[schema.type])
    return _PLAIN[schema.type](schema, value, parse)


def _refused(value: object, wanted: object) -> RecordError:
    return RecordError(
        problem=f"Unable to convert {value} ({type(value).__name__}) to {wanted}"
    )


def _wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def _long(value: object) -> int:
    """Give a 64-bit number as Java's `longValue` does, for whatever has one."""
    match value:
        case int() | Decimal() if not isinstance(value, bool):
            return _wrapped(int(value), 64)
        case float():
            return int(min(max(value, _LONG_MIN), _LONG_MAX)) if value == value else 0  # noqa: PLR0124 - NaN
        case str():
            return _wrapped(int(_decimal_of(value)), 64)
        case date() | time():
            return _ticks(value)
        case _:
            raise _refused(value, "a number")


def _ticks(moment: date | time) -> int:
    """Give the number that Kafka Connect lays a logical type over."""
    if isinstance(moment, datetime):
        return (moment - _EPOCH) // _MILLISECOND
    if isinstance(moment, date):
        return moment.toordinal() - _EPOCH.toordinal()
    return _since_midnight(moment) // _MILLISECOND


def _double(value: object) -> float:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value)
    return float(_decimal_of(value)) if isinstance(value, str) else float(_long(value))


def _decimal_of(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise _refused(text, "a number") from error
    if not number.is_finite():
        raise _refused(text, "a number")
    return number


def _since_midnight(value: time) -> timedelta:
    return datetime.combine(_EPOCH, value, UTC) - _EPOCH


def _boolean(_: Schema, value: object, parse: Parse) -> bool:
    if isinstance(value, str):
        found = parse(value)
        if isinstance(found, bool):
            return found
    return value if isinstance(value, bool) else _long(value) != 0


def _float32(_: Schema, value: object, __: Parse) -> float:
    return to_float32(_double(value))


def _float64(_: Schema, value: object, __: Parse) -> float:
    return _double(value)


def _string(_: Schema, value: object, __: Parse) -> str | None:
    return to_string(value)


def _bytes(schema: Schema, value: object, _: Parse) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _refused(value, schema)


def _compound(schema: Schema, value: object, parse: Parse) -> Any:
    if isinstance(value, str) and schema.type is not Type.STRUCT:
        value = parse(value)
    kinds = {Type.ARRAY: (list, tuple), Type.MAP: (Mapping,), Type.STRUCT: (StructValue,)}
    if isinstance(value, kinds[schema.type]):
        return value
    raise _refused(value, schema)


def _decimal(schema: Schema, value: object, _: Parse) -> Decimal:
    match value:
        case bytes() | bytearray() | memoryview():
            scale = scale_of(schema.parameters) or 0
            return Decimal(int.from_bytes(bytes(value), signed=True)).scaleb(-scale)
        case Decimal():
            return value
        case int() | float() if not isinstance(value, bool):
            return Decimal(repr(float(value)))
        case str():
            return _decimal_of(value)
        case _:
            raise _refused(value, schema)


def _date(schema: Schema, value: object, parse: Parse) -> date:
    value = parse(value) if isinstance(value, str) else value
    if isinstance(value, datetime):
        return value.astimezone(UTC).date()
    if isinstance(value, date):
        return value
    return _after(schema, value, _DAY).date()


def _time(schema: Schema, value: object, parse: Parse) -> time:
    value = parse(value) if isinstance(value, str) else value
    if isinstance(value, datetime):
        return value.astimezone(UTC).time()
    if isinstance(value, time):
        return value
    millis = _long(value)
    if not 0 <= millis < _DAY // _MILLISECOND:
        raise _refused(value, schema)
    return (_EPOCH + millis * _MILLISECOND).time()


def _timestamp(schema: Schema, value: object, parse: Parse) -> datetime:
    value = parse(value) if isinstance(value, str) else value
    match value:
        case datetime():
            return value
        case date():
            return datetime.combine(value, time(), UTC)
        case time():
            return _EPOCH + _since_midnight(value)
        case _:
            return _after(schema, value, _MILLISECOND)


def _after(schema: Schema, value: object, unit: timedelta) -> datetime:
    try:
        return _EPOCH + _long(value) * unit
    except OverflowError as error:
        raise _refused(value, schema) from error


_PLAIN: Mapping[Type, Callable[[Schema, object, Parse], Any]] = {
    Type.BOOLEAN: _boolean,
    Type.FLOAT32: _float32,
    Type.FLOAT64: _float64,
    Type.STRING: _string,
    Type.BYTES: _bytes,
    Type.ARRAY: _compound,
    Type.MAP: _compound,
    Type.STRUCT: _compound,
}
_LOGICAL: Mapping[str, Callable[[Schema, object, Parse], Any]] = {
    DECIMAL: _decimal,
    DATE: _date,
    TIME: _time,
    TIMESTAMP: _timestamp,
}
