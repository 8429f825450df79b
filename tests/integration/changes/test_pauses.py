"""The reading of tables is held back while the log goes on, and goes on where it stood."""

# ruff: noqa: S608 - tests write their own SQL

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.changes.change_reading import Following, rows, run
from tests.integration.databases import mysql_tables

from headrace.sdk import ReadLimit, RetriableError
from headrace_plugins.connectors.mysql.source import MysqlSource
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "INSERT INTO t VALUES (1, 1), (2, 2)",
    "CREATE TABLE big (id int PRIMARY KEY, v int)",
    "INSERT INTO big VALUES " + ", ".join(f"({n}, {n})" for n in range(1000)),
)


@dataclass
class Side:
    """One of the databases that are followed."""

    url: str
    schema: str
    run: Callable[..., Any]
    rows: Callable[..., list[tuple[Any, ...]]]

    def require_equal(self, following: Following, *tables: str) -> None:
        for table in tables:
            found = [tuple(row.values()) for row in following.replica.rows(table)]
            assert found == sorted(self.rows(self.url, f"SELECT * FROM {table}"))


@pytest.fixture(params=["PostgreSQL", "MariaDB"])
def side(request: pytest.FixtureRequest) -> Side:
    if request.param == "PostgreSQL":
        return Side(request.getfixturevalue("url"), "public", run, rows)
    url = request.getfixturevalue("binlog_url")
    return Side(url, url.rpartition("/")[2], mysql_tables.run, mysql_tables.run)


def churned(side: Side, n: int) -> None:
    """Change both tables, also those rows that are still to be read."""
    side.run(
        side.url,
        f"UPDATE t SET v = {n}",
        f"UPDATE big SET v = v + 10000 WHERE id % 20 = {n}",
        f"DELETE FROM big WHERE id % 100 = {n}",
        f"INSERT INTO big VALUES ({5000 + n}, 1), ({-n - 1}, 1)",
        f"UPDATE big SET id = id + 20000 WHERE id % 50 = {n + 10}",
    )


def test_the_log_goes_on_while_a_table_is_paused_that_was_not_begun(
    side: Side, follow: Follow
) -> None:
    side.run(side.url, *TABLES)
    following = follow(side.url, snapshot_paused_list="big")
    following.new()
    for n in range(3):
        churned(side, n)
        assert {stream for stream, _ in following.new()} == {"t"}
        side.require_equal(following, "t")
        following.restart()
    following.restart(snapshot_paused_list="")
    churned(side, 3)
    following.new()
    churned(side, 4)
    following.new()
    side.require_equal(following, "t", "big")


def test_a_table_goes_on_where_it_was_paused(side: Side, follow: Follow) -> None:
    """First between batches of the first reading, then between those of the log."""
    side.run(side.url, *TABLES)
    following = follow(side.url, snapshot_batch_rows="100")
    table = {"table": f"{side.schema}.big"}
    while (following.position.offset(table) or {}).get("after") is None:
        following.batch()
    for n in range(3):
        following.restart(snapshot_paused_list="*.big")
        stood = following.position.offset(table)
        assert stood is not None
        churned(side, 2 * n)
        following.new()
        side.require_equal(following, "t")
        assert following.position.offset(table) == stood
        following.restart(snapshot_paused_list="")
        churned(side, 2 * n + 1)
        while following.position.offset(table) == stood:
            following.batch()
    following.new()
    side.require_equal(following, "t", "big")
    read = sum(record["op"] == "r" for _, record in following.new())
    assert read == 0


def test_a_batch_that_was_planned_before_a_pause_is_read(side: Side, follow: Follow) -> None:
    side.run(side.url, *TABLES)
    following = follow(side.url, snapshot_batch_rows="100", table_include_list="big")
    while not (found := following.batch()):
        pass
    end = following.plan()
    following.restart(snapshot_paused_list="big")
    assert len(following.read(end)) == len(found)
    following.commit(end)
    assert following.new() == []
    following.restart(snapshot_paused_list="")
    following.new()
    side.require_equal(following, "big")


def test_a_run_to_an_end_leaves_out_what_is_paused(side: Side, follow: Follow) -> None:
    side.run(side.url, *TABLES)
    following = follow(side.url, snapshot_paused_list="big")
    for n in range(2):
        until = following.task.latest(following.position, ReadLimit())
        limit = ReadLimit(rows=1000, until=until)
        while (end := following.task.latest(following.position, limit)) != following.position:
            following.read(end)
            following.commit(end)
        side.require_equal(following, "t")
        churned(side, n)
    assert "big" not in following.replica.tables


def test_rows_that_are_asked_for_again_are_paused_too(side: Side, follow: Follow) -> None:
    side.run(side.url, *TABLES)
    following = follow(side.url)
    following.new()
    following.restart(snapshot_paused_list="big")
    table = {"table": f"{side.schema}.big"}
    following.commit(following.position.moved(table, {"round": 0}))
    following.commit(following.position.moved({**table, "where": "id < 10"}, {"round": 0}))
    churned(side, 1)
    assert not [each for _, each in following.new() if each["op"] == "r"]
    side.require_equal(following, "t", "big")  # its changes go on
    following.restart(snapshot_paused_list="")
    assert sum(each["op"] == "r" for _, each in following.new()) > 1000
    side.require_equal(following, "t", "big")


def test_a_paused_table_that_is_not_there_is_refused(side: Side) -> None:
    side.run(side.url, *TABLES)
    kind = MysqlSource if side.url.startswith("mysql") else PostgresSource
    config = {"connection.url": side.url, "snapshot.paused.list": "bgi"}
    [error] = kind.check(kind.config_def().parse(config))
    assert error.field == "snapshot.paused.list"
    assert "Did you mean" in error.fix


def test_a_condition_of_rows_that_come_again_writes_nothing(side: Side, follow: Follow) -> None:
    made = "DETERMINISTIC BEGIN INSERT INTO audit VALUES (x); RETURN 1; END"
    if side.schema == "public":
        made = f"LANGUAGE plpgsql AS $$ {made.removeprefix('DETERMINISTIC ')} $$"
    side.run(
        side.url,
        *TABLES,
        "CREATE TABLE audit (x int PRIMARY KEY)",
        f"CREATE FUNCTION writes(x int) RETURNS int {made}",
    )
    following = follow(side.url, table_include_list=f"{side.schema}.t")
    following.new()
    table = {"table": f"{side.schema}.t", "where": "writes(id) = 1"}
    following.commit(following.position.moved(table, {"round": 0}))
    with pytest.raises(RetriableError):
        following.changes()
    assert side.rows(side.url, "SELECT * FROM audit") in ([], ())
