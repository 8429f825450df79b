"""What sinks of databases do to a table before their first rows, and what others do to it."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.databases import mysql_tables
from tests.integration.databases.table_writing import batch_of, records, sink, write
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer
from tests.task_doubles import Context

from headrace.sdk import ConfigError, FrameSink, Mark, RetriableError, SinkConnector
from headrace.sdk.sink import StagedWrite
from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.connectors.postgres.sink import PostgresSink
from headrace_plugins.connectors.sqlite.sink import SqliteSink
from headrace_plugins.databases.mysql import Mysql
from headrace_plugins.databases.plan import Plan
from headrace_plugins.databases.postgresql import Postgresql
from headrace_plugins.databases.sink_task import TableSinkTask

pytestmark = pytest.mark.spark


class Target:
    """A database of one kind, and the tasks that write to it."""

    def __init__(self, connector: type[SinkConnector], url: str) -> None:
        self.connector, self.url = connector, url
        self.tasks: list[FrameSink] = []

    def task(self, **texts: str) -> FrameSink:
        self.tasks.append(sink(self.connector, self.url, **texts))
        return self.tasks[-1]

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements by the driver; return the rows of the last one."""
        if self.connector is MysqlSink:
            return mysql_tables.run(self.url, *statements)
        if self.connector is PostgresSink:
            with psycopg.connect(self.url) as database:
                found = [database.execute(each) for each in statements][-1]
                return found.fetchall() if found.description else []
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:"))) as file, file:
            return [file.execute(each).fetchall() for each in statements][-1]

    def rows(self) -> list[tuple[Any, ...]]:
        return self.run("SELECT id, name FROM t ORDER BY id")


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "sqlite":
        yield from _stopped(Target(SqliteSink, f"sqlite:{tmp_path / 'a.db'}"))
        return
    server: PostgresqlServer | MariadbServer = request.getfixturevalue(request.param)
    connector = PostgresSink if request.param == "postgresql" else MysqlSink
    with server.database() as url:
        yield from _stopped(Target(connector, url))


def _stopped(target: Target) -> Iterator[Target]:
    yield target
    for task in target.tasks:
        task.stop()


def staged(task: FrameSink, frame: DataFrame, application: str = "copy/0") -> StagedWrite:
    batch = batch_of(frame, 1)
    return task.write(frame, replace(batch, mark=Mark(application, 1, 1)))


OLD = ("CREATE TABLE t (id bigint, other int)", "INSERT INTO t VALUES (1, 1)")
RECREATE = {"schema_save_mode": "recreate"}
MODES = pytest.mark.parametrize(
    "mode",
    [{}, {"insert_mode": "upsert", "key_fields": "id", "delete_mode": "soft"}],
    ids=["published", "merged"],
)


@MODES
def test_a_recreated_table_has_the_rows_of_every_batch_since(
    spark: SparkSession, target: Target, mode: Mapping[str, str]
) -> None:
    target.run(*OLD)
    task = target.task(**RECREATE, **mode)
    write(task, records(spark, [(2, "a")]), 1)
    write(task, records(spark, [(3, "b")]), 2)
    write(target.task(**RECREATE, **mode), records(spark, [(4, "c")]), 3)
    assert target.rows() == [(2, "a"), (3, "b"), (4, "c")]


@MODES
def test_a_connector_that_is_made_again_under_its_name_recreates_its_tables_again(
    spark: SparkSession, target: Target, mode: Mapping[str, str], tmp_path: Path
) -> None:
    for uid, row in (("first", (1, "a")), ("second", (2, "b"))):
        task = target.task(**RECREATE, **mode)
        task.start(Context(tmp_path, uid=uid))
        batch = batch_of(records(spark, [row]), 1)
        mark = Mark(f"copy-{uid}-0", 1, 1)
        task.write(records(spark, [row]), replace(batch, mark=mark)).commit(mark.receipt({}))
    assert target.rows() == [(2, "b")]


@MODES
def test_an_attempt_at_the_first_batch_that_dies_is_done_again(
    spark: SparkSession, target: Target, mode: Mapping[str, str]
) -> None:
    target.run(*OLD)
    frame = records(spark, [(2, "a")])
    staged(target.task(**RECREATE, **mode), frame).abort()
    write(target.task(**RECREATE, **mode), frame, 1, epoch=2)
    write(target.task(**RECREATE, **mode), records(spark, [(3, "b")]), 2, epoch=3)
    assert target.rows() == [(2, "a"), (3, "b")]


def test_the_old_table_stays_where_the_first_batch_cannot_be_staged(
    spark: SparkSession, target: Target
) -> None:
    target.run(*OLD)
    frame = records(spark, [(2, "a")]).selectExpr(
        "struct(value.id, CAST(raise_error('broken') AS STRING) AS name) AS value",
        "timestamp",
        "position",
    )
    with pytest.raises(Exception, match="broken"):
        staged(target.task(**RECREATE), frame)
    assert target.run("SELECT * FROM t") == [(1, 1)]


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_two_tasks_may_create_a_table_at_the_same_time(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {n: staged(target.task(), records(spark, [(n, "a")]), f"copy/{n}") for n in (1, 2)}
    kind = Postgresql if target.connector is PostgresSink else Mysql
    rename = kind.rename

    def slow(*args: Any) -> None:
        time.sleep(1)  # both have found no table by then
        rename(*args)

    monkeypatch.setattr(kind, "rename", slow)

    def commit(number: int) -> None:
        receipt = Mark(f"copy/{number}", 1, 1).receipt({})
        try:
            parts[number].commit(receipt)
        except RetriableError:
            rows = records(spark, [(number, "a")])
            staged(target.task(), rows, f"copy/{number}").commit(receipt)

    with ThreadPoolExecutor(2) as both:
        list(both.map(commit, parts))
    assert target.rows() == [(1, "a"), (2, "a")]


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_two_tasks_may_create_the_table_that_they_merge_into_at_the_same_time(
    spark: SparkSession, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = {"insert_mode": "upsert", "key_fields": "id", "delete_mode": "soft"}
    creation = Plan.creation

    def slow(*args: Any) -> str:
        time.sleep(1)  # both have found no table by then
        return creation(*args)

    monkeypatch.setattr(Plan, "creation", slow)

    def move(number: int) -> None:
        rows, name = records(spark, [(number, "a")]), f"copy/{number}"
        for _ in range(5):
            with suppress(RetriableError):
                part = staged(target.task(**mode), rows, name)
                part.commit(Mark(name, 1, 1).receipt({}))
                return
        pytest.fail("it is never written")

    with ThreadPoolExecutor(2) as both:
        list(both.map(move, (1, 2)))
    assert target.rows() == [(1, "a"), (2, "a")]


@MODES
def test_no_task_drops_the_table_that_another_has_begun_with(
    spark: SparkSession, target: Target, mode: Mapping[str, str]
) -> None:
    target.run(*OLD)
    first = staged(target.task(**RECREATE, **mode), records(spark, [(2, "a")]))
    later = partial(staged, frame=records(spark, [(3, "b")]), application="copy/1")
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(later, target.task(**RECREATE, **mode))
        # It has planned before the first one commits, or waits for it.
        wait([found], timeout=2)
        first.commit(Mark("copy/0", 1, 1).receipt({}))
        try:
            second = found.result()
        except RetriableError:
            second = later(target.task(**RECREATE, **mode))
    second.commit(Mark("copy/1", 1, 1).receipt({}))
    assert target.rows() == [(2, "a"), (3, "b")]


@pytest.mark.parametrize(("topic", "task"), [("u", 0), ("t", 1)], ids=["stream", "task"])
def test_another_stream_or_task_does_not_replace_the_rows_of_a_table(
    spark: SparkSession, target: Target, tmp_path: Path, topic: str, task: int
) -> None:
    def started(number: int) -> FrameSink:
        made = target.task(insert_mode="replace")
        made.start(Context(tmp_path, task=number))
        return made

    write(started(0), records(spark, [(1, "a")]), 1)
    frame = records(spark, [(2, "b")])
    other = replace(batch_of(frame, 1), mark=Mark("copy/other", 1, 1), topic=topic)
    with pytest.raises(ConfigError, match="would replace the rows of t of task 0") as error:
        started(task).write(frame, other)
    assert target.rows() == [(1, "a")]
    write(started(0), records(spark, [(3, "c")]), 2)
    assert target.rows() == [(3, "c")]
    assert error.value.fix is not None
    target.run(error.value.fix.rpartition("no longer written: ")[2].removesuffix(";"))
    started(task).write(frame, other).commit(other.mark.receipt({}))
    assert target.rows() == [(2, "b")]


CHANGES = {
    "retyped": ["CREATE TABLE t (id BIGINT PRIMARY KEY, v INTEGER)"],
    "renamed": ["CREATE TABLE t (id BIGINT PRIMARY KEY, w DECIMAL(10,2))"],
    "without its key": ["CREATE TABLE t (id BIGINT, v DECIMAL(10,2))"],
    "dropped": [],
}


@pytest.mark.parametrize("keyed", [False, True], ids=["insert", "upsert"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_row_goes_into_a_table_that_was_changed_after_they_were_staged(
    spark: SparkSession,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    keyed: bool,
) -> None:
    target.run("CREATE TABLE t (id BIGINT PRIMARY KEY, v DECIMAL(10,2))")
    task = target.task(**({"insert_mode": "upsert", "key_fields": "id"} if keyed else {}))
    apply = TableSinkTask._applied

    def applied_late(own: TableSinkTask, *args: Any, **options: Any) -> Any:
        target.run("DROP TABLE t", *CHANGES[change])
        return apply(own, *args, **options)

    monkeypatch.setattr(TableSinkTask, "_applied", applied_late)
    frame = records(spark, [(1, Decimal("1.55"))], "id BIGINT, v DECIMAL(10,2)")
    with pytest.raises(RetriableError, match=r"changed the table .*\bt\b"):
        write(task, frame, 1)
    assert not CHANGES[change] or target.run("SELECT count(*) FROM t") == [(0,)]


def test_a_table_that_another_task_has_made_with_other_types_gets_no_rows(
    spark: SparkSession, target: Target
) -> None:
    target.run("SELECT 1")  # SQLite makes its file
    exact = records(spark, [(1, Decimal("1.55"))], "id BIGINT, v DECIMAL(10,2)")
    with suppress(RetriableError):
        ours = staged(target.task(), exact)
        other = staged(target.task(), records(spark, [(2, 2)], "id BIGINT, v INT"), "copy/1")
        other.commit(Mark("copy/1", 1, 1).receipt({}))
        ours.commit(Mark("copy/0", 1, 1).receipt({}))
    assert (1, 2) not in target.run("SELECT id, v FROM t")
