"""Every kind of column and table of SQLite, whose columns hold values of any type."""

from datetime import date, datetime, time
from decimal import Decimal

from tests.database_tables.table import KEY, ODD_TEXTS, Column, Table, Unfit

_OTHER = "another type than the column's"
_ANY = "a column of no type"
_SINCE = "a number, of which nothing says since when it counts"
_EVERY_BYTE = bytes(range(256))


def literal(text: str) -> str:
    """Return a text as SQL has it: SQLite's own literals end at a NUL."""
    if "\0" in text:
        return f"CAST(X'{text.encode().hex()}' AS TEXT)"
    return "'" + text.replace("'", "''") + "'"


def _texts(*texts: str) -> list[tuple[str, object]]:
    return [(literal(text), text) for text in texts]


_WHOLE: list[tuple[str, object]] = [
    *((str(n), n) for n in (0, -1, 2**53 + 1, 2**63 - 1)),
    ("-9223372036854775807 - 1", -(2**63)),
]
_REAL: list[tuple[str, object]] = [
    ("0.0", 0.0),
    ("-0.0", 0.0),  # a whole number is kept as such, which has no sign
    ("9e999", float("inf")),
    ("-9e999", float("-inf")),
    ("1.7976931348623157e308", 1.7976931348623157e308),
    ("5e-324", 5e-324),
    ("0.1", 0.1),
    ("9e999 - 9e999", None),  # NaN is null
]
_TEXT = _texts(*ODD_TEXTS, "nul \0 in it", "\0")
_BLOB: list[tuple[str, object]] = [
    (f"X'{value.hex()}'", value) for value in (b"", b"\0", _EVERY_BYTE, _EVERY_BYTE * 4096)
]
_MIXED = [
    ("'text'", Unfit("text", _OTHER)),
    ("2.5", Unfit("2.5", _OTHER)),
    ("X'6162'", Unfit("ab", _OTHER)),
]

_COLUMNS = (
    Column("c_integer", "INTEGER", [*_WHOLE, ("'12'", 12), ("3.0", 3), *_MIXED]),
    Column("c_bigint", "UNSIGNED BIG INT", _WHOLE),
    Column("c_seconds", "INTEGER", [("1709164800", 1709164800)]),
    Column(
        "c_real",
        "REAL",
        [*_REAL, ("7", 7.0), ("'1.5'", 1.5), ("'text'", Unfit("text", _OTHER)), _MIXED[2]],
    ),
    Column("c_double", "DOUBLE PRECISION", _REAL),
    Column("c_text", "TEXT", [*_TEXT, ("1", "1"), ("2.5", "2.5"), ("X'6162'", _MIXED[2][1])]),
    Column("c_varchar", "VARCHAR(3)", _texts("longer than three", "")),
    Column("c_nocase", "CHARACTER(20) COLLATE NOCASE", _texts("a", "B", "a ")),
    Column(
        "c_blob", "BLOB", [*_BLOB, ("'text'", Unfit("text", _OTHER)), ("1", Unfit("1", _OTHER))]
    ),
    Column(
        "c_untyped",
        "",
        [(sql, Unfit(text, _ANY)) for sql, text in (("1", "1"), ("'a'", "a"), ("2.5", "2.5"))],
    ),
    Column("c_numeric", "NUMERIC", [("'12'", Decimal(12)), ("0.1", Decimal("0.1")), _MIXED[0]]),
    Column(
        "c_decimal",
        "DECIMAL(10,5)",
        [
            ("1.50000", Decimal("1.5")),
            ("3", Decimal(3)),
            ("'12345678901234567890.12'", Unfit("1.2345678901234567e+19", "too many digits")),
        ],
    ),
    Column(
        "c_boolean",
        "BOOLEAN",
        [("TRUE", True), ("FALSE", False), ("2", Unfit("2", _OTHER)), _MIXED[0]],
    ),
    Column(
        "c_date",
        "DATE",
        [
            ("'2024-02-29'", date(2024, 2, 29)),
            ("'0001-01-01'", date(1, 1, 1)),
            ("'9999-12-31'", date(9999, 12, 31)),
            ("1709164800", Unfit("1709164800", _SINCE)),
            ("2460369.5", Unfit("2460369.5", _SINCE)),
            ("'2024-02-30'", Unfit("2024-02-30", "no such day")),
            ("'tomorrow'", Unfit("tomorrow", "no date")),
            ("''", Unfit("", "no date")),
        ],
    ),
    Column(
        "c_datetime",
        "DATETIME",
        [
            ("'2024-02-29 01:02:03'", datetime(2024, 2, 29, 1, 2, 3)),  # noqa: DTZ001
            ("'2024-02-29T01:02:03.123456'", datetime(2024, 2, 29, 1, 2, 3, 123456)),  # noqa: DTZ001
            ("'9999-12-31 23:59:59.999'", datetime(9999, 12, 31, 23, 59, 59, 999000)),  # noqa: DTZ001
            ("1709168523123", Unfit("1709168523123", _SINCE)),
            ("'soon'", Unfit("soon", "no time")),
        ],
    ),
    Column(
        "c_time",
        "TIME",
        [("'01:02:03'", time(1, 2, 3)), ("'25:00'", Unfit("25:00", "no time"))],
    ),
    Column("c_json", "JSON", [("'{\"a\": [1, null]}'", '{"a": [1, null]}')]),
    Column("c_virtual", "INTEGER GENERATED ALWAYS AS (id * 2) VIRTUAL", of_row=lambda n: n * 2),
    Column("c_stored", "INTEGER GENERATED ALWAYS AS (id * 3) STORED", of_row=lambda n: n * 3),
    Column("c_default", "TEXT DEFAULT 'it''s'", of_row=lambda _: "it's"),
)

EVERY_AFFINITY = Table(name="every_affinity", columns=_COLUMNS)
"""A table with columns of every affinity and values that are not of their column's type."""

ROWID_KEY = Table(name="rowid_key", columns=_COLUMNS, key_type="INTEGER")
"""The same, where the key is the rowid."""

NO_KEY = Table(name="no_key", columns=_COLUMNS, key=None)
"""The same, where nothing but the rowid tells one row from the other."""

WITHOUT_ROWID = Table(
    name="without_rowid",
    columns=(
        Column("k_text", "TEXT NOT NULL", _texts("a", "a", "", "nul \0 in it")),
        Column("c_text", "TEXT", _texts("", "trailing  ")),
    ),
    key=f"PRIMARY KEY (k_text, {KEY})",
    options="WITHOUT ROWID",
)

STRICT = Table(
    name="strict",
    columns=(
        Column("c_int", "INT", [*_WHOLE, ("'12'", 12)]),
        Column("c_integer", "INTEGER", _WHOLE),
        Column("c_real", "REAL", [*_REAL, ("7", 7.0)]),
        Column("c_text", "TEXT", _TEXT),
        Column("c_blob", "BLOB", _BLOB),
        Column(
            "c_any",
            "ANY",
            [
                (sql, Unfit(text, _ANY))
                for sql, text in (("1", "1"), ("'01'", "01"), ("2.5", "2.5"))
            ],
        ),
    ),
    key_type="INTEGER NOT NULL",
    options="STRICT",
)

_ODD_NAMES = (
    "select",
    "Case",
    "with blank ",
    "",
    "dot.ted.name",
    'double"quote',
    "single'quote",
    "back`tick [bracket]",
    "back\\slash",
    "semi;colon, comma (paren)",
    "percent%s {brace} $1 :name ?",
    "ünïcödé 表 🎉",
    "line\nbreak",
    "1digit",
    "x" * 300,
)

ODD_NAMES = Table(
    name='Odd "names" of.tables; ünd 🎉',
    columns=[Column(name, "TEXT", [(literal(name), name)]) for name in _ODD_NAMES],
)
"""A table whose columns hold their own names; they may not differ in case alone."""

TABLES = (EVERY_AFFINITY, ROWID_KEY, NO_KEY, WITHOUT_ROWID, STRICT, ODD_NAMES)
