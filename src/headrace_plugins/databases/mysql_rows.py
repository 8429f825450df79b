"""Reads the rows that a MySQL server sends as columns of bytes, vectorized.

PyMySQL converts each value to Python, which takes ten times as long as this module.
connectorx converts to Arrow, but buffers unread rows in memory without a limit, panics at zero
dates and has no TLS options. So PyMySQL connects and sends the query, and this module decodes
the result packets block by block.
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
"""The size of a block to decode; a larger row is a block by itself."""
_READ_BYTES = 1 << 20
HEAD_BYTES = 4
FULL = 0xFFFFFF
"""The length of a packet that is continued by the next one."""
_ERROR, _END = 0xFF, 0xFE
"""The first byte of a packet that is not a row."""
_NULL = 0xFB
_LONGER = ((0xFC, 2), (0xFD, 3), (0xFE, 8))
"""First bytes of a value's length, and the number of length bytes that follow."""


def column_blocks(connection: Any, query: str) -> Iterator[list[pa.Array]]:
    """Yield the rows of a query as columns of bytes, in blocks of some megabytes.

    Args:
        connection: A PyMySQL connection. Afterwards it can only be closed.
        query: A query that returns rows.

    Raises the errors of PyMySQL.
    """
    connection.query(query, unbuffered=True)
    result = connection._result  # noqa: SLF001 - PyMySQL has no public way to the bytes
    result.unbuffered_active = False  # or PyMySQL reads all rows when it is collected
    data, is_open = bytearray(), True
    while is_open:
        starts, end, is_open = _fill(data, connection)
        block = bytes(memoryview(data)[:end])
        del data[:end]
        if len(starts):
            yield _columns(block, starts, result.field_count)


def _fill(data: bytearray, connection: Any) -> tuple[npt.NDArray[np.int64], int, bool]:
    """Read a block; return the rows' start offsets, their end, and whether more follow."""
    from pymysql.err import OperationalError, raise_mysql_exception  # noqa: PLC0415 - an extra

    starts, end = list[int](), 0
    while end < _BLOCK_BYTES:
        more = connection._rfile.read1(_READ_BYTES)  # noqa: SLF001
        if not more:
            raise OperationalError(2013, "Lost connection to MySQL server during query")
        data += more
        end = _walk(data, starts, end)
        if starts and end == len(data):  # the end packet is the last one that is sent
            last = starts[-1]
            size, kind = _size(data, last), data[last + HEAD_BYTES]
            if kind == _ERROR:
                raise_mysql_exception(bytes(data[last + HEAD_BYTES :]))
            if kind == _END and size < FULL:
                return np.array(starts[:-1], np.int64), last, False
    return np.array(starts, np.int64), end, True


def _size(data: bytearray, place: int) -> int:
    return int.from_bytes(data[place : place + 3], "little")


def _walk(data: bytearray, starts: list[int], place: int) -> int:
    """Append the start offsets of complete rows; return the end of the last one."""
    length = len(data)
    while place + HEAD_BYTES <= length:
        size = int.from_bytes(data[place : place + 3], "little")
        end = place + HEAD_BYTES + size
        if size == FULL:
            end = join_packets(data, end)
            length = len(data)
        if end > length:
            break
        starts.append(place)
        place = end
    return place


def join_packets(data: bytearray, end: int) -> int:
    """Join a packet that ends there with its continuations, if all have arrived.

    Returns the end of the last continuation, which is after the data if one is missing.
    """
    heads, size = [], FULL
    while size == FULL:
        if end + HEAD_BYTES > len(data):
            return len(data) + 1
        heads.append(end)
        size = _size(data, end)
        end += HEAD_BYTES + size
    if end > len(data):
        return end
    for head in reversed(heads):
        del data[head : head + HEAD_BYTES]
    return end - HEAD_BYTES * len(heads)


def _columns(block: bytes, starts: npt.NDArray[np.int64], count: int) -> list[pa.Array]:
    """Decode rows column by column, with all values of a column at once."""
    data = np.frombuffer(block, np.uint8)
    rows = len(starts)
    place = starts + HEAD_BYTES
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
    # View the whole block as an array of values: every second one is a row's value, the others
    # are the lengths between them. So the values are copied only once, by Arrow.
    offsets = np.append(bounds.ravel(), bounds[-1, -1, 1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    everything = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    values = np.arange(rows, dtype=np.int64) * (2 * count)
    return [
        everything.take(pa.array(values + 2 * column, mask=nulls[column]))
        for column in range(count)
    ]
