"""The tables of a JDBC driver's catalog, with Spark's types of their columns."""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError, Schema
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.databases.catalog import Column, Table, TableName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.databases.database import Database, Session

_TABLES = {"TABLE", "BASE TABLE", "PARTITIONED TABLE", "FOREIGN TABLE"}
_OF_SYSTEM = re.compile(r"(?i)(information_schema|sys.*|pg_.*|ctxsys|xdb|mdsys|outln|nullid)")
_INDEX = ("INDEX_NAME", "COLUMN_NAME", "FILTER_CONDITION")
_COLUMN = (
    *("COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE"),
    *("COLUMN_DEF", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"),
)
_SIZED = {"1", "12", "-15", "-9", "-2", "-3"}
"""Numbers in java.sql.Types of types with a length: CHAR, VARCHAR, NCHAR, NVARCHAR, BINARY."""
_EXACT, _TIME = {"2", "3"}, "92"
_MOST_SIGNS, _MOST_DIGITS = 1 << 30, 1000
"""Larger numbers mean that there is no limit."""
_OF_TIME = "logical_time_type"
"""Spark's metadata key for columns of type TIME in the database."""
_UNIQUE, _ROUGHLY = True, True  # Java's arguments have no names here


def tables_there(session: Session, *, own: bool = True) -> list[TableName]:
    """Return a database's tables without system tables; the sink's own only with ``own``."""
    with session.errors():
        found = session.connection.catalog(
            "getTables", ["", ""], ("TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"), None
        )
    return sorted(
        TableName(schema or "", name)
        for schema, name, kind in found
        if kind in _TABLES
        and not _OF_SYSTEM.fullmatch(schema or "")
        and (own or not name.lower().startswith("headrace_"))
    )


def described(database: Database, session: Session, name: TableName) -> Table | None:
    """Return the catalog's description of a table; None if it does not exist."""
    columns = _columns(database, session, name)
    if not columns:
        return None
    with session.errors():
        names, ask = [name.schema, name.name], session.connection.catalog
        keys = ask("getPrimaryKeys", names, ("KEY_SEQ", "COLUMN_NAME"))
        indexes = ask("getIndexInfo", names, _INDEX, _UNIQUE, _ROUGHLY)
        parents = ask("getImportedKeys", names, ("PKTABLE_SCHEM", "PKTABLE_NAME"))
    key = tuple(column for _, column in sorted(keys, key=lambda row: int(row[0])))
    unique: dict[str, list[str | None]] = {"": list(key)} if key else {}
    for index, column, condition in indexes:
        if index is not None:  # None is a row of statistics
            unique.setdefault(index, []).append(None if condition else column)
    whole = [tuple(map(str, each)) for each in unique.values() if None not in each]
    return Table(
        name=name,
        columns=tuple(columns),
        key=key,
        unique=tuple(dict.fromkeys(whole)),
        parents=tuple(dict.fromkeys(TableName(schema or "", own) for schema, own in parents)),
    )


def _columns(database: Database, session: Session, name: TableName) -> list[Column]:
    with session.errors():
        rows = session.connection.catalog("getColumns", [name.schema, name.name, ""], _COLUMN)
    if not rows:
        return []
    schemas = schemas_of(database, session, database.path(name), [row[0] for row in rows])
    return [
        Column(
            name=own,
            type=_type_text(code, type_, size, digits),
            schema=schemas[own].replaced(optional=nullable != "0"),
            has_default=default is not None or increments == "YES",
            generated=generated == "YES",
        )
        for own, code, type_, size, digits, nullable, default, increments, generated in rows
    ]


def schemas_of(
    database: Database, session: Session, source: str, names: Sequence[str]
) -> dict[str, Schema]:
    """Return the schemas of columns as read by Spark; unknown types are strings.

    Args:
        database: The database.
        session: A session of the database.
        source: SQL of the table or subquery in the FROM clause.
        names: The columns; empty for all columns, whose types Spark must then know.
    """
    url = database.address.url
    try:
        with session.errors():
            return _read_types(
                session.connection.spark_types(url, f"SELECT * FROM {source} WHERE 1 = 0")
            )
    except ConfigError:
        if not names:
            raise
    found: dict[str, Schema] = {}
    for name in names:
        query = f"SELECT {database.quote(name)} FROM {source} WHERE 1 = 0"
        try:
            with session.errors():
                found |= _read_types(session.connection.spark_types(url, query))
        except ConfigError:
            found[name] = Schema.string()
    return found


def _read_types(text: str) -> dict[str, Schema]:
    found: dict[str, Any] = json.loads(text)
    times = {f["name"] for f in found["fields"] if f["metadata"].get(_OF_TIME)}
    return {
        f.name: Schema.time(optional=f.schema.optional) if f.name in times else f.schema
        for f in from_spark_json(found).fields
    }


def _type_text(code: str, name: str, size: str | None, digits: str | None) -> str:
    """Return a column's SQL type, from the catalog's data."""
    name = name.removesuffix(" identity")  # SQL Server's
    figure = 0 if size is None else int(size)
    if code in _SIZED and 0 < figure < _MOST_SIGNS and name != "UUID":
        return name.replace("()", f"({size})") if "()" in name else f"{name}({size})"
    if code == _TIME and digits and digits != "0":
        return f"{name}({digits})"  # a TIME has no digits by default
    if code in _EXACT and 0 < figure <= _MOST_DIGITS:
        return f"{name}({size},{digits or 0})"
    return name
