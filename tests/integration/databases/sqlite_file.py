"""What the tests of SQLite do to a file, and what they find in it."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.sdk import Schema
from headrace.sdk.arrow import to_arrow_type
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import Select
from headrace_plugins.databases.sqlite import Sqlite


def run(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def described(database: Sqlite, name: str) -> Any:
    with database.session() as session:
        return database.table(session, database.named(name))


def read(
    database: Sqlite, name: str, where: str = "", *, nulls: bool = False
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Return the rows of a table, and those that were rejected."""
    table = described(database, name)
    select = Select(columns=table.columns, source=database.path(table.name), where=where)
    rows, rejected = list[dict[str, Any]](), list[tuple[str, str]]()
    for batch, bad in database.read(select, nulls=nulls):
        assert batch.schema.names == [each.name for each in table.columns]
        rows += batch.to_pylist()
        rejected += bad
    return sorted(rows, key=lambda row: row.get("id") or 0), rejected


def load(
    database: Sqlite, name: TableName, columns: Mapping[str, Schema], values: Any, session: Any
) -> int:
    arrays = [
        pa.array(each, to_arrow_type(schema))
        for each, schema in zip(values, columns.values(), strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, list(columns))
    return database.load(session, name, columns, iter([batch]))
