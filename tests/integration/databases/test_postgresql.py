"""Every type of PostgreSQL is read and written as it is."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from tests.database_tables.postgresql import TABLES
from tests.database_tables.table import KEY, Table, Unfit
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import ConfigError, RetriableError, Schema
from headrace.sdk.arrow import conform, to_arrow, to_batch
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import Database, Select
from headrace_plugins.databases.postgresql import Postgresql


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database() as made:
        yield made


def made(url: str, table: Table, *, unfit: bool) -> Database:
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for statement in table.statements(unfit=unfit):
            connection.execute(statement)
    return Postgresql(address_of(url))


def read(database: Database, table: Table) -> tuple[list[dict[str, Any]], list[Any]]:
    with database.session() as session:
        found = database.table(session, TableName("public", table.name))
    assert found is not None
    rows, rejected = list[dict[str, Any]](), list[Any]()
    select = Select(columns=found.columns, source=database.path(found.name))
    for batch, bad in database.read(select):
        rows += batch.to_pylist()
        rejected += bad
    return sorted(rows, key=lambda row: row[KEY]), rejected


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_values_of_every_type_are_read_as_they_are(url: str, table: Table) -> None:
    rows, rejected = read(made(url, table, unfit=False), table)
    assert rejected == []
    expected = table.rows(unfit=False)
    cells = [[_as(row[k], of[k]) for k in row] for row, of in zip(rows, expected, strict=True)]
    assert table.differences(cells, unfit=False) == []


def _as(found: Any, expected: object) -> Any:
    """Return a value in the form of the expected one, where Headrace has another for it."""
    if isinstance(found, datetime) and isinstance(expected, datetime) and not expected.tzinfo:
        return found.replace(tzinfo=None)  # it is of UTC by agreement
    if isinstance(found, str) and isinstance(expected, Decimal | UUID):
        return type(expected)(found)  # what has no bound, or no type in other systems
    if isinstance(found, str) and isinstance(expected, list):
        return expected if found[0] in "{[" else found  # arrays are PostgreSQL's texts
    if isinstance(expected, str) and expected in {f"{found}/32", f"{found}/128"}:
        return expected  # only a cast writes the mask of a single address
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_rows_with_values_that_no_schema_has_are_rejected_with_the_column(
    url: str, table: Table
) -> None:
    rows, rejected = read(made(url, table, unfit=True), table)
    unfit = {
        row[KEY]: [name for name, value in row.items() if isinstance(value, Unfit)]
        for row in table.rows(unfit=True)
    }
    assert len(rows) + len(rejected) == len(unfit)
    for row, why in rejected:
        number = int(row.partition(",")[0])
        assert any(name in why for name in unfit[number]), (row, why)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_was_read_is_written_as_it_was(url: str, table: Table) -> None:
    database = made(url, table, unfit=False)
    with database.session() as session:
        found = database.table(session, TableName("public", table.name))
        assert found is not None
        columns = [each for each in found.columns if not each.generated]
        schema = found.schema(database.kind, [each.name for each in columns])
        types = ", ".join(
            f"{database.quote(f.name)} {database.column_type(f.schema)}" for f in schema.fields
        )
        session.execute(f"CREATE TABLE again ({types})")
        arrow = to_arrow(schema)
        select = Select(columns=tuple(columns), source=database.path(found.name))
        batches = [conform(batch, arrow) for batch, _ in database.read(select)]
        members = {field.name: field.schema for field in schema.fields}
        written = database.load(session, TableName("public", "again"), members, iter(batches))
        assert written == sum(batch.num_rows for batch in batches)
        names = ", ".join(database.quote(each.name) + "::text" for each in columns)
        both = [
            session.rows(f"SELECT {names} FROM {database.path(each)}")  # noqa: S608 - a test's
            for each in (found.name, TableName("public", "again"))
        ]
        assert sorted(both[0], key=repr) == sorted(both[1], key=repr)


def test_memory_is_bounded_by_blocks_and_not_by_rows(url: str) -> None:
    database = Postgresql(address_of(url))
    with database.session() as session:
        columns = database.query_columns(session, "SELECT 1::bigint AS id, ''::text AS text")
    source = "(SELECT n AS id, repeat('x', 100) AS text FROM generate_series(1, 300000) n) q"
    sizes = [batch.nbytes for batch, _ in database.read(Select(columns=columns, source=source))]
    assert len(sizes) > 3
    assert max(sizes) < 16 << 20
    assert isinstance(sizes, list)
    assert pa.total_allocated_bytes() < 200 << 20


def test_a_reader_that_is_given_up_leaves_no_statement_running(url: str) -> None:
    database = Postgresql(address_of(url))
    with database.session() as session:
        columns = database.query_columns(session, "SELECT 1::bigint AS id")
    rows = "SELECT n::bigint AS id FROM generate_series(1, 700000) n"
    source = f"({rows} UNION ALL (SELECT 1 FROM pg_sleep(60))) q"  # noqa: S608 - a test's
    reading = database.read(Select(columns=columns, source=source))
    next(reading)
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s"
    with psycopg.connect(url, autocommit=True) as connection:
        until = time.monotonic() + 10
        while connection.execute(running, ["COPY%"]).fetchone() != (0,):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_values_in_columns_of_texts_are_as_postgresql_writes_them(url: str) -> None:
    database = Postgresql(address_of(url))
    columns = {"b": Schema.boolean(), "t": Schema.timestamp(), "l": Schema.local_timestamp()}
    schema = Schema.struct(columns)
    at = datetime(2024, 2, 29, 1, 2, 3, 4, UTC)
    rows = to_batch([{"b": True, "t": at, "l": at}], schema)
    with database.session() as session:
        session.execute("CREATE TABLE texts (b varchar(1), t text, l text)")
        database.load(session, TableName("public", "texts"), columns, iter([rows]))
        assert session.rows("SELECT * FROM texts") == [
            ("t", "2024-02-29 01:02:03.000004+00", "2024-02-29 01:02:03.000004")
        ]


def test_a_batch_whose_snapshot_went_with_the_server_runs_again(url: str) -> None:
    database = Postgresql(address_of(url))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (id bigint)")
    with database.session() as session:
        table = database.table(session, TableName("public", "t"))
    assert table is not None
    with database.snapshot() as snapshot:
        select = Select(columns=table.columns, source="t", snapshot=snapshot)
        assert list(database.read(select)) == []
    with pytest.raises(RetriableError, match="lost the exported snapshot"):
        list(database.read(select))


def test_a_session_that_the_server_has_ended_gives_way_to_a_new_one(url: str) -> None:
    database = Postgresql(address_of(url))
    first = database.idle(None)
    assert database.idle(first) is first
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(%s)", [first.value("SELECT pg_backend_pid()")]
        )
    with database.idle(first) as second:
        assert second.value("SELECT 1") == 1


@pytest.mark.parametrize(
    ("query", "fix"),
    [
        (
            "SELECT * FROM t",
            'GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON TABLE t TO "{user}";',
        ),
        ("SELECT * FROM s.t", 'GRANT USAGE, CREATE ON SCHEMA s TO "{user}";'),
    ],
)
def test_a_right_that_is_missing_is_named(url: str, query: str, fix: str) -> None:
    role = "newcomer"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id int)")
        admin.execute("CREATE SCHEMA s CREATE TABLE t (id int)")
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            with (
                Postgresql(address_of(url, role)).session() as session,
                pytest.raises(ConfigError) as raised,
            ):
                session.rows(query)
        finally:
            admin.execute(f"DROP ROLE {role}".encode())
    assert raised.value.fix == fix.format(user=role)
