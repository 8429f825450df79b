"""Every type of Delta Lake, with its extremes, as Spark's SQL writes values."""

from datetime import UTC, date, datetime
from decimal import Decimal

from tests.database_tables.table import ODD_TEXTS, Column, Table

_EVERY_BYTE = bytes(range(256))
_FLOATS = ("0", "-0", "NaN", "Infinity", "-Infinity", "0.1")
_STAMPS = (
    datetime(1970, 1, 1),  # noqa: DTZ001 - a type without a zone
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(1582, 10, 10, 12),  # noqa: DTZ001
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
)


def literal(text: str) -> str:
    """Return a text as SQL has it, where a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _whole(type_: str, bits: int) -> Column:
    values = (0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return Column(f"c_{type_.lower()}", type_, [(f"'{n}'", n) for n in values])


def _decimals(type_: str, *texts: str) -> Column:
    name = type_.lower().replace("(", "_").replace(",", "_").removesuffix(")")
    return Column(f"c_{name}", type_, [(f"'{text}'", Decimal(text)) for text in texts])


def _floats(type_: str, *texts: str) -> Column:
    return Column(
        f"c_{type_.lower()}", type_, [(f"'{t}'", float(t)) for t in (*_FLOATS, *texts)]
    )


_TEXTS = (*ODD_TEXTS, "nul \0 in it")
_FINE = "timestamp_ntz'2024-02-29 01:02:03.000004'"

EVERY_TYPE = Table(
    name="every_type",
    quote="`",
    key_type="BIGINT",
    columns=(
        _whole("TINYINT", 8),
        _whole("SMALLINT", 16),
        _whole("INT", 32),
        _whole("BIGINT", 64),
        _decimals("DECIMAL(10,2)", "0", "-99999999.99", "1.10"),
        _decimals("DECIMAL(38,0)", "9" * 38, "-" + "9" * 38),
        _decimals("DECIMAL(38,38)", "0." + "9" * 38, "-0." + "0" * 37 + "1"),
        _floats("FLOAT", "3.4028234663852886e38", "1.1754943508222875e-38"),
        _floats("DOUBLE", "1.7976931348623157e308", "5e-324", "0.30000000000000004"),
        Column("c_boolean", "BOOLEAN", [("true", True), ("false", False)]),
        Column("c_string", "STRING", [(literal(text), text) for text in _TEXTS]),
        Column(
            "c_binary",
            "BINARY",
            [(f"X'{value.hex()}'", value) for value in (b"", b"\0", _EVERY_BYTE)],
        ),
        Column(
            "c_date",
            "DATE",
            [(f"'{d}'", d) for d in (date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31))],
        ),
        Column(
            "c_timestamp",
            "TIMESTAMP",
            [(f"'{each}+00:00'", each.replace(tzinfo=UTC)) for each in _STAMPS],
        ),
        Column("c_timestamp_ntz", "TIMESTAMP_NTZ", [(f"'{each}'", each) for each in _STAMPS]),
        Column(
            "c_bigints",
            "ARRAY<BIGINT>",
            [("array()", []), ("array(1, NULL, 9223372036854775807)", [1, None, 2**63 - 1])],
        ),
        Column(
            "c_texts",
            "ARRAY<STRING>",
            [(f"array({', '.join(map(literal, ODD_TEXTS))})", list(ODD_TEXTS))],
        ),
        Column(
            "c_doubles",
            "ARRAY<DOUBLE>",
            [
                ("array(0.1D, 5e-324D, -0D)", [0.1, 5e-324, -0.0]),
                ("array('NaN', '-Infinity')", [float("nan"), float("-inf")]),
            ],
        ),
        Column("c_binaries", "ARRAY<BINARY>", [("array(X'00ff', X'')", [b"\0\xff", b""])]),
        Column(
            "c_decimals",
            "ARRAY<DECIMAL(38,18)>",
            [
                (
                    "array(12345678901234567890.123456789012345678BD)",
                    [Decimal("12345678901234567890.123456789012345678")],
                )
            ],
        ),
        Column(
            "c_stamps",
            "ARRAY<TIMESTAMP_NTZ>",
            [(f"array({_FINE}, NULL)", ["2024-02-29T01:02:03.000004", None])],
        ),
        Column(
            "c_map",
            "MAP<STRING,INT>",
            [("map()", {}), ("map('a \"b\"', 1, '', NULL)", {'a "b"': 1, "": None})],
        ),
        Column(
            "c_struct",
            "STRUCT<a: INT, b: STRING, c: ARRAY<STRUCT<d: DATE>>>",
            [
                (
                    "named_struct('a', NULL, 'b', '🎉', 'c', array(named_struct('d', NULL)))",
                    {"a": None, "b": "🎉", "c": [{"d": None}]},
                ),
                (
                    "named_struct('a', 1, 'b', NULL, 'c', NULL)",
                    {"a": 1, "b": None, "c": None},
                ),
            ],
        ),
    ),
)
"""A table with a column of every type."""
