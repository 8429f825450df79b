"""The bytes that name a schema: a zero, and its id in a registry in four bytes, big-endian.

This is the wire form of Confluent's serializers,
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop. What tells a
value's schema is its head, the first five bytes: nothing has to be computed to compare them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD_BYTES = 5
_MAGIC = b"\x00"
NO_HEAD = "Unknown magic byte!"
"""What Confluent's deserializers say of bytes that do not begin with a schema's id."""


def head_of(schema_id: int) -> bytes:
    """Return the head of values of a schema."""
    return _MAGIC + schema_id.to_bytes(HEAD_BYTES - 1, "big")


def id_of(head: bytes) -> int:
    """Return the id in a head."""
    return int.from_bytes(bytes(head[1:]), "big")


def framed_sql(schema_id: int, payload: str) -> str:
    """Return SQL for a payload behind the head of its schema; null for null."""
    return f"concat(X'{head_of(schema_id).hex()}', {payload})"


def head_sql(raw: str) -> str:
    """Return SQL for the head of a column of bytes; null where it has none."""
    return f"IF({unframed_sql(raw)}, NULL, substring({raw}, 1, {HEAD_BYTES}))"


def unframed_sql(raw: str) -> str:
    """Return the SQL condition under which bytes have no head; null for null."""
    return f"(NOT startswith({raw}, X'00') OR octet_length({raw}) < {HEAD_BYTES})"


def payload_sql(raw: str) -> str:
    """Return SQL for what follows the head."""
    return f"substring({raw}, {HEAD_BYTES + 1})"


def heads(raw: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    """Return the heads of an array of bytes, and which rows have none though they have bytes.

    Returns:
        Heads of type binary, null where there is none, and the numbers of the bad rows.
    """
    first = pc.binary_slice(raw, 0, HEAD_BYTES)
    framed = pc.and_(pc.starts_with(raw, _MAGIC), pc.equal(pc.binary_length(first), HEAD_BYTES))
    bad = pc.indices_nonzero(pc.and_(raw.is_valid(), pc.invert(framed)))
    return pc.if_else(framed, first, pa.scalar(None, pa.binary())), bad.to_pylist()


def payloads(raw: pa.Array) -> pa.Array:
    """Return what follows the heads of an array of bytes."""
    # An open-ended binary_slice fails where most values are shorter than its start.
    return pc.binary_replace_slice(raw, 0, HEAD_BYTES, b"")
