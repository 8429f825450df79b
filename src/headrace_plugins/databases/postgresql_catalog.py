"""The catalog of a PostgreSQL database: tables, columns and types."""

# ruff: noqa: S608 - the user configures the query, which runs unchanged

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.sdk import Schema
from headrace.sdk.schema import MAX_PRECISION
from headrace_plugins.databases.catalog import Column, Table, TableName

if TYPE_CHECKING:
    from headrace_plugins.databases.database import Session

_SCHEMAS: Mapping[str, Schema] = {
    "bool": Schema.boolean(),
    "int2": Schema.int16(),
    "int4": Schema.int32(),
    "int8": Schema.int64(),
    "oid": Schema.int64(),
    "float4": Schema.float32(),
    "float8": Schema.float64(),
    "bytea": Schema.bytes(),
    "date": Schema.date(),
    "time": Schema.time(),
    "timestamp": Schema.local_timestamp(),
    "timestamptz": Schema.timestamp(),
    "money": Schema.decimal(2, precision=19),
}
"""Schemas by type name in pg_type; all other types are read as the server's text."""
_SAME_IN_BINARY = {
    *("boolean", "smallint", "integer", "bigint", "oid", "real", "double precision"),
    *("numeric", "money", "text", "character varying", "character", "bytea", "date"),
    *("time without time zone", "time with time zone", "timestamp without time zone"),
    *("timestamp with time zone", "interval", "uuid", "json", "jsonb", "inet", "cidr"),
    *("macaddr", "bit", "bit varying", "point", "box", "circle"),
}
"""Types, in the format of format_type, whose binary format is the same in every database."""

_MODIFIER = re.compile(r"\([0-9,-]+\)")

_NAMES_OF = """
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_t%%'
  AND c.relname NOT LIKE 'headrace\\_%%' AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1, 2"""
_COLUMNS_OF = """
SELECT n.nspname, c.relname, a.attname,
  pg_catalog.format_type(a.atttypid, a.atttypmod),
  CASE WHEN t.typtype = 'd' THEN b.typname ELSE t.typname END,
  CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
  a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated <> '',
  c.reltuples, pg_catalog.pg_table_size(c.oid)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND (n.nspname, c.relname) IN (
  SELECT * FROM unnest(%s::text[], %s::text[]))
ORDER BY 1, 2, a.attnum"""
_KEYS_OF = """
SELECT n.nspname, c.relname, i.indisprimary,
  pg_catalog.array_agg(a.attname::text ORDER BY k.place)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND k.place <= i.indnkeyatts AND (n.nspname, c.relname) IN (
  SELECT * FROM unnest(%s::text[], %s::text[]))
GROUP BY n.nspname, c.relname, i.indexrelid, i.indisprimary"""
_PARENTS_OF = """
SELECT n.nspname, c.relname, pn.nspname, p.relname
FROM pg_catalog.pg_constraint f
JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class p ON p.oid = f.confrelid
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
WHERE f.contype = 'f' AND (n.nspname, c.relname) IN (
  SELECT * FROM unnest(%s::text[], %s::text[]))"""

_KEY_OF = """
SELECT pg_catalog.array_agg(a.attname::text ORDER BY k.place)
FROM pg_catalog.pg_index i
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indisprimary AND i.indrelid = %s AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid"""
_TYPES_OF = """
SELECT q.type, q.modifier, pg_catalog.format_type(t.oid, q.modifier),
  CASE WHEN t.typtype = 'd' THEN b.typname ELSE t.typname END,
  CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE q.modifier END
FROM unnest(%s::oid[], %s::int4[]) AS q(type, modifier)
JOIN pg_catalog.pg_type t ON t.oid = q.type
LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype"""

_WRITERS_OF = """
WITH RECURSIVE parts(relation) AS (
  SELECT to_regclass(%s)::oid
  UNION SELECT i.inhrelid
  FROM pg_catalog.pg_inherits i JOIN parts p ON i.inhparent = p.relation)
SELECT DISTINCT l.virtualtransaction
FROM pg_catalog.pg_locks l JOIN parts p ON p.relation = l.relation
JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted"""
"""A transaction locks the table before it draws a row's number, and keeps the lock."""
_ALL_WRITERS = "SELECT txid_snapshot_xip(txid_current_snapshot())::text"


def all_tables(session: Session) -> list[TableName]:
    """Return the tables that the user may read."""
    return [TableName(*row) for row in session.rows(_NAMES_OF.replace("%%", "%"))]


def describe_tables(session: Session, names: Sequence[TableName]) -> dict[TableName, Table]:
    """Return the catalog's description of tables; missing tables are omitted."""
    wanted = ([each.schema for each in names], [each.name for each in names])
    columns: dict[TableName, list[Column]] = {}
    sizes: dict[TableName, tuple[int | None, int]] = {}
    for schema, name, *column, rows, size in session.rows(_COLUMNS_OF, wanted):
        table = TableName(schema, name)
        columns.setdefault(table, []).append(_column(*column))
        sizes[table] = (int(rows) if rows >= 0 else None, int(size))
    keys: dict[TableName, tuple[str, ...]] = {}
    unique: dict[TableName, list[tuple[str, ...]]] = {}
    for schema, name, is_primary, parts in session.rows(_KEYS_OF, wanted):
        table = TableName(schema, name)
        unique.setdefault(table, []).append(tuple(parts))
        if is_primary:
            keys[table] = tuple(parts)
    parents: dict[TableName, list[TableName]] = {}
    for schema, name, *parent in session.rows(_PARENTS_OF, wanted):
        parents.setdefault(TableName(schema, name), []).append(TableName(*parent))
    return {
        name: Table(
            name=name,
            columns=tuple(found),
            key=keys.get(name, ()),
            unique=tuple(unique.get(name, ())),
            rows=sizes[name][0],
            size_bytes=sizes[name][1],
            parents=tuple(parents.get(name, ())),
        )
        for name, found in columns.items()
    }


def writers_of(session: Session, path: str | None) -> frozenset[str]:
    """Return the transactions that write a table or parts of it; without a path, any table."""
    found = session.rows(_ALL_WRITERS) if path is None else session.rows(_WRITERS_OF, [path])
    return frozenset(str(each) for (each,) in found)


def columns_of_query(session: Session, query: str) -> tuple[Column, ...]:
    """Return the columns of a query's rows."""
    with session.errors():
        # A prepared query can only be a single statement.
        cursor = session.connection.execute(
            f"SELECT * FROM ({query}) AS q LIMIT 0", prepare=True
        )
        described = [
            (each.name, each.type_code, cursor.pgresult.fmod(number))
            for number, each in enumerate(cursor.description)
        ]
    found = []
    for name, oid, modifier in described:
        [row] = session.rows(
            "SELECT pg_catalog.format_type(t.oid, %s), "
            "CASE WHEN t.typtype = 'd' THEN b.typname ELSE t.typname END "
            "FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type b "
            "ON b.oid = t.typbasetype WHERE t.oid = %s",
            (modifier, oid),
        )
        found.append(_column(name, row[0], row[1], modifier, False, False, False))  # noqa: FBT003
    return tuple(found)


def relation_columns(
    session: Session, oid: int, names: Sequence[str], types: Sequence[tuple[int, int]]
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns of a relation in the log, and the current key of the table.

    All columns are nullable, regardless of the current table.

    Args:
        session: A session.
        oid: The oid of the relation.
        names: The column names in the log.
        types: The oid and modifier of each column's type.
    """
    key = next(
        (tuple(parts) for [parts] in session.rows(_KEY_OF, [oid]) if set(parts) <= set(names)),
        (),
    )
    oids, modifiers = [each[0] for each in types], [each[1] for each in types]
    found = {
        (int(o), int(m)): (title, base, int(modifier))
        for o, m, title, base, modifier in session.rows(_TYPES_OF, [oids, modifiers])
    }
    columns = []
    for name, type_ in zip(names, types, strict=True):
        # A type that was dropped since is read as text, like any unknown type.
        title, base, modifier = found.get(type_, ("text", "text", -1))
        columns.append(_column(name, title, base, modifier, False, False, False))  # noqa: FBT003
    return tuple(columns), key


def binary_form(columns: Sequence[Column]) -> str | None:
    """Return the name of the binary format of these columns; None if it is not portable."""
    types = [column.type for column in columns]
    names = [_MODIFIER.sub("", type_).removesuffix("[]") for type_ in types]
    if not all(name in _SAME_IN_BINARY for name in names):
        return None
    return f"postgresql copy binary: {', '.join(types)}"


def _column(name: str, type_: str, base: str, modifier: int, *flags: bool) -> Column:
    """Return a column. ``flags``: required, has a default, generated."""
    required, has_default, generated = flags or (False, False, False)
    schema = _numeric(modifier) if base == "numeric" else _SCHEMAS.get(base, Schema.string())
    return Column(
        name=name,
        type=type_,
        schema=schema.replaced(optional=not required),
        has_default=has_default,
        generated=generated,
    )


def _numeric(modifier: int) -> Schema:
    """Return the schema of a numeric; a string if Decimal cannot represent all values."""
    precision = ((modifier - 4) >> 16) & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if modifier < 0 or max(precision, scale, precision - min(scale, 0)) > MAX_PRECISION:
        return Schema.string()
    if scale < 0:  # integers that end in zeros
        return Schema.decimal(0, precision=precision - scale)
    return Schema.decimal(scale, precision=max(precision, scale))
