"""The tables of odd types hold what they say, as the database's own driver reads them."""

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from tests import mariadb_server
from tests.database_tables import mariadb as of_mariadb
from tests.database_tables import postgresql as of_postgresql
from tests.database_tables import sqlite as of_sqlite
from tests.database_tables.table import Table, Unfit, same
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer

both = pytest.mark.parametrize("unfit", [True, False], ids=["unfit", "fit"])


def tables(of: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("table", of.TABLES, ids=lambda table: table.name)


def differences(table: Table, read: Any, *, unfit: bool) -> list[str]:
    """Return the values that are not as expected, once what is text here is parsed."""
    expected = [row.values() for row in table.rows(unfit=unfit)]
    found = [list(map(_parsed, *pair)) for pair in zip(expected, read, strict=True)]
    return table.differences(found, unfit=unfit)


def _parsed(expected: object, found: Any) -> object:
    if isinstance(expected, Decimal) and found is not None:
        return Decimal(str(found))
    if isinstance(expected, datetime) and expected.tzinfo and isinstance(found, str):
        parsed = datetime.fromisoformat(found)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if isinstance(expected, date | time) and isinstance(found, str):
        return type(expected).fromisoformat(found)
    if isinstance(expected, Unfit):
        return found.decode() if isinstance(found, bytes) else str(found)
    return found


@both
@tables(of_postgresql)
def test_postgresql_has_what_its_tables_say(
    postgresql: PostgresqlServer, table: Table, unfit: bool
) -> None:
    with postgresql.database() as url, psycopg.connect(url, options="-c timezone=UTC") as open_:
        for statement in table.statements(unfit=unfit):
            open_.execute(statement.encode())
        read = open_.execute(table.query().encode()).fetchall()
        assert differences(table, read, unfit=unfit) == []


@both
@tables(of_mariadb)
def test_mariadb_has_what_its_tables_say(
    mariadb: MariadbServer, table: Table, unfit: bool
) -> None:
    with (
        mariadb.database() as url,
        closing(mariadb_server.connect(url)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in ["SET time_zone = '+00:00'", *table.statements(unfit=unfit)]:
            cursor.execute(statement)
        cursor.execute(table.query())
        assert differences(table, cursor.fetchall(), unfit=unfit) == []


@both
@tables(of_sqlite)
def test_sqlite_has_what_its_tables_say(table: Table, unfit: bool) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in table.statements(unfit=unfit):
            connection.execute(statement)
        read = connection.execute(table.query()).fetchall()
    assert differences(table, read, unfit=unfit) == []


def test_postgresql_has_no_type_that_the_table_leaves_out(postgresql: PostgresqlServer) -> None:
    """Types that no table can have, and those of the system's own catalogue, are left out."""
    with postgresql.database() as url, psycopg.connect(url) as open_:
        for statement in of_postgresql.EVERY_TYPE.statements():
            open_.execute(statement.encode())
        left_out = open_.execute(
            "SELECT typname FROM pg_type WHERE typtype IN ('b', 'r', 'm')"
            " AND typcategory <> 'A' AND typnamespace = 'pg_catalog'::regnamespace"
            " AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'every_type'::regclass"
            " AND atttypid = pg_type.oid)"
        ).fetchall()
    assert {name for [name] in left_out} == {
        *("gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"),
        *("pg_dependencies", "pg_mcv_list", "pg_ndistinct", "pg_node_tree"),
    }


@pytest.mark.parametrize(
    ("expected", "found", "alike"),
    [
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (1, "1", False),
        ("a", "a ", False),
        ("", None, False),
        (None, "", False),
        (b"a", "a", False),
        ([1, None], [1, None], True),
        ([0.0], [-0.0], False),
        ([], "{}", False),
        (Decimal("1.10"), Decimal("1.1"), True),
        (Unfit("NaN", "why"), "NaN", True),
        (Unfit("NaN", "why"), None, False),
    ],
)
def test_values_are_compared_to_the_last_bit(
    expected: object, found: object, alike: bool
) -> None:
    assert same(expected, found) is alike
