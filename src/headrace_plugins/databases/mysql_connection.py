"""Connections to MySQL and MariaDB: TLS from a URL's options, errors by number, rows as bytes.

PyMySQL converts each value to Python, which takes ten times as long as the functions here.
connectorx converts to Arrow, but buffers unread rows in memory without a limit, panics at zero
dates and has no TLS options. So PyMySQL connects and sends the query, and the result packets
are decoded here block by block, as columns of bytes.
The protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.sdk import ConfigError, RecordError, RetriableError
from headrace.sdk.errors import StorageUnavailableError
from headrace_plugins.databases.database import UNREACHABLE, DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from headrace_plugins.databases.address import Address

_NAMES = {
    "ssl_ca": "ca",
    "ssl_cert": "cert",
    "ssl_key": "key",
    "ssl_mode": "mode",
    "sslmode": "mode",
}
_MODES = {
    **dict.fromkeys(("disable", "disabled", "false"), "disabled"),
    **dict.fromkeys(("prefer", "preferred"), "preferred"),
    **dict.fromkeys(("require", "required", "trust", "true"), "required"),
    "verify-ca": "verify-ca",
    **dict.fromkeys(("verify-identity", "verify-full"), "verify-identity"),
}
"""The modes of MySQL and of MariaDB's drivers."""


def tls_of(options: Mapping[str, str]) -> tuple[ssl.SSLContext | None, bool]:
    """Return the TLS context of a connection, or None, and whether TLS is required."""
    names = {_NAMES.get(name.lower().replace("-", "_"), name): name for name in options}
    given = {name: options[own] for name, own in names.items()}
    ca, cert = given.get("ca"), given.get("cert")
    default = "verify-ca" if ca else "required" if cert else "preferred"
    text = given.get("mode", default)
    mode = _MODES.get(text.lower().replace("_", "-"))
    unknown = given.keys() - _NAMES.values()
    if unknown or mode is None:
        wrong = min(unknown) if unknown else f"{names['mode']}={text}"
        raise ConfigError(
            problem=f"Unknown option {wrong!r} in the URL of a MySQL server.",
            fix="Use sslMode (disabled, preferred, required, verify-ca, verify-identity), "
            "ssl_ca, ssl_cert and ssl_key.",
            field="connection.url",
        )
    if mode == "disabled":
        return None, False
    try:
        if mode.startswith("verify"):
            context = ssl.create_default_context(cafile=ca)
            context.check_hostname = mode == "verify-identity"
        else:
            # Nothing is verified, so do not load the system's certificates: that takes 30 ms
            # of CPU, and each batch of a sink opens new connections.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert:
            context.load_cert_chain(cert, given.get("key"))
    except OSError as error:
        raise ConfigError(
            problem=f"A file in the URL's TLS options cannot be used: {error}.",
            fix="Set paths of PEM files that the worker can read.",
            field="connection.url",
        ) from error
    return context, mode != "preferred"


# https://mariadb.com/kb/en/mariadb-error-code-reference/
# https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
NOT_REACHED, TOO_LARGE = 2003, 1153
_NO_DATABASE, _NO_TABLE, _NOT_THERE, _NO_TLS = 1049, 1146, 1305, 2026
_NO_ENTRY = {1045, 1251, 1524, 1698, 1820, 1862, 2059, 2061}
_NOT_GRANTED = {1044, 1142, 1143, 1227, 1370}
_NOT_USABLE = {_NO_DATABASE, _NO_TABLE, _NO_TLS, *_NO_ENTRY, *_NOT_GRANTED}
_NOT_CONNECTED = {2002, NOT_REACHED}
_NO_SPACE = {3, 1021, 1026, 1114}
_AWAY_OR_BUSY = {
    *(0, 1020, 1028, 1037, 1040, 1041, 1053, 1129, 1158, 1159, 1160, 1161, 1203, 1205, 1206),
    *(1213, 1226, 1290, 1317, 1412, 1614, 1637, 1792, 1836, 1927, 1969, 2002, 2003, 2006),
    *(2013, 2014, 3024, 3572, 4031),
}
_REFUSED_ROW = {
    *(1048, 1062, 1169, 1216, 1217, 1261, 1262, 1263, 1264, 1265, 1292, 1300, 1301, 1364),
    *(1365, 1366, 1367, 1406, 1411, 1416, 1451, 1452, 1644, 1690, 3140, 3819, 4025),
}


def translated(address: Address, number: object, text: str, grants: str = "") -> Exception:
    """Return Headrace's error for a server's or PyMySQL's error; 0 means no error number.

    ``grants`` are the statements that grant the required privileges.
    """
    title, text = address.title, text.rstrip(".")
    if number in _NOT_USABLE or "CERTIFICATE_VERIFY_FAILED" in text:
        return _not_usable(address, number, f"{title}: {text}.", grants)
    if number in _NO_SPACE or "error 28" in text or "No space left" in text:
        return StorageUnavailableError(
            problem=f"{title} is out of disk space: {text}.", fix="Free space on its disk."
        )
    if number in _REFUSED_ROW:
        return refused_row(address, text)
    if number == TOO_LARGE:
        return RecordError(
            problem=f"{title} refuses a row: {text}.",
            fix="SET GLOBAL max_allowed_packet = 1073741824;",
        )
    # A deadlock has rolled back the transaction and its savepoints.
    if number in _AWAY_OR_BUSY or (number == _NOT_THERE and "SAVEPOINT" in text):
        return RetriableError(
            problem=f"{title}: {text or 'The connection is closed'}.",
            fix=UNREACHABLE if number in _NOT_CONNECTED else "",
        )
    return DatabaseError(problem=f"{title}: {text} (error {number}).")


def refused_row(address: Address, text: str) -> RecordError:
    """Return the error for a row that the server refuses, changes or skips."""
    column = re.search(r"[Cc]olumn '([^']+)'", text)
    return RecordError(
        problem=f"{address.title} refuses a row: {text.rstrip('.')}.",
        fix="Change the rows with a transform, or the table's columns and constraints.",
        field=None if column is None else column[1].rpartition(".")[2].strip("`"),
    )


def _not_usable(address: Address, number: object, problem: str, grants: str) -> ConfigError:
    database = "`" + address.database.replace("`", "``") + "`"
    if number in _NO_ENTRY:
        return ConfigError(
            problem=problem,
            fix="Correct connection.user and connection.password"
            + (f", or grant the privileges: {grants}" if grants else "."),
            field="connection.password",
        )
    if number in _NOT_GRANTED:
        return ConfigError(problem=problem, fix=grants, field="connection.user")
    if number == _NO_TABLE:
        fix = "Create the table, or correct its name."
        return ConfigError(problem=problem, fix=fix)
    fix = (
        f"CREATE DATABASE {database};"
        if number == _NO_DATABASE
        else "Correct sslMode and ssl_ca in the URL, or the server's certificate."
    )
    return ConfigError(problem=problem, fix=fix, field="connection.url")


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
