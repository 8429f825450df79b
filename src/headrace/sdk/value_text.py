"""The text of a value, as a header carries it."""

import base64
import math
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal

from headrace.sdk.errors import RecordError
from headrace.sdk.logical import DATE, DECIMAL, TIME, TIMESTAMP
from headrace.sdk.schema import Schema, StructValue
from headrace.sdk.struct import Struct

__all__ = ["to_float32", "to_string", "type_name"]

_LOGICAL = {DECIMAL: "decimal", DATE: "date", TIME: "time", TIMESTAMP: "timestamp"}
# Java writes numbers between these without an exponent.
_JAVA_PLAIN = (1e-3, 1e7)
_FLOAT32_DIGITS = 9


def type_name(schema: Schema | None) -> str | None:
    """Give the name of a header's type: `int8`, `string`, `array` and so on.

    The logical types are `decimal`, `date`, `time` and `timestamp`. A value without a schema
    has no type.
    """
    if schema is None:
        return None
    logical = _LOGICAL[str(schema.name)] if schema.is_logical else None
    return logical or schema.type.value.lower()


def to_string(value: object, *, float32: bool = False) -> str | None:
    """Give a value's text: what `Values.convertToString` gives, None for None.

    One thing differs: a date, a time and a timestamp are each written in their own form. Kafka
    chooses the form by the instant, so that a timestamp at midnight becomes a date, and
    anything before 1970-01-02 a time of day.

    Args:
        value: The value.
        float32: Whether floats in it have 32 bits, and so fewer digits.

    Raises:
        RecordError: The value is of no type that Kafka Connect has.
    """
    return None if value is None else _text(value, float32=float32, embedded=False)


def _text(value: object, *, float32: bool, embedded: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value, float32=float32)
        case int() | Decimal():
            return str(value)
        case str():
            return _quoted(value) if embedded else value
        case bytes() | bytearray() | memoryview():
            text = base64.b64encode(bytes(value)).decode()
            return f'"{text}"' if embedded else text
        case date() | time():
            return _moment(value)
        case _:
            return _compound(value, float32=float32)


def _compound(value: object, *, float32: bool) -> str:
    def text(item: object) -> str:
        return _text(item, float32=float32, embedded=True)

    if isinstance(value, list | tuple):
        return f"[{','.join(map(text, value))}]"
    if isinstance(value, StructValue):
        assert isinstance(value, Struct)
        value = {f.name: value[f.name] for f in value.schema.fields}
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{text(key)}:{text(item)}' for key, item in value.items())}}}"
    raise RecordError(
        problem=f"Failed to serialize unexpected value type {type(value).__name__}: {value}"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _moment(value: date | time) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"
    if isinstance(value, time):
        return value.isoformat("milliseconds") + "Z"
    return value.isoformat()


def _float(value: float, *, float32: bool) -> str:
    """Write a float as Java's `toString` does: the fewest digits, and E for an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    digits = Decimal(_shortest_float32(value) if float32 else repr(value))
    if value == 0 or _JAVA_PLAIN[0] <= abs(value) < _JAVA_PLAIN[1]:
        text = format(digits, "f")
        return text if "." in text else f"{text}.0"
    sign, figures, exponent = digits.as_tuple()
    written = "".join(map(str, figures)).rstrip("0")
    power = len(figures) - 1 + int(exponent)
    return f"{'-' if sign else ''}{written[0]}.{written[1:] or '0'}E{power}"


def _shortest_float32(value: float) -> str:
    texts = (f"{value:.{digits}g}" for digits in range(1, _FLOAT32_DIGITS + 1))
    # A value beyond 32 bits has no such text.
    return next((text for text in texts if to_float32(float(text)) == value), repr(value))


def to_float32(value: float | Decimal) -> float:
    """Round a number to a float of 32 bits; one that is too large becomes infinite."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded
