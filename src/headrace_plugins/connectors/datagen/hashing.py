"""Spark's xxhash64 of whole numbers, in numpy: one source of chance for every gear.

The algorithm is XXH64 of a single 8-byte lane (https://github.com/Cyan4973/xxHash, doc
xxhash_spec.md), chained over the arguments from seed 42 as Spark's function does it.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]

_SPARK_SEED = 42
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANE_BYTES = np.uint64(8)


def salt(seed: int, path: str) -> int:
    """Return the number that tells the column ``path`` from all others of this seed.

    It is at most 62 bits long, so that it is a plain literal in SQL.
    """
    digest = hashlib.blake2b(f"{seed}/{path}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


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
