"""SQLite: values of every storage class in columns of every type, read and loaded."""

# ruff: noqa: S608 - the names are the tests' own

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.database_tables import sqlite as tables
from tests.database_tables.table import Table as Torture
from tests.database_tables.table import Unfit, same
from tests.integration.databases.sqlite_file import described, load, read, run

from headrace.sdk import RecordError, Schema
from headrace.sdk.schema import COLUMN_TYPE
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import Select
from headrace_plugins.databases.sqlite import Sqlite
from headrace_plugins.databases.sqlite_values import decimals_are_numbers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "odd ?name#%.db"


@pytest.fixture
def database(file: Path) -> Sqlite:
    return Sqlite(address_of(f"sqlite:{file}"))


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _expected(value: object, column: Any) -> object:
    if isinstance(value, Unfit):
        return value.text
    # A type without a precision says too little of its numbers: they are read as texts.
    return str(value) if column.schema == _TEXT and isinstance(value, Decimal) else value


_TEXT = Schema.string(optional=True)


@pytest.mark.parametrize("table", tables.TABLES, ids=lambda table: table.name)
def test_every_value_is_read_as_it_is_or_is_null(
    database: Sqlite, file: Path, table: Torture
) -> None:
    run(file, *table.statements())
    name = f"`{table.name}`"
    columns = {each.name: each for each in described(database, name).columns}
    found, rejected = read(database, name, nulls=True)
    assert rejected == []
    assert len(found) == table.length
    odd = [
        (column, value, row[column])
        for expected, row in zip(table.rows(), found, strict=True)
        for column, value in expected.items()
        if not same(_expected(value, columns[column]), _naive(row[column]))
        and not (isinstance(value, Unfit) and row[column] is None)
    ]
    assert odd == []


@pytest.mark.parametrize("table", tables.TABLES, ids=lambda table: table.name)
def test_rows_with_values_that_are_none_of_their_types_are_rejected(
    database: Sqlite, file: Path, table: Torture
) -> None:
    run(file, *table.statements())
    found, rejected = read(database, f"`{table.name}`")
    assert len(found) + len(rejected) == table.length
    kept = {row["id"] for row in found}
    nulls, _ = read(database, f"`{table.name}`", nulls=True)
    unfit = {
        expected["id"]
        for expected, row in zip(table.rows(), nulls, strict=True)
        if any(isinstance(v, Unfit) and row[c] is None for c, v in expected.items())
    }
    assert kept == {expected["id"] for expected in table.rows()} - unfit
    for text, why in rejected:
        assert text
        assert why.startswith("The column c_")


@pytest.mark.parametrize("table", tables.TABLES, ids=lambda table: table.name)
def test_what_was_read_is_stored_as_it_was(
    database: Sqlite, file: Path, table: Torture
) -> None:
    run(file, *table.statements())
    name = f"`{table.name}`"
    there = described(database, name)
    columns = {c.name: c for c in there.columns if not c.generated}
    select = Select(columns=tuple(columns.values()), source=database.path(there.name), where="")
    schemas = {each.name: each.annotated("sqlite") for each in columns.values()}
    types = [
        f"{database.quote(each)} {database.column_type(schema)}"
        for each, schema in schemas.items()
    ]
    with database.session() as session:
        session.execute(f"CREATE TABLE copied ({', '.join(types)})")
        session.commit()
        rows = [batch for batch, _ in database.read(select, nulls=True)]
        database.load(session, TableName("", "copied"), schemas, iter(rows))
        session.commit()
    assert read(database, "copied", nulls=True)[0] == [
        {key: value for key, value in row.items() if key in columns}
        for row in read(database, name, nulls=True)[0]
    ]
    with closing(sqlite3.connect(file)) as connection:
        for each in map(database.quote, columns):
            source = connection.execute(
                f"SELECT id, {each}, typeof({each}) FROM {database.path(there.name)} ORDER BY 1"
            ).fetchall()
            copied = connection.execute(
                f"SELECT id, {each}, typeof({each}) FROM copied ORDER BY 1"
            ).fetchall()
            odd = [
                (one, other)
                for one, other in zip(source, copied, strict=True)
                if one != other and other[2] not in {"null", "text"} and one[2] != "text"
            ]
            assert odd == []


def test_a_text_that_is_not_in_utf_8_is_rejected_and_those_after_it_are_read(
    database: Sqlite, file: Path
) -> None:
    run(
        file,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) "
        "INSERT INTO t SELECT i, 'ä' || i FROM n",
        "UPDATE t SET text = CAST(X'61FF62' AS TEXT) WHERE id IN (5000, 8999)",
    )
    rows, rejected = read(database, "t")
    assert [row["id"] for row in rows] == [i for i in range(1, 9001) if i not in {5000, 8999}]
    assert {row["text"] for row in rows} == {f"ä{row['id']}" for row in rows}
    assert [text for text, _ in rejected] == ["5000,a\\udcffb", "8999,a\\udcffb"]
    assert "contains the text 'a\\udcffb'" in rejected[0][1]
    assert read(database, "t", "id = 5000", nulls=True)[0] == [{"id": 5000, "text": None}]


@pytest.mark.parametrize(
    ("type_", "stored", "expected"),
    [
        ("DATETIME", "2024-02-29 01:02:03Z", datetime(2024, 2, 29, 1, 2, 3)),  # noqa: DTZ001
        ("DATETIME", "2024-02-29 01:02:03+00:00", datetime(2024, 2, 29, 1, 2, 3)),  # noqa: DTZ001
        ("DATETIME", "2024-02-29 01:02", datetime(2024, 2, 29, 1, 2)),  # noqa: DTZ001
        ("DATETIME", "2024-02-29", datetime(2024, 2, 29)),  # noqa: DTZ001
        ("DATETIME", "2024-02-29 01:02:03+02:00", None),
        ("DATETIME", "2024-02-29 01:02:03.1234567", None),
        ("DATETIME", "0000-01-01 00:00:00", None),
        ("DATETIME", b"2024-02-29", None),
        ("TIMESTAMPTZ", "2024-02-29 01:02:03+02:00", datetime(2024, 2, 28, 23, 2, 3)),  # noqa: DTZ001
        ("TIMESTAMPTZ", "2024-02-29 01:02:03", None),
        ("timestamp with time zone", "2024-02-29 01:02Z", datetime(2024, 2, 29, 1, 2)),  # noqa: DTZ001
        ("datetime(6)", "2024-02-29 01:02", datetime(2024, 2, 29, 1, 2)),  # noqa: DTZ001
        ("DATE", "2024-02-29 00:00:00", None),
        ("TIME", "01:02", time(1, 2)),
        ("TIME", "24:00:00", None),
        ("DECIMAL(10,2)", 0.1 + 0.2, Decimal("0.30")),
        ("DECIMAL(10,2)", 0.305, None),
        ("DECIMAL(10,2)", float("inf"), None),
        (
            "DECIMAL_TEXT(38,2)",
            "123456789012345678901234567890123456.78",
            Decimal("123456789012345678901234567890123456.78"),
        ),
        ("DECIMAL(20,0)", 2**63 - 1, Decimal(2**63 - 1)),
        ("DECIMAL(39,0)", 5, "5"),
        ("NUMERIC", 1e20, "1e+20"),
        ("NUMERIC", b"1", None),
        ("INTEGER", 2.5, None),
        ("BOOLEAN", 1.5, None),
        ("BLOB", "text", None),
    ],
)
def test_a_value_is_never_bent(
    database: Sqlite, file: Path, type_: str, stored: object, expected: object
) -> None:
    run(file, f"CREATE TABLE t (v {type_})")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO t VALUES (?)", (stored,))
        connection.commit()
    rows, rejected = read(database, "t")
    if expected is None:
        assert rows == []
        assert f"The column v of type {type_} contains the" in rejected[0][1]
    else:
        assert [_naive(row["v"]) for row in rows] == [expected]


_EVERY: dict[str, tuple[Schema, Sequence[Any]]] = {
    "boolean": (Schema.boolean(optional=True), [True, False, None]),
    "int8": (Schema.int8(optional=True), [-128, 127, None]),
    "int64": (Schema.int64(optional=True), [-(2**63), 2**63 - 1, None]),
    "float32": (Schema.float32(optional=True), [1.5, float("-inf"), None]),
    "float64": (Schema.float64(optional=True), [5e-324, 1.7976931348623157e308, None]),
    "string": (Schema.string(optional=True), ["", "nul \0 ä 🎉", None]),
    "bytes": (Schema.bytes(optional=True), [b"", bytes(range(256)), None]),
    "short": (
        Schema.decimal(2, precision=15, optional=True),
        [Decimal("9999999999999.99"), Decimal("-0.01"), None],
    ),
    "tiny": (
        Schema.decimal(15, precision=15, optional=True),
        [Decimal("0.000000000000001"), Decimal("0.123456789012345"), None],
    ),
    "whole": (
        Schema.decimal(0, precision=18, optional=True),
        [Decimal(10**18 - 1), Decimal(1 - 10**18), None],
    ),
    "long": (
        Schema.decimal(10, precision=38, optional=True),
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("1E-10"), None],
    ),
    "date": (Schema.date(optional=True), [date(1, 1, 1), date(9999, 12, 31), None]),
    "local": (
        Schema.local_timestamp(optional=True),
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            None,
        ],
    ),
    "zoned": (
        Schema.timestamp(optional=True),
        [
            datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
            None,
        ],
    ),
    "variant": (Schema.variant(optional=True), ['{"a": 1.50}', "1.50", None]),
}


def test_values_of_every_schema_are_loaded_and_read_back(database: Sqlite) -> None:
    schemas = {name: schema for name, (schema, _) in _EVERY.items()}
    columns = [f'"{name}" {database.column_type(s)}' for name, s in schemas.items()]
    with database.session() as session:
        session.execute(f"CREATE TABLE t ({', '.join(columns)})")
        values = [each for _, each in _EVERY.values()]
        assert load(database, TableName("", "t"), schemas, values, session) == 3
        session.commit()
    rows, rejected = read(database, "t")
    assert rejected == []
    assert rows == [
        {name: values[number] for name, (_, values) in _EVERY.items()} for number in range(3)
    ]
    for column in described(database, "t").columns:
        before, after = schemas[column.name], column.schema
        assert before.is_local == after.is_local
        if before.is_logical and column.name != "variant":
            assert before.name == after.name, column


def test_times_of_day_are_loaded_and_read_back(database: Sqlite) -> None:
    micros = [0, 86_399_999_999]
    batch = pa.record_batch({"t": pa.array(micros, pa.int64())})
    with database.session() as session:
        session.execute(f"CREATE TABLE t (t {database.column_type(Schema.time())})")
        database.load(session, TableName("", "t"), {"t": Schema.time()}, iter([batch]))
        session.commit()
    rows, _ = read(database, "t")
    assert [row["t"] for row in rows] == [time(0), time(23, 59, 59, 999999)]


def test_nan_is_refused_as_sqlite_makes_null_of_it(database: Sqlite) -> None:
    columns, values = {"x": Schema.float64()}, [[1.0, float("nan")]]
    with database.session() as session:
        session.execute("CREATE TABLE t (x REAL)")
        with pytest.raises(RecordError) as raised:
            load(database, TableName("", "t"), columns, values, session)
    assert raised.value.field == "x"


def test_a_decimal_is_refused_where_a_column_keeps_fewer_digits(database: Sqlite) -> None:
    columns = {"x": Schema.decimal(2, precision=20)}
    with database.session() as session:
        session.execute("CREATE TABLE t (x DECIMAL(20,2))")
        session.commit()
        fits = [[Decimal("1234567890123.45"), Decimal("100000000000000000.00")]]
        assert load(database, TableName("", "t"), columns, fits, session) == 2
        session.commit()
        with pytest.raises(RecordError, match="15 digits"):
            load(
                database, TableName("", "t"), columns, [[Decimal("12345678901234.56")]], session
            )
        session.rollback()
    assert [row["x"] for row in read(database, "t")[0]] == fits[0]


def test_decimals_that_are_stored_as_numbers_are_exact(database: Sqlite) -> None:
    schema = Schema.decimal(11, precision=15)
    assert decimals_are_numbers(schema)
    values = [Decimal(number * 7_919_191_919 % 10**15).scaleb(-11) for number in range(20_000)]
    with database.session() as session:
        session.execute(f"CREATE TABLE t (x {database.column_type(schema)})")
        load(database, TableName("", "t"), {"x": schema}, [values], session)
        session.commit()
    assert [row["x"] for row in read(database, "t")[0]] == values


def test_rows_of_any_size_are_read_in_small_batches(database: Sqlite, file: Path) -> None:
    run(
        file,
        "CREATE TABLE t (x BLOB)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) "
        "INSERT INTO t SELECT zeroblob(1000000) FROM n",
    )
    columns = described(database, "t").columns
    batches = [batch for batch, _ in database.read(Select(columns=columns, source="t"))]
    assert sum(batch.num_rows for batch in batches) == 100
    assert max(batch.num_rows for batch in batches[1:]) <= 5


def test_own_types_are_kept(database: Sqlite) -> None:
    own = Schema.string(parameters={COLUMN_TYPE: "sqlite VARCHAR(3)"})
    other = Schema.string(parameters={COLUMN_TYPE: "postgresql uuid"})
    assert database.column_type(own) == "VARCHAR(3)"
    assert database.column_type(other) == "TEXT"
