"""How the rows of a table are divided by its key, for executors to read side by side."""

# ruff: noqa: S608 - a test's own statements

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.integration.databases.source_reading import KINDS, databases, run
from tests.mariadb_server import MariadbServer

from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.cursors import KeyRange, Rows
from headrace_plugins.databases.mysql import Mysql
from headrace_plugins.databases.postgresql import Postgresql
from headrace_plugins.databases.sqlite import Sqlite

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
KEYS = {
    "dense": ("a INTEGER NOT NULL, b INTEGER NOT NULL", "a, b", "(i + 2) / 3, i"),
    "of one value first": ("a INTEGER NOT NULL, b INTEGER NOT NULL", "a, b", "7, i"),
    "uneven": ("a INTEGER NOT NULL, b INTEGER NOT NULL", "a, b", "i * i / 2000, i"),
    "of texts": (
        "a VARCHAR(9) NOT NULL, b INTEGER NOT NULL",
        "a, b",
        "CASE WHEN i < 400 THEN 'x' ELSE 'y' END, i",
    ),
    "of one number": ("a INTEGER NOT NULL", "a", "i * 100"),
}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as url:
        yield url


def rows_of(url: str, key: str) -> tuple[Any, Rows]:
    columns, names, values = KEYS[key]
    query = f"{NUMBERS} SELECT {values} FROM n"
    run(url, f"CREATE TABLE t ({columns}, PRIMARY KEY ({names}))")
    # MySQL divides whole numbers into decimals, and rounds them in a column.
    run(url, f"INSERT INTO t {query.replace(' / ', ' DIV ') if 'mysql' in url else query}")
    kinds: dict[str, type[Any]] = {"postgresql": Postgresql, "mysql": Mysql, "sqlite": Sqlite}
    address = address_of(url)
    database = kinds[address.kind](address)
    session = database.session()
    [name] = database.tables(session)
    table = database.table(session, name)
    assert table is not None
    return session, Rows(
        database=database,
        source=database.path(name),
        columns={each.name: each for each in table.columns},
        key=table.key,
        count=None,
        title="t",
        table=name,
    )


@pytest.mark.service
@pytest.mark.parametrize("key", KEYS)
def test_ranges_have_each_row_once_and_about_as_many_rows(url: str, key: str) -> None:
    session, rows = rows_of(url, key)
    with session:
        terms = dict(zip(rows.key, rows.quoted(rows.key), strict=True))
        everything = sorted(session.rows(f"SELECT {', '.join(terms)} FROM t"))
        third, last = everything[300], everything[800]
        for after, upto in product((None, third), (None, last)):
            expected = [
                row
                for row in everything
                if (after is None or row > after) and (upto is None or row <= upto)
            ]
            ranges = KeyRange(terms, after, upto).divided(session, rows, 6)
            found = [
                session.rows(f"SELECT {', '.join(terms)} FROM t WHERE {each.where(rows)}")
                for each in ranges
            ]
            assert sorted(row for part in found for row in part) == expected
            assert max(map(len, found)) <= 2 * len(expected) / 6 + 1


@pytest.mark.service
@pytest.mark.parametrize("key", ["dense", "of one value first"])
def test_mysql_finds_a_place_in_a_key_of_several_columns_by_its_index(
    mariadb: MariadbServer, key: str
) -> None:
    with mariadb.database() as url:
        session, rows = rows_of(url, key)
        with session:
            terms = dict(zip(rows.key, rows.quoted(rows.key), strict=True))
            [*_, place, _] = session.rows("SELECT a, b FROM t ORDER BY a, b LIMIT 890")
            session.execute("ANALYZE TABLE t")
            where = KeyRange(terms, place).where(rows)
            plan = session.rows(f"EXPLAIN SELECT * FROM t WHERE {where}")[0]
            assert "range" in plan
            assert int(plan[8]) < 50  # rows that it looks at


def test_a_number_column_of_sqlite_with_a_text_is_divided_too(tmp_path: Path) -> None:
    session, rows = rows_of(f"sqlite:///{tmp_path}/odd.db", "dense")
    with session:
        session.execute("INSERT INTO t VALUES ('text', 1)")
        terms = dict(zip(rows.key, rows.quoted(rows.key), strict=True))
        ranges = KeyRange(terms).divided(session, rows, 6)
        found = [session.rows(f"SELECT a FROM t WHERE {each.where(rows)}") for each in ranges]
        assert sum(map(len, found)) == 901
