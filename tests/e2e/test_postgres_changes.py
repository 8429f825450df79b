"""``headrace run --once`` follows PostgreSQL into Delta and PostgreSQL, as users run it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.spark
Headrace = Callable[..., str]
SOURCE = """
name: {name}
source:
  connector: postgres
  connection.url: {source}
  table.include.list: orders, lines
"""
DELTA = """
transforms: [{{type: Unwrap, name: unwrap}}]
sinks:
  - connector: delta
    path: {folder}/${{topic}}
    mode: upsert
    delete.enabled: true
"""
POSTGRES = """
sinks:
  - connector: postgres
    connection.url: {target}
    insert.mode: upsert
"""
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, price numeric(9,2), doc text)",
    "CREATE TABLE lines (code char(5), number int, day date, PRIMARY KEY (code, number))",
    "INSERT INTO orders SELECT n, now(), n / 3.0, NULL FROM generate_series(1, 3000) n",
    "UPDATE orders SET doc = repeat(md5(id::text), 200)",
    "INSERT INTO lines SELECT 'a' || n % 10, n, '2024-02-29' FROM generate_series(1, 500) n",
)
CHANGES = (
    "UPDATE orders SET price = -price WHERE id % 3 = 0",
    "DELETE FROM orders WHERE id % 10 = 0",
    "UPDATE orders SET id = id + 100000 WHERE id % 7 = 0",
    "INSERT INTO orders SELECT n, now(), n, NULL FROM generate_series(5001, 5500) n",
    "UPDATE lines SET number = number + 1000, day = NULL WHERE code = 'a3'",
    "DELETE FROM lines WHERE code = 'a4'",
    "INSERT INTO lines VALUES ('new', 1, 'today')",
)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        for statement in statements:
            database.execute(statement.encode())


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(url)) as database:
        return database.execute(query.encode()).fetchall()


@pytest.fixture
def source(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database() as url:
        execute(url, *TABLES)
        yield url


@pytest.fixture
def headrace(tmp_path: Path, quick_java: None, warm_programs: Path) -> Headrace:
    """Run a command that has to succeed; return what it prints."""
    small = {"HEADRACE_MASTER": "local[2]", "HEADRACE_DRIVER_MEMORY": "1g"}
    environment = {**os.environ, "HEADRACE_HOME": str(tmp_path / "home"), **small}

    def run(*arguments: str | Path) -> str:
        done = subprocess.run(
            [warm_programs / "headrace", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_tables_and_their_changes_are_in_delta(
    tmp_path: Path, source: str, headrace: Headrace
) -> None:
    file = tmp_path / "to-delta.yaml"
    text = SOURCE.format(name="lake", source=source) + DELTA.format(folder=tmp_path / "lake")
    file.write_text(text)
    headrace("run", "--once", file)
    execute(source, *CHANGES)
    headrace("run", "--once", file)
    headrace("verify", file)
    found = DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table(columns=["id", "price"])
    expected = rows(source, "SELECT id, price FROM orders ORDER BY id")
    assert sorted(map(tuple, (r.values() for r in found.to_pylist()))) == expected


def test_tables_and_their_changes_are_in_another_database(
    tmp_path: Path, source: str, postgresql: PostgresqlServer, headrace: Headrace
) -> None:
    with postgresql.database() as target:
        file = tmp_path / "to-postgres.yaml"
        text = SOURCE.format(name="copy", source=source) + POSTGRES.format(target=target)
        file.write_text(text)
        headrace("run", "--once", file)
        execute(source, *CHANGES, "ALTER TABLE lines ADD COLUMN note text")
        execute(
            source,
            "INSERT INTO lines VALUES ('late', 2, NULL, 'x')",
            "TRUNCATE orders",
            "INSERT INTO orders VALUES (7, 'today', 1.50, repeat('x', 9000))",
            "UPDATE orders SET price = 2",
        )
        headrace("run", "--once", file)
        headrace("verify", file)
        for table in ("orders", "lines"):
            query = f"SELECT * FROM {table} ORDER BY 1, 2"  # noqa: S608 - a name of ours
            assert rows(target, query) == rows(source, query)
