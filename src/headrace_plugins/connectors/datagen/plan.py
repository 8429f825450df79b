"""The plan of the rows: columns, seeds, and the constants that SQL and numpy code share.

The hash function is XXH64 of a single 8-byte lane (https://github.com/Cyan4973/xxHash, doc
xxhash_spec.md), chained over the arguments from seed 42 as in Spark's ``xxhash64``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.sdk import Schema, Type
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator


Hashes: TypeAlias = npt.NDArray[np.uint64]

_SPARK_SEED = 42
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANE_BYTES = np.uint64(8)


def hashes(salt_number: int, rows: npt.NDArray[np.int64]) -> Hashes:
    """Return Spark's ``xxhash64(salt, row)`` of each row, unsigned."""
    start = np.array([_SPARK_SEED], dtype=np.uint64)
    seed = _lane(np.array([salt_number], dtype=np.uint64), start)
    return _lane(rows.view(np.uint64), seed)


def _lane(values: Hashes, seed: Hashes) -> Hashes:
    # In place from here on: a fresh array for each step would cost half of the time.
    mixed = values * _P2
    mixed = _rotated(mixed, 31)
    mixed *= _P1
    mixed ^= seed + _P5 + _LANE_BYTES
    mixed = _rotated(mixed, 27)
    mixed *= _P1
    mixed += _P4
    mixed ^= mixed >> np.uint64(33)
    mixed *= _P2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _P3
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _rotated(values: Hashes, bits: int) -> Hashes:
    high = values << np.uint64(bits)
    values >>= np.uint64(64 - bits)
    high |= values
    return high


ITEMS = 3
"""The maximum length of an array or map; all lengths from 0 are equally likely."""
RANGES = {Type.INT8: 100, Type.INT16: 10_000, Type.INT32: 1_000_000, Type.INT64: 2**53}
"""The exclusive upper bound of integers; the lower bound is 0."""
UNIT = 1.1102230246251565e-16
"""2**-53: turns 53 random bits into a number from 0 to below 1."""
DAYS = 365
"""Dates are within this many days from the start time."""
STEP_MICROS = 1000
"""The interval between the timestamps of consecutive rows."""
_DECIMAL_DIGITS = 9
"""Decimals have no more digits than this, so that amounts look like amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that determines the value of each row; equal plans make equal rows."""

    schema: Schema
    seed: int = 0
    start: datetime = field(default=datetime(2025, 1, 1, tzinfo=UTC))
    """The timestamp of row 0, and the first date."""
    nulls: float = 0.0
    """The share of nulls in nullable columns, from 0 to 1."""

    @property
    def start_micros(self) -> int:
        """The start time in microseconds since 1970."""
        return (self.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    @property
    def start_day(self) -> int:
        """The start time in days since 1970."""
        return self.start_micros // 86_400_000_000

    def salt(self, path: str) -> int:
        """Return a hash of the seed and the column ``path``.

        The hash has at most 62 bits, so that it is a plain literal in SQL.
        """
        digest = hashlib.blake2b(f"{self.seed}/{path}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 2

    def columns(self) -> Iterator[tuple[str, Schema]]:
        """Yield the name and schema of each column."""
        return ((member.name, member.schema) for member in self.schema.fields)

    def is_row_number(self, path: str, schema: Schema) -> bool:
        """Return whether the column contains the row number, as ``id BIGINT`` does."""
        return path == "id" and schema.type is Type.INT64 and not schema.is_logical


def kind(schema: Schema) -> str:
    """Return the kind of value, which is the name of the ``_Column`` method that makes it."""
    if schema.is_logical:
        return str(schema.name).rpartition(".")[2].lower()
    if schema.type in RANGES:
        return "whole"
    return "real" if schema.type in FLOATS else schema.type.value.lower()


def decimal_sizes(schema: Schema) -> tuple[int, int, int]:
    """Return ``(precision, scale, limit)``; unscaled values are below ``limit``."""
    arrow = to_arrow_type(schema)
    return arrow.precision, arrow.scale, 10 ** min(arrow.precision, _DECIMAL_DIGITS)


def part(schema: Schema | None) -> Schema:
    """Return the schema of items, keys or values; raise TypeError for None."""
    if schema is None:
        message = "only arrays and maps have parts"
        raise TypeError(message)
    return schema


def map_keys(schema: Schema) -> list[str] | list[int] | None:
    """Return all keys that maps may contain, in order; None for unsupported key types."""
    if schema.type is Type.STRING:
        return [f"k{number}" for number in range(ITEMS)]
    if schema.type in RANGES and not schema.is_logical:
        return list(range(ITEMS))
    return None
