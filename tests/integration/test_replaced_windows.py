"""Windows that run again: the target is as if each had run once, by its newest run."""

# ruff: noqa: S608 - a test's own statements

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.integration.databases import mysql_tables
from tests.integration.window_runs import DAY, DDL, FILES, JANUARY, Target, day, rows
from tests.jdbc_database import JdbcDatabase, drivers_load
from tests.task_doubles import Context

from headrace.cli.progress import Scoreboard
from headrace.runtime.app import Runtime
from headrace.sdk import (
    Boundaries,
    BoundaryKind,
    ConfigError,
    ConfigErrors,
    Mark,
    RecordError,
    RetriableError,
    SinkConnector,
)
from headrace.sdk.config import Config
from headrace.sdk.errors import StaleEpochError
from headrace.settings import Settings
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.connectors.postgres.sink import PostgresSink
from headrace_plugins.connectors.sqlite.sink import SqliteSink

pytestmark = pytest.mark.spark


def queried(connector: type[SinkConnector], url: str, sql: str) -> list[tuple[Any, ...]]:
    if connector is MysqlSink:
        return mysql_tables.run(url, sql)
    if connector is PostgresSink:
        with psycopg.connect(url) as database:
            found = database.execute(sql)
            return found.fetchall() if found.description else []
    with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as file, file:
        return file.execute(sql).fetchall()


DELTA = {
    "plain": {},
    "by-day": {"partition.by": "day", "replace.window.column": "day"},
    "by-note": {"partition.by": "note"},
    "by-spark": {"table.properties": "delta.enableChangeDataFeed=true"},
}


DRIVERS = {"h2": JdbcDatabase.h2, "derby": JdbcDatabase.derby}
SERVERS: dict[str, type[SinkConnector]] = {"postgresql": PostgresSink, "mariadb": MysqlSink}


TABLES = [*(f"delta {name}" for name in DELTA), "sqlite", *SERVERS, *DRIVERS]


def made_targets(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    session_settings: Settings,
    tmp_path: Path,
) -> Iterator[Target]:
    kind, _, how = request.param.partition(" ")
    props = {"replace.window.column": "at"}
    with ExitStack() as stopping:
        made = partial(Target, spark, folder=tmp_path, stopping=stopping)
        if kind == "file":
            config = {"path": str(tmp_path / "table"), "header": "true", **FILES[how]}
            yield made(FileSink, config, query=lambda _: [])
            return
        if kind == "delta":
            config = {**props, "path": str(tmp_path / "table"), **DELTA[how]}
            yield made(DeltaSink, config, query=lambda _: [])
            return
        if kind in DRIVERS:
            stopping.enter_context(drivers_load(spark, session_settings))
            own = DRIVERS[kind]()
            config = {**own.config, **props, "table.name.format": "t"}

            def query(sql: str) -> list[tuple[Any, ...]]:
                if sql.startswith("SELECT"):
                    return own.rows(sql)
                own.run(sql)
                return []

            yield made(JdbcSink, config, query=query)
            return
        url = f"sqlite:{tmp_path / 'a.db'}"
        if kind in SERVERS:
            url = stopping.enter_context(request.getfixturevalue(kind).database())
        connector = SERVERS.get(kind, SqliteSink)
        config = {**props, "connection.url": url, "table.name.format": "t"}
        yield made(connector, config, query=partial(queried, connector, url))


# Those that replace by a column, and all.
table = pytest.fixture(made_targets, params=TABLES, name="table")
target = pytest.fixture(
    made_targets, params=[*TABLES, *(f"file {name}" for name in FILES)], name="target"
)


def test_a_window_that_runs_again_replaces_its_own_rows_only(target: Target) -> None:
    target.moved(day(0), "job@1.1", rows(0, 1, 2), rows(0, 3, note="é ü"))
    target.moved(day(1), "job@2.1", rows(1, 4, 5))
    target.moved(day(0), "job@1.2", rows(0, 10, note="é ü"), rows(0, 11))
    assert target.ids() == [4, 5, 10, 11]


def test_a_run_goes_on_after_a_kill_without_replacing_its_own_rows(target: Target) -> None:
    target.moved(day(0), "job@1.1", rows(0, 1))
    target.run(day(0), "job@1.2").write(rows(0, 2), 1)
    again = target.run(day(0), "job@1.2")
    with pytest.raises((StaleEpochError, RetriableError)):
        again.write(rows(0, 2), 1, epoch=2)  # as the runtime finds its mark before it writes
    assert again.sink.committed(Mark(again.application, 1, 2), "t")
    again.write(rows(0, 3), 2, epoch=2)
    again.finish()
    again.finish()
    assert target.ids() == [2, 3]


def test_a_first_batch_that_dies_before_its_commit_replaces_nothing(target: Target) -> None:
    target.moved(day(0), "job@1.1", rows(0, 1))
    dying = target.run(day(0), "job@1.2")
    frame = dying.frame(rows(0, 2))
    dying.sink.write(frame, dying.batch(frame, 1, 1)).abort()
    assert target.ids() == [1]
    target.run(day(0), "job@1.2").write(rows(0, 2), 1, epoch=2)
    assert target.ids() == [2]


@pytest.mark.parametrize("batches", [[], [[]]], ids=["no batch", "no rows"])
def test_a_window_that_is_empty_by_now_is_emptied(
    target: Target, batches: list[list[Any]]
) -> None:
    target.moved(day(0), "job@1.1", *batches)
    target.moved(day(0), "job@1.2", rows(0, 1, 2))
    target.moved(day(1), "job@2.1", rows(1, 3))
    target.moved(day(0), "job@1.3", *batches)
    assert target.ids() == [3]


def test_the_tasks_of_a_run_keep_the_rows_of_each_other(target: Target) -> None:
    target.moved(day(0), "job@1.1", rows(0, 1))
    one, other = (target.run(day(0), "job@1.2", task) for task in (0, 1))
    one.write(rows(0, 2), 1)
    other.write(rows(0, 3), 1)
    other.finish()
    one.write(rows(0, 4), 2)
    one.finish()
    assert target.ids() == [2, 3, 4]


def test_windows_that_run_side_by_side_do_not_touch_each_other(target: Target) -> None:
    days = range(3)
    for number in days:
        target.moved(day(number), f"job@{number}.1", rows(number, number))
    runs = [
        partial(target.moved, day(n), f"job@{n}.2", *(rows(n, 10 * n + b) for b in range(1, 4)))
        for n in days
    ]
    with ThreadPoolExecutor(len(runs)) as beside:
        for each in [beside.submit(run) for run in runs]:
            each.result()
    assert target.ids() == [1, 2, 3, 11, 12, 13, 21, 22, 23]


def test_the_tasks_of_a_run_that_begin_at_once_keep_the_rows_of_each_other(
    target: Target,
) -> None:
    target.moved(day(0), "job@1.1", rows(0, 1))
    tasks = [target.run(day(0), "job@1.2", task) for task in range(3)]
    with ThreadPoolExecutor(3) as beside:
        for each in [
            beside.submit(task.write, rows(0, 10 + n), 1) for n, task in enumerate(tasks)
        ]:
            each.result()
    assert target.ids() == [10, 11, 12]


def test_a_record_outside_of_the_window_is_refused(table: Target) -> None:
    for value in (rows(1, 1)[0], (1, None, None, "a")):
        with pytest.raises(RecordError, match="outside the window"):
            table.run(day(0), "job@1.1").write([value], 1)


def test_a_window_of_values_is_replaced_by_them(table: Target) -> None:
    def window(lower: str | None, upper: str | None) -> Boundaries:
        return Boundaries(BoundaryKind.VALUE, lower, upper)

    column = {"replace_window_column": "id"}
    table.moved(window(None, "5"), "job@1.1", rows(0, 1, 4), **column)
    table.moved(window("5", None), "job@2.1", rows(0, 5, 60), **column)
    table.moved(window("5", None), "job@2.2", rows(0, 7), **column)
    assert table.ids() == [1, 4, 7]
    if "derby" in table.props.get("connection.url", ""):
        return  # its texts of any length cannot be compared
    column = {"replace_window_column": "note"}
    table.moved(window("b", "c"), "job@3.1", rows(0, 8, note="bee"), **column)
    table.moved(window("b", "c"), "job@3.2", rows(0, 9, note="b"), **column)
    assert table.ids() == [1, 4, 7, 9]


def test_rows_that_others_have_written_give_way_too(table: Target) -> None:
    table.moved(day(0), "job@1.1", rows(0, 1) + rows(0, 2), rows(0, 3))
    if table.connector is DeltaSink:
        # One file has rows of several windows and none, in Spark's older form of times.
        spark = table.spark.newSession()
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        values = [*rows(0, 4, note="é"), *rows(1, 5, note="é"), (6, None, None, "é")]
        frame = spark.createDataFrame(values, DDL).coalesce(1)
        frame.write.format("delta").mode("append").save(table.props["path"])
    else:
        table.moved(day(1), "other@1.1", rows(1, 5))
        table.query(f"INSERT INTO {table.named('t')} ({table.named('id')}) VALUES (6)")
        if table.connector is MysqlSink:
            table.query("ALTER TABLE t MODIFY at TIMESTAMP(6) NULL")
    table.moved(day(0), "job@1.2", rows(0, 7))
    assert table.ids() == [5, 6, 7]
    if table.connector is DeltaSink:
        read = table.spark.read.format("delta").load(table.props["path"])
        _, at, on, _ = rows(1, 5)[0]
        assert read.where("id = 5").collect() == [(5, at.replace(tzinfo=None), on, "é")]


def test_what_cannot_be_a_window_of_the_table_is_told(table: Target) -> None:
    for boundaries in (Boundaries(BoundaryKind.SNAPSHOT, "1"), Boundaries(BoundaryKind.OFFSET)):
        with pytest.raises(ConfigError, match="cannot be applied to a column"):
            table.run(boundaries, "job@1.1")
    with pytest.raises(ConfigError, match="which has no bounds of kind time"):
        table.run(day(0), "job@1.1", 0, replace_window_column="note").write(rows(0, 1), 1)
    with pytest.raises(ConfigError, match="has no column never"):
        table.run(day(0), "job@1.1", 0, replace_window_column="never").write(rows(0, 1), 1)


def test_a_window_of_days_is_of_the_days_of_a_zone(table: Target) -> None:
    zone = {"replace_window_zone": "America/New_York", "replace_window_column": "day"}
    night = timedelta(hours=5)
    window = Boundaries.between(JANUARY + night, JANUARY + night + DAY)
    for run, number in (("job@1.1", 1), ("job@1.2", 2)):
        table.moved(window, run, rows(0, number), **zone)
    assert table.ids() == [2]


def test_a_sink_that_no_job_runs_replaces_no_window(target: Target) -> None:
    task = target.connector.task(target.connector.config_def().parse(target.props))
    with pytest.raises(ConfigError, match="The window to replace is not set"):
        task.start(Context(target.folder))


def test_only_what_has_each_row_once_may_run_again(table: Target) -> None:
    def parsed(**more: str) -> Config:
        props = {k: v for k, v in table.props.items() if k != "replace.window.column"}
        props |= {k.replace("_", "."): v for k, v in more.items()}
        return table.connector.config_def().parse(props)

    def repeatable(**more: str) -> bool:
        return table.connector.repeatable(parsed(**more))

    def takes_overlaps(**more: str) -> bool:
        return table.connector.takes_overlaps(parsed(**more))

    mode = "mode" if table.connector is DeltaSink else "insert_mode"
    assert repeatable(**{mode: "upsert"})
    assert repeatable(replace_window_column="at")
    assert not repeatable()
    assert takes_overlaps(**{mode: "upsert"})
    assert not takes_overlaps(replace_window_column="at")
    assert not takes_overlaps()
    with pytest.raises(ConfigErrors, match=r"replace\.window\.column cannot be used with"):
        repeatable(replace_window_column="at", **{mode: "upsert"})


COPY = """
name: visits
source:
  connector: file
  path: {folder}/in/*.csv
  schema: id BIGINT, day {kind}
sinks:
  - {sink}
    replace.window.column: day
    replace.window.kind: time
    replace.window.from: 2026-01-01T00:00:00+00:00
    replace.window.to: 2026-01-02T00:00:00+00:00
"""
DELTA_SINK = "connector: delta\n    path: {folder}/table"
TABLE_SINK = (
    "connector: sqlite\n    connection.url: sqlite:{folder}/a.db\n    table.name.format: t"
)


@pytest.mark.parametrize("kind", ["DATE", "STRING"])
@pytest.mark.parametrize(
    "lines", [[], ["2,2026-01-01"], ["2,2026-01-02"]], ids=["nothing", "rows", "outside"]
)
@pytest.mark.parametrize("sink", [DELTA_SINK, TABLE_SINK], ids=["delta", "sqlite"])
def test_a_straight_copy_replaces_its_window_though_it_has_no_rows(
    runtime: Runtime, tmp_path: Path, sink: str, lines: list[str], kind: str
) -> None:
    (tmp_path / "in").mkdir()
    if lines:
        (tmp_path / "in" / "a.csv").write_text("\n".join(["id,day", *lines, ""]))
    before = pa.table({"id": [1, 3], "day": [date(2026, 1, 1), date(2026, 1, 2)]})
    write_deltalake(tmp_path / "table", before)
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute("CREATE TABLE t (id BIGINT, day DATE)")
        file.execute("INSERT INTO t VALUES (1, '2026-01-01'), (3, '2026-01-02')")
    text = COPY.format(folder=tmp_path, kind=kind, sink=sink.format(folder=tmp_path))
    (tmp_path / "visits.yaml").write_text(text)
    definitions = runtime.definitions([tmp_path / "visits.yaml"])
    outcome = runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
    fits = kind == "DATE" or sink is TABLE_SINK or not lines
    is_good = fits and lines != ["2,2026-01-02"]
    assert not outcome.errors if is_good else outcome.errors
    expected = {0: [3], 1: [2, 3]}[len(lines)] if is_good else [1, 3]
    with closing(sqlite3.connect(tmp_path / "a.db")) as file:
        found = [row[0] for row in file.execute("SELECT id FROM t ORDER BY id")]
    if sink is DELTA_SINK:
        found = DeltaTable(tmp_path / "table").to_pyarrow_table()["id"].to_pylist()
    assert sorted(found) == expected


def test_what_is_left_of_an_earlier_generation_is_refused(target: Target) -> None:
    """A worker is suspended, its run is stopped and begun again, and then it wakes."""
    target.moved(day(1), "job@9.1", rows(1, 90))
    first, asleep = (target.run(day(0), "job@1.1", task) for task in (0, 1))
    first.write(rows(0, 7), 1)
    frame = asleep.frame(rows(0, 8))
    batch = asleep.batch(frame, 1, 1)
    stages = target.connector in {DeltaSink, FileSink, PostgresSink}
    staged = asleep.sink.write(frame, batch) if stages else None
    target.moved(day(0), "job@1.2", rows(0, 1, 2), rows(0, 3, 4))
    with pytest.raises(StaleEpochError, match="restarted from the beginning"):
        (staged or asleep.sink.write(frame, batch)).commit(batch.mark.receipt({"batch": 1}))
    with pytest.raises(StaleEpochError, match="restarted from the beginning"):
        first.finish()
    assert target.ids() == [1, 2, 3, 4, 90]
