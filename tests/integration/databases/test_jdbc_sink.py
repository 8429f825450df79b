"""What the sink of any database does in each mode, on H2 and on Derby, which lacks much."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

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
from tests.jdbc_database import JdbcDatabase, drivers_load

from headrace.dataplane.sink_part import refused_of
from headrace.sdk import HeadraceError, RecordError, RetriableError
from headrace.sdk.connector import Verdict
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace.settings import Settings
from headrace_plugins.connectors.jdbc.sink import JdbcSink

pytestmark = pytest.mark.spark


@pytest.fixture(params=["h2", "derby"])
def database(
    request: pytest.FixtureRequest, spark: SparkSession, session_settings: Settings
) -> Iterator[JdbcDatabase]:
    with drivers_load(spark, session_settings):
        yield JdbcDatabase.h2() if request.param == "h2" else JdbcDatabase.derby()


@pytest.fixture
def tasks(database: JdbcDatabase) -> Iterator[Any]:
    keys = {key.replace(".", "_"): text for key, text in database.config.items()}
    del keys["connection_url"]
    with tasks_of(JdbcSink, database.url, **keys) as make:
        yield make


def rows(database: JdbcDatabase, columns: str = '"id", "name"') -> list[tuple[Any, ...]]:
    found = database.rows(f'SELECT {columns} FROM "t"')  # noqa: S608 - a test's own
    return sorted(found, key=str)


def staging_tables(database: JdbcDatabase) -> list[str]:
    return [name for name in database.tables() if name.startswith("headrace_staged_")]


def test_a_doctor_finds_all_that_is_needed(database: JdbcDatabase) -> None:
    findings = list(JdbcSink.examine(JdbcSink.config_def().parse(database.config)))
    assert {each.requirement for each in findings} >= {
        "a JDBC driver",
        "right to create tables",
    }
    assert {each.verdict for each in findings} == {Verdict.OK}
    assert "headrace_doctor" not in database.tables()


def test_rows_are_added_and_nothing_is_left_of_how(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks()
    assert write(task, records(spark, [(1, "a"), (2, None)]), 1) == 2
    write(task, records(spark, [(3, "c")]), 2)
    assert rows(database) == [(1, "a"), (2, None), (3, "c")]
    assert staging_tables(database) == []


def test_the_last_record_of_each_key_counts(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks(insert_mode="upsert", key_fields="id")
    assert write(task, records(spark, [(1, "a"), (2, "b"), (1, "c")]), 1) == 3
    assert write(task, records(spark, [(2, "d"), (3, "e")]), 2) == 2
    assert rows(database) == [(1, "c"), (2, "d"), (3, "e")]


def test_a_key_of_several_columns_and_texts_finds_its_row(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks(insert_mode="upsert", key_fields="name,id", delete_enabled="true")
    ddl = "id BIGINT, name STRING, more DOUBLE"
    write(task, records(spark, [(1, "a", 0.5), (1, "b", 1.5)], ddl), 1)
    write(task, records(spark, [(1, "a", 2.5)], ddl), 2)
    assert rows(database, '"id", "name", "more"') == [(1, "a", 2.5), (1, "b", 1.5)]


def test_a_tombstone_deletes_the_row_of_its_key(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks(insert_mode="upsert", delete_enabled="true")
    values = [(1, "a"), (2, "b"), None, None, (2, "c"), (3, "d")]
    write(task, records(spark, values, keys=[1, 2, 1, 2, 2, 3]), 1)
    write(task, records(spark, [None], keys=[3]), 2)
    assert rows(database) == [(2, "c")]


def test_a_soft_deletion_marks_the_row_and_its_return_unmarks_it(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks(insert_mode="upsert", delete_enabled="true", delete_mode="soft")
    columns = '"id", "name", "deleted"'
    write(task, records(spark, [(1, "a"), (2, "b")], keys=[1, 2]), 1)
    write(task, records(spark, [None], keys=[1]), 2)
    assert rows(database, columns) == [(1, "a", True), (2, "b", False)]
    write(task, records(spark, [(1, "c")], keys=[1]), 3)
    assert rows(database, columns) == [(1, "c", False), (2, "b", False)]


def test_an_update_adds_no_row_and_finds_columns_in_capitals(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    database.run(
        "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(9), own INTEGER)",
        "INSERT INTO t VALUES (1, 'a', 7)",
    )
    task = tasks(insert_mode="update", key_fields="id")
    write(task, records(spark, [(1, "b"), (2, "c")]), 1)
    assert database.rows("SELECT id, name, own FROM t") == [(1, "b", 7)]
    assert "t" not in database.tables()


def test_a_replacement_leaves_only_its_own_rows(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks(insert_mode="replace")
    write(task, records(spark, [(1, "a"), (2, "b")]), 1)
    write(task, records(spark, [(3, "c")]), 2)
    assert rows(database) == [(3, "c")]
    write(task, records(spark, [(4, "d")]), 3, continues=True)
    assert rows(database) == [(3, "c"), (4, "d")]


def test_versions_of_a_row_are_kept_with_their_times(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    database.run(
        'CREATE TABLE "t" ("id" BIGINT NOT NULL, "name" BIGINT, "valid_from" TIMESTAMP, '
        '"valid_to" TIMESTAMP, "is_current" BOOLEAN)'
    )
    task = tasks(insert_mode="scd2", delete_enabled="true")
    ddl = "id BIGINT, name BIGINT"  # Derby compares no CLOBs
    write(task, records(spark, [(1, 5), (2, 6)], ddl, keys=[1, 2]), 1)
    write(task, records(spark, [(1, 7), (2, 6)], ddl, keys=[1, 2]), 2)
    write(task, records(spark, [None], ddl, keys=[2]), 3)
    found = rows(database, '"id", "name", "is_current"')
    assert found == [(1, 5, False), (1, 7, True), (2, 6, False)]
    gaps = (
        'SELECT count(*) FROM "t" a JOIN "t" b ON a."id" = b."id" '
        'WHERE b."valid_from" = a."valid_to"'
    )
    assert database.rows(gaps) == [(1,)]


def test_changes_are_applied_with_keys_that_change_and_truncations(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks(insert_mode="upsert", key_fields="id")
    assert write(task, records(spark, CHANGES, CHANGE), 1) == 6
    assert rows(database) == [(4, "x"), (5, "e")]
    write(task, records(spark, TRUNCATION, CHANGE), 2)
    assert rows(database) == [(7, "g")]


def test_a_field_that_is_new_becomes_a_column(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks()
    write(task, records(spark, [(1, "a")]), 1)
    write(task, records(spark, [(2, "b", 0.5)], "id BIGINT, name STRING, more DOUBLE"), 2)
    assert rows(database, '"id", "name", "more"') == [(1, "a", None), (2, "b", 0.5)]


def test_a_decimal_grows_by_the_digits_that_come_or_refuses_what_it_would_lose(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task, ddl = tasks(), "id BIGINT, name DECIMAL({})"
    write(task, records(spark, [(1, Decimal("1.50"))], ddl.format("10,2")), 1)
    frame = records(spark, [(2, Decimal("2.3456"))], ddl.format("12,4"))
    ignored = EvolutionPolicy(Handling.IGNORE)
    with pytest.raises(RecordError, match="more digits than the column"):
        write(task, frame, 2, evolution=ignored)
    if "derby" in database.url:  # which changes the lengths of texts only
        with pytest.raises(HeadraceError, match=r"ALTER|Syntax|syntax"):
            write(task, frame, 2)
        fits = records(spark, [(2, Decimal("2.3400"))], ddl.format("12,4"))
        write(task, fits, 2, evolution=ignored)
        assert rows(database) == [(1, Decimal("1.50")), (2, Decimal("2.34"))]
    else:
        write(task, frame, 2)
        assert rows(database) == [(1, Decimal("1.5000")), (2, Decimal("2.3456"))]


def test_records_that_types_and_constraints_refuse_are_found_one_by_one(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    database.run(
        'CREATE TABLE "t" ("id" BIGINT NOT NULL PRIMARY KEY, '
        '"name" VARCHAR(3) NOT NULL CHECK ("name" <> \'no\'))',
        "INSERT INTO \"t\" VALUES (7, 'old')",
    )
    values: list[Any] = [(n, "ok") for n in range(100)]
    values[7] = (7, "dup")
    values[10] = (10, "long one")
    values[20] = (20, "no")
    values[30] = (30, None)
    frame = records(spark, values, ids=True)
    task = tasks()
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    refused = {each.record: each.message for each in refused_of(staged)}
    assert sorted(refused) == [7, 10, 20, 30]
    staged.commit(batch.mark.receipt({}))
    assert staged.rows == 96
    assert len(rows(database)) == 97


def test_of_equal_records_as_many_are_refused_as_do_not_fit(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    database.run('CREATE TABLE "t" ("id" BIGINT NOT NULL PRIMARY KEY, "name" VARCHAR(3))')
    values = [(1, "a"), (1, "a"), (1, "a"), (2, "too long"), (2, "too long"), (3, "c")]
    frame = records(spark, values, ids=True).drop("record_id")
    frame = frame.selectExpr("*", "value.id AS record_id")  # equal records share it
    task = tasks()
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    assert sorted(each.record for each in refused_of(staged)) == [1, 1, 2, 2]
    staged.commit(batch.mark.receipt({}))
    assert staged.rows == 2
    assert rows(database) == [(1, "a"), (3, "c")]


def test_rows_that_were_there_are_dropped_once_also_in_a_table_in_capitals(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    database.run(
        "CREATE TABLE t (id BIGINT, name VARCHAR(9))", "INSERT INTO t VALUES (1, 'old')"
    )
    task = tasks(data_save_mode="drop")
    write(task, records(spark, [(2, "new")]), 1)
    write(task, records(spark, [(3, "more")]), 2)
    assert sorted(database.rows("SELECT id FROM t")) == [(2,), (3,)]


def test_a_record_that_is_refused_leaves_nothing_where_none_is_tolerated(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    database.run(
        'CREATE TABLE "t" ("id" BIGINT NOT NULL PRIMARY KEY, "name" VARCHAR(3))',
        "INSERT INTO \"t\" VALUES (1, 'old')",
    )
    with pytest.raises(RecordError):
        write(tasks(), records(spark, [(2, "b"), (1, "a")]), 1)
    with pytest.raises(RecordError):
        write(tasks(), records(spark, [(2, "too long")]), 2)
    assert rows(database) == [(1, "old")]
    assert staging_tables(database) == []


def test_rows_that_a_task_adds_twice_are_not_taken(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks()
    frame = records(spark, [(1, "a"), (2, "b")])
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    [staging] = staging_tables(database)
    # As a run of a Spark task does that was given up, and ends late.
    database.run(f'INSERT INTO "{staging}" SELECT * FROM "{staging}" WHERE "id" = 1')  # noqa: S608
    with pytest.raises(RetriableError, match="The staging table has 3 rows, but 2"):
        staged.commit(batch.mark.receipt({}))
    write(task, frame, 1, epoch=2)
    assert rows(database) == [(1, "a"), (2, "b")]
    assert staging_tables(database) == []


def test_what_the_target_comes_to_refuse_before_the_commit_is_judged_again(
    spark: SparkSession, tasks: Any, database: JdbcDatabase
) -> None:
    task = tasks()
    database.run('CREATE TABLE "t" ("id" BIGINT NOT NULL PRIMARY KEY, "name" VARCHAR(3))')
    frame = records(spark, [(1, "a"), (2, "b")], ids=True)
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    assert not refused_of(staged)
    database.run("INSERT INTO \"t\" VALUES (1, 'x')")
    with pytest.raises(RetriableError, match="other rows"):
        staged.commit(batch.mark.receipt({}))
    assert rows(database) == [(1, "x")]
