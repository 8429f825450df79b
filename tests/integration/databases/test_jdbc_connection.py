"""Connections of JDBC drivers, as Python's have them."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.jdbc_drivers import H2

from headrace.sdk.jdbc import JdbcDriver
from headrace.settings import Settings
from headrace.spark import Drivers
from headrace_plugins.databases.jdbc_connection import MAX_ROWS, JdbcConnection, JdbcError

pytestmark = pytest.mark.spark
URL = "jdbc:h2:mem:connections"
SECRET = "hunter2-of-the-tests"  # noqa: S105 - no secret


@pytest.fixture
def connection(spark: SparkSession, session_settings: Settings) -> Iterator[JdbcConnection]:
    """A connection to an empty database, which ends with it."""
    driver = Drivers(session_settings, lambda: spark).load(H2, URL)
    with closing(
        JdbcConnection.open(spark, URL, {"user": "sa", "password": SECRET}, driver.class_name)
    ) as opened:
        yield opened


def run(connection: JdbcConnection, sql: str, *values: object) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    try:
        cursor.execute(sql, values)
        return cursor.fetchall()
    finally:
        cursor.close()


VALUES = [
    ("INT", "5", 5),
    ("INT", "NULL", None),
    ("BIGINT", str(-(2**63)), -(2**63)),
    ("DECIMAL(30)", str(2**70), Decimal(2**70)),
    ("DECIMAL(30, 2)", "12345678901234567890.12", Decimal("12345678901234567890.12")),
    ("DOUBLE", "0.1", 0.1),
    ("BOOLEAN", "TRUE", True),
    ("CLOB", "'long'", "long"),
    ("VARBINARY(9)", "X'00ff'", b"\x00\xff"),
    ("BLOB", "X'00ff'", b"\x00\xff"),
    ("DATE", "'0001-01-01'", date(1, 1, 1)),
    ("TIME(6)", "'23:59:59.999999'", time(23, 59, 59, 999999)),
    # The hour that most of Europe leaves out.
    ("TIMESTAMP", "'2024-03-31 02:30:00.000001'", datetime(2024, 3, 31, 2, 30, 0, 1)),  # noqa: DTZ001 - it has none
    (
        "TIMESTAMP WITH TIME ZONE",
        "'2024-01-01 00:00:00+00:00'",
        datetime(2024, 1, 1, tzinfo=UTC),
    ),
    (
        "TIMESTAMP WITH TIME ZONE",
        "'9999-01-01 00:00:00+05:00'",
        datetime(9999, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ),
]


@pytest.mark.parametrize(("kind", "sql", "value"), VALUES)
def test_a_value_is_read_exactly(
    connection: JdbcConnection, kind: str, sql: str, value: object
) -> None:
    run(connection, f"CREATE TABLE t (a {kind})")
    run(connection, f"INSERT INTO t VALUES ({sql})")  # noqa: S608 - made here
    [(found,)] = run(connection, "SELECT a FROM t")
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INT", None),
        ("BIGINT", -(2**63)),
        ("VARCHAR(50)", "äö '\" ? \U0001f600\n"),
        ("CLOB", "long"),
    ],
)
def test_a_value_comes_back_as_it_was_bound(
    connection: JdbcConnection, kind: str, value: object
) -> None:
    run(connection, f"CREATE TABLE t (a {kind})")
    run(connection, "INSERT INTO t VALUES (?)", value)
    assert run(connection, "SELECT a FROM t") == [(value,)]


@pytest.mark.parametrize(
    "sql", ["TIMESTAMP '2024-01-01 00:00:00.123456789'", "DATE '-0044-03-15'"]
)
def test_what_python_cannot_hold_exactly_is_an_error(
    connection: JdbcConnection, sql: str
) -> None:
    with pytest.raises(JdbcError, match="cast it to text"):
        run(connection, f"SELECT {sql}")


def test_a_statement_tells_how_many_rows_it_changed(connection: JdbcConnection) -> None:
    run(connection, "CREATE TABLE t (a INT)")
    cursor = connection.cursor()
    cursor.execute("INSERT INTO t SELECT x FROM system_range(1, 100000)")
    assert (cursor.rowcount, cursor.fetchall()) == (100_000, [])
    cursor.execute("DELETE FROM t WHERE a > ?", [99])
    assert cursor.rowcount == 100_000 - 99


def test_rows_of_data_are_not_fetched(connection: JdbcConnection) -> None:
    assert len(run(connection, "SELECT x FROM system_range(1, 10)")) == 10
    with pytest.raises(JdbcError, match=r"more than 10,000 rows"):
        run(connection, "SELECT x FROM system_range(1, ?)", MAX_ROWS + 1)


def test_an_error_has_its_state_and_code_and_no_trace_of_java(
    connection: JdbcConnection,
) -> None:
    run(connection, "CREATE TABLE t (a INT PRIMARY KEY)")
    run(connection, "INSERT INTO t VALUES (1)")
    with pytest.raises(JdbcError) as raised:
        run(connection, "INSERT INTO t VALUES (?)", 1)
    error = raised.value
    assert (error.sqlstate, error.vendor_code) == ("23505", 23505)
    assert str(error) == error.message
    assert error.message.startswith("Unique index")
    assert "org.h2" not in error.message
    assert error.__cause__ is None


def test_what_is_not_committed_is_undone(connection: JdbcConnection, spark) -> None:
    run(connection, "CREATE TABLE t (a INT)")
    connection.commit()
    run(connection, "INSERT INTO t VALUES (1)")
    connection.rollback()
    run(connection, "INSERT INTO t VALUES (2)")
    with closing(
        JdbcConnection.open(spark, URL, {"user": "sa", "password": SECRET}, "org.h2.Driver")
    ) as other:
        assert run(other, "SELECT * FROM t") == []
        run(other, "INSERT INTO t VALUES (3)")
    connection.commit()
    assert run(connection, "SELECT * FROM t") == [(2,)]


def insert_and_fail(connection: JdbcConnection) -> None:
    run(connection, "INSERT INTO t VALUES (2)")
    run(connection, "INSERT INTO t VALUES (1)")


def test_a_savepoint_undoes_only_what_is_within(connection: JdbcConnection) -> None:
    run(connection, "CREATE TABLE t (a INT PRIMARY KEY)")
    connection.commit()
    run(connection, "INSERT INTO t VALUES (1)")
    with pytest.raises(JdbcError), connection.savepoint():
        insert_and_fail(connection)
    with connection.savepoint():
        run(connection, "INSERT INTO t VALUES (3)")
    connection.commit()
    assert run(connection, "SELECT a FROM t ORDER BY a") == [(1,), (3,)]


@pytest.mark.usefixtures("connection")
def test_no_error_shows_a_password(spark: SparkSession) -> None:
    for url, password in (
        (URL, "wrong-" + SECRET),
        (f"jdbc:h2:/none;IFEXISTS=TRUE;PASSWORD={SECRET}", SECRET),
        (f"jdbc:h2:mem:x;NONE={SECRET}", SECRET),
        (f"jdbc:other:x?password={SECRET}", SECRET),
    ):
        with pytest.raises(JdbcError) as raised:
            JdbcConnection.open(
                spark, url, {"user": "sa", "password": password}, "org.h2.Driver"
            )
        assert SECRET not in str(raised.value)


def test_closing_twice_does_nothing(connection: JdbcConnection) -> None:
    connection.close()
    connection.close()
    with pytest.raises(JdbcError):
        run(connection, "SELECT 1")


def test_a_value_that_sql_has_not_is_refused(connection: JdbcConnection) -> None:
    with pytest.raises(TypeError, match="got list"):
        run(connection, "SELECT ?", [1])


def test_a_driver_from_before_java_time_gives_times_and_takes_nulls(
    spark: SparkSession, session_settings: Settings
) -> None:
    [derby] = (Path(pyspark.__file__).parent / "jars").glob("derby-10*.jar")
    url = "jdbc:derby:memory:old;create=true"
    driver = Drivers(session_settings, lambda: spark).load(JdbcDriver(path=str(derby)), url)
    row = (date(2024, 2, 29), datetime(2024, 1, 1, 0, 0, 0, 1), time(1, 2, 3), None)  # noqa: DTZ001 - it has none
    with closing(JdbcConnection.open(spark, url, {}, driver.class_name)) as connection:
        run(connection, "CREATE TABLE t (a DATE, b TIMESTAMP, c TIME, d INT)")
        made = "DATE('2024-02-29'), TIMESTAMP('2024-01-01 00:00:00.000001'), TIME('01:02:03')"
        run(connection, f"INSERT INTO t VALUES ({made}, ?)", None)  # noqa: S608 - made here
        assert run(connection, "SELECT * FROM t") == [row]
