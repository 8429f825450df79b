"""Decodes the events of a binary log of MySQL or MariaDB, and parses the statements in them.

https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html
https://mariadb.com/kb/en/2-binlog-event-header/
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

import pyarrow as pa

from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator


QUERY, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP, LOAD_QUERY = 2, 4, 15, 16, 19, 18
INCIDENT, HEARTBEAT, GTID, ANONYMOUS_GTID, XA_PREPARE = 26, 27, 33, 34, 38
PREVIOUS_GTIDS = 35
PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = 39, 40, 41, 42
MARIADB_GTID, QUERY_COMPRESSED = 162, 165
CONTROL = {ROTATE, FORMAT_DESCRIPTION, HEARTBEAT, HEARTBEAT_V2}
GTIDS = {GTID, ANONYMOUS_GTID, TAGGED_GTID, MARIADB_GTID}
STATEMENTS = {QUERY, QUERY_COMPRESSED, LOAD_QUERY}
INSERT, UPDATE, DELETE = range(3)
ROWS = {
    23: INSERT,
    24: UPDATE,
    25: DELETE,  # v1
    30: INSERT,
    31: UPDATE,
    32: DELETE,  # v2
    166: INSERT,
    167: UPDATE,
    168: DELETE,  # MariaDB's, v1 and compressed
    169: INSERT,
    170: UPDATE,
    171: DELETE,  # v2 and compressed
}
"""The operations of the row event types."""
COMPRESSED_ROWS = range(166, 172)
_V2_ROWS = {30, 31, 32, 169, 170, 171}

MOST_BYTES = 1 << 30
"""The largest event or value that a server sends: the maximum of max_allowed_packet.

https://dev.mysql.com/doc/refman/8.4/en/server-system-variables.html#sysvar_max_allowed_packet
"""
HEADER = struct.Struct("<IBIIIH")
"""Time, type, server, length including this header, end in the log, flags."""
ARTIFICIAL = 0x20
"""The flag of an event that is not in the log."""

BIT, STRING, VAR_STRING, VARCHAR, ENUM, SET = 16, 254, 253, 15, 247, 248
BLOB, GEOMETRY, JSON, VECTOR, DECIMAL = 252, 255, 245, 242, 246
VARCHAR_COMPRESSED, BLOB_COMPRESSED, TYPED_ARRAY = 141, 140, 20
_META_BYTES = {
    **dict.fromkeys((4, 5, 17, 18, 19, BLOB, GEOMETRY, JSON, VECTOR, BLOB_COMPRESSED), 1),
    **dict.fromkeys((249, 250, 251), 1),
    **dict.fromkeys((VARCHAR, BIT, VAR_STRING, STRING, ENUM, SET, DECIMAL), 2),
    VARCHAR_COMPRESSED: 2,
}
"""The number of metadata bytes per type in a TABLE_MAP."""
_NUMERIC = {1, 2, 3, 4, 5, 8, 9, 13, DECIMAL}
_MARIADB_TEXTS = {VARCHAR_COMPRESSED, BLOB_COMPRESSED, GEOMETRY}
_TEXTS = {STRING, VAR_STRING, VARCHAR, BLOB, 249, 250, 251}


Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogColumn:
    """A column of a TABLE_MAP.

    Args:
        code: The type's number; ENUM and SET have their own instead of STRING.
        meta: The type's metadata: lengths, digits, bytes of a length.
        name: The column's name; None if the log has no names.
        unsigned: Whether the type is unsigned; None if not in the log.
        collation: The number of the collation; None if not in the log.
        values: The values of an ENUM or SET; None if not in the log.
    """

    code: int
    meta: int
    name: str | None = None
    unsigned: bool | None = None
    collation: int | None = None
    values: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableMap:
    """A decoded TABLE_MAP: the columns, and the column numbers of the primary key."""

    table: TableName
    columns: tuple[BinlogColumn, ...]
    key: tuple[int, ...] | None


class Body:
    """Reads the body of an event sequentially."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data, self.place = data, place

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, size: int) -> int:
        """Return the next number, of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def length(self) -> int:
        """Return the next length-encoded number."""
        first = self.number(1)
        return first if first < 0xFB else self.number({0xFC: 2, 0xFD: 3}.get(first, 8))  # noqa: PLR2004

    def text(self) -> bytes:
        """Return the next length-prefixed text."""
        return self.take(self.length())

    @property
    def is_left(self) -> bool:
        """Whether any data is left."""
        return self.place < len(self.data)


def table_map(data: bytes, *, mariadb: bool) -> TableMap:
    """Decode a TABLE_MAP without its leading table number."""
    body = Body(data, 2)
    schema = body.take(body.number(1)).decode()
    body.take(1)
    table = TableName(schema, body.take(body.number(1)).decode())
    body.take(1)
    codes = body.take(body.length())
    metas = Body(body.text())
    body.take((len(codes) + 7) // 8)  # nullable columns
    found: dict[int, bytes] = {}
    while body.is_left:
        kind = body.number(1)
        found[kind] = body.text()
    kinds = [_kind(code, metas) for code in codes]
    names = [each.decode() for each in _texts(found.get(4, b""))]
    texts = _TEXTS | _MARIADB_TEXTS if mariadb else _TEXTS
    signs = _by_column(kinds, _NUMERIC, _bits(found.get(1)))
    values = {
        **_by_column(kinds, {SET}, _lists(found.get(5))),
        **_by_column(kinds, {ENUM}, _lists(found.get(6))),
    }
    collations = {
        **_by_column(kinds, texts, _collations(found, 2, sum(c in texts for c, _ in kinds))),
        **_by_column(kinds, {ENUM, SET}, _collations(found, 10, len(kinds))),
    }
    columns = tuple(
        BinlogColumn(
            code=code,
            meta=meta,
            name=names[number] if names else None,
            unsigned=signs.get(number, False) if 1 in found else None,
            collation=collations.get(number),
            values=values.get(number),
        )
        for number, (code, meta) in enumerate(kinds)
    )
    key = None
    if 8 in found:  # noqa: PLR2004 - the primary key
        key = tuple(_lengths(found[8]))
    elif 9 in found:  # noqa: PLR2004 - a key with column prefixes
        key = tuple(_lengths(found[9])[::2])
    return TableMap(table, columns, key if key is not None or not names else ())


def _kind(code: int, metas: Body) -> tuple[int, int]:
    if code == TYPED_ARRAY:
        inner = metas.number(1)
        return code, metas.number(_META_BYTES.get(inner, 0))
    meta = metas.number(_META_BYTES.get(code, 0))
    if code != STRING:
        return code, meta
    kind, size = meta & 0xFF, meta >> 8
    if kind & 0x30 != 0x30:  # noqa: PLR2004 - contains two bits of a long CHAR's length
        return kind | 0x30, size | ((kind & 0x30) ^ 0x30) << 4
    return kind, size


def _by_column(
    kinds: list[tuple[int, int]], codes: set[int], facts: Iterator[Fact]
) -> dict[int, Fact]:
    """Return facts by column number; they are listed for columns of some types only."""
    return dict(
        zip([n for n, (code, _) in enumerate(kinds) if code in codes], facts, strict=False)
    )


def _bits(data: bytes | None) -> Iterator[bool]:
    for byte in data or b"":
        yield from (bool(byte & (0x80 >> bit)) for bit in range(8))


def _texts(data: bytes) -> Iterator[bytes]:
    body = Body(data)
    while body.is_left:
        yield body.text()


def _lists(data: bytes | None) -> Iterator[tuple[bytes, ...]]:
    body = Body(data or b"")
    while body.is_left:
        count = body.length()
        if count > len(data or b""):
            raise DatabaseError(problem="The binary log contains a list with a wrong length.")
        yield tuple(body.text() for _ in range(count))


def _lengths(data: bytes) -> list[int]:
    body, found = Body(data), list[int]()
    while body.is_left:
        found.append(body.length())
    return found


def _collations(found: dict[int, bytes], kind: int, count: int) -> Iterator[int]:
    """Return collations that are stored as a default with exceptions, or one by one."""
    if kind in found:
        usual, *others = _lengths(found[kind])
        given = dict(zip(others[::2], others[1::2], strict=True))
        yield from (given.get(number, usual) for number in range(count))
    else:
        yield from _lengths(found.get(kind + 1, b""))


_TABLE_NUMBER = struct.Struct("<IH")


def written_length(number: int) -> bytes:
    """Return a number of columns as encoded in events."""
    return bytes([number]) if number < 0xFB else b"\xfc" + number.to_bytes(2, "little")  # noqa: PLR2004


def table_number(data: bytes | bytearray, place: int) -> int:
    """Return the table number of a row event or a TABLE_MAP."""
    low, high = _TABLE_NUMBER.unpack_from(data, place)
    return int(low | high << 32)


def rows_begin(kind: int, data: bytes | bytearray, place: int) -> int:
    """Return the place of the column count in a row event; ``place`` is after the table."""
    if kind in _V2_ROWS:
        return place + 2 + int.from_bytes(data[place + 2 : place + 4], "little")
    return place + 2


def decompressed(data: bytes) -> bytes:
    """Decompress data of MariaDB: a byte with the method, the length, and zlib's data."""
    method, size = data[0] >> 4 & 7, data[0] & 7
    if method:
        raise DatabaseError(problem=f"Unknown compression method {method} in the binary log.")
    return inflated(data[1 : 1 + size], data[1 + size :])


def inflated(size: bytes, data: bytes, bits: int = zlib.MAX_WBITS) -> bytes:
    """Decompress zlib's data to the declared size.

    Never allocates more than the declared size. Raises DatabaseError if the size differs.
    """
    declared, stream = int.from_bytes(size, "big"), zlib.decompressobj(bits)
    try:
        found = stream.decompress(data, min(declared, MOST_BYTES) + 1)
    except zlib.error as error:
        raise _not_whole(problem=error) from error
    if len(found) != declared or not stream.eof:
        raise _not_whole(problem=f"a value does not have its declared {declared:,} bytes")
    return found


def _not_whole(*, problem: object) -> DatabaseError:
    return DatabaseError(
        problem=f"The binary log cannot be decompressed: {problem}.",
        fix="Find out what has damaged the log, and start with a new snapshot.",
    )


class Gtid(NamedTuple):
    """The start of a transaction: its GTID, and its commit time.

    ``has_end`` tells whether a separate event ends the transaction.
    """

    text: str | None
    has_end: bool = False
    ts_us: int | None = None


_MARIADB_GTID = struct.Struct("<QIB")
_NEW_COMMIT_BITS = 1 << 55
_LOGICAL_CLOCK = 2


def mariadb_gtid(data: bytes | bytearray, place: int, server_id: int) -> Gtid:
    """Decode MariaDB's GTID at a place."""
    number, domain, flags = _MARIADB_GTID.unpack_from(data, place)
    return Gtid(f"{domain}-{server_id}-{number}", not flags & 1)


def gtid(kind: int, data: bytes, server_id: int) -> Gtid:
    """Decode the event that starts a transaction."""
    if kind == MARIADB_GTID:
        return mariadb_gtid(data, 0, server_id)
    if kind == TAGGED_GTID:
        return _tagged_gtid(data)
    [number] = struct.unpack_from("<q", data, 17)
    text = None if kind == ANONYMOUS_GTID else f"{UUID(bytes=data[1:17])}:{number}"
    # Followed by the logical clock, and since 8.0.1 by the commit time on this server.
    if len(data) < 25 + 17 + 7 or data[25] != _LOGICAL_CLOCK:
        return Gtid(text)
    moment = int.from_bytes(data[42:49], "little")
    return Gtid(text, ts_us=moment & (_NEW_COMMIT_BITS - 1))


def _tagged_gtid(data: bytes) -> Gtid:
    """Decode a tagged GTID of MySQL 8.3 and later, which consists of numbered fields.

    https://dev.mysql.com/doc/dev/mysql-server/latest/PageLibsMysqlSerialization.html
    """
    body, found = Body(data), dict[int, int | bytes]()
    for _ in range(3):  # version, length, the last field that must be known
        _variable(body)
    while body.is_left and (field := _variable(body)) <= _COMMIT_FIELD:
        if field == _UUID_FIELD:
            found[field] = bytes(_variable(body) for _ in range(16))
        elif field == _TAG_FIELD:
            found[field] = body.take(_variable(body))
        else:
            found[field] = body.number(1) if not field else _variable(body)
    uuid, tag, signed = found[_UUID_FIELD], found[_TAG_FIELD], found[_NUMBER_FIELD]
    assert isinstance(uuid, bytes)
    assert isinstance(tag, bytes)
    assert isinstance(signed, int)
    name = f"{UUID(bytes=uuid)}:{tag.decode()}" if tag else f"{UUID(bytes=uuid)}"
    moment = found.get(_COMMIT_FIELD)
    ts_us = moment if isinstance(moment, int) else None
    return Gtid(f"{name}:{signed >> 1}", ts_us=ts_us)


_UUID_FIELD, _NUMBER_FIELD, _TAG_FIELD, _COMMIT_FIELD = 1, 2, 3, 6


def _variable(body: Body) -> int:
    """Return a number whose first byte's lowest bits tell how many bytes follow."""
    first = body.number(1)
    more = 0
    while first >> more & 1:
        more += 1
    rest = body.number(more)
    return (first | rest << 8) >> (more + 1) if more < 8 else rest  # noqa: PLR2004 - all are set


def query(kind: int, data: bytes) -> tuple[int, str, str]:
    """Return the thread, the database and the text of a statement."""
    thread, _, schema_length, _, status_length = struct.unpack_from("<IIBHH", data)
    place = (26 if kind == LOAD_QUERY else 13) + status_length
    schema = data[place : place + schema_length].decode()
    text = data[place + schema_length + 1 :]
    if kind == QUERY_COMPRESSED:
        text = decompressed(text)
    return thread, schema, text.decode(errors="replace")


class Payload:
    """Iterates over the events of a transaction that MySQL has compressed.

    Only one event is in memory at a time, and none larger than MySQL's maximum.

    Args:
        data: The body of the event that contains them.
    """

    def __init__(self, data: bytes) -> None:
        body, facts = Body(data), dict[int, int]()
        while kind := body.length():
            facts[kind] = Body(body.text()).length()
        method, rest = facts.get(_PAYLOAD_METHOD), pa.BufferReader(data[body.place :])
        if method not in {0, _NOT_COMPRESSED}:
            raise DatabaseError(
                problem="The binary log contains a transaction compressed by unknown method "
                f"{method}."
            )
        self._stream = pa.CompressedInputStream(rest, "zstd") if method == 0 else rest
        self._size = facts.get(_PAYLOAD_SIZE, len(data) - body.place)
        self.place = 0
        """The start of the next event."""

    def next(self) -> bytes | None:
        """Return the next event; None after the last one. Raises DatabaseError."""
        if self.place == self._size and not self._read(1):
            return None
        head = self._read(HEADER.size)
        size = HEADER.unpack(head)[3] if len(head) == HEADER.size else 0
        body = b""
        if HEADER.size <= size <= min(MOST_BYTES, self._size - self.place):
            body = self._read(size - HEADER.size)
        if size < HEADER.size or len(head) + len(body) != size:
            raise _not_whole(
                problem="events of a transaction do not have their declared "
                f"{self._size:,} bytes"
            )
        self.place += size
        return head + body

    def _read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""
        found = bytearray()
        try:
            while len(found) < size:  # in small pieces, as the size is not trusted
                piece = self._stream.read(min(size - len(found), _READ_BYTES))
                if not piece:
                    break
                found += piece
        except (OSError, pa.ArrowException) as error:
            raise _not_whole(problem=error) from error
        return bytes(found)


_PAYLOAD_METHOD, _PAYLOAD_SIZE, _NOT_COMPRESSED = 2, 3, 255
_READ_BYTES = 1 << 20


_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$\u0080-\uffff]+)"
_PATH = rf"(?:({_NAME})\s*\.\s*)?({_NAME})"
_NAMES = re.compile(rf"({_NAME})(?:\s*\.\s*({_NAME}))?")
_TRUNCATE = re.compile(rf"(?i)TRUNCATE\b\s*(?:TABLE\b\s*)?{_PATH}")
_REPLACE = re.compile(rf"(?i)CREATE\s+OR\s+REPLACE\s+TABLE\b\s*{_PATH}")
_ALTER = re.compile(r"(?i)ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\b")
_TABLE = re.compile(rf"(?i)\bTABLE\b\s*(?:IF\s+EXISTS\s+)?{_PATH}")
_STORED = re.compile(
    r"(?i)\b(?:(?:TRUNCATE|DROP|EXCHANGE|CONVERT)\s+PARTITION|CONVERT\s+TABLE"
    r"|(?:DISCARD|IMPORT)\s+(?:PARTITION\b.*)?TABLESPACE)\b"
)
_QUOTED = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
_COMMENTS = re.compile(
    rf"(?s)({_QUOTED})|/\*M?!\d*|/\*.*?\*/|\*/|--(?:[ \t][^\n]*|(?=\n|\Z))|#[^\n]*"
)
"""Quoted parts, and comments; of executable comments only the delimiters."""
_STRINGS = re.compile(rf"(?s){_QUOTED}")
_SET = re.compile(rf"(?is)\A\s*SET\s+STATEMENT\b(?:{_QUOTED}|[^'\"`])*?\sFOR\s+")


def plain(statement: str) -> str:
    """Return a statement without comments, and without a SET STATEMENT prefix."""
    found = _COMMENTS.sub(lambda match: match[1] or " ", statement).strip()
    return _SET.sub("", found)


def truncated(statement: str, schema: str) -> TableName | None:
    """Return the table that a TRUNCATE empties; None for any other statement."""
    return _table(_TRUNCATE.match(statement), schema)


def replaced(statement: str, schema: str) -> TableName | None:
    """Return the table that CREATE OR REPLACE TABLE replaces; None for other statements."""
    return _table(_REPLACE.match(statement), schema)


def stored_otherwise(statement: str, schema: str) -> set[TableName]:
    """Return the tables whose rows a statement adds or removes by partitions or files."""
    if not _ALTER.match(statement) or not _STORED.search(_STRINGS.sub("x", statement)):
        return set()
    return {_name(found, schema) for found in _TABLE.finditer(statement)}


def names_in(statement: str, schema: str) -> set[TableName]:
    """Return all possible table names in a statement."""
    return {
        TableName(_plain(first) if second else schema, _plain(second or first))
        for first, second in _NAMES.findall(statement)
    }


def _table(found: re.Match[str] | None, schema: str) -> TableName | None:
    return None if found is None else _name(found, schema)


def _name(found: re.Match[str], schema: str) -> TableName:
    return TableName(_plain(found[1]) if found[1] else schema, _plain(found[2]))


def _plain(name: str) -> str:
    sign = name[0]
    return name[1:-1].replace(sign * 2, sign) if sign in '`"' else name
