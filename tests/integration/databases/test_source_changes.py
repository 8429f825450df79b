"""What the source of databases does with tables that are changed while it reads them."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from tests.integration.databases.source_reading import (
    KINDS,
    Following,
    databases,
    open_database,
    read,
    run,
)
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import (
    ConfigError,
    HeadraceError,
    Position,
    ReadLimit,
    RetriableError,
    SourceError,
)
from headrace.sdk.connector import Verdict
from headrace.sdk.errors import RangeChangedError
from headrace.sdk.sources import StreamRows
from headrace_plugins.connectors.jdbc.reader import QueryTask
from headrace_plugins.connectors.jdbc.source import JdbcSource

pytestmark = pytest.mark.spark
Follow = Callable[..., Following]
MODES = [{"mode": "bulk"}, {"mode": "incrementing", "incrementing_column_name": "id"}]
TABLE = (
    "CREATE TABLE t (id bigint NOT NULL PRIMARY KEY, v varchar(20))",
    "INSERT INTO t VALUES (1, '10'), (2, '20'), (3, '30')",
)
INTO_NUMBER = {
    "postgresql": "ALTER TABLE t ALTER COLUMN v TYPE int USING v::int",
    "mysql": "ALTER TABLE t MODIFY COLUMN v int",
}
INTO_TEXT = {
    "postgresql": "ALTER TABLE t ALTER COLUMN v TYPE varchar(20) USING 'v' || v",
    "mysql": "ALTER TABLE t MODIFY COLUMN v varchar(20)",
}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as made:
        run(made, *TABLE)
        yield made


@pytest.fixture(params=KINDS[:2])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as made:
        run(made, *TABLE)
        yield made


@pytest.fixture(params=MODES, ids=["bulk", "incrementing"])
def keys(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


def planned(source: Following) -> list[StreamRows]:
    """Return what a batch reads, which no executor has begun with."""
    end = source.task.latest(source.position, ReadLimit())
    return list(source.task.streams(source.spark, source.position, end))


def change(url: str, statements: dict[str, str]) -> None:
    run(url, statements[url.partition(":")[0]])


def test_a_type_that_changes_before_a_batch_is_read_is_the_new_one(
    follow: Follow, server: str, keys: dict[str, str]
) -> None:
    source = follow(server, **keys)
    end = source.task.latest(source.position, ReadLimit())
    change(server, INTO_NUMBER)
    assert source.rows(end) == [{"id": n, "v": n * 10} for n in range(1, 4)]


def test_a_type_that_changes_while_a_batch_is_read_loses_no_rows(
    follow: Follow, server: str, keys: dict[str, str]
) -> None:
    change(server, INTO_NUMBER)
    source = follow(server, **keys)
    streams = planned(source)
    change(server, INTO_TEXT)
    run(server, "UPDATE t SET v = 'none' WHERE id = 2")
    with pytest.raises(RetriableError, match=r"\bt\b"):
        read(streams)
    assert source.ids() == [1, 2, 3]


@pytest.mark.parametrize("change", ["RENAME COLUMN v TO w", "DROP COLUMN v"])
def test_a_column_that_goes_while_a_batch_is_read_is_an_error_and_no_other_value(
    follow: Follow, url: str, keys: dict[str, str], change: str
) -> None:
    source = follow(url, **keys)
    streams = planned(source)
    run(url, f"ALTER TABLE t {change}")
    with pytest.raises(HeadraceError, match=r"\bv\b"):
        read(streams)
    left = {} if change.startswith("DROP") else {"w"}
    assert [row.keys() for row in source.new()] == [{"id", *left}] * 3


def test_the_column_of_the_mode_that_goes_is_an_error(follow: Follow, url: str) -> None:
    source = follow(url, **MODES[1])
    source.new()
    run(url, "ALTER TABLE t RENAME COLUMN id TO other")
    with pytest.raises(ConfigError, match="has no column id"):
        source.new()


@pytest.mark.parametrize("change", ["DROP TABLE t", "ALTER TABLE t RENAME TO u"])
@pytest.mark.parametrize("tables", ["t", "t*"])
def test_a_table_that_goes_while_a_batch_is_read_is_an_error_and_not_empty(
    follow: Follow, url: str, keys: dict[str, str], change: str, tables: str
) -> None:
    source = follow(url, table_include_list=tables, **keys)
    streams = planned(source)
    run(url, change)
    with pytest.raises(SourceError, match=r"\bt\b") as gone:
        read(streams)
    assert "exclude" in str(gone.value.fix)
    source = follow(url, table_include_list=tables, **keys)
    run(url, *TABLE)
    end = source.task.latest(source.position, ReadLimit())
    run(url, "DROP TABLE t")
    # A batch that no target holds any of is planned again then, and not in doubt for ever.
    with pytest.raises(RangeChangedError, match=r"\bt\b") as raised:
        source.rows(end)
    assert raised.value.fix


def test_other_tables_go_on_when_one_goes_between_two_looks_for_tables(
    follow: Follow, url: str, keys: dict[str, str]
) -> None:
    run(url, "CREATE TABLE u (id bigint NOT NULL PRIMARY KEY)", "INSERT INTO u VALUES (7)")
    source = follow(url, **keys, table_poll_interval_ms="3600000")
    source.task.latest(source.position, ReadLimit())
    run(url, "DROP TABLE t")
    end = source.task.latest(source.position, ReadLimit())
    if keys["mode"] == "bulk":
        with pytest.raises(RangeChangedError):
            source.rows(end)
    assert source.ids() == [7]


def test_a_named_table_that_goes_is_an_error_that_says_what_to_do(
    follow: Follow, url: str, keys: dict[str, str]
) -> None:
    source = follow(url, table_include_list="t", **keys)
    assert source.ids() == [1, 2, 3]
    run(url, "ALTER TABLE t RENAME TO ts")
    with pytest.raises(
        ConfigError, match="No such table, or no permission to read it: t"
    ) as raised:
        source.new()
    assert re.search(
        r"Did you mean (\w+\.)?ts\?.* correct table.include.list", str(raised.value.fix)
    )


def test_a_table_that_takes_the_place_of_one_is_not_taken_for_empty(
    server: str, keys: dict[str, str], follow: Follow
) -> None:
    source = follow(server, **keys)
    streams = planned(source)
    run(
        server,
        "CREATE TABLE made (id bigint NOT NULL PRIMARY KEY, v varchar(20))",
        "INSERT INTO made VALUES (1, '10'), (2, '20'), (3, '30')",
        "DROP TABLE t",
        "ALTER TABLE made RENAME TO t",
    )
    try:
        found = read(streams)
    except RetriableError:
        return
    assert [row["id"] for row in found] == [1, 2, 3]


def test_rows_that_are_committed_behind_larger_numbers_are_read(
    follow: Follow, postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_plugins.databases.cursors._FIRST_WAIT_SECONDS", 60)
    keys = {"mode": "incrementing", "incrementing_column_name": "id"}
    with postgresql.database() as url:
        run(url, "CREATE TABLE t (id bigserial) PARTITION BY RANGE (id)")
        run(url, "CREATE TABLE t1 PARTITION OF t DEFAULT")
        run(url, "INSERT INTO t DEFAULT VALUES")
        source, adding = follow(url, **keys), "INSERT INTO t1 (id) VALUES (nextval('t_id_seq'))"
        with closing(open_database(url, autocommit=False)) as late:
            assert source.ids() == [1]
            late.cursor().execute(adding)
            run(url, adding, "INSERT INTO t DEFAULT VALUES")
            with closing(open_database(url, autocommit=False)) as later:
                assert source.ids() == []
                late.commit()
                later.cursor().execute(adding)  # it has a number that was not seen yet
                run(url, adding)
                assert source.ids() == [2, 3, 4]
                later.commit()
            assert source.ids() == [5, 6]


def test_rows_of_a_query_that_are_committed_behind_larger_numbers_are_read(
    spark: SparkSession, postgresql: PostgresqlServer
) -> None:
    with postgresql.database() as url:
        run(url, "CREATE TABLE t (id bigserial, v text)", "INSERT INTO t DEFAULT VALUES")
        props = {
            "connection.url": url,
            "query": "SELECT id FROM t",
            "mode": "incrementing",
            "incrementing.column.name": "id",
        }
        task = JdbcSource.task(JdbcSource.config_def().parse(props))
        assert isinstance(task, QueryTask)
        context: Any = None  # the source needs nothing of it
        task.start(context)
        with closing(open_database(url, autocommit=False)) as late:
            first = task.latest(Position(), ReadLimit())
            late.cursor().execute("INSERT INTO t DEFAULT VALUES")
            run(url, "INSERT INTO t DEFAULT VALUES")
            assert task.latest(first, ReadLimit()) == first
            late.commit()
        assert task.latest(first, ReadLimit()).offset({"query": "query"}) == {"incrementing": 3}
        task.stop()


def test_a_source_that_may_read_no_table_says_so_once(follow: Follow, url: str) -> None:
    run(url, "DROP TABLE t")
    with capture_logs() as logs:
        source = follow(url)
        assert source.ids() == source.ids() == []
    told = [each for each in logs if "no selected tables" in each["event"]]
    assert [each["log_level"] for each in told] == ["warning"]
    assert "Grant SELECT" in told[0]["fix"]


def test_a_first_look_waits_for_a_transaction_that_ends_soon(
    follow: Follow, postgresql: PostgresqlServer
) -> None:
    keys = {"mode": "incrementing", "incrementing_column_name": "id"}
    with postgresql.database() as url:
        run(url, "CREATE TABLE t (id bigserial)")
        with closing(open_database(url, autocommit=False)) as late:
            late.cursor().execute("INSERT INTO t DEFAULT VALUES")
            run(url, "INSERT INTO t DEFAULT VALUES")
            ending = Timer(0.5, late.commit)
            ending.start()
            assert follow(url, **keys).ids() == [1, 2]
            ending.join()


def test_doctor_warns_where_rows_that_are_committed_late_are_lost(url: str) -> None:
    for keys in MODES:
        props = {key.replace("_", "."): value for key, value in keys.items()}
        config = JdbcSource.config_def().parse({"connection.url": url, **props})
        found = [
            each.verdict for each in JdbcSource.examine(config) if "late" in each.requirement
        ]
        is_lost = url.startswith("mysql") and keys["mode"] == "incrementing"
        assert found == ([Verdict.WARNING] if is_lost else [])
