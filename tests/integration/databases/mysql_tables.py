"""Reads and loads tables of MariaDB as connectors do, and by its driver."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.database_tables.table import Table, same
from tests.mariadb_server import connect

from headrace.sdk import Schema
from headrace.sdk.arrow import to_batch
from headrace_plugins.databases.catalog import Column, TableName
from headrace_plugins.databases.database import Select
from headrace_plugins.databases.mysql import Mysql


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements by the driver, in UTC; return the rows of the last one."""
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        for statement in ["SET time_zone = '+00:00'", *statements]:
            cursor.execute(statement)
        return list(cursor.fetchall())


def read(
    database: Mysql, name: str, where: str = "", *, nulls: bool = False
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Return the rows of a table in the order of their first column, and those rejected."""
    batches, rejected = [], list[tuple[str, str]]()
    columns, source = columns_of(database, name), database.path(named(database, name))
    select = Select(columns=columns, source=source, where=where)
    for batch, bad in database.read(select, nulls=nulls):
        batches.append(batch)
        rejected += bad
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row[columns[0].name]), rejected


def named(database: Mysql, name: str) -> TableName:
    return TableName(database.default_schema, name)


def columns_of(database: Mysql, name: str) -> tuple[Column, ...]:
    with database.session() as session:
        table = database.table(session, named(database, name))
    assert table is not None
    return table.columns


def load(database: Mysql, name: str, schema: Schema, batches: Sequence[pa.RecordBatch]) -> int:
    """Load rows into a table, and commit."""
    columns = {field.name: field.schema for field in schema.fields}
    with database.session() as session:
        count = database.load(session, named(database, name), columns, iter(batches))
        session.commit()
    return count


def load_values(database: Mysql, schema: Schema, *values: Any) -> int:
    """Load one value a row into the column ``v`` of the table ``t``."""
    rows = Schema.struct({"v": schema})
    return load(database, "t", rows, [to_batch([{"v": value} for value in values], rows)])


def plain(expected: object, found: Any) -> object:
    """Return what was read as what the tables of odd types say of it."""
    if isinstance(expected, bytes) and isinstance(found, bool):
        return bytes([found])
    if isinstance(expected, Decimal) and isinstance(found, str):
        return Decimal(found)
    if isinstance(found, datetime):
        naive = isinstance(expected, datetime) and expected.tzinfo is None
        return found.replace(tzinfo=None if naive else UTC)
    return found


def compared(table: Table, found: Sequence[dict[str, Any]]) -> list[str]:
    """Return which values of the rows that were found are not as expected, but shapes."""
    shapes = {each.name for each in table.columns if each.read.startswith("ST_")}
    expected = {row["id"]: row for row in table.rows()}
    return [
        f"row {row['id']}, column {name}: {value!r}"[:300]
        for row in found
        for name, value in row.items()
        if name not in shapes
        and not same(expected[row["id"]][name], plain(expected[row["id"]][name], value))
    ]
