"""Checks that Arrow's JSON parser lacks: one object per line, and no NaN or infinity."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
