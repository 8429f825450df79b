"""How MariaDB is read and described."""

# ruff: noqa: S608 - names are made here

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.database_tables.mariadb import EVERY_TYPE
from tests.database_tables.table import ODD_TEXTS, Unfit
from tests.integration.databases.mysql_tables import (
    columns_of,
    compared,
    read,
    run,
)
from tests.mariadb_server import MariadbServer

from headrace.sdk import RetriableError, Schema
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import Select
from headrace_plugins.databases.mysql import Mysql

UNFIT_TIMES = {"DATE", "TIME", "TIME(6)", "DATETIME(6)", "TIMESTAMP NULL"}


@pytest.fixture
def url(mariadb: MariadbServer) -> Iterator[str]:
    with mariadb.database() as url:
        yield url


@pytest.fixture
def database(url: str) -> Mysql:
    return Mysql(address_of(url))


def test_values_of_every_type_are_read_as_they_are(database: Mysql, url: str) -> None:
    run(url, *EVERY_TYPE.statements())
    found, rejected = read(database, EVERY_TYPE.name)
    types = {each.name: each.type for each in EVERY_TYPE.columns}
    unfit = {
        row["id"]
        for row in EVERY_TYPE.rows()
        if any(
            isinstance(value, Unfit) and types[name] in UNFIT_TIMES
            for name, value in row.items()
        )
    }
    assert {int(text.partition(",")[0]) for text, _ in rejected} == unfit
    assert len(unfit) == 7
    assert len(found) == EVERY_TYPE.length - len(unfit)
    assert compared(EVERY_TYPE, found) == []


def test_values_that_no_schema_has_are_null_where_asked_for(database: Mysql, url: str) -> None:
    run(url, *EVERY_TYPE.statements())
    found, rejected = read(database, EVERY_TYPE.name, nulls=True)
    assert rejected == []
    types = {each.name: each.type for each in EVERY_TYPE.columns}
    nulls = [
        found[row["id"] - 1][name]  # type: ignore[operator]
        for row in EVERY_TYPE.rows()
        for name, value in row.items()
        if isinstance(value, Unfit) and types[name] in UNFIT_TIMES
    ]
    assert len(nulls) == 13
    assert set(nulls) == {None}


def test_days_that_no_calendar_has_are_rejected(database: Mysql, url: str) -> None:
    run(
        url,
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE t (id INT, d DATE NOT NULL, s DATETIME)",
        "INSERT INTO t VALUES (1, '2020-02-30', NULL), (2, '2023-02-29', NULL),"
        " (3, '2024-02-29', '2000-02-29 23:59:59'), (4, '2024-01-01', '1900-02-29'),"
        " (5, '2024-04-31', NULL), (6, '0000-00-00', NULL)",
    )
    found, rejected = read(database, "t")
    assert [row["id"] for row in found] == [3]
    assert [text.partition(",")[0] for text, _ in rejected] == ["1", "2", "4", "5", "6"]
    assert rejected[0][1] == (
        "The column d of type date contains '2020-02-30', which its schema cannot represent."
    )
    found, rejected = read(database, "t", nulls=True)
    assert [(row["id"], row["s"]) for row in found] == [
        (3, datetime(2000, 2, 29, 23, 59, 59, tzinfo=UTC)),
        (4, None),
    ]
    assert len(rejected) == 4  # the day is required


def test_a_row_of_more_than_16_megabytes_is_read_between_others(
    database: Mysql, url: str
) -> None:
    run(
        url,
        "CREATE TABLE t (id INT, s LONGTEXT, b LONGBLOB)",
        "INSERT INTO t VALUES (1, 'first', '')",
        "INSERT INTO t VALUES (2, REPEAT('ab', 8388607), REPEAT('c', 16777215))",
        "INSERT INTO t VALUES (3, REPEAT('é', 10000000), NULL)",
        "INSERT INTO t VALUES (4, NULL, 'last')",
        # A packet that is full to the last byte is followed by one of no bytes.
        "INSERT INTO t VALUES (5, REPEAT('x', 16777215 - 7), '')",
        "INSERT INTO t VALUES (6, '', NULL)",
    )
    found, _ = read(database, "t")
    assert [(row["id"], row["s"], row["b"]) for row in found] == [
        (1, "first", b""),
        (2, "ab" * 8388607, b"c" * 16777215),
        (3, "é" * 10_000_000, None),
        (4, None, b"last"),
        (5, "x" * (16777215 - 7), b""),
        (6, "", None),
    ]


def test_many_rows_come_in_several_batches_and_none_is_lost(database: Mysql, url: str) -> None:
    run(
        url,
        "CREATE TABLE t (id INT, s VARCHAR(300))",
        "INSERT INTO t SELECT seq, REPEAT(CHAR(65 + seq % 26), seq % 300) FROM seq_1_to_100000",
    )
    source = database.path(database.named("t"))
    select = Select(columns=columns_of(database, "t"), source=source, where="id > 5")
    batches = [batch for batch, _ in database.read(select)]
    assert len(batches) > 2
    assert max(batch.nbytes for batch in batches) < 16 << 20
    rows = {row["id"]: row["s"] for batch in batches for row in batch.to_pylist()}
    assert len(rows) == 99_995
    assert all(text == chr(65 + n % 26) * (n % 300) for n, text in rows.items())


def test_a_reader_that_stops_early_leaves_nothing_open(
    database: Mysql, url: str, mariadb: MariadbServer
) -> None:
    run(url, "CREATE TABLE t (id INT)", "INSERT INTO t SELECT seq FROM seq_1_to_2000000")
    select = Select(
        columns=columns_of(database, "t"), source=database.path(database.named("t"))
    )
    batches = database.read(select)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    name = address_of(url).database
    open_ = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
    end = time.monotonic() + 10
    while run(mariadb.url(), open_) and time.monotonic() < end:
        time.sleep(0.05)
    assert run(mariadb.url(), open_) == []


def test_a_server_that_ends_the_query_midway_is_an_error_and_no_end(
    database: Mysql, url: str, mariadb: MariadbServer
) -> None:
    run(url, "CREATE TABLE t (id INT)", "INSERT INTO t SELECT seq FROM seq_1_to_3000000")
    select = Select(
        columns=columns_of(database, "t"), source=database.path(database.named("t"))
    )
    for ending in ("KILL QUERY", "KILL"):
        batches = database.read(select)
        next(batches)
        [(number,)] = run(
            mariadb.url(),
            "SELECT id FROM information_schema.processlist"
            f" WHERE db = '{address_of(url).database}' AND command = 'Query'",
        )
        run(mariadb.url(), f"{ending} {number}")
        with pytest.raises(RetriableError):
            list(batches)


def test_tables_are_described_with_their_keys_and_parents(database: Mysql, url: str) -> None:
    run(
        url,
        "CREATE TABLE parent (a INT, b VARCHAR(9), PRIMARY KEY (b, a))",
        "CREATE TABLE child (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, b VARCHAR(9),"
        " a INT, code CHAR(3) NOT NULL, name TEXT NOT NULL, n INT DEFAULT 5 NOT NULL,"
        " twice INT AS (n * 2) STORED, s VARCHAR(5) COLLATE utf8mb4_bin DEFAULT 'x',"
        " u INT, UNIQUE (code), UNIQUE (name(5)), UNIQUE (u), UNIQUE (n, code),"
        " FOREIGN KEY (b, a) REFERENCES parent (b, a))",
        "CREATE VIEW seen AS SELECT id FROM child",
        "CREATE TABLE headrace_marks (a INT)",
        "INSERT INTO parent VALUES (1, 'x'), (2, 'x')",
    )
    own = address_of(url).database
    with database.session() as session:
        assert database.tables(session) == [TableName(own, "child"), TableName(own, "parent")]
        names = [database.named(name) for name in ("child", "parent", "seen", "missing")]
        found = database.describe(session, names)
    assert [name.name for name in found] == ["child", "parent", "seen"]
    child, parent = found[names[0]], found[names[1]]
    assert (parent.key, parent.unique, parent.rows) == (("b", "a"), (("b", "a"),), 2)
    assert child.key == ("id",)
    assert set(child.unique) == {("id",), ("code",), ("n", "code")}
    assert child.parents == (names[1],)
    assert [(c.name, c.type, c.schema.optional) for c in child.columns] == [
        ("id", "bigint(20) unsigned", False),
        ("b", "varchar(9)", True),
        ("a", "int(11)", True),
        ("code", "char(3)", False),
        ("name", "text", False),
        ("n", "int(11)", False),
        ("twice", "int(11)", True),
        ("s", "varchar(5) COLLATE utf8mb4_bin", True),
        ("u", "int(11)", True),
    ]
    assert [c.name for c in child.columns if c.has_default] == ["id", "n", "s"]
    assert [c.name for c in child.columns if c.generated] == ["twice"]


def test_tables_whose_names_differ_in_case_are_told_apart(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE orders (a INT)", "CREATE TABLE Orders (b INT)")
    assert [each.name for each in columns_of(database, "orders")] == ["a"]
    assert [each.name for each in columns_of(database, "Orders")] == ["b"]


def test_a_table_of_another_database_can_be_named(
    database: Mysql, mariadb: MariadbServer
) -> None:
    with mariadb.database() as other, database.session() as session:
        run(other, "CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
        name = TableName(address_of(other).database, "t")
        table = database.table(session, name)
        assert table is not None
        select = Select(columns=table.columns, source=database.path(name))
        assert [batch.to_pylist() for batch, _ in database.read(select)] == [[{"a": 1}]]


def test_the_columns_of_a_query_are_those_of_a_table_made_of_it(
    database: Mysql, url: str
) -> None:
    run(url, *EVERY_TYPE.statements())
    query = f"SELECT *, 1.50 AS d, UTC_TIMESTAMP(6) AS at FROM {EVERY_TYPE.name}"
    run(url, f"CREATE TABLE made AS {query} LIMIT 0")
    with database.session() as session:
        found = {each.name: each for each in database.query_columns(session, query)}
    made = {each.name: each for each in columns_of(database, "made")}
    assert [*found] == [*made]
    assert {n: c.schema.bare() for n, c in found.items()} == {
        n: c.schema.bare() for n, c in made.items()
    }


def test_a_query_is_read_by_its_columns(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (a INT, b FLOAT)", "INSERT INTO t VALUES (1, 0.1), (2, NULL)")
    query = "SELECT a * 2.5 AS x, b, CONCAT('n', a) AS y FROM t"
    with database.session() as session:
        columns = database.query_columns(session, query)
    select = Select(columns=columns, source=f"({query}) AS q", where="x < 3")
    [(batch, _)] = database.read(select)
    assert batch.to_pylist() == [
        {"x": Decimal("2.5"), "b": pa.scalar(0.1, pa.float32()).as_py(), "y": "n1"}
    ]


def test_times_are_of_utc_whatever_the_zone_of_the_server(database: Mysql) -> None:
    with database.session() as session:
        assert abs((database.now(session) - datetime.now(UTC)).total_seconds()) < 60
        moment = datetime.fromisoformat("2024-01-01T12:00:00+05:00")
        literal = database.literal(moment)
        assert session.value(f"SELECT {literal}") == "2024-01-01 07:00:00"
        assert session.value("SELECT %s", [moment]) == "2024-01-01 07:00:00"


def test_literals_are_quoted_by_the_driver(database: Mysql) -> None:
    with database.session() as session:
        for text in ODD_TEXTS:
            assert session.value(f"SELECT {database.literal(text)}") == text


@pytest.mark.parametrize(
    ("schema", "in_key", "type_"),
    [
        (Schema.string(), False, "longtext"),
        (Schema.string(), True, "varchar(255) COLLATE utf8mb4_bin"),
        (Schema.bytes(), True, "varbinary(255)"),
        (Schema.decimal(2), False, "decimal(38,2)"),
        (Schema.timestamp(), False, "datetime(6)"),
        (Schema.array(Schema.int32()), False, "json"),
        (Schema.string(parameters={"headrace.column.type": "mysql text"}), False, "text"),
        (
            Schema.string(parameters={"headrace.column.type": "mysql text"}),
            True,
            "varchar(255) COLLATE utf8mb4_bin",
        ),
        (
            Schema.string(parameters={"headrace.column.type": "postgresql xml"}),
            False,
            "longtext",
        ),
        (
            Schema.string(
                parameters={"headrace.column.type": "mysql char(3) COLLATE utf8mb4_0900_ai_ci"}
            ),
            False,
            "char(3)",
        ),
        (
            Schema.string(
                parameters={"headrace.column.type": "mysql char(3) COLLATE latin1_general_cs"}
            ),
            False,
            "char(3) COLLATE utf8mb4_bin",
        ),
    ],
    ids=str,
)
def test_columns_are_made_of_types(
    database: Mysql, schema: Schema, in_key: bool, type_: str
) -> None:
    assert database.column_type(schema, in_key=in_key) == type_


def test_a_wider_column_keeps_what_else_was_said_of_it(database: Mysql, url: str) -> None:
    run(
        url,
        "CREATE TABLE t (`a``, b` INT NOT NULL DEFAULT 5 COMMENT 'x, \n`y` int', c INT)",
        "INSERT INTO t (c) VALUES (1)",
    )
    for statement in database.retype(database.named("t"), "a`, b", "bigint"):
        run(url, statement)
    run(url, "INSERT INTO t (c) VALUES (2)")
    assert run(url, "SELECT `a``, b` FROM t") == [(5,), (5,)]
    [(_, made)] = run(url, "SHOW CREATE TABLE t")
    assert "bigint(20) NOT NULL DEFAULT 5 COMMENT 'x, \\n`y` int'" in made
