"""What the sink of PostgreSQL does in each mode, and with what its tables refuse."""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.integration.databases.table_writing import (
    CHANGE,
    CHANGES,
    TRUNCATION,
    batch_of,
    records,
    tasks_of,
    write,
)
from tests.postgresql_server import PostgresqlServer
from tests.waiting import until

from headrace.dataplane.sink_part import refused_of
from headrace.sdk import ConfigError, Mark, RecordError, RetriableError, Schema
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace_plugins.connectors.postgres.sink import PostgresSink

pytestmark = pytest.mark.spark


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database() as made:
        yield made


@pytest.fixture
def tasks(url: str) -> Iterator[Any]:
    with tasks_of(PostgresSink, url) as make:
        yield make


def rows(url: str, columns: str = "*", order: str = "id") -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as database:
        query = f"SELECT {columns} FROM t ORDER BY {order}"  # noqa: S608 - a test's own
        return database.execute(query).fetchall()


def run(url: str, sql: str) -> None:
    with psycopg.connect(url) as database:
        database.execute(sql)


def test_a_new_table_has_the_key_of_an_upsert(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    write(tasks(insert_mode="upsert", key_fields="id"), records(spark, [(1, "a")]), 1)
    run(url, "INSERT INTO t VALUES (2, 'b')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(url, "INSERT INTO t VALUES (1, 'c')")


def test_the_last_record_of_each_key_counts(spark: SparkSession, tasks: Any, url: str) -> None:
    task = tasks(insert_mode="upsert", key_fields="id")
    assert write(task, records(spark, [(1, "a"), (2, "b"), (1, "c")]), 1) == 3
    assert write(task, records(spark, [(2, "d"), (3, "e")]), 2) == 2
    assert rows(url) == [(1, "c"), (2, "d"), (3, "e")]


@pytest.mark.parametrize("keyed", [True, False], ids=["a unique key", "no key"])
def test_an_upsert_leaves_columns_alone_that_records_lack(
    spark: SparkSession, tasks: Any, url: str, *, keyed: bool
) -> None:
    run(url, "CREATE TABLE t (id bigint, name text, own int)")
    if keyed:
        run(url, "ALTER TABLE t ADD PRIMARY KEY (id)")
    run(url, "INSERT INTO t VALUES (1, 'a', 7), (2, 'b', 8)")
    task = tasks(insert_mode="upsert", key_fields="id")
    write(task, records(spark, [(2, "c"), (3, "d")]), 1)
    assert rows(url) == [(1, "a", 7), (2, "c", 8), (3, "d", None)]


def test_a_tombstone_deletes_the_row_of_its_key(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    task = tasks(insert_mode="upsert", delete_enabled="true")
    values = [(1, "a"), (2, "b"), None, None, (2, "c")]
    write(task, records(spark, values, keys=[1, 2, 1, 2, 2]), 1)
    assert rows(url) == [(2, "c")]


def test_a_soft_deletion_marks_the_row_and_its_return_unmarks_it(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    task = tasks(insert_mode="upsert", delete_enabled="true", delete_mode="soft")
    write(task, records(spark, [(1, "a"), (2, "b")], keys=[1, 2]), 1)
    write(task, records(spark, [None], keys=[1]), 2)
    assert rows(url) == [(1, "a", True), (2, "b", False)]
    write(task, records(spark, [(1, "c")], keys=[1]), 3)
    assert rows(url) == [(1, "c", False), (2, "b", False)]


def test_an_update_adds_no_row(spark: SparkSession, tasks: Any, url: str) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    run(url, "INSERT INTO t VALUES (1, 'a')")
    write(tasks(insert_mode="update"), records(spark, [(1, "b"), (2, "c")]), 1)
    assert rows(url) == [(1, "b")]


def test_a_replacement_leaves_only_its_own_rows(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    task = tasks(insert_mode="replace")
    write(task, records(spark, [(1, "a"), (2, "b")]), 1)
    write(task, records(spark, [(3, "c")]), 2)
    assert rows(url) == [(3, "c")]
    write(task, records(spark, [(4, "d")]), 3, continues=True)
    assert rows(url) == [(3, "c"), (4, "d")]


def test_versions_of_a_row_are_kept_with_their_times(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    task = tasks(insert_mode="scd2", delete_enabled="true")
    write(task, records(spark, [(1, "a"), (2, "b")], keys=[1, 2]), 1)
    write(task, records(spark, [(1, "c"), (2, "b")], keys=[1, 2]), 2)
    write(task, records(spark, [None], keys=[2]), 3)
    found = rows(url, "id, name, valid_to IS NULL, is_current", "id, valid_from")
    assert found == [(1, "a", False, False), (1, "c", True, True), (2, "b", False, False)]
    gaps = "SELECT count(*) FROM t a JOIN t b USING (id) WHERE b.valid_from = a.valid_to"
    with psycopg.connect(url) as database:
        assert database.execute(gaps).fetchone() == (1,)


def test_changes_are_applied_with_keys_that_change_and_truncations(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    task = tasks(insert_mode="upsert", key_fields="id")
    assert write(task, records(spark, CHANGES, CHANGE), 1) == 6
    assert rows(url) == [(4, "x"), (5, "e")]
    write(task, records(spark, TRUNCATION, CHANGE), 2)
    assert rows(url) == [(7, "g")]


def test_changes_go_into_a_table_with_a_generated_column(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    made = "text GENERATED ALWAYS AS ('x' || id) STORED"
    run(url, f"CREATE TABLE t (id bigint PRIMARY KEY, name {made})")
    write(tasks(insert_mode="upsert"), records(spark, [*CHANGES, *TRUNCATION], CHANGE), 1)
    assert rows(url) == [(7, "x7")]


@pytest.mark.parametrize("mode", ["insert", "replace"])
def test_changes_are_refused_in_a_mode_that_does_not_apply_them(
    spark: SparkSession, tasks: Any, mode: str
) -> None:
    with pytest.raises(ConfigError, match=r"changes.*insert\.mode=upsert.*Unwrap") as error:
        write(tasks(insert_mode=mode, key_fields="id"), records(spark, CHANGES, CHANGE), 1)
    assert error.value.field == "insert.mode"


def test_a_field_that_is_new_becomes_a_column(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    task = tasks()
    write(task, records(spark, [(1, "a")]), 1)
    write(task, records(spark, [(2, "b", 0.5)], "id BIGINT, name STRING, more DOUBLE"), 2)
    assert rows(url) == [(1, "a", None), (2, "b", 0.5)]


def test_a_column_of_numbers_is_widened(spark: SparkSession, tasks: Any, url: str) -> None:
    task = tasks()
    write(task, records(spark, [(1, "a")], "id INT, name STRING"), 1)
    write(task, records(spark, [(2**40, "b")]), 2)
    assert rows(url) == [(1, "a"), (2**40, "b")]


PRICE = "id BIGINT, price DECIMAL({})"
STATED = "headrace.column.type"


@pytest.mark.parametrize("handling", [Handling.EVOLVE, Handling.LENIENT])
@pytest.mark.parametrize(
    "digits",
    [
        ("10,2", "12,4", "12,4"),
        ("10,2", "14,2", "14,2"),
        ("10,2", "6,4", "12,4"),
        ("10,4", "12,2", "14,4"),
        ("10,2", "9,1", "10,2"),
        ("10,2", "38,2", "10,2"),
        ("10,2", "38,4", "12,4"),
    ],
)
def test_a_decimal_grows_by_the_digits_that_come(
    spark: SparkSession, tasks: Any, url: str, digits: Sequence[str], handling: Handling
) -> None:
    there, comes, becomes = digits
    task, policy = tasks(insert_mode="upsert", key_fields="id"), EvolutionPolicy(handling)
    write(task, records(spark, [(1, Decimal("1.5"))], PRICE.format(there)), 1)
    frame = records(spark, [(2, Decimal("2.3456"))], PRICE.format(comes))
    write(task, frame, 2, evolution=policy)
    expected = Decimal("2.3456").quantize(Decimal(1).scaleb(-int(comes[-1])))
    assert rows(url) == [(1, Decimal("1.5")), (2, expected)]
    assert type_of(url, "price") == f"numeric({becomes})"


def test_a_decimal_is_widened_by_changes(spark: SparkSession, tasks: Any, url: str) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, price numeric(10,2))")
    row = PRICE.format("12,4").replace(" ", ": ", 1).replace("price ", "price: ")
    ddl = f"before STRUCT<{row}>, after STRUCT<{row}>, op STRING"
    frame = records(spark, [(None, (1, Decimal("2.3456")), "c")], ddl)
    write(tasks(insert_mode="upsert", key_fields="id"), frame, 1)
    assert rows(url) == [(1, Decimal("2.3456"))]


def test_a_column_that_a_view_has_keeps_its_type_and_refuses_what_it_would_lose(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, price numeric(10,2))")
    run(url, "CREATE VIEW v AS SELECT price FROM t")
    task = tasks()
    for number, digits in enumerate(("38,2", "12,4", "12,4"), 1):
        frame = records(spark, [(number, Decimal("1.25"))], PRICE.format(digits))
        assert write(task, frame, number) == 1
    frame = records(spark, [(9, Decimal("2.3456"))], PRICE.format("12,4"))
    with pytest.raises(RecordError, match="more digits than the column price"):
        write(task, frame, 4)
    frame = records(spark, [(4, Decimal("1.25"), "x")], f"{PRICE.format('12,4')}, more STRING")
    assert write(task, frame, 5) == 1
    assert rows(url, "id, more") == [(1, None), (2, None), (3, None), (4, "x")]
    assert type_of(url, "price") == "numeric(10,2)"


@pytest.mark.parametrize(
    "case",
    [
        ("numeric(10,2)", "DECIMAL(12,4)", Decimal("2.3400"), Decimal("2.3456")),
        ("numeric(50,2)", "DECIMAL(12,4)", Decimal("2.3400"), Decimal("2.3456")),
        ("numeric(5,-2)", "DECIMAL(12,0)", Decimal(1200), Decimal(1234)),
        ("numeric(10,1)", "DECIMAL(38,2)", Decimal("1.20"), Decimal("1.25")),
        ("numeric(11,-1)", "DECIMAL(38,0)", Decimal(120), Decimal(125)),
        ("numeric(11,-1)", "INT", 2_147_483_640, 2_147_483_647),
        ("numeric(10,2)", "DOUBLE", 0.25, 0.255),
        ("numeric(10,2)", "STRING", "-2.340", "-2.345"),
        ("money", "DECIMAL(12,4)", Decimal("2.3400"), Decimal("2.3456")),
        ("interval(0)", "STRING", "1 day 00:00:01.0", "1 day 00:00:01.5"),
        ("interval day to second(2)", "STRING", "00:00:01.25", "PT1.255S"),
        (
            "timestamp(3)",
            "TIMESTAMP_NTZ",
            datetime.fromisoformat("2026-01-01T01:01:01.005"),
            datetime.fromisoformat("2026-01-01T01:01:01.0056"),
        ),
        (
            "timestamptz(0)",
            "TIMESTAMP",
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
    ],
)
@pytest.mark.parametrize("contract", ["row", "change"])
def test_a_value_that_would_lose_digits_is_refused_by_itself(
    spark: SparkSession, tasks: Any, url: str, case: Sequence[Any], contract: str
) -> None:
    column, type_, good, bad = case
    run(url, f"CREATE TABLE t (id bigint PRIMARY KEY, x {column})")
    values: list[Any] = [(1, good), (2, bad), (3, None)]
    ddl = f"id BIGINT, x {type_}"
    if contract == "change":
        values = [(None, each, "c") for each in values]
        ddl = f"before STRUCT<id: BIGINT, x: {type_}>, after STRUCT<id: BIGINT, x: {type_}>"
        ddl += ", op STRING"
    task = tasks(insert_mode="upsert", key_fields="id")
    frame, policy = records(spark, values, ddl, ids=True), EvolutionPolicy(Handling.IGNORE)
    batch = batch_of(frame, 1, evolution=policy)
    with pytest.raises(
        RecordError, match=f"more digits than the column x of type {column[:7]}"
    ):
        task.write(frame, batch)
    assert rows(url) == []
    refusal = task.refusals(frame, batch)[0]
    kept = frame.filter(f"NOT {refusal.condition}")
    assert frame.filter(refusal.condition).selectExpr("record_id").collect() == [(1,)]
    assert write(task, kept, 1, evolution=policy) == 2
    assert rows(url, "id") == [(1,), (3,)]


def test_few_rows_that_would_lose_digits_are_left_to_the_write_that_refuses_them(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, price numeric(10,2))")
    task = tasks(insert_mode="upsert", delete_enabled="true")
    for type_, is_taken in (("10,2", True), ("12,4", False)):
        frame = records(spark, [(1, Decimal("2.3456"))], PRICE.format(type_), keys=[1])
        policy = EvolutionPolicy(Handling.IGNORE)
        batch = batch_of(frame, 1, evolution=policy)
        found = task.keyed_write(spark, batch)
        assert (found is not None) == is_taken
        if found is not None:
            found.abort()


def test_a_time_grows_by_the_digits_that_the_sources_column_has(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint, at timestamp(3), day time(0))")
    kinds = {"at": "timestamp without time zone", "day": "time(6) without time zone"}
    members = {
        "id": Schema.int64(),
        "at": Schema.local_timestamp(),
        "day": Schema.time(),
    }
    for name, kind in kinds.items():
        parameters = {**members[name].parameters, STATED: f"postgresql {kind}"}
        members[name] = members[name].replaced(parameters=parameters)
    at = datetime.fromisoformat("2026-01-01T01:01:01.123456")
    frame = records(spark, [(1, at, 1)], "id BIGINT, at TIMESTAMP_NTZ, day BIGINT")
    batch = replace(batch_of(frame, 1), schema=Schema.struct(members))
    tasks().write(frame, batch).commit(batch.mark.receipt({}))
    assert rows(url) == [(1, at, time_of_day(0, 0, 0, 1))]


def type_of(url: str, column: str) -> str:
    query = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = %s"
    with psycopg.connect(url) as database:
        found = database.execute(f"{query} AND attrelid = 't'::regclass", [column]).fetchone()
    assert found is not None
    return str(found[0])


def test_records_that_types_and_constraints_refuse_are_found_one_by_one(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(
        url,
        "CREATE TABLE t (id bigint PRIMARY KEY, name varchar(3) NOT NULL CHECK (name <> 'no'))",
    )
    run(url, "INSERT INTO t VALUES (7, 'old')")
    values: list[Any] = [(n, "ok") for n in range(1000)]
    values[7] = (7, "dup")
    values[100] = (100, "long one")
    values[200] = (200, "no")
    values[300] = (300, None)
    values[400] = (400, "a\0b")
    frame = records(spark, values, ids=True)
    task = tasks()
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    refused = {each.record: each.message for each in refused_of(staged)}
    assert sorted(refused) == [7, 100, 200, 300, 400]
    assert "already exists" in refused[7]
    assert "varying(3)" in refused[100]
    staged.commit(batch.mark.receipt({}))
    assert staged.rows == 995
    assert len(rows(url)) == 996


def test_a_record_that_is_refused_leaves_nothing_where_none_is_tolerated(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    run(url, "INSERT INTO t VALUES (1, 'old')")
    with pytest.raises(RecordError, match="already exists"):
        write(tasks(), records(spark, [(2, "b"), (1, "a")]), 1)
    assert rows(url) == [(1, "old")]
    assert staging_tables(url) == []


def staging_tables(url: str) -> list[str]:
    with psycopg.connect(url) as database:
        found = database.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_staged\\_%'"
        )
        return [name for (name,) in found]


def test_nothing_is_left_of_an_attempt_that_died(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    frame = records(spark, [(1, "a")])
    died = tasks()
    staged = died.write(frame, batch_of(frame, 1, epoch=1))
    assert rows_of_nothing(url)
    write(tasks(), frame, 1, epoch=2)
    assert rows(url) == [(1, "a")]
    assert staging_tables(url) == []
    del staged


def rows_of_nothing(url: str) -> bool:
    with psycopg.connect(url) as database:
        return database.execute("SELECT to_regclass('t')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("texts", "key"),
    [
        ({"insert_mode": "upsert"}, "key.fields"),
        ({"insert_mode": "upsert", "key_fields": "number"}, "key.fields"),
        ({"schema_save_mode": "error_when_not_exist"}, "schema.save.mode"),
    ],
)
def test_what_cannot_be_written_is_an_error_that_names_its_key(
    spark: SparkSession, tasks: Any, texts: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as error:
        write(
            tasks(**{k.replace(".", "_"): v for k, v in texts.items()}),
            records(spark, [(1, "a")]),
            1,
        )
    assert error.value.field == key


def test_rows_that_were_there_are_kept_dropped_or_refused_by_the_save_mode(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint, name text)")
    run(url, "INSERT INTO t VALUES (1, 'old')")
    frame = records(spark, [(2, "new")])
    with pytest.raises(ConfigError, match="already has rows"):
        write(tasks(data_save_mode="error_when_exists"), frame, 1)
    task = tasks(data_save_mode="drop")
    write(task, frame, 1)
    assert rows(url) == [(2, "new")]
    write(task, records(spark, [(3, "more")]), 2)
    assert rows(url) == [(2, "new"), (3, "more")]


def test_rules_send_a_stream_to_several_tables_renamed_and_filtered(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    rules = [
        {"from": "t", "to": "t", "columns": {"rename": {"name": "title"}}},
        {
            "from": "t",
            "to": "others",
            "where": "id > 1",
            "columns": {"add": {"twice": "id * 2"}},
        },
    ]
    task = tasks(insert_mode="upsert", key_fields="id", table_mapping=json.dumps(rules))
    write(task, records(spark, [(1, "a"), (2, "b")]), 1)
    write(task, records(spark, [(2, "c")]), 2)
    assert rows(url, "id, title") == [(1, "a"), (2, "c")]
    with psycopg.connect(url) as database:
        assert database.execute("SELECT * FROM others").fetchall() == [(2, "c", 4)]
    batch = batch_of(records(spark, [(2, "c")]), 2)
    assert task.committed(batch.mark, "t") is not None


def test_two_rules_that_write_one_tables_name_differently_are_refused(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint, name text)")
    rules = [{"from": "t", "to": "public.t"}, {"from": "t", "to": "t"}]
    task, frame = tasks(table_mapping=json.dumps(rules)), records(spark, [(1, "a")])
    with pytest.raises(ConfigError, match="two rules map t to it") as refused:
        write(task, frame, 1)
    assert refused.value.field == "table.mapping"
    assert rows(url) == []


def test_a_batch_whose_commit_lost_its_connection_is_written_by_the_next_try(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint, name text)")
    task, frame = tasks(), records(spark, [(1, "a"), (2, "b")])
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    run(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in%'",
    )
    with pytest.raises(RetriableError):
        staged.commit(batch.mark.receipt({}))
    assert rows(url) == []
    assert task.committed(batch.mark, "t") is None
    assert write(task, frame, 1) == 2
    assert rows(url) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("table", [True, False], ids=["merged", "published"])
def test_a_batch_whose_commit_is_not_answered_is_there_once(
    spark: SparkSession, tasks: Any, url: str, postgresql: PostgresqlServer, *, table: bool
) -> None:
    if table:
        run(url, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    task, frame = tasks(), records(spark, [(1, "a"), (2, "b")])
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    # A commit is done on the server, which waits to tell of it for a replica that is not there.
    with ThreadPoolExecutor(1) as thread, unanswered(postgresql):
        done = thread.submit(staged.commit, batch.mark.receipt({}))
        pid = waiting(url)
        run(url, f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(RetriableError):
            done.result()
    assert task.committed(batch.mark, "t") == batch.mark.receipt({})
    assert rows(url) == [(1, "a"), (2, "b")]
    assert staging_tables(url) == []
    write(task, records(spark, [(3, "c")]), 2)
    assert rows(url) == [(1, "a"), (2, "b"), (3, "c")]


@contextmanager
def unanswered(server: PostgresqlServer) -> Iterator[None]:
    """Let no commit that writes be answered."""
    setting = "ALTER SYSTEM SET synchronous_standby_names"
    server.execute(f"{setting} = 'nobody'")
    server.execute("SELECT pg_reload_conf()")
    until(lambda: server._shown("synchronous_standby_names") == "nobody")
    server.execute("CHECKPOINT")  # the process that does it lets commits wait, once it knows
    try:
        yield
    finally:
        server.execute(f"{setting} = DEFAULT")
        server.execute("SELECT pg_reload_conf()")


def waiting(url: str) -> int:
    """Return the process of the server whose commit is done and not answered."""
    query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    by = time.monotonic() + 20
    with psycopg.connect(url, autocommit=True) as database:
        while (found := database.execute(query).fetchone()) is None:
            assert time.monotonic() < by, "nothing waits"
            time.sleep(0.05)
    return int(found[0])


def test_an_attempt_beside_one_that_commits_refuses_none_of_its_rows(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    frame = records(spark, [(1, "a")], ids=True)
    first = batch_of(frame, 1)
    write(tasks(), frame, 1)
    with pytest.raises(RetriableError, match="just committed"):
        tasks().write(frame, first)
    assert rows(url) == [(1, "a")]
    assert staging_tables(url) == []


def test_rows_that_another_task_of_the_connector_has_written_are_not_dropped(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(
        url,
        "CREATE TABLE t (id bigint, name text)",
    )
    run(url, "INSERT INTO t VALUES (1, 'old')")
    write(tasks(data_save_mode="drop"), records(spark, [(2, "a")]), 1)
    frame = records(spark, [(3, "b")])
    other = replace(batch_of(frame, 1), mark=Mark("copy/1", 1, 1))
    staged = tasks(data_save_mode="drop").write(frame, other)
    staged.commit(other.mark.receipt({}))
    assert rows(url) == [(2, "a"), (3, "b")]


def test_of_records_that_are_equal_one_is_written_and_each_other_refused(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    frame = records(spark, [(1, "a"), (1, "a"), (2, "b")], ids=True)
    frame = frame.withColumn("record_id", frame["value.id"])
    batch = batch_of(frame, 1)
    staged = tasks().write(frame, batch)
    assert [each.record for each in refused_of(staged)] == [1]
    staged.commit(batch.mark.receipt({}))
    assert staged.rows == 2
    assert rows(url) == [(1, "a"), (2, "b")]


def test_records_are_never_written_to_the_marks(spark: SparkSession, tasks: Any) -> None:
    task, frame = tasks(table_name_format="HEADRACE_MARKS"), records(spark, [(1, "a")])
    with pytest.raises(ConfigError, match="reserved for the sink's own tables"):
        write(task, frame, 1)
