"""Kafka Connect's logical types, by their schema names, and which values fit them."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal

from headrace.sdk.scalars import Type

__all__ = [
    "DATE",
    "DECIMAL",
    "LOGICAL_BASES",
    "LOGICAL_VALUES",
    "MAX_PRECISION",
    "PRECISION",
    "SCALE",
    "TIME",
    "TIMESTAMP",
    "VARIANT",
    "decimal_fault",
    "decimal_parameters",
    "precision_of",
    "scale_of",
]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
VARIANT = "headrace.Variant"
"""Ours: any JSON value. In Spark's frames it is a VARIANT, everywhere else its JSON text."""

SCALE = "scale"
LOGICAL_BASES: Mapping[str, Type] = {
    DECIMAL: Type.BYTES,
    DATE: Type.INT32,
    TIME: Type.INT32,
    TIMESTAMP: Type.INT64,
    VARIANT: Type.STRING,
}
"""The type that each logical type is laid over."""

# Kafka's Decimal has no precision; connectors for databases agree on this parameter.
PRECISION = "connect.decimal.precision"
# Spark's and Arrow's decimal128 hold no more digits.
MAX_PRECISION = 38


def scale_of(parameters: Mapping[str, str]) -> int | None:
    """Give a Decimal's scale, or None if the parameter is missing or no whole number."""
    return _whole(parameters.get(SCALE))


def precision_of(parameters: Mapping[str, str]) -> int | None:
    """Give a Decimal's precision, or None if it has none."""
    return _whole(parameters.get(PRECISION))


def decimal_parameters(scale: int, precision: int | None) -> dict[str, str]:
    """Give the parameters of a Decimal."""
    return {SCALE: str(scale)} | ({} if precision is None else {PRECISION: str(precision)})


def decimal_fault(parameters: Mapping[str, str]) -> str | None:
    """Say what is wrong with a Decimal's parameters; None if nothing."""
    if scale_of(parameters) is None:
        return "A Decimal needs the parameter scale, a whole number."
    if PRECISION in parameters and not 1 <= (precision_of(parameters) or 0) <= MAX_PRECISION:
        return f"The precision of a Decimal must be from 1 to {MAX_PRECISION}."
    return None


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _decimal_fault(value: object, parameters: Mapping[str, str]) -> str | None:
    if type(value) is not Decimal:
        return "must be a Decimal"
    if not value.is_finite():
        return "must be a finite Decimal"
    scale, precision = scale_of(parameters), precision_of(parameters)
    if scale is None:
        return "cannot be checked, as the schema's parameter scale is no whole number"
    _, digits, exponent = value.as_tuple()
    shift = int(exponent) + scale
    number = int("".join(map(str, digits)))
    if shift < 0 and number % 10**-shift:
        return f"must have at most {scale} digits after the point"
    if precision is not None and number and len(str(number)) + shift > precision:
        return f"must have at most {precision - scale} digits before the point"
    return None


def _date_fault(value: object, _: Mapping[str, str]) -> str | None:
    # A datetime is a date by inheritance, but Kafka's Date has no time part.
    return None if type(value) is date else "must be a date without a time"


def _time_fault(value: object, _: Mapping[str, str]) -> str | None:
    fits = type(value) is time and value.tzinfo is None
    return None if fits else "must be a time without a time zone"


def _timestamp_fault(value: object, _: Mapping[str, str]) -> str | None:
    fits = isinstance(value, datetime) and value.utcoffset() is not None
    return None if fits else "must be a datetime with a time zone"


def _variant_fault(value: object, _: Mapping[str, str]) -> str | None:
    return None if type(value) is str else "must be a JSON text"


LOGICAL_VALUES: Mapping[str, Callable[[object, Mapping[str, str]], str | None]] = {
    DECIMAL: _decimal_fault,
    DATE: _date_fault,
    TIME: _time_fault,
    TIMESTAMP: _timestamp_fault,
    VARIANT: _variant_fault,
}
"""For each logical type, what is wrong with a value for given parameters; None if nothing."""
