"""The Arrow types of JSON values, and checks that Arrow's JSON parser lacks.

The checks are: one object per line, and no NaN or infinity.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

TEXT = pa.string()
EXACT = pa.decimal128(19, 0)
"""The type of 64-bit integers that a float would round."""
LARGE = pa.decimal128(38, 0)
"""The type of integers of more than 64 bits."""
DEEPEST = 32
"""The maximum nesting of types: Arrow cannot send 64 levels, and 200 crash Spark's JVM."""

_FLOAT_EXACT = 2**53
_ROOM = 1024
"""The parser requires a block size larger than its input."""


def type_of(
    value: Any, conflict: pa.DataType = TEXT, *, exact: bool = False, depth: int = 0
) -> pa.DataType:
    """Return the type of a parsed value; see ``merged_type`` for ``conflict``.

    Values nested more than DEEPEST levels deep also get the type ``conflict``. With ``exact``,
    integers that a float would round are EXACT or LARGE, or strings if they have more than 38
    digits.
    """
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return _whole(value, exact=exact)
        case float():
            return pa.float64()
        case dict() | list() if depth == DEEPEST:
            return conflict
        case dict():
            inner = partial(type_of, conflict=conflict, exact=exact, depth=depth + 1)
            return pa.struct([(name, inner(item)) for name, item in value.items()])
        case list():
            inner = partial(type_of, conflict=conflict, exact=exact, depth=depth + 1)
            items = map(inner, value)
            return pa.list_(reduce(partial(merged_type, conflict=conflict), items, pa.null()))
        case _:
            return TEXT


def _whole(value: int, *, exact: bool) -> pa.DataType:
    if -(2**63) <= value < 2**63:
        return EXACT if exact and abs(value) > _FLOAT_EXACT else pa.int64()
    if not exact:
        return pa.float64()
    return LARGE if abs(value) < 10**LARGE.precision else TEXT


def merged_type(
    old: pa.DataType, new: pa.DataType, conflict: pa.DataType = TEXT
) -> pa.DataType:
    """Return a common type for the values of both types; ``conflict`` if there is none."""
    if old.equals(new) or pa.types.is_null(new):
        return old
    if pa.types.is_null(old):
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        types = {field.name: field.type for field in old}
        for field in new:
            before = types.get(field.name, pa.null())
            types[field.name] = merged_type(before, field.type, conflict)
        return pa.struct(list(types.items()))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merged_type(old.value_type, new.value_type, conflict))
    whole = [t for t in (pa.int64(), EXACT, LARGE) if t in (old, new)]
    if len(whole) == len({old, new}):
        return whole[-1]
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in (old, new)):
        return pa.float64()
    if all(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in (old, new)):
        return pa.timestamp("us", "UTC")
    return conflict


def without_times(kind: pa.DataType) -> pa.DataType:
    """Replace the times in a type by strings: Arrow guesses times, which JSON does not have."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(without_times(kind.value_type))
    return TEXT if pa.types.is_temporal(kind) else kind


_OPEN, _CLOSE, _CR = b"{}\r"


def objects(lines: bytes) -> int:
    """Return the number of lines that are not blank; each contains one or more objects.

    Raises ArrowInvalid for other lines: Arrow accepts values that span lines, and crashes if
    the first value is null. A closing brace at the end of a line and an opening brace at the
    start of the next one always separate records, as neither a string nor an array can contain
    that sequence.
    """
    # The common case, which does not need a stripped copy.
    is_plain = lines.startswith(b"{") and lines.endswith(b"}\n")
    body = lines if is_plain else lines.strip(b" \t\r\n")
    if not body:
        return 0
    if not body.isascii():
        _require_utf8(body)
    data = np.frombuffer(body, np.uint8, len(body) - is_plain)
    breaks = np.flatnonzero(data == ord("\n"))
    before = data[breaks - 1]
    before = np.where(before == _CR, data[breaks - 2], before)
    closed = data[-1] == _CLOSE and data[0] == _OPEN and bool((before == _CLOSE).all())
    if closed and bool((data[breaks + 1] == _OPEN).all()):
        return len(breaks) + 1
    found = [line for line in map(bytes.strip, body.split(b"\n")) if line]
    if all(line.startswith(b"{") and line.endswith(b"}") for line in found):
        return len(found)
    message = "A line is not a JSON object."
    raise pa.ArrowInvalid(message)


def read_objects(lines: bytes, types: pa.Schema | None = None) -> pa.Table | None:
    """Return the objects in lines as rows; None if all lines are blank.

    Fields that are not in ``types`` are ignored. Raises ArrowInvalid if a line is not one
    object.
    """
    if not (count := objects(lines)):
        return None
    others = "infer" if types is None else "ignore"
    parse = pa_json.ParseOptions(explicit_schema=types, unexpected_field_behavior=others)
    read = pa_json.ReadOptions(block_size=len(lines) + _ROOM, use_threads=False)
    table = pa_json.read_json(pa.BufferReader(lines), read, parse)
    if table.num_rows != count:
        message = "A line is not one object."
        raise pa.ArrowInvalid(message)
    return table


def _require_utf8(data: bytes) -> None:
    pa.array([data], pa.binary()).cast(pa.string())


def is_finite(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether no number, at any depth, is NaN or infinite, which Arrow accepts."""
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        return all(map(is_finite, values.chunks))
    if pa.types.is_struct(kind):
        return all(is_finite(values.field(number)) for number in range(kind.num_fields))
    if pa.types.is_list(kind):
        return is_finite(values.flatten())
    # Nulls are skipped.
    return not pa.types.is_floating(kind) or pc.all(pc.is_finite(values)).as_py() is not False
