"""Whole runs of sinks with mapping rules: counts balance, and bad records are dead-lettered."""

# ruff: noqa: S608 - a test's own statements

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.cli.progress import Scoreboard
from headrace.model import Counts, TaskId
from headrace.runtime.app import Runtime

pytestmark = pytest.mark.spark

SHARDS = """
name: shards
source:
  connector: datagen
  rows: 30
  streams: 3
  generator: shop
sinks:
  - connector: delta
    path: {folder}/${{table}}
    table.mapping:
      - {{from: "/shop-[01]/", to: low, skip.ids: "[0-8]", key.fields: id}}
      - from: shop-*
        to: all
        columns: {{rename: {{id: n}}, add: {{shard: record.topic}}}}
      - {{from: shop-2, to: rest}}
"""
PRICES = """
name: prices
source:
  connector: file
  path: {folder}/in.csv
  schema: id BIGINT, price STRING
sinks:
  - connector: delta
    path: {folder}/${{table}}
    table.mapping:
      - from: prices
        to: typed
        where: id < 4
        columns: {{types: {{price: "DECIMAL(6, 2)"}}}}
"""


SHOP = """
name: shop
source:
  connector: jdbc
  connection.url: sqlite:{folder}/shop.db
  mode: timestamp
  timestamp.column.name: changed
  timestamp.initial: 0
sinks:
  - connector: delta
    path: {folder}/${{table}}
    mode: upsert
    table.mapping:
      - {{from: orders, to: bestellungen, columns: {{rename: {{id: nummer}}}}}}
"""


def run(runtime: Runtime, file: Path, text: str) -> Counts:
    file.write_text(text)
    definitions = runtime.definitions([file])
    for definition in definitions:
        assert not runtime.check(definition).errors
    outcome = runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
    assert not outcome.errors
    return runtime.state.totals(TaskId(definitions[0].name, 0))


def rows(folder: Path, names: Sequence[str]) -> list[tuple[object, ...]]:
    found = DeltaTable(str(folder)).to_pyarrow_table().select(list(names)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_streams_go_to_all_tables_of_their_rules_each_record_once(
    runtime: Runtime, tmp_path: Path
) -> None:
    file, text = tmp_path / "s.yaml", SHARDS.format(folder=tmp_path)
    run(runtime, file, text)
    counts = run(runtime, file, text)  # which finds nothing new
    assert (counts.read, counts.written, counts.balanced) == (30, 30, True)
    assert rows(tmp_path / "low", ["id"]) == [(n,) for n in range(9, 30) if n % 3 < 2]
    assert rows(tmp_path / "all", ["n", "shard"]) == [(n, f"shop-{n % 3}") for n in range(30)]
    assert rows(tmp_path / "rest", ["id"]) == [(n,) for n in range(30) if n % 3 == 2]


def test_tables_of_a_database_are_updated_by_their_own_keys(
    runtime: Runtime, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as shop:
        for name, key in (("orders", "id"), ("brands", "code")):
            shop.execute(
                f"CREATE TABLE {name} "
                f"({key} INT PRIMARY KEY, v TEXT, changed TIMESTAMP NOT NULL)"
            )
            shop.execute(
                f"INSERT INTO {name} VALUES (1, 'a', '2026-01-01'), (2, 'b', '2026-01-01')"
            )
        file, text = tmp_path / "shop.yaml", SHOP.format(folder=tmp_path)
        run(runtime, file, text)
        for name in ("orders", "brands"):
            shop.execute(f"UPDATE {name} SET v = 'c', changed = '2026-02-01' WHERE v = 'b'")
        run(runtime, file, text)
    assert rows(tmp_path / "bestellungen", ["nummer", "v"]) == [(1, "a"), (2, "c")]
    assert rows(tmp_path / "brands", ["code", "v"]) == [(1, "a"), (2, "c")]


def test_records_that_do_not_fit_a_table_are_dead_lettered_and_left_out_ones_are_filtered(
    runtime: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("id,price\n1,1.50\n2,free\n3,2\n4,none\n")
    text = PRICES.format(folder=tmp_path) + "errors.tolerance: all\n"
    counts = run(runtime, tmp_path / "p.yaml", text)
    assert (counts.read, counts.written, counts.filtered, counts.rejected) == (4, 2, 1, 1)
    assert counts.filters == {"table.mapping": 1}
    assert rows(tmp_path / "typed", ["id"]) == [(1,), (3,)]
    [letter] = [stage for cause in counts.causes for stage in [cause.partition(" ")[0]]]
    assert letter == "TASK_PUT"


def test_where_nothing_is_tolerated_a_value_that_does_not_fit_stops_the_task(
    runtime: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("id,price\n1,1.50\n2,free\n")
    file = tmp_path / "p.yaml"
    file.write_text(PRICES.format(folder=tmp_path))
    outcome = runtime.run(runtime.definitions([file]), Scoreboard(lambda: 0.0), once=True)
    [error] = outcome.errors.values()
    assert "free" in str(error)
    assert not (tmp_path / "typed" / "_delta_log").exists()
