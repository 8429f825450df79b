"""Every type of PostgreSQL 15, with its extremes."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

from tests.database_tables.table import ODD_TEXTS, Column, Table, Unfit

_DIGITS = "more than 38 digits"
_NUMBER = "a decimal is a finite number"
_YEARS = "years are from 1 to 9999"
_INFINITE = "a time is a finite one"
_MIDNIGHT = "a day ends before 24:00"


def literal(text: str) -> str:
    """Return a text as SQL has it; a backslash is itself."""
    return "'" + text.replace("'", "''") + "'"


def _texts(texts: Iterable[str]) -> list[tuple[str, object]]:
    return [(literal(text), text) for text in texts]


def _as_text(name: str, type_: str, *texts: str | tuple[str, str]) -> Column:
    """Return a column of a type that only this database has, and shows as such texts.

    A pair is what is written and what is shown.
    """
    pairs = [(text, text) if isinstance(text, str) else text for text in texts]
    return Column(name, type_, [(literal(a), b) for a, b in pairs], read="{}::text")


def _numbers(name: str, type_: str, *texts: str | Unfit) -> Column:
    values: list[tuple[str, object]] = [
        (literal(text.text), text) if isinstance(text, Unfit) else (text, Decimal(text))
        for text in texts
    ]
    return Column(name, type_, values, read="{}::text")


def _floats(name: str, type_: str, *texts: str) -> Column:
    return Column(name, type_, [(literal(text), float(text)) for text in texts])


def _times(name: str, type_: str, *values: date | time | Unfit) -> Column:
    """Return a column whose unfit values are read like the others: as text."""
    pairs = [
        (each.text if isinstance(each, Unfit) else each.isoformat(), each) for each in values
    ]
    return Column(name, type_, [(literal(a), b) for a, b in pairs], read="{}::text")


_EVERY_BYTE = bytes(range(256))
_NOT_A_NUMBER = Unfit("NaN", _NUMBER)
_STAMP = datetime(2024, 2, 29, 1, 2, 3, 4)  # noqa: DTZ001 - a type without a zone
_STAMPS = (
    datetime(1970, 1, 1),  # noqa: DTZ001
    datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(1582, 10, 10, 12),  # noqa: DTZ001 - a day that the Julian calendar lost
    datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
    datetime(2024, 2, 29, 23, 59, 59, 123456),  # noqa: DTZ001
    datetime(2024, 3, 31, 2, 30),  # noqa: DTZ001 - an hour that Europe's clocks leave out
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
)


def _far(zone: str) -> list[Unfit]:
    """Return the stamps of PostgreSQL that others do not have."""
    years = ("4714-11-24 00:00:00{} BC", "0001-12-31 23:59:59{} BC", "294276-12-31 23:59:59{}")
    far = [Unfit(text.format(zone), _YEARS) for text in years]
    return [*far, Unfit("infinity", _INFINITE), Unfit("-infinity", _INFINITE)]


_NUMBER_COLUMNS = (
    Column("c_smallint", "smallint", [(str(n), n) for n in (0, -(2**15), 2**15 - 1)]),
    Column("c_integer", "integer", [(str(n), n) for n in (0, -(2**31), 2**31 - 1)]),
    Column("c_bigint", "bigint", [(str(n), n) for n in (0, -(2**63), 2**63 - 1, 2**53 + 1)]),
    _numbers(
        "c_numeric",
        "numeric",
        "0",
        "1.10",
        "-0.000000000000000001",
        "12345678901234567890.123456789012345678",
        "99999999999999999999999999999999999999",
        Unfit("1" + "0" * 50, _DIGITS),
        Unfit("0." + "0" * 50 + "1", _DIGITS),
        _NOT_A_NUMBER,
        Unfit("Infinity", _NUMBER),
        Unfit("-Infinity", _NUMBER),
    ),
    _numbers("c_numeric_10_2", "numeric(10,2)", "0.00", "-99999999.99", "1.10", _NOT_A_NUMBER),
    _numbers("c_numeric_38_0", "numeric(38,0)", "9" * 38, "-" + "9" * 38),
    _numbers("c_numeric_38_38", "numeric(38,38)", "0." + "9" * 38, "-0." + "0" * 37 + "1"),
    _numbers("c_numeric_5_m2", "numeric(5,-2)", "9999900", "-100", "0"),
    _numbers("c_numeric_3_5", "numeric(3,5)", "0.00999", "-0.00001"),
    _numbers(
        "c_numeric_65_30",
        "numeric(65,30)",
        "1." + "0" * 30,
        Unfit("9" * 35 + "." + "9" * 30, _DIGITS),
    ),
    _numbers("c_numeric_1000_0", "numeric(1000,0)", "7", Unfit("-" + "9" * 1000, _DIGITS)),
    Column(
        "c_money",
        "money",
        [
            ("'0'", Decimal("0.00")),
            ("'-92233720368547758.08'", Decimal("-92233720368547758.08")),
            ("'92233720368547758.07'", Decimal("92233720368547758.07")),
        ],
        read="{}::numeric::text",
    ),
    Column(
        "c_real",
        "real",
        [
            ("'0'", 0.0),
            ("'-0'", -0.0),
            ("'NaN'", float("nan")),
            ("'Infinity'", float("inf")),
            ("'-Infinity'", float("-inf")),
            ("'3.4028235e38'", 3.4028234663852886e38),
            ("'1.1754944e-38'", 1.1754943508222875e-38),
            ("'1e-45'", 1.401298464324817e-45),
            ("'0.1'", 0.10000000149011612),
        ],
        read="{}::float8",
    ),
    _floats(
        "c_double",
        "double precision",
        *("0", "-0", "NaN", "Infinity", "-Infinity", "1.7976931348623157e308"),
        *("2.2250738585072014e-308", "5e-324", "0.1", "0.30000000000000004", "1e22"),
    ),
    Column("c_oid", "oid", [("0", 0), ("4294967295", 2**32 - 1)]),
    Column("c_boolean", "boolean", [("true", True), ("false", False)]),
)

_TEXT_COLUMNS = (
    Column("c_char", "char(5)", [("'a'", "a    "), ("''", "     "), ("'é 🎉 b'", "é 🎉 b")]),
    Column("c_char_1", "char", [("'x'", "x"), ("' '", " ")]),
    Column("c_varchar", "varchar(20)", _texts(text for text in ODD_TEXTS if len(text) <= 20)),
    Column("c_varchar_any", "varchar", _texts(ODD_TEXTS)),
    Column("c_text", "text", _texts(ODD_TEXTS)),
    Column("c_text_c", 'text COLLATE "C"', _texts(["a", "B", "ä"])),
    _as_text("c_internal_char", '"char"', "x", ""),
    _as_text("c_name", "name", "x" * 63, ""),
    _as_text(
        "c_uuid", "uuid", "00000000-0000-0000-0000-000000000000", str(UUID(int=2**128 - 1))
    ),
    Column(
        "c_bytea",
        "bytea",
        [
            (f"'\\x{value.hex()}'", value)
            for value in (b"", b"\x00", _EVERY_BYTE, b"\\x41", _EVERY_BYTE * 4096)
        ],
    ),
    _as_text(
        "c_json",
        "json",
        *(
            '{"b": 1,   "a": [1, null, "é"], "b": 2}',
            "null",
            '"text"',
            "12345678901234567890.10",
        ),
        *('{"nul": "\\u0000", "quote": "\\"", "emoji": "🎉"}', "[]", ' {"blank" : true} '),
    ),
    _as_text(
        "c_jsonb",
        "jsonb",
        ('{"b":1, "a":[1,null,"é"], "b":2}', '{"a": [1, null, "é"], "b": 2}'),
        *("null", '"text"', "12345678901234567890.10", '{"emoji": "🎉"}', "[]", "{}"),
    ),
    _as_text("c_xml", "xml", '<a b="c">d &amp; é</a>', "text only", ""),
    _as_text("c_enum", "mood", "sad", "it's ok", "🎉"),
    Column("c_domain", "positive", [("1", 1), ("2147483647", 2**31 - 1)]),
    Column("c_domain_of_text", "word", _texts(["", "trailing  "])),
    _as_text("c_composite", "inventory", '(1,"a, ""b""",2.50)', "(,,)", '(2,"",)'),
    _as_text("c_hstore", "hstore", '"a"=>"1", "b"=>NULL', '"quo\\"te"=>"back\\\\slash"', ""),
    _as_text("c_citext", "citext", "MiXed"),
)

_TIME_COLUMNS = (
    _times(
        "c_date",
        "date",
        *(date(1970, 1, 1), date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29)),
        date(9999, 12, 31),
        *(Unfit("4714-11-24 BC", _YEARS), Unfit("0001-12-31 BC", _YEARS)),
        *(Unfit("5874897-12-31", _YEARS), Unfit("10000-01-01", _YEARS)),
        *(Unfit("infinity", _INFINITE), Unfit("-infinity", _INFINITE)),
    ),
    _times(
        "c_time",
        "time",
        *(time(0), time(23, 59, 59, 999999), time(12, 30, 0, 1)),
        Unfit("24:00:00", _MIDNIGHT),
    ),
    _times("c_time_0", "time(0)", time(0), time(23, 59, 59), Unfit("24:00:00", _MIDNIGHT)),
    _times("c_time_3", "time(3)", time(12, 0, 0, 123000)),
    _as_text("c_timetz", "timetz", "00:00:00+15:59", "23:59:59.999999-15:59", "24:00:00+00"),
    _times("c_timestamp", "timestamp", *_STAMPS, *_far("")),
    _times("c_timestamp_0", "timestamp(0)", *_STAMPS[:1], datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    _times("c_timestamp_3", "timestamp(3)", datetime(2024, 2, 29, 1, 2, 3, 4000)),  # noqa: DTZ001
    _times(
        "c_timestamptz",
        "timestamptz",
        *(each.replace(tzinfo=UTC) for each in _STAMPS),
        *_far("+00"),
    ),
    _times("c_timestamptz_3", "timestamptz(3)", datetime(2024, 2, 29, 1, 2, 3, 4000, UTC)),
    _as_text(
        "c_interval",
        "interval",
        *("00:00:00", "1 year 2 mons -3 days +04:05:06.789012", "-178000000 years"),
        *("2562047788:00:54.775807", "-00:00:00.000001", "1 day -23:59:59"),
    ),
    _as_text("c_interval_day", "interval day to second(3)", "3 days 04:05:06.789"),
)

_OTHER_COLUMNS = (
    _as_text("c_bit", "bit", "1", "0"),
    _as_text("c_bit_8", "bit(8)", "00000001", "11111111"),
    _as_text("c_bit_64", "bit(64)", "1" * 64, "0" * 64),
    _as_text("c_varbit", "varbit", "", "101", "1" * 200),
    _as_text("c_varbit_5", "varbit(5)", "", "10101"),
    _as_text("c_inet", "inet", "192.168.0.1/24", "255.255.255.255/32", "::1/128", "fe80::1/64"),
    _as_text("c_cidr", "cidr", "192.168.0.0/24", "::/0"),
    _as_text("c_macaddr", "macaddr", "08:00:2b:01:02:03"),
    _as_text("c_macaddr8", "macaddr8", "08:00:2b:01:02:03:04:05"),
    _as_text("c_point", "point", "(1.5,-2)", "(NaN,Infinity)"),
    _as_text("c_line", "line", "{1,-1,0}"),
    _as_text("c_lseg", "lseg", "[(0,0),(1,1)]"),
    _as_text("c_box", "box", "(1,1),(0,0)"),
    _as_text("c_path", "path", "[(0,0),(1,1)]", "((0,0),(1,1))"),
    _as_text("c_polygon", "polygon", "((0,0),(1,1),(1,0))"),
    _as_text("c_circle", "circle", "<(0,0),1.5>"),
    _as_text("c_int4range", "int4range", "empty", "(,)", ("[1,5]", "[1,6)"), "[1,)"),
    _as_text("c_int8range", "int8range", "[-9223372036854775808,9223372036854775807)"),
    _as_text("c_numrange", "numrange", "(1.10,2.5]"),
    _as_text("c_daterange", "daterange", "[2024-02-29,2024-03-01)", "[-infinity,infinity)"),
    _as_text("c_tsrange", "tsrange", '["2024-02-29 00:00:00","2024-03-01 00:00:00.000001")'),
    _as_text("c_tstzrange", "tstzrange", '["2024-02-29 00:00:00+00","2024-03-01 00:00:00+00")'),
    _as_text("c_int4multirange", "int4multirange", "{}", "{[1,3),[5,7)}"),
    _as_text("c_int8multirange", "int8multirange", "{[1,3)}"),
    _as_text("c_nummultirange", "nummultirange", "{(,1.5],[2,)}"),
    _as_text("c_datemultirange", "datemultirange", "{[2024-01-01,2024-01-02)}"),
    _as_text("c_tsmultirange", "tsmultirange", '{["2024-02-29 00:00:00",)}'),
    _as_text("c_tstzmultirange", "tstzmultirange", '{["2024-02-29 00:00:00+00",)}'),
    _as_text("c_tsvector", "tsvector", "'a':1A 'fat':2B,4C 'it''s':3", ""),
    _as_text("c_tsquery", "tsquery", "'fat' & ( 'rat' | !'cat':AB )", ""),
    _as_text("c_jsonpath", "jsonpath", '$."a"[*]?(@ > 1)'),
    _as_text("c_pg_lsn", "pg_lsn", "0/0", "FFFFFFFF/FFFFFFFF"),
    _as_text("c_xid", "xid", "4294967295"),
    _as_text("c_xid8", "xid8", "18446744073709551615"),
    _as_text("c_cid", "cid", "4294967295"),
    _as_text("c_tid", "tid", "(4294967295,65535)"),
    _as_text("c_pg_snapshot", "pg_snapshot", "10:20:10,14,15"),
    _as_text("c_txid_snapshot", "txid_snapshot", "10:20:10,14,15"),
    _as_text("c_regclass", "regclass", "pg_class"),
    _as_text("c_regtype", "regtype", "integer", '"char"'),
    _as_text("c_regproc", "regproc", "now"),
    _as_text("c_regprocedure", "regprocedure", "lower(text)"),
    _as_text("c_regoper", "regoper", "||/"),
    _as_text("c_regoperator", "regoperator", "+(integer,integer)"),
    _as_text("c_regnamespace", "regnamespace", "pg_catalog"),
    _as_text("c_regrole", "regrole", "postgres"),
    _as_text("c_regcollation", "regcollation", '"C"'),
    _as_text("c_regconfig", "regconfig", "simple"),
    _as_text("c_regdictionary", "regdictionary", "simple"),
    _as_text("c_int2vector", "int2vector", "1 2 3", ""),
    _as_text("c_oidvector", "oidvector", "1 2 4294967295"),
    _as_text("c_refcursor", "refcursor", "a cursor"),
    _as_text("c_aclitem", "aclitem", "=r/postgres"),
)


def _array(name: str, type_: str, *values: tuple[str, list[object]]) -> Column:
    return Column(name, type_, [(literal(a), b) for a, b in values])


_ARRAY_COLUMNS = (
    _array(
        "c_integers",
        "integer[]",
        ("{}", []),
        ("{1,NULL,-2147483648}", [1, None, -(2**31)]),
        ("{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
        ("[5:6]={1,2}", [1, 2]),  # an array of others begins where it begins
        ("{{{1}}}", [[[1]]]),
    ),
    _array("c_bigints", "bigint[]", ("{9223372036854775807}", [2**63 - 1])),
    _array("c_smallints", "smallint[]", ("{-32768}", [-(2**15)])),
    _array("c_numerics", "numeric(10,2)[]", ("{1.10,NULL}", [Decimal("1.10"), None])),
    _array(
        "c_doubles",
        "float8[]",
        ("{0.1,-0,NaN,-Infinity}", [0.1, -0.0, float("nan"), float("-inf")]),
    ),
    _array("c_booleans", "boolean[]", ("{t,f,NULL}", [True, False, None])),
    Column(
        "c_texts",
        "text[]",
        [
            (f"ARRAY[{', '.join(map(literal, ODD_TEXTS))}]", list(ODD_TEXTS)),
            ("ARRAY[NULL, 'NULL', '']", [None, "NULL", ""]),
            ("ARRAY[]::text[]", []),
        ],
    ),
    _array("c_varchars", "varchar(5)[]", ('{"a,b","{c}"}', ["a,b", "{c}"])),
    _array("c_byteas", "bytea[]", ('{"\\\\x00ff","\\\\x"}', [b"\x00\xff", b""])),
    _array("c_dates", "date[]", ("{2024-02-29,NULL}", [date(2024, 2, 29), None])),
    _array("c_times", "time[]", ("{23:59:59.999999}", [time(23, 59, 59, 999999)])),
    _array("c_timestamps", "timestamp[]", ('{"2024-02-29 01:02:03.000004"}', [_STAMP])),
    _array(
        "c_timestamptzs",
        "timestamptz[]",
        ('{"2024-02-29 01:02:03.000004+00"}', [_STAMP.replace(tzinfo=UTC)]),
    ),
    Column(
        "c_uuids",
        "uuid[]",
        [("ARRAY['00000000-0000-0000-0000-000000000000']::uuid[]", [str(UUID(int=0))])],
        read="{}::text[]",
    ),
    Column(
        "c_jsonbs",
        "jsonb[]",
        [("""ARRAY['{"a": 1}', 'null', NULL]::jsonb[]""", ['{"a": 1}', "null", None])],
        read="{}::text[]",
    ),
    Column("c_moods", "mood[]", [("'{sad,NULL}'", ["sad", None])], read="{}::text[]"),
    Column(
        "c_composites",
        "inventory[]",
        [("ARRAY[ROW(1,'a',2.5)]::inventory[]", ["(1,a,2.50)"])],
        read="{}::text[]",
    ),
)

_MADE_COLUMNS = (
    Column("c_identity", "integer GENERATED ALWAYS AS IDENTITY", of_row=lambda number: number),
    Column("c_serial", "serial", of_row=lambda number: number),
    Column("c_generated", "bigint GENERATED ALWAYS AS (id * 2) STORED", of_row=lambda n: n * 2),
    Column("c_default", "text DEFAULT 'it''s'", of_row=lambda _: "it's"),
)

EVERY_TYPE = Table(
    name="every_type",
    columns=(
        *_NUMBER_COLUMNS,
        *_TEXT_COLUMNS,
        *_TIME_COLUMNS,
        *_OTHER_COLUMNS,
        *_ARRAY_COLUMNS,
        *_MADE_COLUMNS,
    ),
    before=(
        "CREATE EXTENSION hstore",
        "CREATE EXTENSION citext",
        "CREATE TYPE mood AS ENUM ('sad', 'it''s ok', '🎉')",
        "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
        "CREATE DOMAIN word AS varchar(20)",
        "CREATE TYPE inventory AS (count integer, name text, price numeric(10,2))",
    ),
)
"""A table with a column of every type, hstore and citext of PostgreSQL's own contrib too."""

_ODD_NAMES = (
    "select",
    "Case",
    "case",
    "CASE",
    "with blank ",
    " ",
    "dot.ted.name",
    'double"quote',
    "single'quote",
    "back`tick",
    "back\\slash",
    "semi;colon, comma (paren)",
    "percent%s {brace} $1 :name ?",
    "ünïcödé 表 🎉",
    "line\nbreak",
    "1digit",
    "x" * 63,
)

ODD_NAMES = Table(
    name='Odd "names" of.tables; ünd 🎉',
    columns=[Column(name, "text", [(literal(name), name)]) for name in _ODD_NAMES],
)
"""A table whose columns hold their own names."""

TABLES = (EVERY_TYPE, ODD_NAMES)
