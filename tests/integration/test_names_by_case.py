"""Columns and tables whose names are odd or alike are kept apart, or an error names both."""

# ruff: noqa: S608 - a test's own statements

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.integration.databases.source_reading import open_database, run
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer

from headrace.cli.progress import Scoreboard
from headrace.runtime.app import Runtime

pytestmark = pytest.mark.spark

COPY = """
name: copy
source:
  connector: jdbc
  connection.url: {source}
  table.include.list: {tables}
sinks:
  - connector: {sink}
"""
INTO_TABLES = """    connection.url: {target}
    insert.mode: {mode}
    key.fields: k
"""
INTO_DELTA = """    path: {folder}/${{topic}}
    mode: {mode}
    key.fields: k
"""
COLUMNS = (
    'CREATE TABLE c (k int PRIMARY KEY, "Id" int, id int)',
    "INSERT INTO c VALUES (1, 10, 20)",
)
TABLES = (
    'CREATE TABLE "T" (k int PRIMARY KEY)',
    "CREATE TABLE t (k int PRIMARY KEY)",
    'INSERT INTO "T" VALUES (1)',
    "INSERT INTO t VALUES (2)",
)


class Copies:
    """Copies of a database of PostgreSQL."""

    def __init__(self, runtime: Runtime, folder: Path, sink: str, urls: Sequence[str]) -> None:
        self.runtime, self.folder, self.sink = runtime, folder, sink
        self.source, self.target = urls
        run(self.source, *COLUMNS, *TABLES)

    def copy(self, tables: str, mode: str = "upsert", more: str = "") -> list[str]:
        """Copy tables; return what is said of it if that fails."""
        mode = "append" if mode == "insert" and not self.target else mode
        text = COPY.format(source=self.source, sink=self.sink, tables=tables) + (
            INTO_TABLES.format(target=self.target, mode=mode)
            if self.target
            else INTO_DELTA.format(folder=self.folder, mode=mode)
        )
        text += more
        if mode == "append":
            text = text.replace("    key.fields: k\n", "")
        (self.folder / "copy.yaml").write_text(text)
        definitions = self.runtime.definitions([self.folder / "copy.yaml"])
        outcome = self.runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
        return [str(each) for each in outcome.errors.values()]

    def rows(self, table: str) -> list[dict[str, Any]]:
        if not self.target:
            found: list[dict[str, Any]]
            found = DeltaTable(self.folder / table).to_pyarrow_table().to_pylist()
            return found
        name = f"`{table}`" if self.target.startswith("mysql") else f'"{table}"'
        with closing(open_database(self.target)) as database:
            cursor = database.cursor()
            cursor.execute(f"SELECT * FROM {name}")
            names = [each[0] for each in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture(params=["postgres", "mysql", "sqlite", "delta"])
def copies(
    request: pytest.FixtureRequest,
    runtime: Runtime,
    tmp_path: Path,
    postgresql: PostgresqlServer,
    mariadb: MariadbServer,
) -> Iterator[Copies]:
    with postgresql.database() as url, postgresql.database() as pg, mariadb.database() as my:
        targets = {"postgres": pg, "mysql": my, "sqlite": f"sqlite:///{tmp_path}/t.db"}
        yield Copies(runtime, tmp_path, request.param, (url, targets.get(request.param, "")))


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_columns_that_differ_in_case_are_kept_or_an_error_names_both(
    copies: Copies, mode: str
) -> None:
    errors = copies.copy("c", mode)
    if copies.sink == "postgres":
        assert errors == []
        assert copies.rows("c") == [{"k": 1, "Id": 10, "id": 20}]
    else:
        [error] = errors
        assert "Id and id differ in case only" in error


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_tables_that_differ_in_case_are_kept_or_an_error_names_both(
    copies: Copies, mode: str
) -> None:
    errors = copies.copy("t, T", mode)
    if copies.sink != "sqlite":
        assert errors == []
        assert copies.rows("t") == [{"k": 2}]
        assert copies.rows("T") == [{"k": 1}]
    else:
        [error] = errors
        assert "T and t differ in case only" in error


def test_a_table_that_comes_later_is_not_mixed_with_one_of_another_case(
    copies: Copies,
) -> None:
    assert copies.copy("t") == []
    errors = copies.copy("t, T")
    assert copies.rows("t") == [{"k": 2}]
    assert len(errors) == (copies.sink == "sqlite")
    assert all("t and T differ in case only" in each for each in errors)


@pytest.mark.parametrize("copies", ["mysql", "sqlite"], indirect=True)
def test_a_column_of_another_case_in_the_target_is_the_same_one(copies: Copies) -> None:
    run(copies.target, "CREATE TABLE t (K int PRIMARY KEY)")
    assert copies.copy("t") == []
    assert copies.rows("t") == [{"K": 2}]


def test_tables_whose_names_have_a_dot_in_them_are_told_apart(copies: Copies) -> None:
    run(
        copies.source,
        'CREATE TABLE "a.x" (k int PRIMARY KEY)',
        'CREATE TABLE "b.x" (k int PRIMARY KEY)',
        'INSERT INTO "a.x" VALUES (1)',
        'INSERT INTO "b.x" VALUES (1), (2)',
    )
    more = "" if not copies.target else "    table.name.format: ${table}\n"
    assert copies.copy("""'"a.x",b*'""", more=more) == []
    names = ["a.x", "b.x"] if copies.target else ['"a.x"', '"b.x"']
    found = [sorted(row["k"] for row in copies.rows(name)) for name in names]
    assert found == [[1], [1, 2]]


@pytest.mark.parametrize("copies", ["delta"], indirect=True)
def test_a_name_that_no_folder_can_have_is_found_before_a_table_is_written(
    copies: Copies,
) -> None:
    run(
        copies.source,
        'CREATE TABLE "z:z" (k int PRIMARY KEY)',
        'INSERT INTO "z:z" VALUES (3)',
    )
    [error] = copies.copy("t, z*")
    assert "'z:z' cannot be used as a folder name" in error
    assert not (copies.folder / "t").exists()
