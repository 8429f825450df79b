"""What is generated: the columns, their seeds, and the figures that both makers share.

The seeds' hash is XXH64 of a single 8-byte lane (https://github.com/Cyan4973/xxHash, doc
xxhash_spec.md), chained over the arguments from seed 42 as Spark's function does it.
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
    """Return what Spark's ``xxhash64(salt, row)`` gives for each row, unsigned."""
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
"""The most items of an array or map; each length from 0 on is as likely."""
RANGES = {Type.INT8: 100, Type.INT16: 10_000, Type.INT32: 1_000_000, Type.INT64: 2**53}
"""Whole numbers are at least 0 and below this."""
UNIT = 1.1102230246251565e-16
"""2**-53: turns 53 random bits into a number from 0 to below 1."""
DAYS = 365
"""Dates fall within so many days from the start time on."""
STEP_MICROS = 1000
"""Timestamps of one row and the next are so far apart, from the start time on."""
_DECIMAL_DIGITS = 9
"""Decimals have no more digits than this, so that amounts look like amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that decides the value of each row; equal plans give equal rows."""

    schema: Schema
    seed: int = 0
    start: datetime = field(default=datetime(2025, 1, 1, tzinfo=UTC))
    """The timestamp of row 0, and the first date."""
    nulls: float = 0.0
    """The share of nulls in columns that may be null, from 0 to 1."""

    @property
    def start_micros(self) -> int:
        """The start time in microseconds since 1970."""
        return (self.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    @property
    def start_day(self) -> int:
        """The start time in days since 1970."""
        return self.start_micros // 86_400_000_000

    def salt(self, path: str) -> int:
        """Return a number that only the column ``path`` of this seed has.

        It is at most 62 bits long, so that it is a plain literal in SQL.
        """
        digest = hashlib.blake2b(f"{self.seed}/{path}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 2

    def columns(self) -> Iterator[tuple[str, Schema]]:
        """Yield the name and schema of each column."""
        return ((member.name, member.schema) for member in self.schema.fields)

    def is_row_number(self, path: str, schema: Schema) -> bool:
        """Return whether the column is the row's number itself: ``id BIGINT`` is."""
        return path == "id" and schema.type is Type.INT64 and not schema.is_logical


def kind(schema: Schema) -> str:
    """Return what decides how values are made, which is the name of a maker's method."""
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
    """Return the schema of items, keys or values, which arrays and maps always have."""
    if schema is None:
        message = "only arrays and maps have parts"
        raise TypeError(message)
    return schema


def map_keys(schema: Schema) -> list[str] | list[int] | None:
    """Return the keys that maps take theirs from, in order; None for other types of key."""
    if schema.type is Type.STRING:
        return [f"k{number}" for number in range(ITEMS)]
    if schema.type in RANGES and not schema.is_logical:
        return list(range(ITEMS))
    return None
