"""The shapes of the tables in a binary log, from the log and the server's catalog."""

from __future__ import annotations

import codecs
import ipaddress
import re
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pyarrow as pa

from headrace.sdk import ConfigError
from headrace.sdk.arrow import to_arrow_type
from headrace_plugins.changes.log import Shape
from headrace_plugins.connectors.mysql import binlog_events as events
from headrace_plugins.connectors.mysql import binlog_rows as rows
from headrace_plugins.connectors.mysql.binlog_events import TableMap
from headrace_plugins.databases.mysql_catalog import COLLATE, column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace_plugins.connectors.mysql.binlog_events import BinlogColumn
    from headrace_plugins.databases.catalog import Column, Table, TableName
    from headrace_plugins.databases.database import Session
    from headrace_plugins.databases.mysql import Mysql

    Change = Callable[[pa.Array], pa.Array]

METADATA = "SET GLOBAL binlog_row_metadata = 'FULL';"
_HIDDEN = "!hidden!"
"""The prefix of the hidden columns that MySQL creates for functional indexes."""
_BINARY = 63
_TEXT = pa.string()
_UTF8 = {"utf8", "utf8mb3", "utf8mb4", "ascii"}
_WIDE_CODECS = {
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
}
_CODECS = {
    "big5": "big5",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "sjis": "cp932",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
"""Python's names of multibyte character sets, except Unicode's."""
_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?( unsigned)?")
_BY_LENGTH = ("", "tiny", "", "medium", "long")
_SPATIAL = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geometrycollection", "geomcollection"),
)
_CHAR_CODES, _GEOMETRY_CODES = {events.STRING}, {events.GEOMETRY}
_TEXT_CODES = {events.BLOB, events.BLOB_COMPRESSED}
_VARCHAR_CODES = {events.VARCHAR, events.VAR_STRING, events.VARCHAR_COMPRESSED}
_WITH_TEXTS = _TEXT_CODES | _VARCHAR_CODES
_COUNTED_CODES = {events.GEOMETRY, events.VECTOR, *_WITH_TEXTS}
_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 9, "int": 3, "bigint": 8}
_WIDTHS = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}
_CODES: Mapping[str, set[int]] = {
    **{name: {code} for name, code in _INTEGERS.items()},
    "float": {4},
    "double": {5},
    "decimal": {events.DECIMAL},
    "year": {13},
    "date": {10, 14},
    "time": {11, 19},
    "datetime": {12, 18},
    "timestamp": {7, 17},
    "bit": {events.BIT},
    "enum": {events.ENUM},
    "set": {events.SET},
    **dict.fromkeys(("char", "binary", "uuid", "inet4", "inet6"), _CHAR_CODES),
    **dict.fromkeys(("varchar", "varbinary"), _VARCHAR_CODES),
    **dict.fromkeys(("tinytext", "text", "mediumtext"), _TEXT_CODES),
    # Also an ENUM whose values the catalog cannot show.
    "longtext": {*_TEXT_CODES, events.ENUM, events.SET},
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _TEXT_CODES),
    **dict.fromkeys(_SPATIAL, _GEOMETRY_CODES),
    "json": {events.JSON, events.BLOB},
    "vector": {events.VECTOR, *_VARCHAR_CODES},
}
"""The log's possible type codes for each type in the catalog."""
_MARIADB_WIDTHS = {
    "tinyint": 4,
    "smallint": 6,
    "mediumint": 9,
    "int": 11,
    "bigint": 20,
    "tinyint unsigned": 3,
    "smallint unsigned": 5,
    "mediumint unsigned": 8,
    "int unsigned": 10,
    "bigint unsigned": 20,
}
_SWAPPED_UUIDS = 0x60


@dataclass(frozen=True)
class Bound:
    """A table of the log, and how to decode its rows.

    Args:
        shape: The table's shape.
        log: The table's TABLE_MAP in the log.
        fields: The encoding of each column in a row: those of the shape, then hidden columns.
    """

    shape: Shape
    log: TableMap
    fields: Sequence[rows.Field]

    @cached_property
    def heads(self) -> Sequence[bytes]:
        """The heads of insert, update and delete events that contain all columns."""
        count = len(self.log.columns)
        bits = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
        size = events.written_length(count)
        return size + bits, size + bits + bits, size + bits

    def is_whole(self, head: bytes, op: int) -> bool:
        """Return whether the head of an event tells that it contains all columns."""
        count, whole = len(self.log.columns), self.heads[op]
        bits = (count + 7) // 8
        unused = bytes([*bytes(bits - 1), 0xFF << (count - 8 * (bits - 1)) & 0xFF])
        # Some servers set the unused bits of the last byte.
        given = head.removeprefix(events.written_length(count))
        filled = bytes(a & ~b for a, b in zip(given, unused * 2, strict=False))
        return filled == whole[len(whole) - len(filled) :] and len(head) == len(whole)

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.shape.columns]


class Shapes:
    """Determines the shapes of the tables in a log.

    The catalog has more details than the log, but only for the table's current state. So it is
    queried first, and used if it agrees with the log.
    """

    def __init__(self, database: Mysql, *, mariadb: tuple[int, ...]) -> None:
        self._database, self._mariadb = database, mariadb
        self._collations: Mapping[int, tuple[str, str, int]] = {}
        self._charsets_known: dict[str, Change] = {}

    def bound(self, log: TableMap) -> Bound:
        """Return a table with its shape.

        Raises ConfigError if neither the log nor the catalog has the names of its columns.
        """
        with self._database.session() as session:
            table = self._database.table(session, log.table)
            self._load_collations(session)
            columns = self._columns(session, log, table)
            hidden = [
                self._logged(session, str(found.name), found, None)
                for found in log.columns[len(columns) :]
            ]
            charsets = self._charsets(session, log)
            key = self._key(log, columns, table)
            fields = [
                self._field(session, column, found, charset)
                for column, found, charset in zip(
                    [*columns, *hidden], log.columns, charsets, strict=True
                )
            ]
        kept = [
            replace(column, schema=column.schema.replaced(optional=column.name not in key))
            for column in columns
        ]
        return Bound(Shape(log.table, tuple(kept), key), log, fields)

    def known(self, name: TableName) -> Bound | None:
        """Return a table that has no rows in the log yet; None if it does not exist."""
        with self._database.session() as session:
            table = self._database.table(session, name)
        if table is None:
            return None
        columns = [
            replace(each, schema=each.schema.replaced(optional=each.name not in table.key))
            for each in table.columns
        ]
        return Bound(Shape(name, tuple(columns), table.key), TableMap(name, (), None), ())

    def _load_collations(self, session: Session) -> None:
        if not self._collations:
            has_ids = session.value(_HAS_IDS)
            rows_ = session.rows(_COLLATIONS_BY_USE if has_ids else _COLLATIONS)
            self._collations = {row[0]: row[1:] for row in rows_ if row[0] is not None}

    def _columns(
        self, session: Session, log: TableMap, table: Table | None
    ) -> Sequence[Column]:
        # MySQL's hidden columns for functional indexes come last.
        shown = [each for each in log.columns if not (each.name or "").startswith(_HIDDEN)]
        names = [column.name for column in shown]
        if table is not None and len(table.columns) == len(names):
            agree = all(
                found.name in {None, column.name} and _agrees(column, found)
                for column, found in zip(table.columns, shown, strict=True)
            )
            if agree:
                return table.columns
        if None in names:
            is_there = "other columns now" if table is not None else "been dropped since"
            raise ConfigError(
                problem=f"The binary log contains rows of {log.table} without the names of "
                f"their columns, and the table has {is_there}.",
                fix=f"{METADATA} It affects later rows only, so start with a new snapshot.",
            )
        usual = session.value(_USUAL, [log.table.schema])
        return [self._logged(session, str(found.name), found, usual) for found in shown]

    def _logged(
        self, session: Session, name: str, log: BinlogColumn, usual: str | None
    ) -> Column:
        """Return a column as described by the log alone."""
        type_ = self._type(session, log)
        collation = self._collations.get(log.collation or _BINARY)
        if collation is not None and collation[0] not in {usual, "binary"}:
            type_ = f"{type_}{COLLATE}{collation[0]}"
        return column_of(name, type_, is_optional=True)

    def _type(self, session: Session, log: BinlogColumn) -> str:
        code, meta = log.code, log.meta
        for name, own in _INTEGERS.items():
            if code == own:
                unsigned = " unsigned" if log.unsigned else ""
                width = f"({_MARIADB_WIDTHS[name + unsigned]})" if self._mariadb else ""
                return f"{name}{width}{unsigned}"
        _, charset, most = self._collations.get(log.collation or _BINARY, ("", None, 1))
        is_binary = log.collation in {None, _BINARY}
        if code == events.DECIMAL:
            return f"decimal({meta & 255},{meta >> 8}){' unsigned' if log.unsigned else ''}"
        if code in {events.ENUM, events.SET}:
            values = self._log_values(session, log, charset)
            quoted = ",".join("'" + value.replace("'", "''") + "'" for value in values)
            return f"{'enum' if code == events.ENUM else 'set'}({quoted})"
        if code in _TEXT_CODES:
            return _BY_LENGTH[meta] + ("blob" if is_binary else "text")
        if code == events.STRING or code in _VARCHAR_CODES:
            var = "var" if code != events.STRING else ""
            return f"{var}{'binary' if is_binary else 'char'}({meta // most})"
        if code == events.BIT:
            return f"bit({_bit_count(meta)})"
        if code not in _PLAIN_TYPES:
            raise _unreadable(str(log.name), code)
        plain = _PLAIN_TYPES[code]
        return f"{plain}({meta})" if code in {17, 18, 19} and meta else plain

    def _key(
        self, log: TableMap, columns: Sequence[Column], table: Table | None
    ) -> tuple[str, ...]:
        if log.key is not None:
            return tuple(columns[number].name for number in log.key)
        return table.key if table is not None else ()

    def _charsets(self, session: Session, log: TableMap) -> list[str | None]:
        """Return the character set of each column."""
        codes = {events.STRING, events.ENUM, events.SET, *_VARCHAR_CODES, *_TEXT_CODES}
        if all(each.collation is not None for each in log.columns if each.code in codes):
            found = [self._collations.get(each.collation or 0) for each in log.columns]
            return [None if each is None else each[1] for each in found]
        return [row[0] for row in session.rows(_CHARSETS, [log.table.schema, log.table.name])]

    # --- encoding of columns --------------------------------------------------------

    def _field(
        self, session: Session, column: Column, log: BinlogColumn, charset: str | None
    ) -> rows.Field:
        code, meta = log.code, log.meta
        if code in _WIDTHS:
            unsigned = log.unsigned if log.unsigned is not None else " unsigned" in column.type
            if unsigned and code == _INTEGERS["bigint"]:
                return rows.unsigned_bigint()
            kind = to_arrow_type(column.schema.bare()).to_pandas_dtype()
            return rows.whole(_WIDTHS[code], signed=not unsigned, kind=np.dtype(kind).str)
        if code == events.DECIMAL:
            kind = to_arrow_type(column.schema.bare())
            return rows.number(meta & 255, meta >> 8, kind)
        if code in _MAKERS:
            return _MAKERS[code](meta)
        if code in {events.ENUM, events.SET}:
            values = self._enum_values(session, column, log, charset)
            made = rows.chosen if code == events.ENUM else rows.several
            return made(meta, values)
        if code == events.JSON:
            return rows.counted(meta, _by_value(rows.json_text))
        if code == events.STRING:
            return self._char(session, column, log, charset)
        if code in _COUNTED_CODES:
            width = meta if code not in _VARCHAR_CODES else 1 if meta < 256 else 2  # noqa: PLR2004
            change = self._texts(session, charset) if code in _WITH_TEXTS else None
            if code in {events.VARCHAR_COMPRESSED, events.BLOB_COMPRESSED}:
                change = _both(_by_value(_expanded, pa.binary()), change)
            return rows.counted(width, change)
        raise _unreadable(column.name, code)

    def _char(
        self, session: Session, column: Column, log: BinlogColumn, charset: str | None
    ) -> rows.Field:
        prefix = 1 if log.meta < 256 else 2  # noqa: PLR2004 - more than a byte
        base = column.type.partition("(")[0]
        change = {"uuid": self._uuid, "inet4": _inet4, "inet6": _inet6}.get(base)
        if change is not None:
            return rows.padded(prefix, log.meta, _by_value(change))
        texts = self._texts(session, charset)
        return rows.padded(prefix, log.meta) if texts is None else rows.counted(prefix, texts)

    def _uuid(self, value: bytes) -> str:
        # MariaDB stores the least variable bytes first, since 10.11.5 only for UUIDs that start
        # with a time: https://jira.mariadb.org/browse/MDEV-29959
        is_swapped = 0 < value[8] < _SWAPPED_UUIDS and value[6] & 0x80
        if is_swapped or self._mariadb < (10, 11, 5):
            value = value[12:] + value[10:12] + value[8:10] + value[6:8] + value[:6]
        return str(UUID(bytes=value))

    def _log_values(
        self, session: Session, log: BinlogColumn, charset: str | None
    ) -> list[str]:
        change = self._texts(session, charset) or _as_text
        found: list[str] = change(pa.array(log.values, pa.binary())).to_pylist()
        return found

    def _enum_values(
        self, session: Session, column: Column, log: BinlogColumn, charset: str | None
    ) -> list[str]:
        if log.values is not None:
            return self._log_values(session, log, charset)
        text = column.type.partition(COLLATE)[0]
        if not text.startswith(("enum(", "set(")):
            raise ConfigError(
                problem=f"The values of the column {column.name}'s type are in neither the "
                "catalog nor the binary log.",
                fix=METADATA,
            )
        return [each.replace("''", "'") for each in re.findall(r"'((?:[^']|'')*)'", text)]

    def _texts(self, session: Session, charset: str | None) -> Change | None:
        """Return the function that decodes text; None if the values are bytes."""
        if charset in {None, "binary"}:
            return None
        if charset in _UTF8:
            return _as_text
        if charset in _WIDE_CODECS:
            return _by_value(lambda value: value.decode(_WIDE_CODECS[charset], "replace"))
        change = self._charsets_known.get(charset)
        if change is None:
            change = self._charsets_known[charset] = _by_value(_decoder(session, charset))
        return change if charset == "swe7" else _ascii_or(change)


def _decoder(session: Session, charset: str) -> Callable[[bytes], str]:
    """Return a function that decodes a character set like the server, which is queried."""

    def converted(signs: bytes) -> str:
        query = f"SELECT CONVERT(CONVERT(X'{signs.hex()}' USING {charset}) USING utf8mb4)"
        return str(session.value(query))

    codec = _CODECS.get(charset)
    if codec is None:
        table = converted(bytes(range(256)))
        return lambda value: codecs.charmap_decode(value, "replace", table)[0]
    pairs = [bytes([a, b]) for a in range(0x80, 0x100) for b in range(0x30, 0x100)]
    if codec.startswith("euc_jp"):
        pairs += [b"\x8f" + pair for pair in pairs]
    found = [(pair, pair.decode(codec, "replace")) for pair in pairs]
    known = [(pair, sign) for pair, sign in found if len(sign) == 1 and sign != "\ufffd"]
    signs = converted(b"\n".join(pair for pair, _ in known)).split("\n")
    others = {
        ord(sign): own
        for (_, sign), own in zip(known, signs, strict=True)
        if own not in {sign, "?"} and not sign.isascii()
    }
    return lambda value: value.decode(codec, "replace").translate(others)


_HAS_IDS = """
SELECT count(*) FROM information_schema.columns WHERE table_schema = 'information_schema'
AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"""
_COLLATIONS_BY_USE = """
SELECT c.id, c.full_collation_name, c.character_set_name, s.maxlen
FROM information_schema.collation_character_set_applicability c
JOIN information_schema.character_sets s ON s.character_set_name = c.character_set_name"""
_COLLATIONS = """
SELECT c.id, c.collation_name, c.character_set_name, s.maxlen
FROM information_schema.collations c
JOIN information_schema.character_sets s ON s.character_set_name = c.character_set_name"""
_USUAL = """
SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = %s"""
_CHARSETS = """
SELECT character_set_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_PLAIN_TYPES = {
    4: "float",
    5: "double",
    13: "year",
    10: "date",
    14: "date",
    7: "timestamp",
    17: "timestamp",
    11: "time",
    19: "time",
    12: "datetime",
    18: "datetime",
    events.JSON: "json",
    events.GEOMETRY: "geometry",
    events.VECTOR: "vector",
}
_MAKERS: Mapping[int, Callable[[int], rows.Field]] = {
    4: lambda _: rows.floating(4),
    5: lambda _: rows.floating(8),
    13: lambda _: rows.year(),
    events.BIT: lambda meta: rows.bits(_bit_count(meta)),
    10: lambda _: rows.day(),
    14: lambda _: rows.day(),
    17: lambda meta: rows.moment(0, meta),
    18: rows.date_time,
    19: rows.time_of_day,
    7: lambda _: rows.moment(4, 0),
    12: lambda _: rows.old_date_time(),
    11: lambda _: rows.old_time_of_day(),
}


def _unreadable(name: str, code: int) -> ConfigError:
    return ConfigError(
        problem=f"The binary log contains values of the column {name} of an unsupported type, "
        f"{code}.",
        fix="Exclude the table by table.exclude.list.",
    )


def _bit_count(meta: int) -> int:
    return (meta >> 8) * 8 + (meta & 255)


def _agrees(column: Column, log: BinlogColumn) -> bool:
    """Return whether a column of the catalog matches that of the log."""
    found = _TYPE.match(column.type)
    if found is None:
        return False
    base, size, scale, unsigned = found.groups()
    # A type of a plugin may be stored as any type.
    if log.code not in _CODES.get(base, {log.code}):
        return False
    if log.unsigned is not None and base in _INTEGERS and log.unsigned != bool(unsigned):
        return False
    if base == "decimal":
        return (log.meta & 255, log.meta >> 8) == (int(size), int(scale or 0))
    if base == "bit":
        return _bit_count(log.meta) == int(size)
    if base in {"time", "datetime", "timestamp"}:
        # An old type has no fractional digits in the log; with digits it has another width.
        return log.meta == int(size or 0)
    if base == "binary":
        return log.meta == int(size)
    return True


def _as_text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # invalid text, which a server does not accept by default
        return _by_value(lambda value: value.decode(errors="replace"))(values)


def _both(first: Change, then: Change | None) -> Change:
    return first if then is None else lambda values: then(first(values))


def _by_value(change: Callable[[bytes], str | bytes], kind: pa.DataType = _TEXT) -> Change:
    def changed(values: pa.Array) -> pa.Array:
        given = values.to_pylist()
        return pa.array([None if each is None else change(each) for each in given], kind)

    return changed


def _ascii_or(change: Change) -> Change:
    """Return a function that converts ASCII values directly, others with ``change``."""

    def changed(values: pa.Array) -> pa.Array:
        data = values.buffers()[2]
        plain = data is None or not (np.frombuffer(data, np.uint8) & 0x80).any()
        return _as_text(values) if plain else change(values)

    return changed


def _expanded(value: bytes) -> bytes:
    """Decompress a value of a COMPRESSED column: its method, its length, and zlib's data."""
    if not value or not value[0]:
        return value[1:]
    size, is_wrapped = value[0] & 7, not value[0] & 8
    bits = zlib.MAX_WBITS if is_wrapped else -zlib.MAX_WBITS
    return events.inflated(value[1 : 1 + size], value[1 + size :], bits)


def _inet4(value: bytes) -> str:
    return str(ipaddress.IPv4Address(value))


def _inet6(value: bytes) -> str:
    """Return an address as MariaDB writes it, which also shortens a single zero group."""
    groups = [value[at] << 8 | value[at + 1] for at in range(0, 16, 2)]
    runs, start = [(0, 0)], 0
    for place, group in enumerate([*groups, 1]):
        if group:
            runs.append((place - start, -start))
            start = place + 1
    length, start = max(runs)
    gap = -start
    texts = [f"{group:x}" for group in groups]
    if gap == 0 and (length == 6 or (length == 5 and groups[5] == 0xFFFF)):  # noqa: PLR2004
        texts[6:] = [_inet4(value[12:])]  # an embedded IPv4 address
    if not length:
        return ":".join(texts)
    return f"{':'.join(texts[:gap])}::{':'.join(texts[gap + length :])}"
