"""How the rows of a table are divided by its key, for executors to read side by side."""

# ruff: noqa: S608 - a test's own statements

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.databases.source_reading import KINDS, databases, run

from headrace_plugins.connectors.jdbc.cursors import KeyRange, Rows
from headrace_plugins.databases.address import address_of
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
        for bounds in [(None, None), ((3, 5) if "," in KEYS[key][1] else (300,), None)]:
            if bounds[0] is not None and "texts" in key:
                continue
            whole = KeyRange(terms, *bounds)
            found = [
                session.rows(f"SELECT * FROM t WHERE {each.where(rows)}")
                for each in whole.divided(session, rows, 6)
            ]
            where = f" WHERE {whole.where(rows)}" if whole.where(rows) else ""
            expected = session.rows(f"SELECT * FROM t{where}")
            assert sorted(row for part in found for row in part) == sorted(expected)
            assert max(map(len, found)) <= 2 * len(expected) / 6 + 1


@pytest.mark.service
def test_mysql_finds_a_place_in_a_key_of_several_columns_by_its_index(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.param = "mariadb"
    with databases(request, tmp_path) as url:
        session, rows = rows_of(url, "dense")
        with session:
            terms = dict(zip(rows.key, rows.quoted(rows.key), strict=True))
            where = KeyRange(terms, (280, 1)).where(rows)
            session.execute("ANALYZE TABLE t")
            plan = session.rows(f"EXPLAIN SELECT * FROM t WHERE {where}")[0]
            assert "range" in plan
            assert int(plan[8]) < 200
