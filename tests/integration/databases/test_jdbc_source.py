"""What the source of databases reads by JDBC, from H2 and from Derby, which lacks much."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.databases.table_writing import APP
from tests.jdbc_database import JdbcDatabase, drivers_load

from headrace.acceptance.harness import connector_context
from headrace.dataplane.records import frame_schema
from headrace.sdk import (
    FrameSink,
    Mark,
    Position,
    ReadLimit,
    Schema,
    SinkBatch,
    StreamFrameSource,
)
from headrace.sdk.errors import ConfigErrors
from headrace.sdk.schema import primary_key
from headrace.settings import Settings
from headrace.store import Store
from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.jdbc.source import JdbcSource

pytestmark = pytest.mark.spark


@pytest.fixture
def loaded(spark: SparkSession, session_settings: Settings) -> Iterator[None]:
    with drivers_load(spark, session_settings):
        yield


@pytest.fixture(params=["h2", "derby"])
def database(request: pytest.FixtureRequest, loaded: None) -> JdbcDatabase:
    return JdbcDatabase.h2() if request.param == "h2" else JdbcDatabase.derby()


class Reader:
    """Reads a database's tables batch by batch."""

    def __init__(self, spark: SparkSession, database: JdbcDatabase, **texts: str) -> None:
        more = {key.replace("_", "."): text for key, text in texts.items()}
        config = JdbcSource.config_def().parse({**database.config, **more})
        assert list(JdbcSource.check(config)) == []
        task = JdbcSource.task(config)
        assert isinstance(task, StreamFrameSource)
        task.start(connector_context(Store()))  # type: ignore[arg-type]  # it looks at none of it
        self.spark, self.task, self.position = spark, task, Position()

    def batch(self, rows: int | None = None) -> dict[str, DataFrame]:
        """Return the streams of the next batch."""
        end = self.task.latest(self.position, ReadLimit(rows=rows))
        if end == self.position:
            return {}
        streams = self.task.streams(self.spark, self.position, end)
        self.position = end
        found = {}
        for each in streams:
            assert isinstance(each.rows, DataFrame)
            found[each.stream] = each.rows
        return found

    def all(self, rows: int | None = None) -> list[list[tuple[Any, ...]]]:
        """Return the rows of all batches."""
        found = []
        while batch := self.batch(rows):
            found.append(sorted(tuple(r["value"]) for f in batch.values() for r in f.collect()))
        return found


def test_tables_are_read_with_their_keys_and_in_batches(
    spark: SparkSession, database: JdbcDatabase
) -> None:
    database.run(
        "CREATE TABLE numbers (a INTEGER NOT NULL, b VARCHAR(9) NOT NULL, PRIMARY KEY (a, b))",
        *(f"INSERT INTO numbers VALUES ({n // 3}, 'it''s {n % 3}')" for n in range(10)),  # noqa: S608
    )
    reader = Reader(spark, database)
    batch = reader.batch(rows=4)
    assert list(batch) == ["NUMBERS"]
    value = frame_schema(batch["NUMBERS"]).field("value")
    assert value is not None
    assert primary_key(value.schema) == ("A", "B")
    rest = reader.all(rows=4)
    assert [len(each) for each in rest] == [4, 2]
    assert rest[-1] == [(2, "it's 2"), (3, "it's 0")]


def test_rows_that_are_new_or_changed_are_read_by_their_times_and_numbers(
    spark: SparkSession, database: JdbcDatabase
) -> None:
    database.run(
        "CREATE TABLE events (id BIGINT NOT NULL, moment TIMESTAMP NOT NULL)",
        *(
            f"INSERT INTO events VALUES ({n}, '2024-01-01 00:00:00.00000{n // 2}')"  # noqa: S608
            for n in range(6)
        ),
    )
    reader = Reader(
        spark,
        database,
        mode="timestamp+incrementing",
        timestamp_column_name="MOMENT",
        incrementing_column_name="ID",
    )
    assert [[row[0] for row in batch] for batch in reader.all(rows=3)] == [[0, 1, 2], [3, 4, 5]]
    database.run("UPDATE events SET moment = '2024-06-01 00:00:00' WHERE id = 2")
    assert [[row[0] for row in batch] for batch in reader.all()] == [[2]]


def test_times_without_a_zone_are_compared_with_the_clock_of_their_zone(
    spark: SparkSession, database: JdbcDatabase
) -> None:
    database.run("CREATE TABLE events (id BIGINT NOT NULL, moment TIMESTAMP NOT NULL)")
    texts = {"mode": "timestamp", "timestamp_column_name": "MOMENT"}
    reader = Reader(spark, database, **texts, db_timezone="Asia/Tokyo", timestamp_initial="-1")
    assert reader.all() == [[]]
    # A clock that names no zone, as Derby's, is taken for one of the same zone as its times.
    at = datetime.now(ZoneInfo("Asia/Tokyo" if database.is_h2 else "UTC"))
    for number, hours in enumerate([-1, 0, 1]):
        moment = f"{at + timedelta(hours=hours, seconds=1):%Y-%m-%d %H:%M:%S}"
        database.run(f"INSERT INTO events VALUES ({number}, '{moment}')")  # noqa: S608
    time.sleep(2.1)
    assert [[row[0] for row in batch] for batch in reader.all()] == [[1]]


def test_a_table_without_a_key_is_read_whole(
    spark: SparkSession, database: JdbcDatabase
) -> None:
    database.run("CREATE TABLE bare (a INTEGER)", "INSERT INTO bare VALUES (1), (1), (2)")
    assert Reader(spark, database).all(rows=1) == [[(1,), (1,), (2,)]]


def test_a_large_table_is_read_in_parts(spark: SparkSession, database: JdbcDatabase) -> None:
    database.run("CREATE TABLE large (id BIGINT NOT NULL PRIMARY KEY, k VARCHAR(9))")
    database.run("INSERT INTO large VALUES (0, 'x')")
    for power in range(17):
        database.run(f"INSERT INTO large SELECT id + {2**power}, k FROM large")  # noqa: S608
    reader = Reader(spark, database, split_rows="40000", connections_max="3")
    [frame] = reader.batch().values()
    assert frame.rdd.getNumPartitions() == 3
    assert frame.selectExpr("count(DISTINCT value.ID)", "count(1)").collect() == [
        (2**17, 2**17)
    ]


def test_rows_are_read_no_faster_than_they_may(
    spark: SparkSession, database: JdbcDatabase
) -> None:
    database.run("CREATE TABLE bare (a INTEGER)", "INSERT INTO bare VALUES (1), (1), (2)")
    reader = Reader(spark, database, rows_per_second="3")
    [frame] = reader.batch().values()
    began = time.monotonic()
    assert frame.count() == 3
    assert time.monotonic() - began >= 1


H2_TYPES = {
    "TINYINT": ["-128", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "NUMERIC(38, 10)": ["-9999999999999999999999999999.9999999999", "0.0000000001"],
    "REAL": ["3.4028235E38", "1.17549435E-38"],
    "DOUBLE PRECISION": ["1.7976931348623157E308", "4.9E-324"],
    "BOOLEAN": ["TRUE", "FALSE"],
    "VARCHAR(9)": ["'äö'' \U0001f600'", "''"],
    "CHAR(3)": ["'a  '"],
    "CLOB": ["REPEAT('long ', 10000)"],
    "VARBINARY(3)": ["X'00ff'"],
    "BLOB": ["X'00ff'"],
    "DATE": ["DATE '1600-01-01'", "DATE '9999-12-31'"],
    "TIME(6)": ["TIME '23:59:59.999999'", "TIME '00:00:00'"],
    "TIMESTAMP": [
        "TIMESTAMP '1600-01-01 00:00:00.000001'",
        "TIMESTAMP '9999-12-31 23:59:59.999999'",
    ],
    "TIMESTAMP WITH TIME ZONE": [
        "TIMESTAMP WITH TIME ZONE '2024-03-31 02:30:00.000001+05:00'",
        "TIMESTAMP WITH TIME ZONE '9999-12-31 18:59:59.999999-05:00'",
    ],
    "UUID": ["'00000000-0000-0000-0000-0000000000ff'"],
    "JSON": ["JSON '{\"a\": 1}'"],
    "INTERVAL DAY TO SECOND": ["INTERVAL '1 2:3:4.5' DAY TO SECOND"],
}
DERBY_TYPES = {
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "DECIMAL(31, 10)": ["-999999999999999999999.9999999999"],
    "REAL": ["3.4028235E38"],
    "DOUBLE": ["1.7976931348623157E308"],
    "BOOLEAN": ["TRUE", "FALSE"],
    "VARCHAR(9)": ["'äö'' \U0001f600'", "''"],
    "CHAR(3)": ["'a  '"],
    "CLOB": ["CAST('long' AS CLOB)"],
    "BLOB": ["CAST(X'00ff' AS BLOB)"],
    "DATE": ["DATE('1600-01-01')", "DATE('9999-12-31')"],
    "TIME": ["TIME('23:59:59')"],
    "TIMESTAMP": [
        "TIMESTAMP('1600-01-01 00:00:00.000001')",
        "TIMESTAMP('9999-12-31 23:59:59.999999')",
    ],
}


def typed(database: JdbcDatabase) -> str:
    """Make a table of all types, and return its columns."""
    types = H2_TYPES if database.is_h2 else DERBY_TYPES
    columns = [f"c{number} {kind}" for number, kind in enumerate(types)]
    database.run(f"CREATE TABLE typed (id INTEGER NOT NULL PRIMARY KEY, {', '.join(columns)})")
    if database.is_h2:
        database.run("INSERT INTO typed (id) VALUES (0)")
    else:  # which takes no null for a TIME from Spark's writer
        at = list(types).index("TIME")
        database.run(f"INSERT INTO typed (id, c{at}) VALUES (0, TIME('00:00:00'))")  # noqa: S608
    for at in range(max(map(len, types.values()))):
        values = [each[min(at, len(each) - 1)] for each in types.values()]
        database.run(f"INSERT INTO typed VALUES ({at + 1}, {', '.join(values)})")  # noqa: S608
    return ", ".join(f"c{number}" for number in range(len(types)))


def test_values_of_every_type_are_the_same_in_a_copy(
    spark: SparkSession, database: JdbcDatabase
) -> None:
    columns = typed(database)
    [frame] = Reader(spark, database).batch().values()
    value = frame_schema(frame).field("value")
    assert value is not None
    other = JdbcDatabase.h2() if database.is_h2 else JdbcDatabase.derby()
    props = {**other.config, "table.name.format": "copy", "insert.mode": "upsert"}
    task = JdbcSink.task(JdbcSink.config_def().parse(props))
    assert isinstance(task, FrameSink)
    records = frame.selectExpr("value", "array(1L) AS position")
    batch = SinkBatch(Mark(APP, 1, 1), "t", value.schema)
    task.write(records, batch).commit("{}")
    task.stop()
    quoted = ", ".join(f'"{name.upper()}"' for name in columns.split(", "))
    copied = other.rows(f'SELECT {quoted} FROM "copy" ORDER BY "ID"')  # noqa: S608
    expected = database.rows(f"SELECT {columns} FROM typed ORDER BY id")  # noqa: S608
    if database.is_h2:  # a JSON is copied as its text
        at = list(H2_TYPES).index("JSON")
        expected = [
            (*row[:at], row[at] and row[at].decode(), *row[at + 1 :]) for row in expected
        ]
    assert copied == expected


def test_times_and_what_spark_has_no_type_for_have_schemas(
    spark: SparkSession, loaded: None
) -> None:
    database = JdbcDatabase.h2()
    database.run("CREATE TABLE t (a TIME(6), b JSON, c TIMESTAMP, d TIMESTAMP WITH TIME ZONE)")
    [frame] = Reader(spark, database).batch().values()
    value = frame_schema(frame).field("value")
    assert value is not None
    expected = (
        Schema.time(optional=True),
        Schema.string(optional=True),
        Schema.timestamp(optional=True),
        Schema.timestamp(optional=True),
    )
    found = [f.schema.replaced(parameters={}) for f in value.schema.fields]
    assert found == [each.replaced(parameters={}) for each in expected]


@pytest.mark.parametrize(
    ("texts", "field", "fix"),
    [
        ({"table_include_list": "numbers"}, "table.include.list", "PUBLIC.NUMBERS"),
        (
            {"mode": "incrementing", "incrementing_column_name": "id"},
            "incrementing.column.name",
            "Did you mean ID",
        ),
        ({"query": "SELECT JSON '1' AS j"}, "query", "casts the column"),
        ({"query": "SELECT nothing"}, "query", ""),
        ({"connection_user": "nobody"}, "connection.password", "Correct"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_right(
    loaded: None, texts: dict[str, str], field: str, fix: str
) -> None:
    database = JdbcDatabase.h2()
    database.run("CREATE USER me PASSWORD 'x' ADMIN")
    database.run("CREATE TABLE NUMBERS (ID INTEGER NOT NULL PRIMARY KEY)")
    more = {key.replace("_", "."): text for key, text in texts.items()}
    config = JdbcSource.config_def().parse({**database.config, **more})
    [error] = JdbcSource.check(config)
    assert error.field == field
    assert fix in str(error.fix)


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("jdbc:h2:mem:x", "com.h2database:h2:"),
        ("jdbc:sqlserver://host;databaseName=d", "com.microsoft.sqlserver:mssql-jdbc:"),
        ("jdbc:clickhouse://host/d", "driver.path"),
        ("jdbc:unheard:of", "coordinates of the driver"),
    ],
)
def test_a_driver_that_is_not_named_is_suggested(url: str, fix: str) -> None:
    for connector in (JdbcSource, JdbcSink):
        with pytest.raises(ConfigErrors) as raised:
            connector.config_def().parse({"connection.url": url})
        [error] = raised.value.errors
        assert error.field == "driver.coordinates"
        assert fix in error.fix


def test_a_native_way_needs_no_driver() -> None:
    config = JdbcSource.config_def().parse({"connection.url": "postgresql://h/d"})
    assert config.find_str("driver.path") is None
