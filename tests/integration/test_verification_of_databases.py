"""``Runtime.verify`` of many tables: what cannot be compared or repaired stops nothing else."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer

from headrace.control import copies_of
from headrace.dataplane import TableResult, VerifyOptions
from headrace.runtime.app import Runtime
from headrace.runtime.verification import RepairOptions
from headrace.worker import Everyone

pytestmark = pytest.mark.spark


class Shop:
    """Tables a and b of SQLite, and the sinks that they are copied to."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime, self.file, self.folder = runtime, folder / "shop.db", folder
        self.sinks: list[dict[str, Any]] = []
        for name in ("a", "b"):
            self.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, v TEXT)")
            self.execute(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two')")  # noqa: S608

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            database.execute(statement)

    @property
    def definitions(self) -> Any:
        text = {
            "name": "shop",
            "source": {
                "connector": "jdbc",
                "connection.url": f"sqlite:{self.file}",
                "mode": "bulk",
            },
            "sinks": self.sinks,
        }
        path = self.folder / "shop.yaml"
        path.write_text(json.dumps(text))
        return self.runtime.definitions([path])

    def run(self) -> None:
        outcome = self.runtime.run(self.definitions, Everyone([]), once=True)
        assert not outcome.errors, outcome.errors

    def verify(
        self, *streams: str, repair: RepairOptions | None = None
    ) -> dict[tuple[str, str], TableResult]:
        options = VerifyOptions(settle=timedelta(0))
        (report,) = self.runtime.verify(copies_of(self.definitions), options, streams, repair)
        assert report.equal is all(each.equal for each in report.tables)
        return {(each.stream, each.target): each for each in report.tables}


@pytest.fixture
def shop(runtime: Runtime, tmp_path: Path) -> Shop:
    return Shop(runtime, tmp_path)


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def url(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    mariadb: MariadbServer,
    postgresql: PostgresqlServer,
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'target.db'}"
        return
    server = mariadb if request.param == "mariadb" else postgresql
    with server.database() as made:
        yield made


def test_a_table_of_a_database_whose_columns_are_renamed_is_compared_and_repaired(
    shop: Shop, url: str
) -> None:
    shop.sinks = [
        {
            "connector": "jdbc",
            "connection.url": url,
            "insert.mode": "upsert",
            "pk.mode": "record_value",
            "pk.fields": "id",
            "table.mapping": [
                {
                    "from": "a",
                    "to": "copy_a",
                    "key.fields": "number",
                    "columns": {"rename": {"id": "number"}},
                }
            ],
            "auto.create": "true",
        }
    ]
    shop.run()
    results = list(shop.verify().values())
    assert [(each.stream, each.equal, each.source_rows) for each in results] == [
        ("a", True, 2),
        ("b", True, 2),
    ]
    shop.execute("UPDATE a SET v = 'other' WHERE id = 2")
    changed = next(iter(shop.verify("a").values()))
    assert changed.key == ("id",)
    assert changed.differences[0].columns == {"v": {"source": "other", "target": "two"}}
    repaired = next(iter(shop.verify("a", repair=RepairOptions()).values()))
    assert (repaired.repaired, repaired.equal) == (1, True)


def delta(shop: Shop, name: str, **more: Any) -> dict[str, Any]:
    path = f"{shop.folder}/{name}/${{table}}"
    keyed = {"mode": "upsert", "key.fields": "id"}
    return {"connector": "delta", "path": path, "name": name, **keyed, **more}


def test_a_table_that_cannot_be_compared_does_not_stop_the_others(shop: Shop) -> None:
    partial = {"from": "a", "to": "a", "columns": {"include": ["id"]}}
    shop.sinks = [delta(shop, "d", **{"table.mapping": [partial]})]
    shop.run()
    results = {stream: each for (stream, _), each in shop.verify().items()}
    assert results["b"].equal
    assert "cannot be read back" in results["a"].error
    assert not results["a"].equal


def test_a_table_that_the_source_has_no_more_does_not_stop_the_others(shop: Shop) -> None:
    shop.sinks = [delta(shop, "d")]
    shop.run()
    shop.execute("DROP TABLE a")
    results = {stream: each for (stream, _), each in shop.verify("a", "b").items()}
    assert results["b"].equal
    assert results["a"].error == "The stream does not exist. Existing streams: b."
    assert not results["a"].equal


def test_a_repair_leaves_out_only_the_sink_that_cannot_be_repaired(shop: Shop) -> None:
    keeping = delta(shop, "keeping")
    shop.sinks = [keeping, delta(shop, "deleting", **{"delete.enabled": "true"})]
    shop.run()
    shop.execute("DELETE FROM a WHERE id = 1")
    results = shop.verify("a", repair=RepairOptions(delete_extra=True))
    kept, deleted = results.values()
    assert (deleted.repaired, deleted.equal) == (1, True)
    assert (kept.repaired, kept.figures.extra) == (0, 1)
    assert "keeping" in kept.target
    assert any(
        "not repaired" in note and "does not allow deletes" in note for note in kept.notes
    )
    rows = [DeltaTable(f"{shop.folder}/{n}/a").count() for n in ("keeping", "deleting")]
    assert rows == [2, 1]
