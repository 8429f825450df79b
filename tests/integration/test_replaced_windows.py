"""Windows that run again: the target is as if each had run once, by its newest run."""

# ruff: noqa: S608 - a test's own statements

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame, SparkSession
from tests.integration.databases import mysql_tables
from tests.jdbc_database import JdbcDatabase, drivers_load
from tests.task_doubles import Context

from headrace.cli.progress import Scoreboard
from headrace.runtime.app import Runtime
from headrace.sdk import (
    Boundaries,
    BoundaryKind,
    ConfigError,
    ConfigErrors,
    FrameSink,
    Mark,
    RecordError,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkError,
)
from headrace.sdk.config import Config
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import from_spark_json
from headrace.settings import Settings
from headrace_plugins.connectors.delta import DeltaSink
from headrace_plugins.connectors.file import FileSink
from headrace_plugins.connectors.file.replacement import FolderReplacement
from headrace_plugins.connectors.jdbc import JdbcSink
from headrace_plugins.connectors.mysql import MysqlSink
from headrace_plugins.connectors.postgres import PostgresSink
from headrace_plugins.connectors.sqlite import SqliteSink

pytestmark = pytest.mark.spark

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
DDL = "id BIGINT, at TIMESTAMP, day DATE, note STRING"


def day(number: int) -> Boundaries:
    """Return the window of a day of January, from 0."""
    return Boundaries.between(JANUARY + number * DAY, JANUARY + (number + 1) * DAY)


def rows(number: int, *ids: int, note: str = "a") -> list[tuple[Any, ...]]:
    """Return rows of a day, an hour apart; the first at its very beginning."""
    start = JANUARY + number * DAY
    return [(i, start + timedelta(hours=n), start.date(), note) for n, i in enumerate(ids)]


@dataclass
class Target:
    """A sink's table, and the runs that write to it."""

    spark: SparkSession
    connector: type[SinkConnector]
    props: dict[str, str]
    folder: Path
    stopping: ExitStack
    query: Callable[[str], list[tuple[Any, ...]]]
    """Runs a statement of a database, and commits it."""

    def run(
        self, window: Boundaries, run: str, task: int = 0, stream: str = "t", **more: str
    ) -> "Run":
        """Return a run of a window, one task of it, as it is started."""
        props = self.props | {k.replace("_", "."): v for k, v in more.items()}
        config = self.connector.config_def().parse(props)
        filled = self.connector.fill_in_boundaries(config, window)
        sink = self.connector.task(self.connector.config_def().parse(filled))
        assert isinstance(sink, FrameSink)
        context = Context(self.folder / "scratch", connector=run, task=task)
        sink.start(context)
        self.stopping.callback(sink.stop)
        # Marks name the stream and the sink behind the task, as the runtime does.
        return Run(self.spark, sink, f"{context.application}/{stream}-9f8e7d")

    def moved(self, window: Boundaries, run: str, *batches: Sequence[Any], **more: str) -> None:
        """Move a window from its first batch to its end."""
        going = self.run(window, run, 0, **more)
        for number, batch in enumerate(batches, 1):
            going.write(batch, number)
        going.finish()

    def ids(self) -> list[int]:
        if self.connector is DeltaSink:
            found = DeltaTable(self.folder / "table").to_pyarrow_dataset().to_table(["id"])
            return sorted(found["id"].to_pylist())
        if self.connector is FileSink:
            folder, kind = self.folder / "table", self.props["format"]
            files = [f for f in folder.rglob("part-*") if "_headrace" not in f.parts]
            found = dataset([str(f) for f in files], format=kind).to_table(["id"])
            return sorted(found["id"].to_pylist())
        return [
            row[0]
            for row in self.query(
                f"SELECT {self.named('id')} FROM {self.named('t')} ORDER BY 1"
            )
        ]

    def named(self, name: str) -> str:
        return f'"{name}"' if self.connector is JdbcSink else name


@dataclass
class Run:
    """One task of a run."""

    spark: SparkSession
    sink: FrameSink
    application: str

    def frame(self, values: Sequence[Any]) -> DataFrame:
        found = [(value, JANUARY, [n]) for n, value in enumerate(values)]
        types = f"value STRUCT<{DDL}>, timestamp TIMESTAMP, position ARRAY<BIGINT>"
        return self.spark.createDataFrame(found, types)

    def batch(self, frame: DataFrame, number: int, epoch: int) -> SinkBatch:
        [schema] = [
            f.schema
            for f in from_spark_json(frame.schema.jsonValue()).fields
            if f.name == "value"
        ]
        return SinkBatch(Mark(self.application, number, epoch), "t", schema)

    def write(self, values: Sequence[Any], number: int, epoch: int = 1) -> None:
        frame = self.frame(values)
        batch = self.batch(frame, number, epoch)
        self.sink.write(frame, batch).commit(batch.mark.receipt({"batch": number}))

    def finish(self) -> None:
        self.sink.finish(self.spark, "t")


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


FILES = {
    "parquet": {"replace.window": "true", "format": "parquet"},
    "divided": {"replace.window": "true", "format": "csv", "partition.by": "note"},
    "partitions": {"replace.partitions": "true", "format": "json", "partition.by": "day"},
}
TABLES = [*(f"delta {name}" for name in DELTA), "sqlite", *SERVERS, *DRIVERS]


@pytest.fixture(params=TABLES)
def table(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    session_settings: Settings,
    tmp_path: Path,
) -> Iterator[Target]:
    """Replaces by a column."""
    yield from _targets(request, spark, session_settings, tmp_path)


@pytest.fixture(params=[*TABLES, *(f"file {name}" for name in FILES)])
def target(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    session_settings: Settings,
    tmp_path: Path,
) -> Iterator[Target]:
    """Replaces by a column, or what runs of the window have written."""
    yield from _targets(request, spark, session_settings, tmp_path)


def _targets(
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
        with pytest.raises(RecordError, match="outside of the window"):
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
        with pytest.raises(ConfigError, match="says nothing of a column's values"):
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
    with pytest.raises(ConfigError, match="Nothing says which window"):
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
    with pytest.raises(ConfigErrors, match="rows are not replaced by windows"):
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
    with pytest.raises(StaleEpochError, match="begun again"):
        (staged or asleep.sink.write(frame, batch)).commit(batch.mark.receipt({"batch": 1}))
    with pytest.raises(StaleEpochError, match="begun again"):
        first.finish()
    assert target.ids() == [1, 2, 3, 4, 90]


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Target]:
    """A folder of JSON that is divided by days, whose partitions are replaced."""
    config = {"path": str(tmp_path / "table"), **FILES["partitions"]}
    with ExitStack() as stopping:
        yield Target(spark, FileSink, config, tmp_path, stopping, lambda _: [])


def foreign(folder: Target, number: int, *ids: int) -> None:
    """Write a file of a day that no run has written."""
    place = folder.folder / f"table/day={(JANUARY + number * DAY).date()}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "part-0.json").write_text("".join(f'{{"id":{i}}}\n' for i in ids))
    (place / "_SUCCESS").touch()


def test_a_partition_is_replaced_whoever_has_written_it(folder: Target) -> None:
    foreign(folder, 0, 1, 2)
    foreign(folder, 1, 3)
    folder.moved(day(0), "job@1.1", rows(0, 10), rows(0, 11))
    assert folder.ids() == [3, 10, 11]
    folder.moved(day(0), "other@2.1", rows(0, 12))
    assert folder.ids() == [3, 12]
    assert (folder.folder / "table/day=2026-01-01/_SUCCESS").exists()


def test_a_partition_of_another_window_of_the_job_is_not_replaced(folder: Target) -> None:
    folder.moved(day(0), "job@1.1", rows(0, 1))
    late = folder.run(day(1), "job@2.1")
    with pytest.raises(SinkError, match=r"day=2026-01-01 has rows of another window"):
        late.write([*rows(1, 2), *rows(0, 3)], 1)
    assert folder.ids() == [1]
    folder.moved(day(1), "job@2.1", rows(1, 2))
    assert folder.ids() == [1, 2]


def test_files_of_other_windows_and_jobs_stay_where_windows_are_replaced(
    folder: Target,
) -> None:
    windows = {"replace_partitions": "false", "replace_window": "true"}
    foreign(folder, 0, 1)
    for run, number in (("job@1.1", 2), ("a job@1.1", 3), ("job@1.2", 4)):
        folder.moved(day(0), run, rows(0, number), **windows)
    folder.moved(day(1), "job@2.1", rows(0, 5), **windows)
    assert folder.ids() == [1, 3, 4, 5]


def test_a_job_that_is_made_anew_replaces_the_windows_of_the_one_before(
    folder: Target,
) -> None:
    folder.moved(day(0), "job@7.1", rows(0, 1))
    before, other = (folder.run(day(0), "job@7.1", task) for task in (0, 1))
    folder.moved(day(0), "job@3.1", rows(0, 2))
    assert folder.ids() == [2]
    late = (partial(before.write, rows(0, 3), 2), partial(other.write, rows(0, 3), 1))
    for step in (*late, before.finish, other.finish):
        with pytest.raises(StaleEpochError, match="has begun since"):
            step()
    assert folder.ids() == [2]
    folder.moved(day(0), "job@7.2", rows(0, 4))
    assert folder.ids() == [4]


def test_streams_and_sinks_of_a_task_do_not_take_the_names_of_each_other(
    folder: Target,
) -> None:
    for number, stream in enumerate(("a", "b", "a~1")):
        folder.run(day(0), "job@1.1", 0, stream).write(rows(0, number), 1)
    assert folder.ids() == [0, 1, 2]


def test_what_a_run_has_written_before_it_was_to_replace_gives_way(folder: Target) -> None:
    plain = {"replace_partitions": "false"}
    for stream in ("a", "b"):
        folder.run(day(0), "job@1.1", 0, stream, **plain).write(rows(0, 1), 1)
    killed = folder.run(day(0), "job@1.1", 1, **plain)
    frame = killed.frame(rows(0, 1))
    killed.sink.write(frame, killed.batch(frame, 1, 1))
    # The job was edited while the run went on: what it has written is its own.
    folder.run(day(0), "job@1.1", 0, "a").write(rows(0, 2), 2)
    assert folder.ids() == [1, 1, 2]
    folder.moved(day(0), "job@1.2", rows(0, 3))
    assert folder.ids() == [3]
    assert not list((folder.folder / "table/_headrace/staging").glob("*/*"))
    folder.moved(day(0), "other@2.1", rows(1, 4), **plain)
    with pytest.raises(SinkError, match="rows of another window"):
        folder.run(day(1), "other@3.1").write(rows(1, 5), 1)


@pytest.mark.parametrize("ask", ["committed", "commit"])
def test_what_an_earlier_generation_has_left_to_move_is_not_moved_any_more(
    folder: Target, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    dying = folder.run(day(0), "job@1.1")
    with monkeypatch.context() as patched:
        patched.setattr(Location, "move_to", die)
        with pytest.raises(KeyboardInterrupt):
            dying.write(rows(0, 1), 1)
    asleep = folder.run(day(0), "job@1.1")
    frame = asleep.frame(rows(0, 1))
    batch = asleep.batch(frame, 1, 2)
    staged = asleep.sink.write(frame, batch)
    folder.moved(day(0), "job@1.2", rows(0, 2))
    late: dict[str, Callable[[], object]] = {
        "committed": partial(asleep.sink.committed, batch.mark, "t"),
        "commit": partial(staged.commit, batch.mark.receipt({"batch": 1})),
    }
    with pytest.raises(StaleEpochError, match="begun again"):
        late[ask]()
    assert folder.ids() == [2]


def test_what_others_do_in_a_partition_later_is_left_alone(folder: Target) -> None:
    foreign(folder, 0, 1)
    foreign(folder, 1, 2)
    going = folder.run(day(0), "job@1.1")
    going.write(rows(0, 3), 1)
    foreign(folder, 0, 4)
    assert going.sink.committed(Mark(going.application, 1, 2), "t")
    assert folder.ids() == [2, 3, 4]
    folder.moved(day(1), "job@2.1", rows(1, 5))
    rerun = folder.run(day(1), "job@2.2")
    rerun.write(rows(2, 6), 1)  # the source gives other days by now
    (folder.folder / "table/day=2026-01-02/_SUCCESS").unlink()
    (folder.folder / "table/day=2026-01-02").rmdir()
    assert rerun.sink.committed(Mark(rerun.application, 1, 2), "t")
    rerun.write(rows(2, 7), 2)
    assert folder.ids() == [3, 4, 6, 7]


def test_targets_below_a_folder_and_jobs_of_like_names_keep_their_files(
    folder: Target,
) -> None:
    windows = {"replace_partitions": "false", "replace_window": "true"}
    inner = {**windows, "path": f"{folder.props['path']}/inner"}
    folder.moved(day(0), "job@1.1", rows(0, 1), **inner)
    folder.moved(day(0), "job@1.1", rows(0, 2), **windows)
    [own] = (folder.folder / "table/day=2026-01-01").glob("part-*")
    window = own.name.split("@")[1]
    for name in (f"job-{window}", f"job@{window}", "job@2", "job@1.1"):
        folder.moved(day(0), f"{name}@1.1", rows(0, 3), **windows)
    folder.moved(day(0), "job@1.2", rows(0, 4), **windows)
    assert folder.ids() == [1, 3, 3, 3, 3, 4]


def test_a_partition_that_is_a_link_is_refused(folder: Target) -> None:
    elsewhere = folder.folder / "elsewhere"
    elsewhere.mkdir()
    (folder.folder / "table").mkdir()
    (folder.folder / "table/day=2026-01-01").symlink_to(elsewhere)
    with pytest.raises(SinkError, match="is a link"):
        folder.run(day(0), "job@1.1").write(rows(0, 1), 1)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"run": "job@1-1a2b3c"}'])
def test_a_record_that_was_spoilt_is_named(folder: Target, text: str) -> None:
    folder.moved(day(0), "job@1.1", rows(0, 1))
    [record] = (folder.folder / "table/_headrace/windows").iterdir()
    record.write_text(text)
    with pytest.raises(SinkError, match=r"windows/job@.*\.json"):
        folder.run(day(0), "job@1.2").write(rows(0, 2), 1)
    assert folder.ids() == [1]


@pytest.mark.parametrize("step", ["require_current", "put", "delete", "move_to", "clear"])
def test_a_replacement_that_dies_anywhere_is_finished_by_the_next_attempt(
    folder: Target, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    foreign(folder, 0, 1)
    folder.moved(day(0), "job@1.1", rows(0, 2))
    folder.moved(day(1), "job@2.1", rows(1, 9))
    dying = folder.run(day(0), "job@1.2")
    frame = dying.frame(rows(0, 4))
    batch = dying.batch(frame, 1, 1)
    staged = dying.sink.write(frame, batch)
    owner = FolderReplacement if step in {"require_current", "clear"} else Location
    real = getattr(owner, step)

    def die(self: Any, *args: Any, **more: Any) -> Any:
        if owner is Location and "windows" in str(self):
            return real(self, *args, **more)  # the record of the window
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, die)
        with pytest.raises(KeyboardInterrupt):
            staged.commit(batch.mark.receipt({"batch": 1}))
    after = folder.run(day(0), "job@1.2")
    if after.sink.committed(Mark(after.application, 1, 2), "t") is None:
        assert folder.ids() == [2, 9]
        after.write(rows(0, 4), 1, epoch=2)
    assert folder.ids() == [4, 9]
    after.write(rows(0, 5), 2, epoch=2)
    after.finish()
    assert folder.ids() == [4, 5, 9]


def test_what_a_folder_cannot_replace_is_refused_before_a_run(folder: Target) -> None:
    def problems(**more: str) -> str:
        props = folder.props | {k.replace("_", "."): v for k, v in more.items()}
        return str(list(FileSink.check(FileSink.config_def().parse(props))))

    assert problems() == "[]"
    assert "The folder has no partitions" in problems(partition_by="")
    assert "Lines that were added to a file are not replaced" in problems(
        mode="append", partition_by=""
    )
    live = Boundaries(BoundaryKind.TIME, "2026-01-01T00:00:00Z")
    with pytest.raises(ConfigError, match="A run without an end"):
        folder.run(live, "job@1.1")
    windows = {"replace_partitions": "false", "replace_window": "true"}
    folder.moved(live, "job@1.1", rows(0, 1), **windows)
    with pytest.raises(ConfigError, match="no window, and so no rows to replace"):
        folder.run(Boundaries(BoundaryKind.TIME), "job@1.1", 0, **windows)
    config = FileSink.config_def().parse(folder.props)
    assert FileSink.repeatable(config)
    assert not FileSink.takes_overlaps(config)
