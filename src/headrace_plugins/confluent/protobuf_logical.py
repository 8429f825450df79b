"""Kafka Connect's logical types as messages."""

from __future__ import annotations

from datetime import date
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    precision_of,
    scale_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.sdk import Schema

_DIGITS = Context(prec=MAX_PRECISION)
_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 1_000_000
_DAY = 86_400
# The seconds of the years 1 to 9999, which are what the messages are said to hold.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
_NANOS = 1_000_000_000
_SCALES = range(-MAX_PRECISION, MAX_PRECISION * 2)
_BYTES = 32


def native_reader(schema: Schema) -> Callable[[Any], Any]:
    """Return what gives the native value of a message, as Arrow's types take it.

    It raises ValueError for a message that stands for no value of the schema.
    """
    if schema.name == DECIMAL:
        scale = scale_of(schema.parameters) or 0
        precision = precision_of(schema.parameters) or MAX_PRECISION
        return lambda message: _decimal(message, precision, scale)
    return _READERS[str(schema.name)]


def message_filler(schema: Schema) -> Callable[[Any, Any], None]:
    """Return what writes a native value into an empty message.

    It raises ValueError for a value that the message cannot hold.
    """
    if schema.name == DECIMAL:
        scale = scale_of(schema.parameters) or 0
        precision = precision_of(schema.parameters) or MAX_PRECISION
        return lambda message, value: _fill_decimal(message, value, precision, scale)
    return _FILLERS[str(schema.name)]


def _decimal(message: Any, precision: int, scale: int) -> Decimal:
    if message.scale not in _SCALES or len(message.value) > _BYTES:
        problem = f"a decimal of scale {message.scale} has too many digits"
        raise ValueError(problem)
    number = int.from_bytes(message.value, "big", signed=True)
    if message.scale > scale:
        # Only zeros may go: what is read is what was written.
        number, rest = divmod(number, 10 ** (message.scale - scale))
        if rest:
            problem = f"a decimal has more than {scale} digits after the point"
            raise ValueError(problem)
    else:
        number *= 10 ** (scale - message.scale)
    if abs(number) >= 10**precision:
        problem = f"a decimal has more than {precision} digits"
        raise ValueError(problem)
    return _DIGITS.scaleb(Decimal(number), -scale)


def _date(message: Any) -> int:
    return date(message.year, message.month, message.day).toordinal() - _EPOCH


def _time(message: Any) -> int:
    seconds = message.hours * 3600 + message.minutes * 60 + message.seconds
    fits = 0 <= message.minutes < 60 and 0 <= message.seconds < 60  # noqa: PLR2004 - clocks
    if not fits or not 0 <= seconds < _DAY or not 0 <= message.nanos < _NANOS:
        problem = "invalid time of day"
        raise ValueError(problem)
    micros: int = seconds * _SECOND + message.nanos // 1000
    return micros


def _timestamp(message: Any) -> int:
    if not _FIRST <= message.seconds <= _LAST or not 0 <= message.nanos < _NANOS:
        problem = "a timestamp is not in the years 1 to 9999"
        raise ValueError(problem)
    micros: int = message.seconds * _SECOND + message.nanos // 1000
    return micros


_READERS: dict[str, Callable[[Any], Any]] = {DATE: _date, TIME: _time, TIMESTAMP: _timestamp}


def _fill_decimal(message: Any, value: Decimal, precision: int, scale: int) -> None:
    number = int(_DIGITS.scaleb(value, scale))
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    message.value = number.to_bytes(size, "big", signed=True)
    message.precision = precision
    message.scale = scale


def _fill_date(message: Any, value: int) -> None:
    day = date.fromordinal(value + _EPOCH)
    message.year, message.month, message.day = day.year, day.month, day.day


def _fill_time(message: Any, value: int) -> None:
    seconds, micros = divmod(value, _SECOND)
    if not 0 <= seconds < _DAY:
        problem = "invalid time of day"
        raise ValueError(problem)
    message.hours, rest = divmod(seconds, 3600)
    message.minutes, message.seconds = divmod(rest, 60)
    message.nanos = micros * 1000


def _fill_timestamp(message: Any, value: int) -> None:
    seconds, micros = divmod(value, _SECOND)
    if not _FIRST <= seconds <= _LAST:
        problem = "a timestamp is not in the years 1 to 9999"
        raise ValueError(problem)
    message.seconds, message.nanos = seconds, micros * 1000


_FILLERS: dict[str, Callable[[Any, Any], None]] = {
    DATE: _fill_date,
    TIME: _fill_time,
    TIMESTAMP: _fill_timestamp,
}
