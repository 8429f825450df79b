"""The rows that a MySQL server sends, as columns of bytes, without a look at each value.

PyMySQL makes Python's values of each row, which takes ten times as long as all that is done
here; connectorx, which makes Arrow's, keeps in memory whatever its reader has not taken, panics
at a date of zero, and has no options for TLS. So PyMySQL connects and sends the query, and the
packets that follow are taken apart here, a block at a time.
The protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_BLOCK_BYTES = 4 << 20
"""How much is taken apart at a time; a row that is larger is a block of its own."""
_READ_BYTES = 1 << 20
_HEAD_BYTES = 4
_FULL = 0xFFFFFF
"""The length of a packet that is continued by the next one."""
_ERROR, _END = 0xFF, 0xFE
"""What a packet begins with that is not a row."""
_NULL = 0xFB
_LONGER = ((0xFC, 2), (0xFD, 3), (0xFE, 8))
"""First bytes of a value's length, with how many bytes follow that have it."""


def column_blocks(connection: Any, query: str) -> Iterator[list[pa.Array]]:
    """Yield the rows of a query as columns of bytes, some megabytes of rows at a time.

    Args:
        connection: One of PyMySQL. It can only be closed afterwards, at the end or before.
        query: One that has rows.

    Raises the errors of PyMySQL.
    """
    connection.query(query, unbuffered=True)
    result = connection._result  # noqa: SLF001 - PyMySQL has no other way to the bytes
    result.unbuffered_active = False  # or PyMySQL reads what is left when it is collected
    data, is_open = bytearray(), True
    while is_open:
        starts, end, is_open = _fill(data, connection)
        block = bytes(memoryview(data)[:end])
        del data[:end]
        if len(starts):
            yield _columns(block, starts, result.field_count)


def _fill(data: bytearray, connection: Any) -> tuple[npt.NDArray[np.int64], int, bool]:
    """Read a block; return where its rows start, where they end, and whether more follow."""
    from pymysql.err import OperationalError, raise_mysql_exception  # noqa: PLC0415 - an extra

    starts, end = list[int](), 0
    while end < _BLOCK_BYTES:
        more = connection._rfile.read1(_READ_BYTES)  # noqa: SLF001
        if not more:
            raise OperationalError(2013, "Lost connection to MySQL server during query")
        data += more
        end = _walk(data, starts, end)
        if starts and end == len(data):  # what ends the rows is the last that is sent
            last = starts[-1]
            size, kind = _size(data, last), data[last + _HEAD_BYTES]
            if kind == _ERROR:
                raise_mysql_exception(bytes(data[last + _HEAD_BYTES :]))
            if kind == _END and size < _FULL:
                return np.array(starts[:-1], np.int64), last, False
    return np.array(starts, np.int64), end, True


def _size(data: bytearray, place: int) -> int:
    return int.from_bytes(data[place : place + 3], "little")


def _walk(data: bytearray, starts: list[int], place: int) -> int:
    """Add where the rows start that are there as a whole; return where the last one ends."""
    length = len(data)
    while place + _HEAD_BYTES <= length:
        size = int.from_bytes(data[place : place + 3], "little")
        end = place + _HEAD_BYTES + size
        if size == _FULL:
            end = _join(data, end)
            length = len(data)
        if end > length:
            break
        starts.append(place)
        place = end
    return place


def _join(data: bytearray, end: int) -> int:
    """Make one of a packet and those that continue it, if all are there; return its end."""
    heads, size = [], _FULL
    while size == _FULL:
        if end + _HEAD_BYTES > len(data):
            return len(data) + 1
        heads.append(end)
        size = _size(data, end)
        end += _HEAD_BYTES + size
    if end > len(data):
        return end
    for head in reversed(heads):
        del data[head : head + _HEAD_BYTES]
    return end - _HEAD_BYTES * len(heads)


def _columns(block: bytes, starts: npt.NDArray[np.int64], count: int) -> list[pa.Array]:
    """Take rows apart: all values of a column at once, one column after the other."""
    data = np.frombuffer(block, np.uint8)
    rows = len(starts)
    place = starts + _HEAD_BYTES
    bounds = np.empty((rows, count, 2), np.int32)
    nulls: list[npt.NDArray[np.bool_] | None] = []
    for column in range(count):
        head = data[place]
        size = head.astype(np.int64)
        is_null = None
        place = place + 1
        if (head >= _NULL).any():
            is_null = head == _NULL
            size[is_null] = 0
            for first, width in _LONGER:
                [longer] = np.nonzero(head == first)
                if len(longer):
                    digits = data[place[longer, None] + np.arange(width)].astype(np.int64)
                    size[longer] = (digits << (8 * np.arange(width))).sum(axis=1)
                    place[longer] += width
        bounds[:, column, 0] = place
        place += size
        bounds[:, column, 1] = place
        nulls.append(is_null)
    # Of the whole block as values, one after the other, each second one is a row's value, and
    # those between are the lengths. So Arrow copies the values, and nothing else does.
    offsets = np.append(bounds.ravel(), bounds[-1, -1, 1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    everything = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    values = np.arange(rows, dtype=np.int64) * (2 * count)
    return [
        everything.take(pa.array(values + 2 * column, mask=nulls[column]))
        for column in range(count)
    ]
