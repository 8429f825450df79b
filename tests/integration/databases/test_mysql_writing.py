"""What is loaded into MariaDB and merged there, and what it refuses."""

# ruff: noqa: S608 - names are made here

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.black_hole import black_hole
from tests.database_tables.mariadb import EVERY_TYPE, ODD_NAMES
from tests.database_tables.table import ODD_TEXTS, Unfit
from tests.integration.databases.mysql_tables import (
    columns_of,
    load,
    load_values,
    named,
    read,
    run,
)
from tests.mariadb_server import MariadbServer

from headrace.sdk import ConfigError, HeadraceError, Mark, RecordError, RetriableError, Schema
from headrace.sdk.arrow import conform, to_arrow, to_batch
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.database import Merge, Select
from headrace_plugins.databases.mysql import Mysql
from headrace_plugins.databases.staging import Bookkeeping


@pytest.fixture
def url(mariadb: MariadbServer) -> Iterator[str]:
    with mariadb.database() as url:
        yield url


@pytest.fixture
def database(url: str) -> Mysql:
    return Mysql(address_of(url))


@pytest.fixture(params=["LOAD DATA", "INSERT"])
def _both_ways(mariadb: MariadbServer, request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "LOAD DATA":
        yield
        return
    mariadb.execute("SET GLOBAL local_infile = OFF")
    yield
    mariadb.execute("SET GLOBAL local_infile = ON")


both_ways = pytest.mark.usefixtures("_both_ways")


@both_ways
def test_values_of_every_type_are_loaded_as_they_are(database: Mysql, url: str) -> None:
    run(url, *EVERY_TYPE.statements(unfit=False))
    columns = columns_of(database, EVERY_TYPE.name)
    schema = Schema.struct({each.name: each.annotated("mysql") for each in columns})
    types = [
        f"{database.quote(f.name)} {database.column_type(f.schema)}" for f in schema.fields
    ]
    run(
        url,
        f"ALTER TABLE {EVERY_TYPE.name} RENAME TO original",
        f"CREATE TABLE {EVERY_TYPE.name} ({', '.join(types)})",
    )
    select = Select(columns=columns, source="original")
    batches = [conform(batch, to_arrow(schema)) for batch, _ in database.read(select)]
    assert load(database, EVERY_TYPE.name, schema, batches) == EVERY_TYPE.length
    read_by_driver = run(url, "SET sql_mode = ''", EVERY_TYPE.query())
    rows = EVERY_TYPE.rows(unfit=False)
    found = [
        [driven(*pair) for pair in zip(row.values(), cells, strict=True)]
        for row, cells in zip(rows, read_by_driver, strict=True)
    ]
    assert EVERY_TYPE.differences(found, unfit=False) == []


def driven(expected: object, found: Any) -> object:
    """Return what the driver reads as text as what it is the text of."""
    if isinstance(expected, Decimal) and found is not None:
        return Decimal(str(found))
    if isinstance(expected, date) and isinstance(found, str):
        zone = UTC if isinstance(expected, datetime) and expected.tzinfo else None
        parsed = type(expected).fromisoformat(found)
        return parsed.replace(tzinfo=zone) if isinstance(parsed, datetime) else parsed
    if isinstance(found, str) and not isinstance(expected, str | Unfit):
        return type(expected).fromisoformat(found)  # type: ignore[attr-defined]
    return found


@both_ways
def test_odd_names_and_texts_are_quoted(database: Mysql, url: str) -> None:
    run(url, *ODD_NAMES.statements())
    columns = columns_of(database, ODD_NAMES.name)
    found, _ = read(database, ODD_NAMES.name)
    assert found == ODD_NAMES.rows()
    schema = Schema.struct({each.name: each.schema for each in columns})
    more = [
        dict.fromkeys((c.name for c in columns), text) | {"id": number}
        for number, text in enumerate([text for text in ODD_TEXTS if len(text) < 9999], start=2)
    ]
    load(database, ODD_NAMES.name, schema, [to_batch(more, schema)])
    found, _ = read(database, ODD_NAMES.name)
    assert found == [*ODD_NAMES.rows(), *more]


@both_ways
@pytest.mark.parametrize(
    "case",
    [
        ("TINYINT", Schema.int32(), [1, 128], "Out of range value"),
        ("INT UNSIGNED", Schema.int64(), [1, -1], "Out of range value"),
        ("DECIMAL(5,1)", Schema.decimal(2, precision=8), [Decimal("1.55")], "truncated"),
        ("DECIMAL(5,1)", Schema.decimal(0, precision=8), [Decimal(10000)], "Out of range"),
        ("VARCHAR(3)", Schema.string(), ["abc", "abcd"], "too long|truncated"),
        ("VARCHAR(9) CHARACTER SET latin1", Schema.string(), ["表"], "Incorrect string value"),
        ("INT", Schema.string(), ["12 apples"], "truncated|Incorrect integer"),
        ("INT", Schema.string(), [""], "Incorrect integer value"),
        ("DATE", Schema.string(), ["2020-02-30"], "Incorrect date value|truncated"),
        ("INT NOT NULL", Schema.int32(optional=True), [1, None], "null|NULL"),
        ("INT PRIMARY KEY", Schema.int32(), [1, 2, 1], "Duplicate entry '1'"),
        ("INT CHECK (v < 5)", Schema.int32(), [1, 5], "CONSTRAINT"),
        ("ENUM('a', 'b')", Schema.string(), ["c"], "truncated"),
        ("JSON", Schema.string(), ["{"], "CONSTRAINT"),
        ("DOUBLE", Schema.float64(), [float("nan")], "truncated|Incorrect double"),
        ("DOUBLE", Schema.float64(), [float("inf")], "truncated|Incorrect double"),
        ("FLOAT", Schema.float64(), [1e300], "Out of range value"),
        ("BINARY(2)", Schema.bytes(), [b"abc"], "too long|truncated"),
        ("BIT(1)", Schema.bytes(), [b"\2"], "Data too long|Out of range"),
        ("POINT", Schema.bytes(), [b"no shape"], "geometry"),
    ],
    ids=str,
)
def test_a_row_that_would_be_bent_or_left_out_is_refused(
    database: Mysql, url: str, case: tuple[str, Schema, list[object], str]
) -> None:
    type_, schema, values, said = case
    run(url, f"CREATE TABLE t (v {type_})")
    with pytest.raises(RecordError, match=said):
        load_values(database, schema, *values)
    assert run(url, "SELECT * FROM t") == []


def test_a_row_whose_parent_is_missing_is_refused(database: Mysql, url: str) -> None:
    run(
        url,
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE t (v INT, FOREIGN KEY (v) REFERENCES p (id))",
    )
    with pytest.raises(RecordError, match="foreign key"):
        load_values(database, Schema.int32(), 7)


def test_the_column_of_a_refused_value_is_named(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (v TINYINT)")
    with pytest.raises(RecordError) as caught:
        load_values(database, Schema.int32(), 300)
    assert caught.value.field == "v"


def test_an_identifier_of_0_is_kept(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (v INT AUTO_INCREMENT PRIMARY KEY)")
    assert load_values(database, Schema.int32(), 0, 5) == 2
    assert run(url, "SELECT v FROM t ORDER BY v") == [(0,), (5,)]


def test_booleans_go_into_numbers_and_bits(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (a TINYINT(1), b BIT(1), c BOOLEAN)")
    schema = Schema.struct({name: Schema.boolean(optional=True) for name in "abc"})
    rows = [dict.fromkeys("abc", value) for value in (True, False, None)]
    load(database, "t", schema, [to_batch(rows, schema)])
    found = run(url, "SELECT a, b + 0, c FROM t")
    assert found == [(1, 1, 1), (0, 0, 0), (None, None, None)]


@both_ways
def test_no_rows_are_loaded_as_none(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (v INT)")
    rows = Schema.struct({"v": Schema.int32()})
    assert load(database, "t", rows, []) == 0
    some = [to_batch(values, rows) for values in ([], [{"v": 1}], [])]
    assert load(database, "t", rows, some) == 1


@pytest.mark.parametrize("error", [OverflowError("upstream"), BrokenPipeError("upstream")])
def test_an_error_of_who_gives_the_rows_is_raised_as_it_is(
    database: Mysql, url: str, error: Exception
) -> None:
    run(url, "CREATE TABLE t (v INT)")
    rows = Schema.struct({"v": Schema.int32()})

    def failing() -> Iterator[pa.RecordBatch]:
        yield to_batch([{"v": 1}], rows)
        raise error

    with database.session() as session, pytest.raises(type(error), match="upstream"):
        database.load(session, database.named("t"), {"v": Schema.int32()}, failing())


def test_a_missing_table_ends_the_loading_of_many_rows_at_once(database: Mysql) -> None:
    rows = Schema.struct({"v": Schema.int32()})
    many = to_batch([{"v": n} for n in range(100_000)], rows)
    with pytest.raises(ConfigError, match="doesn't exist"):
        load(database, "missing", rows, [many] * 3)


def test_a_server_that_asks_for_another_file_does_not_get_it(
    database: Mysql, url: str, tmp_path: Path
) -> None:
    run(url, "CREATE TABLE t (id int, v longtext)")
    secret = tmp_path / "secret"
    secret.write_text("1\tpassword\n")
    asked = b"\xfb" + bytes(secret)

    def other(data: bytes) -> bytes:
        if data[4:].startswith(b"\xfb/dev/fd/"):
            return len(asked).to_bytes(3, "little") + data[3:4] + asked
        return data

    with black_hole(database.address.port or 0) as line:
        line.answer = other
        bent = Mysql(address_of(url.replace(f":{database.address.port}", f":{line.port}")))
        with pytest.raises(HeadraceError, match="requests a local file") as raised:
            load_values(bent, Schema.string(), "a", "b")
    assert raised.value.field == "connection.url"
    assert run(url, "SELECT count(*) FROM t") == [(0,)]


def test_a_row_that_is_larger_than_the_server_takes_is_refused(
    database: Mysql, url: str, mariadb: MariadbServer
) -> None:
    run(url, "CREATE TABLE t (v LONGTEXT)")
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    mariadb.execute("SET GLOBAL local_infile = OFF")
    try:
        with pytest.raises(RecordError, match="max_allowed_packet") as caught:
            load_values(database, Schema.string(), "a", "b" * (1 << 20))
    finally:
        mariadb.execute("SET GLOBAL local_infile = ON")
        mariadb.execute("SET GLOBAL max_allowed_packet = 67108864")
    assert "SET GLOBAL max_allowed_packet" in caught.value.fix


def test_rows_are_merged_by_their_key(database: Mysql, url: str) -> None:
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_unicode_ci)",
        "INSERT INTO t VALUES (1, 'old'), (2, 'old'), (3, 'old')",
    )
    [_, value] = columns_of(database, "t")
    with database.session() as session:
        session.execute(
            f"CREATE TABLE s ({database.staging_columns()}, id INT, v {value.type}, op CHAR(1))"
        )
        session.execute(
            "INSERT INTO s (id, v, op) VALUES (2, 'new', 'u'), (4, NULL, 'u'), (3, '', 'd')"
        )
        for where, statements in (
            ("s.op = 'd'", database.delete),
            ("s.op = 'u'", database.upsert),
        ):
            merge = Merge(
                target="t", staging="s", columns=["id", "v"], keys=["id"], where=where
            )
            made = statements(merge)
            for statement in [made] if isinstance(made, str) else made:
                session.execute(statement)
        assert session.rows(f"SELECT id FROM s ORDER BY {database.row_id}") == [
            (2,),
            (4,),
            (3,),
        ]
        session.commit()
    assert run(url, "SELECT * FROM t ORDER BY id") == [(1, "old"), (2, "new"), (4, None)]


@pytest.mark.parametrize(
    ("type_", "values", "differ"),
    [
        ("VARCHAR(9)", "'a', 'A'", True),
        ("VARCHAR(9)", "'a', 'a '", True),
        ("VARCHAR(9)", "'ä', 'ä'", False),
        ("VARCHAR(9)", "NULL, ''", True),
        ("INT", "NULL, NULL", False),
        ("DOUBLE", "0.1, 0.1", False),
        ("FLOAT", "16777216, 16777215", True),
        ("BLOB", "X'ff', X'fe'", True),
        ("BLOB", "X'ff', X'ff'", False),
        ("DATETIME(6)", "'2024-01-01 00:00:00.000001', '2024-01-01'", True),
    ],
)
def test_values_that_differ_in_case_or_blanks_differ(
    database: Mysql, url: str, type_: str, values: str, differ: bool
) -> None:
    run(
        url,
        f"CREATE TABLE t (a {type_}, b {type_}, c INT)",
        f"INSERT INTO t VALUES ({values}, 0)",
    )
    with database.session() as session:
        session.execute(f"UPDATE t SET c = 1 WHERE {database.differs('a', 'b')}")
        assert session.value("SELECT c FROM t") == differ


def test_tables_are_renamed_at_once(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (a INT)", "CREATE TABLE s (b INT)")
    names = [database.named(each) for each in ("t", "old", "s")]
    with database.session() as session:
        database.rename(session, [(names[0], names[1]), (names[2], names[0])])
        with pytest.raises(HeadraceError):
            database.rename(session, [(names[0], names[2]), (names[2], names[1])])
        assert [each.name for each in database.tables(session)] == ["old", "t"]
        table = database.table(session, names[0])
    assert table is not None
    assert [each.name for each in table.columns] == ["b"]


def test_who_takes_over_ends_the_other(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (a INT PRIMARY KEY)")
    with database.session() as first, database.session() as second:
        database.take_over(first, "copy/0")
        first.execute("INSERT INTO t VALUES (1)")
        database.take_over(second, "copy/0")
        second.execute("INSERT INTO t VALUES (1)")  # its lock is gone
        second.commit()
        with pytest.raises(RetriableError):
            first.value("SELECT 1")


def test_a_deadlock_within_a_savepoint_can_be_tried_again(database: Mysql, url: str) -> None:
    run(url, "CREATE TABLE t (a INT PRIMARY KEY, b INT)", "INSERT INTO t VALUES (1, 0), (2, 0)")

    def change(session: Any, number: int) -> None:
        with session.savepoint():
            session.execute(f"UPDATE t SET b = 1 WHERE a = {number}")

    with database.session() as one, database.session() as other, ThreadPoolExecutor(1) as pool:
        change(one, 1)
        change(other, 2)
        waiting = pool.submit(change, one, 2)
        time.sleep(0.3)
        errors = []
        for attempt in (lambda: change(other, 1), waiting.result):
            try:
                attempt()
            except HeadraceError as error:
                errors.append(error)
            other.rollback()
    assert [type(error) for error in errors] == [RetriableError]


def test_marks_of_connectors_whose_names_differ_in_case_are_apart(
    database: Mysql, url: str
) -> None:
    books = Bookkeeping(database, database.default_schema)
    upper, lower = Mark("Orders/0", 5, 1), Mark("orders/0", 2, 1)
    with database.session() as session:
        books.prepare(session)
        for mark in (upper, lower):
            assert books.held(session, mark) is None
            books.lock(session, mark)
            books.keep(session, mark, str(mark))
            session.commit()
            staging = books.stage(session, mark, named(database, "t"))
            session.execute(f"CREATE TABLE {database.path(staging)} (a INT)")
        books.discard(session, upper)
        assert [books.held(session, mark) for mark in (upper, lower)] == [
            str(upper),
            str(lower),
        ]
    assert len(run(url, "SHOW TABLES LIKE 'headrace_staged_%'")) == 1
