"""Messages of PostgreSQL's logical replication, made by hand as the protocol has them.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

import struct
from collections.abc import Sequence
from typing import TypeAlias

UNCHANGED = object()
"""A value that is stored apart and was not changed, so that it is not sent."""
Values: TypeAlias = Sequence[object]
UNIX_2000_US = 946_684_800_000_000


def xlog(body: bytes, lsn: int = 0) -> bytes:
    """Return XLogData with a message in it."""
    return struct.pack("!cqqq", b"w", lsn, lsn, 0) + body


def tuple_data(values: Values) -> bytes:
    parts = [struct.pack("!h", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            data = str(value).encode()
            parts.append(b"t" + struct.pack("!i", len(data)) + data)
    return b"".join(parts)


def begin(lsn: int, ts_us: int, xid: int) -> bytes:
    return xlog(b"B" + struct.pack("!qqI", lsn, ts_us - UNIX_2000_US, xid))


def commit(lsn: int, end: int) -> bytes:
    return xlog(b"C" + struct.pack("!Bqqq", 0, lsn, end, 0))


def insert(values: Values, *, oid: int = 7, lsn: int = 0) -> bytes:
    return xlog(b"I" + struct.pack("!I", oid) + b"N" + tuple_data(values), lsn)


def update(
    values: Values, *, old: Values | None = None, mark: str = "O", oid: int = 7, lsn: int = 0
) -> bytes:
    """Return an Update; with the row before it, or its key only as the mark ``K`` says."""
    before = b"" if old is None else mark.encode() + tuple_data(old)
    return xlog(b"U" + struct.pack("!I", oid) + before + b"N" + tuple_data(values), lsn)


def delete(old: Values, *, mark: str = "K", oid: int = 7, lsn: int = 0) -> bytes:
    return xlog(b"D" + struct.pack("!I", oid) + mark.encode() + tuple_data(old), lsn)


def truncate(*oids: int, lsn: int = 0) -> bytes:
    return xlog(b"T" + struct.pack(f"!iB{len(oids)}I", len(oids), 0, *oids), lsn)


def relation(
    name: str,
    columns: Sequence[tuple[str, int, int, bool]],
    *,
    schema: str = "public",
    identity: str = "d",
    oid: int = 7,
) -> bytes:
    """Return a Relation; a column is its name, type, modifier, and whether it identifies."""
    parts = [b"R", struct.pack("!I", oid), schema.encode(), b"\0", name.encode(), b"\0"]
    parts += [identity.encode(), struct.pack("!h", len(columns))]
    for title, type_oid, modifier, is_key in columns:
        parts += [struct.pack("!B", is_key), title.encode(), b"\0"]
        parts.append(struct.pack("!Ii", type_oid, modifier))
    return xlog(b"".join(parts))
