"""Every type of MariaDB 10.11, with its extremes.

The session's `sql_mode` is the server's own, which lets a date be zero.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal

from tests.database_tables.table import ODD_TEXTS, Column, Table, Unfit

_DIGITS = "more than 38 digits"
_ZERO = "no month or day is zero"
_NO_TIME_OF_DAY = "a time of day is from 00:00 to 24:00"
_ESCAPES = str.maketrans({"'": "''", "\\": "\\\\", "\0": "\\0"})


def literal(text: str) -> str:
    """Return a text as SQL has it, where a backslash escapes."""
    return f"'{text.translate(_ESCAPES)}'"


def _texts(texts: Iterable[str]) -> list[tuple[str, object]]:
    return [(literal(text), text) for text in texts]


def _whole(name: str, type_: str, bits: int) -> tuple[Column, Column]:
    signed = (0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (
        Column(f"c_{name}", type_, [(str(n), n) for n in signed]),
        Column(
            f"c_{name}_unsigned",
            f"{type_} UNSIGNED",
            [("0", 0), (str(2**bits - 1), 2**bits - 1)],
        ),
    )


def _numbers(name: str, type_: str, *texts: str | Unfit) -> Column:
    values: list[tuple[str, object]] = [
        (text.text, text) if isinstance(text, Unfit) else (text, Decimal(text))
        for text in texts
    ]
    return Column(name, type_, values, read="CAST({} AS CHAR)")


def _as_text(name: str, type_: str, *texts: str | tuple[str, str], read: str = "{}") -> Column:
    """Return a column of a type that only this database has, and shows as such texts.

    A pair is what is written and what is shown.
    """
    pairs = [(text, text) if isinstance(text, str) else text for text in texts]
    return Column(name, type_, [(literal(a), b) for a, b in pairs], read=read)


def _times(name: str, type_: str, *values: date | time | Unfit) -> Column:
    pairs = [
        (each.text if isinstance(each, Unfit) else str(each).removesuffix("+00:00"), each)
        for each in values
    ]
    return Column(name, type_, [(literal(a), b) for a, b in pairs], read="CAST({} AS CHAR)")


def _bytes(name: str, type_: str, *values: bytes, shown: int = 0) -> Column:
    """Return a column of bytes, which is filled up to so many that are shown."""
    return Column(
        name, type_, [(f"X'{value.hex()}'", value.ljust(shown, b"\0")) for value in values]
    )


def _shape(type_: str, *texts: str) -> Column:
    values: list[tuple[str, object]] = [(f"ST_GeomFromText('{text}')", text) for text in texts]
    return Column(f"c_{type_}", type_, values, read="ST_AsText({})")


_EVERY_BYTE = bytes(range(256))
_TEXTS = (*ODD_TEXTS, "nul \0 in it")
_SHORT_TEXTS = [text for text in _TEXTS if len(text.encode()) <= 255]
_STAMP = datetime(2024, 2, 29, 1, 2, 3, 456789)  # noqa: DTZ001 - a type without a zone
_ZERO_STAMPS = (
    Unfit("0000-00-00 00:00:00.000000", _ZERO),
    Unfit("2024-00-00 01:02:03.000000", _ZERO),
)

_NUMBER_COLUMNS = (
    *_whole("tinyint", "TINYINT", 8),
    *_whole("smallint", "SMALLINT", 16),
    *_whole("mediumint", "MEDIUMINT", 24),
    *_whole("int", "INT", 32),
    *_whole("bigint", "BIGINT", 64),
    Column("c_int_zerofill", "INT(6) ZEROFILL", [("42", 42)]),
    # A BOOLEAN is a TINYINT(1), whose numbers are not only 0 and 1.
    Column("c_boolean", "BOOLEAN", [("TRUE", 1), ("FALSE", 0), ("127", 127), ("-128", -128)]),
    _numbers("c_decimal", "DECIMAL", "0", "-9999999999"),
    _numbers("c_decimal_10_2", "DECIMAL(10,2)", "0.00", "-99999999.99", "1.10"),
    _numbers("c_decimal_unsigned", "DECIMAL(10,2) UNSIGNED", "99999999.99"),
    _numbers("c_decimal_38_0", "DECIMAL(38,0)", "9" * 38, "-" + "9" * 38),
    _numbers("c_decimal_38_38", "DECIMAL(38,38)", "0." + "9" * 38),
    _numbers(
        "c_decimal_65_30",
        "DECIMAL(65,30)",
        "1." + "0" * 30,
        Unfit("-" + "9" * 35 + "." + "9" * 30, _DIGITS),
    ),
    _numbers("c_decimal_65_0", "DECIMAL(65,0)", "7", Unfit("9" * 65, _DIGITS)),
    Column(
        "c_float",
        "FLOAT",
        [
            ("0", 0.0),
            ("3.4028234e38", 3.4028234663852886e38),
            ("1.17549435e-38", 1.1754943508222875e-38),
            ("0.1", 0.10000000149011612),
            ("16777217", 16777216.0),
        ],
        read="CAST({} AS DOUBLE)",  # as text a FLOAT is rounded to six digits
    ),
    Column(
        "c_double",
        "DOUBLE",
        [
            (text, float(text))
            for text in (
                *("0", "1.7976931348623157e308", "2.2250738585072014e-308", "5e-324"),
                *("0.1", "0.30000000000000004", "1e22"),
            )
        ],
    ),
    Column(
        "c_float_7_3",
        "FLOAT(7,3)",
        [("1234.567", 1234.5670166015625)],
        read="CAST({} AS DOUBLE)",
    ),
    Column("c_double_15_4", "DOUBLE(15,4)", [("12345678901.2345", 12345678901.2345)]),
    Column("c_bit", "BIT", [("b'1'", b"\1"), ("b'0'", b"\0")]),
    Column("c_bit_9", "BIT(9)", [("b'101'", b"\0\5"), ("b'111111111'", b"\1\xff")]),
    Column("c_bit_64", "BIT(64)", [("0", bytes(8)), ("~0", b"\xff" * 8)]),
)

_TEXT_COLUMNS = (
    # Trailing blanks of a CHAR are not kept.
    Column(
        "c_char",
        "CHAR(5)",
        [("'a'", "a"), ("''", ""), ("'b    '", "b"), ("'é 🎉 b'", "é 🎉 b")],
    ),
    Column("c_char_0", "CHAR(0)", [("''", "")]),
    Column("c_varchar", "VARCHAR(255)", _texts(_SHORT_TEXTS)),
    Column("c_varchar_bin", "VARCHAR(20) COLLATE utf8mb4_bin", _texts(["a", "A", "ä", "a "])),
    Column("c_varchar_latin1", "VARCHAR(20) CHARACTER SET latin1", _texts(["ÿ é €", ""])),
    Column("c_varchar_utf8mb3", "VARCHAR(20) CHARACTER SET utf8mb3", _texts(["表 é"])),
    Column("c_varchar_utf16", "VARCHAR(20) CHARACTER SET utf16", _texts(["表 é 🎉"])),
    Column("c_tinytext", "TINYTEXT", _texts(_SHORT_TEXTS)),
    Column("c_text", "TEXT", _texts([*_SHORT_TEXTS, "x" * 65535])),
    Column("c_mediumtext", "MEDIUMTEXT", _texts(_TEXTS)),
    Column("c_longtext", "LONGTEXT", _texts(_TEXTS)),
    Column("c_text_compressed", "TEXT COMPRESSED", _texts(["x" * 1000, ""])),
    _bytes("c_binary", "BINARY(5)", b"", b"ab\0", b"\xff" * 5, shown=5),
    _bytes("c_varbinary", "VARBINARY(256)", b"", b"\0", b"a ", _EVERY_BYTE),
    _bytes("c_tinyblob", "TINYBLOB", b"", _EVERY_BYTE[:255]),
    _bytes("c_blob", "BLOB", b"", _EVERY_BYTE, b"\0" * 65535),
    _bytes("c_mediumblob", "MEDIUMBLOB", b"", _EVERY_BYTE * 4096),
    _bytes("c_longblob", "LONGBLOB", b"", _EVERY_BYTE * 4096),
    _as_text("c_enum", "ENUM('sad', 'it''s ok', '🎉', '')", "sad", "it's ok", "🎉", ""),
    _as_text("c_set", "SET('a', 'b', 'é')", "", "a", ("é,a", "a,é"), "a,b,é"),
    _as_text(
        "c_json",
        "JSON",
        *(
            '{"b": 1,   "a": [1, null, "é"], "b": 2}',
            "null",
            '"text"',
            "12345678901234567890.10",
        ),
        *('{"nul": "\\u0000", "quote": "\\"", "emoji": "🎉"}', "[]", ' {"blank" : true} '),
    ),
    _as_text(
        "c_uuid",
        "UUID",
        *("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
        ("123E4567-E89B-12D3-A456-426655440000", "123e4567-e89b-12d3-a456-426655440000"),
    ),
    _as_text("c_inet4", "INET4", "0.0.0.0", "255.255.255.255"),  # noqa: S104 - a value
    _as_text("c_inet6", "INET6", "::", "2001:db8::ff00:42:8329", "::ffff:192.0.2.1"),
)

_TIME_COLUMNS = (
    _times(
        "c_date",
        "DATE",
        *(date(1970, 1, 1), date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29)),
        date(9999, 12, 31),
        *(Unfit("0000-00-00", _ZERO), Unfit("2024-00-00", _ZERO), Unfit("2024-02-00", _ZERO)),
        Unfit("0000-01-01", "years are from 1 to 9999"),
    ),
    _times(
        "c_time",
        "TIME",
        *(time(0), time(23, 59, 59)),
        *(Unfit("-00:00:01", _NO_TIME_OF_DAY), Unfit("24:00:00", _NO_TIME_OF_DAY)),
        *(Unfit("838:59:59", _NO_TIME_OF_DAY), Unfit("-838:59:59", _NO_TIME_OF_DAY)),
    ),
    _times("c_time_3", "TIME(3)", time(1, 2, 3, 4000)),
    _times(
        "c_time_6",
        "TIME(6)",
        *(time(0), time(23, 59, 59, 999999)),
        Unfit("838:59:59.999999", _NO_TIME_OF_DAY),
        Unfit("-00:00:00.000001", _NO_TIME_OF_DAY),
    ),
    *(
        _times(
            f"c_datetime_{digits}",
            f"DATETIME({digits})",
            _STAMP.replace(microsecond=456789 // 10 ** (6 - digits) * 10 ** (6 - digits)),
        )
        for digits in range(6)
    ),
    _times(
        "c_datetime_6",
        "DATETIME(6)",
        *(
            datetime(1970, 1, 1),  # noqa: DTZ001
            datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
            datetime(1, 1, 1),  # noqa: DTZ001
            datetime(1582, 10, 10, 12),  # noqa: DTZ001
            datetime(2024, 3, 31, 2, 30),  # noqa: DTZ001
            datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        ),
        *_ZERO_STAMPS,
    ),
    _times(
        "c_timestamp",
        "TIMESTAMP NULL",
        *(
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
        ),
        Unfit("0000-00-00 00:00:00", _ZERO),
    ),
    _times(
        "c_timestamp_6",
        "TIMESTAMP(6) NULL",
        _STAMP.replace(tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
    ),
    Column("c_year", "YEAR", [("1901", 1901), ("2155", 2155), ("0000", 0)]),
)

_SHAPE_COLUMNS = (
    _shape("geometry", "POINT(1.5 -2)", "LINESTRING(0 0,1 1)"),
    _shape("point", "POINT(0 0)"),
    _shape("linestring", "LINESTRING(0 0,1 1)"),
    _shape("polygon", "POLYGON((0 0,1 0,1 1,0 0))"),
    _shape("multipoint", "MULTIPOINT(0 0,1 1)"),
    _shape("multilinestring", "MULTILINESTRING((0 0,1 1),(2 2,3 3))"),
    _shape("multipolygon", "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"),
    _shape("geometrycollection", "GEOMETRYCOLLECTION(POINT(0 0),LINESTRING(0 0,1 1))"),
)

_MADE_COLUMNS = (
    Column("c_virtual", "BIGINT GENERATED ALWAYS AS (id * 2) VIRTUAL", of_row=lambda n: n * 2),
    Column("c_stored", "BIGINT GENERATED ALWAYS AS (id * 3) STORED", of_row=lambda n: n * 3),
    Column("c_auto", "BIGINT NOT NULL AUTO_INCREMENT UNIQUE", of_row=lambda number: number),
    Column("c_default", "VARCHAR(9) DEFAULT 'it''s'", of_row=lambda _: "it's"),
    Column("c_invisible", "INT INVISIBLE DEFAULT 7", of_row=lambda _: 7),
)

EVERY_TYPE = Table(
    name="every_type",
    quote="`",
    columns=(
        *_NUMBER_COLUMNS,
        *_TEXT_COLUMNS,
        *_TIME_COLUMNS,
        *_SHAPE_COLUMNS,
        *_MADE_COLUMNS,
    ),
)
"""A table with a column of every type."""

_ODD_NAMES = (
    "select",
    "Case",
    "with blank",
    " leading",
    "dot.ted.name",
    'double"quote',
    "single'quote",
    "back`tick",
    "back\\slash",
    "semi;colon, comma (paren)",
    "percent%s {brace} $1 :name ?",
    "ünïcödé 表",
    "line\nbreak",
    "1digit",
    "x" * 64,
)

ODD_NAMES = Table(
    name='Odd `names` of.tables; "ünd"',
    quote="`",
    columns=[Column(name, "TEXT", [(literal(name), name)]) for name in _ODD_NAMES],
)
"""A table whose columns hold their own names; they may not differ in case alone."""

TABLES = (EVERY_TYPE, ODD_NAMES)
