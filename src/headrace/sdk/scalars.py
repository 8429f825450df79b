"""The types of values, and which plain Python values fit the scalar ones."""

import struct
from collections.abc import Callable, Mapping
from enum import StrEnum

__all__ = ["FLOATS", "NUMBERS", "SCALAR_VALUES", "WHOLE_NUMBERS", "Fault", "Type"]

Fault = Callable[[object], str | None]


class Type(StrEnum):
    """The types of values, by Kafka Connect's names."""

    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    BYTES = "BYTES"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"


WHOLE_NUMBERS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
FLOATS = (Type.FLOAT32, Type.FLOAT64)
NUMBERS = (*WHOLE_NUMBERS, *FLOATS)
"""From narrow to wide: each may become any that follows it, as in Kafka Connect."""


def _whole(bits: int) -> Fault:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def fault(value: object) -> str | None:
        # Not isinstance: a bool is an int by inheritance, but no whole number here.
        fits = type(value) is int and low <= value <= high
        return None if fits else f"must be a whole number from {low} to {high}"

    return fault


def _float32(value: object) -> str | None:
    if type(value) is not float:
        return "must be a float"
    try:
        struct.pack("<f", value)
    except OverflowError:
        return "must be a float that fits into 32 bits"
    return None


def _exactly(title: str, *kinds: type) -> Fault:
    def fault(value: object) -> str | None:
        return None if type(value) in kinds else f"must be {title}"

    return fault


SCALAR_VALUES: Mapping[Type, Fault] = {
    Type.INT8: _whole(8),
    Type.INT16: _whole(16),
    Type.INT32: _whole(32),
    Type.INT64: _whole(64),
    Type.FLOAT32: _float32,
    Type.FLOAT64: _exactly("a float", float),
    Type.BOOLEAN: _exactly("true or false", bool),
    Type.STRING: _exactly("a text", str),
    Type.BYTES: _exactly("bytes", bytes, bytearray, memoryview),
}
"""For each scalar type, what is wrong with a value; None if nothing."""
