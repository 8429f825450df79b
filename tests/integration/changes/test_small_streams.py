"""Few changes go past Spark's plans, into the same rows, counts and letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.mariadb_server import MariadbServer, connect
from tests.postgresql_server import PostgresqlServer

from headrace.dataplane import flow, small_streams, straight_copies, streams
from headrace.dataplane.small_streams import StagedFew
from headrace.model import Counts
from headrace.runtime.app import Runtime
from headrace.sdk import RetriableError
from headrace.sdk.sink import run_in_workers

pytestmark = pytest.mark.spark

SOURCE = """
name: {name}
errors.tolerance: all
errors.deadletterqueue.topic.name: letters
source:
  connector: postgres
  connection.url: {source}
transforms: [{{type: Unwrap, name: unwrap}}]
sinks:
"""
DELTA = """
  - {{connector: delta, path: "{lake}/${{table}}", mode: upsert, delete.enabled: true}}
"""
POSTGRES = """
  - {{connector: postgres, connection.url: {postgresql}, insert.mode: upsert,
     delete.enabled: true}}
"""
MYSQL = """
  - {{connector: mysql, connection.url: {mariadb}, insert.mode: upsert, delete.enabled: true}}
"""
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, price numeric(9,2), doc bytea);
CREATE TABLE entries (code text, number int, day date, word text, PRIMARY KEY (code, number));
CREATE TABLE notes (id int PRIMARY KEY, tags text[]);
INSERT INTO orders SELECT n, timestamptz '2024-01-02 03:04:05.678901Z', n / 3.0, NULL
    FROM generate_series(1, 30) n;
INSERT INTO entries SELECT 'a' || n % 10, n, '2024-02-29', 'x' FROM generate_series(1, 50) n;
INSERT INTO notes VALUES (1, '{a,b}');
"""
CHANGES = {
    "rows that come, change and go": """
        UPDATE orders SET price = -price, doc = '\\x00ff' WHERE id % 3 = 0;
        UPDATE orders SET price = price + 1 WHERE id % 2 = 0;
        DELETE FROM orders WHERE id % 10 = 0;
        INSERT INTO orders VALUES (10, 'epoch', NULL, NULL), (31, 'epoch', 7, '');
        DELETE FROM orders WHERE id = 31;
        INSERT INTO entries VALUES ('new', 1, '2024-03-01', 'ñ');
        UPDATE entries SET word = NULL WHERE code = 'a3'""",
    "keys that change": """
        UPDATE orders SET id = id + 1000 WHERE id % 7 = 0;
        UPDATE entries SET number = number + 1000 WHERE code = 'a3';
        UPDATE entries SET code = 'a4', number = number - 1000
            WHERE code = 'a3' AND number > 1010""",
    "lists": "UPDATE notes SET tags = '{c}'; UPDATE orders SET price = 1 WHERE id = 1",
    "a column more": """
        ALTER TABLE orders ADD extra text;
        INSERT INTO orders VALUES (50, 'epoch', 1, NULL, 'more'), (51, NULL, 1, NULL, NULL)""",
    "a value that none stands for": """
        INSERT INTO orders VALUES (60, 'infinity', 1, NULL, NULL), (61, 'epoch', 1, NULL, NULL);
        UPDATE entries SET word = 'y' WHERE number = 1""",
    "a row that a target refuses": """
        UPDATE orders SET price = 666 WHERE id = 2;
        UPDATE orders SET price = 665 WHERE id = 3;
        UPDATE entries SET word = 'z' WHERE number = 1""",
    "an emptied table": "TRUNCATE entries; INSERT INTO entries VALUES ('last', 1, NULL, NULL)",
}
PAST_SPARK = {
    "rows that come, change and go": {"orders", "entries"},
    "keys that change": {"orders", "entries"},
    "lists": {"notes", "orders"},
    "a column more": set(),
    "a value that none stands for": {"entries"},
    "a row that a target refuses": {"orders", "entries"},
    "an emptied table": set(),
}
"""The streams that are expected to go past Spark."""


class Followed:
    """The shop, followed into its targets, one batch for each group of changes."""

    def __init__(
        self, runtime: Runtime, folder: Path, urls: Mapping[str, str], definition: str
    ) -> None:
        self.urls, self.lake = urls, folder / "lake"
        self.execute("source", TABLES)
        file = folder / "shop.yaml"
        file.write_text(definition.format(lake=self.lake, name=f"few{folder.name}", **urls))
        self.parts = runtime.parts(*runtime.definitions([file]))
        self.loop = self.parts.loop
        left = 30 + 50 + 1
        while left:
            batch = self.loop.step()
            left -= batch.counts.read if batch is not None else 0

    def execute(self, name: str, statements: str) -> None:
        with psycopg.connect(self.urls[name], autocommit=True) as database:
            database.execute(statements.encode())

    def change(self, statements: str) -> Counts:
        """Make changes in one transaction, and move them."""
        self.execute("source", f"BEGIN; {statements}; COMMIT")
        while (batch := self.loop.step()) is None or not batch.counts.read:
            pass
        return batch.counts

    def lake_rows(self) -> dict[str, list[str]]:
        """Return the rows of the Delta tables."""
        tables = {path.name: DeltaTable(str(path)) for path in self.lake.iterdir()}
        return {
            name: sorted(map(_row, table.to_pyarrow_table().to_pylist()))
            for name, table in sorted(tables.items())
        }

    def rows(self) -> dict[str, dict[str, list[Any]]]:
        """Return the rows of all targets."""
        tables = ("entries", "notes", "orders")
        found = {"Delta": self.lake_rows()}
        with (
            psycopg.connect(self.urls["postgresql"]) as postgresql,
            connect(self.urls["mariadb"]) as mariadb,
        ):
            for name, cursor in (
                ("PostgreSQL", postgresql.cursor()),
                ("MariaDB", mariadb.cursor()),
            ):
                found[name] = {}
                for table in tables:
                    cursor.execute(f"SELECT * FROM {table}")  # noqa: S608
                    names = [each[0] for each in cursor.description or ()]
                    rows = (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
                    found[name][table] = sorted(map(_row, rows))
        return found


def _row(row: Mapping[str, Any]) -> str:
    return str(sorted(row.items()))


@pytest.fixture
def urls(
    postgresql: PostgresqlServer, mariadb: MariadbServer
) -> Iterator[list[Mapping[str, str]]]:
    """Give two times the URLs of a source and its targets."""
    with ExitStack() as opened:
        yield [
            {
                "source": opened.enter_context(postgresql.database()),
                "postgresql": opened.enter_context(postgresql.database()),
                "mariadb": opened.enter_context(mariadb.database()),
            }
            for _ in range(2)
        ]


def test_targets_get_what_they_get_by_spark(
    runtime: Runtime,
    tmp_path: Path,
    urls: list[Mapping[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past_spark: set[str] = set()

    def write(*arguments: Any) -> list[StagedFew]:
        found = small_streams.write_few(*arguments)
        past_spark.update(each.stream.stream for each in found)
        return found

    monkeypatch.setattr(flow, "write_few", write)
    results = []
    for number, most in enumerate((small_streams.MOST_BYTES, -1)):
        monkeypatch.setattr(small_streams, "MOST_BYTES", most)
        folder = tmp_path / str(number)
        folder.mkdir()
        shop = Followed(runtime, folder, urls[number], SOURCE + DELTA + POSTGRES + MYSQL)
        shop.execute("postgresql", "ALTER TABLE orders ADD CHECK (price <> 666)")
        found: dict[str, Any] = {}
        for what, statements in CHANGES.items():
            past_spark.clear()
            counts = shop.change(statements)
            found[what] = (counts.read, counts.written, counts.rejected, counts.filtered)
            assert past_spark == (PAST_SPARK[what] if number == 0 else set()), what
        results.append((found, shop.rows()))
        shop.parts.close()
    assert results[0] == results[1]


def test_a_batch_of_which_some_tables_are_committed_runs_again(
    runtime: Runtime,
    tmp_path: Path,
    urls: list[Mapping[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Followed(runtime, tmp_path, urls[0], SOURCE + DELTA)
    merges = list[int]()

    def cut_off(spark: SparkSession, works: Sequence[Callable[[], object]]) -> None:
        merges.append(len(works))
        run_in_workers(spark, works[:1])
        raise RetriableError(problem="The worker is gone.")

    with monkeypatch.context() as patched:
        patched.setattr(streams, "run_in_workers", cut_off)
        with pytest.raises(RetriableError):
            shop.change(CHANGES["rows that come, change and go"])
    before = shop.lake_rows()
    batch = shop.loop.step()
    after = shop.lake_rows()
    changed = [table for table in after if after[table] != before[table]]
    shop.change("UPDATE orders SET price = 5; UPDATE entries SET word = 'end'")
    shop.parts.close()
    assert merges == [2]
    assert batch is not None
    assert batch.counts.read
    assert len(changed) == 1
    assert {row.count("Decimal('5.00')") for row in shop.lake_rows()["orders"]} == {1}
    assert len(shop.lake_rows()["orders"]) == 28


def test_parents_come_first_though_children_need_spark(
    runtime: Runtime, tmp_path: Path, urls: list[Mapping[str, str]]
) -> None:
    parents = "CREATE TABLE parents (id int PRIMARY KEY)"
    children = "CREATE TABLE children (id int PRIMARY KEY, parent int {}, day date)"
    databases = urls[0]
    for name, reference in (("source", ""), ("postgresql", "REFERENCES parents")):
        with psycopg.connect(databases[name], autocommit=True) as database:
            database.execute(parents.encode())
            database.execute(children.format(reference).encode())
    with psycopg.connect(databases["source"], autocommit=True) as database:
        database.execute("INSERT INTO parents VALUES (1); INSERT INTO children VALUES (1, 1)")
        file = tmp_path / "family.yaml"
        file.write_text((SOURCE + POSTGRES).format(name="family", **databases))
        parts = runtime.parts(*runtime.definitions([file]))
        left = 2
        while left:
            batch = parts.loop.step()
            left -= batch.counts.read if batch is not None else 0
        # The date has no value, so that children are rejected by Spark.
        database.execute(
            "INSERT INTO parents VALUES (2);"
            "INSERT INTO children VALUES (2, 2, NULL), (3, 1, 'infinity')"
        )
        while (batch := parts.loop.step()) is None or not batch.counts.read:
            pass
        parts.close()
    assert (batch.counts.read, batch.counts.written, batch.counts.rejected) == (3, 2, 1)


def test_a_snapshot_makes_the_same_rows_past_spark(
    runtime: Runtime,
    tmp_path: Path,
    urls: list[Mapping[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied = list[Counts]()

    def copy(*arguments: Any, **options: Any) -> Any:
        found = straight_copies.copy_straight(*arguments, **options)
        copied.append(found.counts)
        return found

    monkeypatch.setattr(flow, "copy_straight", copy)
    rejected = "INSERT INTO orders VALUES (99, 'infinity', 0, NULL)"
    append = DELTA.replace("mode: upsert, delete.enabled: true", "mode: append")
    results = []
    for number, straight in enumerate((True, False)):
        if not straight:
            monkeypatch.setattr(flow, "inserted_rows", lambda *_: None)
        found: dict[str, Any] = {}
        with psycopg.connect(urls[number]["source"], autocommit=True) as database:
            database.execute(TABLES.encode())
            database.execute(rejected)
        for name, sinks in {"appended": append, "merged": DELTA + POSTGRES + MYSQL}.items():
            folder = tmp_path / f"{name}{number}"
            folder.mkdir()
            file = folder / "shop.yaml"
            definition = (SOURCE + sinks).replace(
                "connector: postgres\n", f"connector: postgres\n  slot.name: {name}{number}\n"
            )
            file.write_text(
                definition.format(lake=folder / "lake", name=f"{name}{number}", **urls[number])
            )
            parts = runtime.parts(*runtime.definitions([file]))
            counts, left = Counts(), 30 + 50 + 1 + 1
            while counts.read < left:
                batch = parts.loop.step()
                counts = counts if batch is None else counts.plus(batch.counts)
            parts.close()
            shop = Followed.__new__(Followed)
            shop.urls, shop.lake = urls[number], folder / "lake"
            rows = shop.lake_rows() if name == "appended" else shop.rows()
            found[name] = rows, (counts.read, counts.written, counts.rejected)
        assert bool(copied) == straight
        copied.clear()
        results.append(found)
    assert results[0] == results[1]
    assert results[0]["merged"][1] == (82, 81, 1)
