"""Writes the page that says what becomes of each type of a database in each other one.

``.venv/bin/python -m tests.database_tables.page`` writes it anew, with servers of its own.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.database_tables import delta, mariadb, postgresql, sqlite
from tests.database_tables.losses import LOSSES
from tests.database_tables.table import KEY, Table, Unfit
from tests.mariadb_server import MariadbServer, connect
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import Schema
from headrace.sdk.schema import COLUMN_TYPE, DECIMAL
from headrace.sdk.sparktypes import from_spark_json
from headrace.sdk.sqltext import sql_type
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.database import Database
from headrace_plugins.databases.mysql import Mysql
from headrace_plugins.databases.postgresql import Postgresql
from headrace_plugins.databases.rows import RecordRows
from headrace_plugins.databases.sqlite import Sqlite

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "database-types.md"
REMEDY = "run: .venv/bin/python -m tests.database_tables.page"
TABLES: Mapping[str, Table] = {
    "PostgreSQL": postgresql.EVERY_TYPE,
    "MariaDB": mariadb.EVERY_TYPE,
    "SQLite": sqlite.EVERY_AFFINITY,
    "Delta": delta.EVERY_TYPE,
}
DATABASES: Mapping[str, Callable[[str], Database]] = {
    "PostgreSQL": lambda url: Postgresql(address_of(url)),
    "MariaDB": lambda url: Mysql(address_of(url)),
    "SQLite": lambda url: Sqlite(address_of(url)),
}
_NOWHERE = {
    "PostgreSQL": "postgresql://nowhere/none",
    "MariaDB": "mysql://nowhere/none",
    "SQLite": "sqlite:none.db",
}
_ABOUT = """\
<!-- Made by tests/database_tables/page.py; do not edit. -->
# Types of databases

What the source `jdbc` reads of each type, and which column a sink makes of it in a table \
that it creates.
A test copies a table with every type and its extremes from each of these to each other one, \
and looks at every value: all arrive, but those under *What is lost* at the end.
`headrace verify` finds such a copy equal, but for the rows that became dead letters.

- A type that only one kind of database has is a text in the records, written as the database \
shows it, and becomes its own type again in a table of the same kind.
  Types that a user has made, such as enums, domains and composites, must be there first.
- MySQL is as MariaDB, but has no `UUID`, `INET4` and `INET6`, and its `JSON` sorts names and \
makes doubles of long numbers.
- Times without a zone are taken as UTC where the target has only times with one, and times \
with a zone are written in UTC where it has only times without.
- A time of day is a number of microseconds in Delta, whose name and type are in the column's \
metadata.
- Lists, maps and structs become texts of JSON in databases: nulls are kept, times are of UTC \
with microseconds in ISO form, and the keys of a map are texts: of dates and times the \
days and microseconds since 1970.
- A column of texts in a key is `varchar(255)` in MySQL and MariaDB, which have no index for \
longer ones.
- In a table that is there already, a value that does not fit into its column is a dead \
letter; but digits behind the point or of a second may be rounded there, which verify names."""


def described(kind: str, url: str, name: str) -> Schema:
    """Return the schema of the records of a table."""
    if kind == "Delta":
        return from_spark_json(json.loads(DeltaTable(url).schema().to_json()))
    database = DATABASES[kind](url)
    with database.session() as session:
        table = database.table(session, database.named(name))
    assert table is not None
    return table.schema(database.kind)


def schemas(spark: SparkSession, urls: Mapping[str, str]) -> dict[str, Schema]:
    """Make the table of each kind of database, and return the schemas of their records."""
    for kind, table in TABLES.items():
        make(spark, kind, urls[kind], table)
    return {kind: described(kind, urls[kind], table.name) for kind, table in TABLES.items()}


def make(spark: SparkSession, kind: str, url: str, table: Table) -> None:
    """Make a table of a kind of database, with its rows."""
    if kind == "PostgreSQL":
        with psycopg.connect(url, options="-c timezone=UTC") as connection:
            for statement in table.statements():
                connection.execute(statement.encode())
    elif kind == "MariaDB":
        with closing(connect(url)) as opened, opened.cursor() as cursor:
            for statement in ["SET time_zone = '+00:00'", *table.statements()]:
                cursor.execute(statement)
    elif kind == "SQLite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as file, file:
            for statement in table.statements():
                file.execute(statement)
    else:
        names = ", ".join([KEY, *(table.quoted(each.name) for each in table.columns)])
        values = ", ".join(
            f"({', '.join([f'{number}L', *_cells(table, number)])})"
            for number in range(1, table.length + 1)
        )
        rows = spark.sql(f"SELECT * FROM VALUES {values} AS t({names})")  # noqa: S608 - a test's
        rows.write.format("delta").save(url)


def _cells(table: Table, number: int) -> Iterator[str]:
    for each in table.columns:
        sql = each.values[number - 1][0] if number <= len(each.values) else "NULL"
        yield f"CAST({sql} AS {each.type})"


def has_no_record(schema: Schema, column: str, sql: str, value: object) -> bool:
    """Return whether a row with a value becomes a dead letter of the source."""
    field = schema.field(column)
    assert field is not None
    # What is read as a text takes all that is one.
    takes_it = field.schema.type.value == "STRING" and not sql.startswith("X'")
    return isinstance(value, Unfit) and not takes_it


def page(schemas: Mapping[str, Schema]) -> str:
    """Return the page, by the schemas of the records of each kind of database's table."""
    parts = [_ABOUT]
    for kind, schema in schemas.items():
        parts += [f"## {kind}", _table(_HEAD, _types(kind, schema))]
    values = (row for kind, schema in schemas.items() for row in _without_record(kind, schema))
    parts += [_IN_SOURCE, _table(("Source", "Type", "Values", "Why"), values)]
    lost = ((each.target, each.values, each.becomes) for each in LOSSES)
    parts += ["### In a target", _table(("Target", "Values", "What becomes of them"), lost)]
    return "\n\n".join(parts) + "\n"


_SHOWN = 40
_HEAD = ("Type", "In records", "PostgreSQL", "MariaDB", "SQLite", "Delta")
_IN_SOURCE = """\
## What is lost

### In a source

Rows with such values become dead letters, or stop the task where none is tolerated.
`invalid.values: null` makes them null instead."""


def _types(kind: str, schema: Schema) -> Iterator[tuple[str, ...]]:
    seen = set[tuple[str, ...]]()
    for column in TABLES[kind].columns:
        field = schema.field(column.name)
        assert field is not None
        if column.of_row is not None:
            continue
        own = field.schema.parameters.get(COLUMN_TYPE, "").partition(" ")[2]
        own = own or column.type or "none"
        row = (own, _title(field.schema), *_columns(own, field.schema))
        if row not in seen:
            seen.add(row)
            yield tuple(f"`{cell.replace('`', '')}`" for cell in row)


def _columns(own: str, schema: Schema) -> Iterator[str]:
    rows = RecordRows(
        schema=Schema.struct({"v": schema}), fields={}, keys=(), key_fields={}, is_change=False
    )
    for target, url in _NOWHERE.items():
        yield DATABASES[target](url).column_type(rows.staged_schema()["v"]) or own
    yield sql_type(schema)


def _title(schema: Schema) -> str:
    """Return what the schema of values is called."""
    if not schema.is_logical:
        return sql_type(schema) if schema.value_schema or schema.fields else schema.type.value
    name = str(schema.name).rpartition(".")[2]
    if schema.name == DECIMAL:
        return sql_type(schema).replace("DECIMAL", name)
    return f"local {name}" if schema.is_local else name


def _without_record(kind: str, schema: Schema) -> Iterator[tuple[str, ...]]:
    for column in TABLES[kind].columns:
        bad = [
            value
            for sql, value in column.values
            if isinstance(value, Unfit) and has_no_record(schema, column.name, sql, value)
        ]
        for why, group in groupby(bad, key=lambda each: each.why):
            texts = ", ".join(
                f"`{_shown(each.text)}`" if each.text else "empty" for each in group
            )
            yield kind, f"`{column.type or 'none'}`", texts, why


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _main() -> None:
    from headrace.settings import load_settings
    from headrace.spark.session import close_session, open_session

    settings = load_settings(master="local[2]", driver_memory="1g")
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        running = opened.enter_context
        urls = {
            "PostgreSQL": running(running(PostgresqlServer.running()).database()),
            "MariaDB": running(running(MariadbServer.running()).database()),
            "SQLite": f"sqlite:{folder / 'types.db'}",
            "Delta": str(folder / "delta"),
        }
        spark = open_session(settings, app_name="database-types", short_lived=True)
        opened.callback(close_session)
        PAGE.write_text(page(schemas(spark, urls)))


if __name__ == "__main__":
    _main()
