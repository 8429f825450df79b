"""What the sink of MySQL and MariaDB refuses, makes and leaves, on a real MariaDB."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from tests.integration.databases.mysql_tables import run
from tests.integration.databases.table_writing import batch_of, records, tasks_of, write
from tests.mariadb_server import MariadbServer, connect

from headrace.sdk import ConfigError, RecordError, RetriableError, Schema, SinkError
from headrace.sdk.connector import Verdict
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.databases import merging

pytestmark = pytest.mark.spark


@pytest.fixture
def url(mariadb: MariadbServer) -> Iterator[str]:
    with mariadb.database() as made:
        yield made


@pytest.fixture
def tasks(url: str) -> Iterator[Any]:
    with tasks_of(MysqlSink, url) as make:
        yield make


@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
def test_a_table_without_transactions_is_refused_and_can_be_altered(
    spark: SparkSession, tasks: Any, url: str, engine: str
) -> None:
    run(url, f"CREATE TABLE t (id bigint, name text) ENGINE={engine}")
    task, frame = tasks(), records(spark, [(1, "a")])
    with pytest.raises(ConfigError, match=engine) as error:
        write(task, frame, 1)
    assert error.value.fix is not None
    run(url, error.value.fix)
    assert write(task, frame, 1) == 1
    assert run(url, "SELECT id, name FROM t") == [(1, "a")]


def test_doctor_names_tables_without_transactions(url: str) -> None:
    run(
        url,
        "CREATE TABLE t (id bigint) ENGINE=MyISAM",
        "CREATE TABLE other (id bigint) ENGINE=Aria",
        "CREATE TABLE sound (id bigint) ENGINE=InnoDB",
    )
    props = {"connection.url": url, "table.name.format": "t"}
    config = MysqlSink.config_def().parse(props)
    found = [f for f in MysqlSink.examine(config) if f.requirement.endswith("transactions")]
    assert [each.verdict for each in found] == [Verdict.WARNING, Verdict.FAILED]
    assert [each.fix.rpartition(".")[2] for each in found] == [
        "`other` ENGINE=InnoDB;",
        "`t` ENGINE=InnoDB;",
    ]


@pytest.mark.parametrize("mode", ["insert", "scd2"])
def test_tables_are_made_with_transactions_whatever_the_default_engine(
    spark: SparkSession, tasks: Any, url: str, mariadb: MariadbServer, mode: str
) -> None:
    mariadb.execute("SET GLOBAL default_storage_engine = MyISAM")
    try:
        write(tasks(insert_mode=mode, key_fields="id"), records(spark, [(1, "a")]), 1)
    finally:
        mariadb.execute("SET GLOBAL default_storage_engine = InnoDB")
    engines = run(
        url,
        "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = database()",
    )
    assert engines == [("InnoDB",)]


@pytest.mark.parametrize("table", [True, False], ids=["merged", "published"])
def test_a_batch_whose_connection_is_killed_in_its_commit_is_there_once(
    spark: SparkSession, tasks: Any, url: str, *, table: bool
) -> None:
    if table:
        run(url, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    task, frame = tasks(), records(spark, [(1, "a"), (2, "b")])
    batch = batch_of(frame, 1)
    staged = task.write(frame, batch)
    with ThreadPoolExecutor(1) as thread, closing(connect(url)) as other:
        locks = other.cursor()
        locks.execute("FLUSH TABLES WITH READ LOCK")
        done = thread.submit(staged.commit, batch.mark.receipt({}))
        by = time.monotonic() + 20
        while not locks.execute(
            "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for%'"
        ):
            assert time.monotonic() < by, "nothing waits"
            time.sleep(0.05)
        [pid] = locks.fetchone() or []
        locks.execute(f"KILL {pid}")
        locks.execute("UNLOCK TABLES")
        with pytest.raises(RetriableError):
            done.result()
    if task.committed(batch.mark, "t") is None:
        write(task, frame, 1)
    assert run(url, "SELECT id, name FROM t ORDER BY id") == [(1, "a"), (2, "b")]
    assert run(url, "SHOW TABLES LIKE 'headrace_staged_%'") == []


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_a_first_batch_that_was_not_renamed_is_there_once_whoever_finishes_it(
    spark: SparkSession, tasks: Any, url: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    make = partial(tasks, insert_mode=mode, key_fields="id")
    frame = records(spark, [(1, "a"), (2, "b")])
    batch = batch_of(frame, 1)
    with monkeypatch.context() as dying, suppress(RetriableError):
        dying.setattr(merging, "publish", Mock(side_effect=RetriableError("killed")))
        make().write(frame, batch).commit(batch.mark.receipt({}))
    assert run(url, "SHOW TABLES LIKE 't'") == []
    # Another task has made the table since, with a row of a key of the batch.
    key = " PRIMARY KEY" if mode == "upsert" else ""
    run(url, f"CREATE TABLE t (id bigint{key}, name text)", "INSERT INTO t VALUES (2, 'old')")
    with ThreadPoolExecutor(2) as threads, closing(connect(url)) as other:
        # Both have come to the mark before one of them may go on.
        other.begin()
        other.cursor().execute("SELECT * FROM headrace_marks FOR UPDATE")
        found = [threads.submit(make().committed, batch.mark, "t") for _ in range(2)]
        waiting = (
            "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE%'"
        )
        by = time.monotonic() + 20
        while run(url, waiting) != [(2,)]:
            assert time.monotonic() < by, "nobody waits"
            time.sleep(0.05)
        other.rollback()
        assert None not in [each.result() for each in found]
    old = [(2, "old")] if mode == "insert" else []
    rows = run(url, "SELECT id, name FROM t ORDER BY id, name")
    assert rows == [(1, "a"), (2, "b"), *old]


def test_a_first_batch_that_was_not_renamed_is_not_rounded_into_another_table(
    spark: SparkSession, tasks: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = records(spark, [(1, Decimal("1.55"))], "id BIGINT, v DECIMAL(10,2)")
    batch = batch_of(frame, 1)
    with monkeypatch.context() as dying, suppress(RetriableError):
        dying.setattr(merging, "publish", Mock(side_effect=RetriableError("killed")))
        tasks().write(frame, batch).commit(batch.mark.receipt({}))
    run(url, "CREATE TABLE t (id bigint, v int)")
    with pytest.raises(SinkError, match=r"without v decimal\(10,2\)"):
        tasks().committed(batch.mark, "t")
    assert run(url, "SELECT * FROM t") == []
    run(url, "ALTER TABLE t MODIFY v decimal(10,2)")
    assert tasks().committed(batch.mark, "t") is not None
    assert run(url, "SELECT * FROM t") == [(1, Decimal("1.55"))]


def test_a_decimal_and_a_time_grow_by_the_digits_that_come(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(
        url,
        "CREATE TABLE t (id bigint PRIMARY KEY, "
        "price decimal(10,2) UNSIGNED ZEROFILL NOT NULL DEFAULT 5, "
        "at datetime(3))",
    )
    at = datetime.fromisoformat("2026-01-01T01:01:01.123456")
    ddl = "id BIGINT, price DECIMAL(12,4), at TIMESTAMP_NTZ"
    frame = records(spark, [(1, Decimal("2.3456"), at)], ddl)
    batch = batch_of(frame, 1)
    members = {field.name: field.schema for field in batch.schema.fields}
    stated = {**members["at"].parameters, "headrace.column.type": "mysql datetime(6)"}
    members["at"] = members["at"].replaced(parameters=stated)
    batch = replace(batch, schema=Schema.struct(members))
    task = tasks(insert_mode="upsert", key_fields="id")
    task.write(frame, batch).commit(batch.mark.receipt({}))
    assert run(url, "SELECT * FROM t") == [(1, Decimal("2.3456"), at)]
    run(url, "INSERT INTO t (id) VALUES (2)")
    assert run(url, "SELECT price FROM t WHERE id = 2") == [(5,)]
    assert "`price` decimal(12,4) unsigned zerofill" in run(url, "SHOW CREATE TABLE t")[0][1]


@pytest.mark.parametrize(
    "case",
    [
        ("DECIMAL(12,4)", Decimal("2.3000"), Decimal("2.3456")),
        ("DOUBLE", 2.25, 2.255),
        ("STRING", "2.250", "2.255"),
    ],
)
def test_a_value_that_would_lose_digits_is_refused(
    spark: SparkSession, tasks: Any, url: str, case: Sequence[Any]
) -> None:
    type_, good, bad = case
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, x decimal(10,2))")
    policy, ddl = EvolutionPolicy(Handling.IGNORE), f"id BIGINT, x {type_}"
    task = tasks(insert_mode="upsert", key_fields="id")
    with pytest.raises(PythonException, match="truncated for column 'x'"):
        write(task, records(spark, [(1, good), (2, bad)], ddl), 1, evolution=policy)
    assert write(task, records(spark, [(1, good)], ddl), 1, evolution=policy) == 1
    assert run(url, "SELECT * FROM t") == [(1, Decimal(str(good)))]


def test_a_decimal_of_all_digits_is_not_rounded(
    spark: SparkSession, tasks: Any, url: str
) -> None:
    run(url, "CREATE TABLE t (id bigint PRIMARY KEY, x int)")
    frame = records(spark, [(1, Decimal("1.5"))], "id BIGINT, x DECIMAL(38,1)")
    with pytest.raises(RecordError, match="more digits than the column x"):
        write(tasks(), frame, 1)
    assert run(url, "SELECT * FROM t") == []
