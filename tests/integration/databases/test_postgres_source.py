"""Where the source of databases stands in tables of PostgreSQL, and what each batch reads."""

# ruff: noqa: S608 - a test's own statements

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import ConfigError, Position, ReadLimit, StateError
from headrace.sdk.errors import RangeChangedError
from headrace.sdk.sources import ArrowParts
from headrace_plugins.connectors.jdbc.reader import TablesTask
from headrace_plugins.connectors.jdbc.source import JdbcSource

pytestmark = pytest.mark.spark


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database() as made:
        yield made


@pytest.fixture
def source(url: str) -> Iterator[Any]:
    made: list[TablesTask] = []

    def make(**texts: str) -> TablesTask:
        props = {"connection.url": url, "table.poll.interval.ms": "0"}
        props |= {key.replace("_", "."): text for key, text in texts.items()}
        task = JdbcSource.task(JdbcSource.config_def().parse(props))
        assert isinstance(task, TablesTask)
        context: Any = None  # the source needs nothing of it
        task.start(context)
        made.append(task)
        return task

    yield make
    for task in made:
        task.stop()


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        for statement in statements:
            database.execute(statement)


def rows_of(
    spark: SparkSession, task: TablesTask, start: Position, end: Position
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in task.streams(spark, start, end):
        assert isinstance(each.rows, ArrowParts)
        rows = found.setdefault(each.stream, [])
        for part in each.rows.parts:
            for batch, rejected in each.rows.read(part):
                assert not rejected
                rows += batch.to_pylist()
    return found


def ids(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def all_batches(
    spark: SparkSession, task: TablesTask, limit: ReadLimit, start: Position | None = None
) -> tuple[list[list[int]], Position]:
    """Return the ids of each batch until nothing is new, and where that is."""
    stands, batches = start or Position(), list[list[int]]()
    while (end := task.latest(stands, limit)) != stands:
        found = rows_of(spark, task, stands, end)
        assert rows_of(spark, task, stands, end) == found
        batches.append(ids([row for rows in found.values() for row in rows]))
        task.acknowledge(end)
        stands = end
        assert len(batches) < 100
    return batches, stands


NUMBERS = "CREATE TABLE t (id bigint PRIMARY KEY, name text)"


@pytest.mark.parametrize(
    "key",
    ["id bigint", "id int", "id numeric(12)", "id bigint, k text", "id bigint, k uuid"],
)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_table_is_read_in_batches_by_its_key_each_row_once(
    spark: SparkSession, source: Any, url: str, key: str, *, sparse: bool
) -> None:
    names = ", ".join(part.split()[0] for part in key.split(", "))
    run(url, f"CREATE TABLE t ({key}, PRIMARY KEY ({names}))")
    step = 1_000_003 if sparse and "int," not in f"{key}," else 1
    other = {"id, k": ", md5(n::text)"}.get(names, "")
    other = ", gen_random_uuid()" if "uuid" in key else other
    run(
        url,
        f"INSERT INTO t SELECT n * {step}{other} FROM generate_series(1, 1000) n",
        "ANALYZE",
    )
    batches, end = all_batches(spark, source(), ReadLimit(rows=300))
    assert sorted(chain(*batches)) == [n * step for n in range(1, 1001)]
    assert len(batches) == 4
    assert end == Position.of({"table": "public.t"}, {"round": 1})


def test_rows_that_come_while_a_table_is_read_in_batches_wait_for_the_next_round(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, NUMBERS, "INSERT INTO t SELECT n FROM generate_series(1, 100) n", "ANALYZE")
    task = source()
    first = task.latest(Position(), ReadLimit(rows=60))
    run(url, "INSERT INTO t SELECT n FROM generate_series(101, 200) n")
    batches, _ = all_batches(spark, task, ReadLimit(rows=60), first)
    assert list(chain(*batches)) == list(range(61, 101))


def test_a_table_without_a_key_is_read_in_one_batch(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(
        url,
        "CREATE TABLE t (id int)",
        "INSERT INTO t SELECT generate_series(1, 500)",
        "ANALYZE",
    )
    batches, _ = all_batches(spark, source(), ReadLimit(rows=10))
    assert batches == [list(range(1, 501))]


def test_a_large_table_is_divided_and_read_as_of_one_moment(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(
        url,
        NUMBERS,
        "INSERT INTO t SELECT n, repeat('x', 50) FROM generate_series(1, 250000) n",
        "ANALYZE",
    )
    task = source(split_rows="50000")
    end = task.latest(Position(), ReadLimit())
    [stream] = task.streams(spark, Position(), end)
    assert len(stream.rows.parts) > 1
    run(url, "UPDATE t SET name = 'changed'", "DELETE FROM t WHERE id % 2 = 0")
    rows = [
        row
        for part in stream.rows.parts
        for batch, _ in stream.rows.read(part)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    assert sorted(rows) == [(n, "x" * 50) for n in range(1, 250001)]


def test_incrementing_reads_what_is_new(spark: SparkSession, source: Any, url: str) -> None:
    run(url, NUMBERS, "INSERT INTO t SELECT generate_series(1, 10)")
    task = source(mode="incrementing", incrementing_column_name="id")
    batches, stands = all_batches(spark, task, ReadLimit(rows=4))
    assert batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert stands == Position.of({"table": "public.t"}, {"incrementing": 10})
    run(url, "INSERT INTO t VALUES (5000)")
    assert all_batches(spark, task, ReadLimit(), stands)[0] == [[5000]]


CHANGING = "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz(6) NOT NULL)"


def test_timestamp_and_number_read_new_and_changed_rows_also_of_one_moment(
    spark: SparkSession, source: Any, url: str
) -> None:
    moment = "timestamptz '2026-01-31 12:00:00.000001+00'"
    run(url, CHANGING, f"INSERT INTO t SELECT n, {moment} FROM generate_series(1, 10) n")
    task = source(
        mode="timestamp+incrementing",
        incrementing_column_name="id",
        timestamp_column_name="at",
    )
    batches, stands = all_batches(spark, task, ReadLimit(rows=4))
    assert batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    run(url, f"INSERT INTO t VALUES (11, {moment})")
    run(url, f"UPDATE t SET at = {moment} + interval '1 microsecond' WHERE id = 3")
    batches, stands = all_batches(spark, task, ReadLimit(), stands)
    assert batches == [[3, 11]]


def test_times_within_the_delay_wait(spark: SparkSession, source: Any, url: str) -> None:
    run(url, CHANGING, "INSERT INTO t VALUES (1, now() - interval '1 hour'), (2, now())")
    task = source(
        mode="timestamp", timestamp_column_name="at", timestamp_delay_interval_ms="600000"
    )
    batches, stands = all_batches(spark, task, ReadLimit())
    assert batches == [[1]]
    run(url, "UPDATE t SET at = now() - interval '11 minutes' WHERE id = 2")
    assert all_batches(spark, task, ReadLimit(), stands)[0] == [[2]]


def test_a_start_of_now_is_kept_though_nothing_has_come(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, CHANGING, "INSERT INTO t VALUES (1, now() - interval '1 hour')")
    task = source(mode="timestamp", timestamp_column_name="at", timestamp_initial="-1")
    batches, stands = all_batches(spark, task, ReadLimit())
    assert batches == [[]]
    run(url, "INSERT INTO t VALUES (2, clock_timestamp())")
    assert all_batches(spark, task, ReadLimit(), stands)[0] == [[2]]


def test_what_is_there_at_the_start_of_a_run_is_its_end(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, NUMBERS, "INSERT INTO t SELECT generate_series(1, 10)")
    task = source(mode="incrementing", incrementing_column_name="id")
    until = task.latest(Position(), ReadLimit())
    run(url, "INSERT INTO t VALUES (11)", "CREATE TABLE u (id int)", "INSERT INTO u VALUES (1)")
    batches, stands = all_batches(spark, task, ReadLimit(rows=4, until=until))
    assert list(chain(*batches)) == list(range(1, 11))
    assert stands == until


def test_tables_that_come_and_go_are_noticed_while_running(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(
        url,
        "CREATE TABLE a_1 (id int)",
        "INSERT INTO a_1 VALUES (1)",
        "CREATE TABLE b (id int)",
    )
    task = source(table_include_list="a_*", table_exclude_list="a_3")
    _, stands = all_batches(spark, task, ReadLimit())
    run(url, "CREATE TABLE a_2 (id int)", "INSERT INTO a_2 VALUES (2)", "DROP TABLE a_1")
    run(url, "CREATE TABLE a_3 (id int)")
    end = task.latest(stands, ReadLimit())
    assert rows_of(spark, task, stands, end) == {"a_2": [{"id": 2}]}


def test_a_range_of_a_table_that_is_gone_is_an_error_and_not_empty(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, NUMBERS, "INSERT INTO t VALUES (1)")
    task = source()
    end = task.latest(Position(), ReadLimit())
    run(url, "DROP TABLE t")
    with pytest.raises(RangeChangedError, match=r"public\.t"):
        task.streams(spark, Position(), end)


def test_parents_come_before_their_children(spark: SparkSession, source: Any, url: str) -> None:
    run(
        url,
        "CREATE TABLE z (id int PRIMARY KEY)",
        "CREATE TABLE m (id int PRIMARY KEY, z int REFERENCES z)",
        "CREATE TABLE a (id int PRIMARY KEY, m int REFERENCES m)",
    )
    task = source()
    end = task.latest(Position(), ReadLimit())
    found = [each.stream for each in task.streams(spark, Position(), end)]
    assert found == ["z", "m", "a"]


def test_a_column_that_may_be_null_cannot_tell_what_is_new(source: Any, url: str) -> None:
    run(url, "CREATE TABLE t (id int)")
    task = source(mode="incrementing", incrementing_column_name="id")
    with pytest.raises(ConfigError, match="is nullable"):
        task.latest(Position(), ReadLimit())


def test_rows_are_read_no_faster_than_they_may_be(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, NUMBERS, "INSERT INTO t SELECT generate_series(1, 250000)", "ANALYZE")
    task = source(split_rows="50000", rows_per_second="1000000", connections_max="2")
    [stream] = task.streams(spark, Position(), task.latest(Position(), ReadLimit()))
    assert [part.rate for part in stream.rows.parts] == [500000.0, 500000.0]


def test_rows_of_the_second_that_goes_on_wait_where_times_have_whole_seconds(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz(0) NOT NULL)")
    task = source(mode="timestamp", timestamp_column_name="at")
    stands, found = Position(), list[int]()
    for number in range(1, 30):
        run(url, f"INSERT INTO t VALUES ({number}, date_trunc('second', clock_timestamp()))")
        batches, stands = all_batches(spark, task, ReadLimit(), stands)
        found += chain(*batches)
        time.sleep(0.05)
    time.sleep(1.1)
    found += chain(*all_batches(spark, task, ReadLimit(), stands)[0])
    assert sorted(found) == list(range(1, 30))


def test_a_row_whose_number_is_null_does_not_end_what_is_read(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint)", "INSERT INTO t VALUES (1), (NULL)")
    more = {"incrementing_column_name": "id", "validate_non_null": "false"}
    task = source(mode="incrementing", **more)
    batches, stands = all_batches(spark, task, ReadLimit())
    assert batches == [[1]]
    run(url, "INSERT INTO t VALUES (2)")
    assert all_batches(spark, task, ReadLimit(), stands)[0] == [[2]]


def test_a_position_of_another_mode_is_an_error_and_not_the_beginning(
    source: Any, url: str
) -> None:
    run(url, CHANGING)
    read = Position.of({"table": "public.t"}, {"round": 1})
    task = source(mode="timestamp", timestamp_column_name="at")
    with pytest.raises(StateError, match="mode"):
        task.latest(read, ReadLimit())
    grown = Position.of({"table": "public.t"}, {"incrementing": 1})
    with pytest.raises(StateError, match="mode"):
        source().latest(grown, ReadLimit())


def read_again(task: TablesTask, stands: Position) -> bool:
    return task.latest(stands, ReadLimit()) != stands


def test_a_restart_waits_for_the_rest_of_the_interval_of_rounds(
    spark: SparkSession, source: Any, url: str
) -> None:
    run(url, NUMBERS, "INSERT INTO t SELECT generate_series(1, 10)", "ANALYZE")
    hour_ms = 3_600_000
    task = source(bulk_interval_ms=str(hour_ms))
    stands = Position()
    while (end := task.latest(stands, ReadLimit(rows=4))) != stands:
        stands = end
    assert not read_again(source(bulk_interval_ms=str(hour_ms)), stands)
    ((table, offset),) = stands.items()
    assert abs(offset["at"] / 1000 - time.time()) < 60
    began = time.monotonic()
    due_ms = int(time.time() * 1000) + 3000
    stands = stands.moved(table, {**offset, "at": due_ms - hour_ms})
    restarted = source(bulk_interval_ms=str(hour_ms))
    while not read_again(restarted, stands):
        time.sleep(0.05)
    assert 2.9 < time.monotonic() - began < 60
    assert read_again(source(bulk_interval_ms=str(hour_ms)), stands)
    # The round that this process reads itself counts from when it is done.
    again = restarted.latest(stands, ReadLimit())
    assert ids(rows_of(spark, restarted, stands, again)["t"]) == list(range(1, 11))
    assert not read_again(restarted, again)


@pytest.mark.parametrize("ahead_ms", [17_000, 3_600_000, 10**15])
def test_a_clock_that_was_set_back_does_not_hold_up_rounds(
    source: Any, url: str, ahead_ms: int
) -> None:
    run(url, NUMBERS)
    at = int(time.time() * 1000) + ahead_ms
    stands = Position.of({"table": "public.t"}, {"round": 1, "at": at})
    JdbcSource.alter_offsets(
        JdbcSource.config_def().parse({"connection.url": url}), position=stands
    )
    task, began = source(bulk_interval_ms="20000"), time.monotonic()
    while not read_again(task, stands):
        time.sleep(0.05)
    assert time.monotonic() - began < 20  # 37 where the clock's difference is added


def test_a_run_to_an_end_ends_there_though_tables_are_read_again(source: Any, url: str) -> None:
    run(url, NUMBERS, "INSERT INTO t SELECT generate_series(1, 10)", "ANALYZE")
    task = source(bulk_interval_ms="1")
    until = task.latest(Position(), ReadLimit())
    stands, count = Position(), 0
    while (end := task.latest(stands, ReadLimit(rows=4, until=until))) != stands:
        time.sleep(0.01)
        stands, count = end, count + 1
    assert (stands, count) == (until, 3)


@pytest.mark.parametrize(
    "offset",
    [
        {"incrementing": "1E+400000000"},
        {"incrementing": "1 OR 1=1"},
        {"incrementing": {"a": 1}},
        {"timestamp": ["2026-01-01"]},
        {},
    ],
)
def test_an_offset_that_is_no_place_is_refused(url: str, offset: dict[str, Any]) -> None:
    props = {
        "connection.url": url,
        "mode": "timestamp+incrementing",
        "incrementing.column.name": "id",
        "timestamp.column.name": "at",
    }
    config = JdbcSource.config_def().parse(props)
    with pytest.raises(ConfigError, match="Invalid position"):
        JdbcSource.alter_offsets(config, Position.of({"table": "public.t"}, offset))


def test_a_query_is_one_statement(url: str) -> None:
    run(url, "CREATE TABLE kept (id int)")
    query = "SELECT 1 AS a) q; DROP TABLE kept; COMMIT; SELECT * FROM (SELECT 1 AS a"
    props = {"connection.url": url, "query": query}
    assert list(JdbcSource.check(JdbcSource.config_def().parse(props)))
    run(url, "INSERT INTO kept VALUES (1)")


def test_a_row_that_moves_while_a_table_is_read_at_once_is_there_once(
    spark: SparkSession, url: str
) -> None:
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY, text TEXT)",
        "INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) AS n",
    )
    props = {"connection.url": url, "connections.max": "4", "mode": "bulk"}
    (table,) = JdbcSource.table_rows(JdbcSource.config_def().parse(props)) or ()
    assert table.read_at_once is not None
    rows = table.read_at_once(spark)
    assert isinstance(rows, ArrowParts)
    found = list[int]()
    for part in rows.parts:
        for number, (batch, _) in enumerate(rows.read(part)):
            if number == 0:
                run(url, "UPDATE t SET text = 'moved' WHERE id % 1000 = 0")
            found += batch["id"].to_pylist()
    assert sorted(found) == list(range(1, 20001))
