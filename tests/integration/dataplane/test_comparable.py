"""How values of two systems are compared: equal ones are, after a way there, and others not."""

from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.comparable import comparable
from headrace.sdk import Schema
from headrace.sdk.schema import COLUMN_TYPE, day_micros
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

I8, I64, F32, F64 = Schema.int8(), Schema.int64(), Schema.float32(), Schema.float64()
TEXT, BYTES, YES = Schema.string(), Schema.bytes(), Schema.boolean()
DATE, MOMENT, LOCAL = Schema.date(), Schema.timestamp(), Schema.local_timestamp()
TIME, ANY = Schema.time(), Schema.variant()


def _decimal(precision: int, scale: int) -> Schema:
    return Schema.decimal(scale, precision=precision)


def _coarse(schema: Schema, column: str) -> Schema:
    return schema.replaced(parameters={**schema.parameters, COLUMN_TYPE: column})


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(
        lambda n: Decimal(n).scaleb(-scale, Context(prec=precision))
    )


_MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - of UTC
_LIST, _NAMES = Schema.array(_decimal(10, 2)), Schema.map(TEXT, F64)
_STRUCT = Schema.struct({"a": I64, "b": TEXT.replaced(optional=True)})
_WIDE_STRUCT = Schema.struct({"B": TEXT.replaced(optional=True), "A": _decimal(20, 4)})

PAIRS: dict[str, tuple[Schema, Schema, st.SearchStrategy[Any]]] = {
    "whole numbers of two widths": (I8, I64, st.integers(-128, 127)),
    "whole number and decimal": (I64, _decimal(38, 4), st.integers(-(2**63), 2**63 - 1)),
    "decimals of two scales": (_decimal(10, 2), _decimal(30, 10), _decimals(10, 2)),
    "decimals that no type holds together": (
        _decimal(38, 0), _decimal(38, 20), _decimals(18, 0)),
    "boolean and number": (YES, I8, st.booleans()),
    "floats": (F64, F64, st.floats(allow_nan=False)),
    "float and its double": (F32, F64, st.floats(width=32, allow_nan=False)),
    "decimal and double": (_decimal(15, 4), F64, _decimals(15, 4)),
    "decimal and float": (_decimal(6, 2), F32, _decimals(6, 2)),
    "number and text": (_decimal(20, 4), TEXT, _decimals(20, 4)),
    "double and text": (F64, TEXT, st.floats(allow_nan=False)),
    "boolean and text": (YES, TEXT, st.booleans()),
    "texts": (TEXT, TEXT, st.text(st.characters(codec="utf-8", exclude_characters="\0"))),
    "bytes": (BYTES, BYTES, st.binary()),
    "dates": (DATE, DATE, st.dates(date(1, 1, 2))),
    "date and text": (DATE, TEXT, st.dates(date(1000, 1, 2))),
    "moments": (MOMENT, MOMENT, _MOMENTS),
    "moment and one without a zone": (MOMENT, LOCAL, _MOMENTS),
    "moment and text": (MOMENT, TEXT, _MOMENTS.filter(lambda t: t.year > 1000)),
    "times of day": (TIME, TIME, st.times().map(day_micros)),
    "lists": (_LIST, Schema.array(_decimal(20, 6)), st.lists(_decimals(10, 2), max_size=3)),
    "maps": (_NAMES, _NAMES, st.dictionaries(st.text("ab", max_size=2), st.floats(0, 9))),
    "structs": (_STRUCT, _WIDE_STRUCT,
        st.fixed_dictionaries({"a": st.integers(0, 10**9), "b": st.none() | st.text("xy")})),
}  # fmt: skip


def _there(source: Schema, target: Schema) -> str:
    """Return SQL of what the target holds of the value ``s``."""
    if (source, target) == (_STRUCT, _WIDE_STRUCT):
        return f"CAST(named_struct('B', s.b, 'A', s.a) AS {sql_type(target)})"
    return f"CAST(s AS {sql_type(target)})"


@pytest.mark.spark
@pytest.mark.parametrize("pair", PAIRS)
def test_a_value_is_equal_after_a_way_there_and_to_no_other(
    spark: "SparkSession", pair: str
) -> None:
    source, target, values = PAIRS[pair]

    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(st.lists(values, min_size=2, max_size=12, unique_by=repr))
    def check(found: list[Any]) -> None:
        rows = _pairs(spark, source, target, found)
        for number, (one, other, equal) in enumerate(rows):
            assert equal, (found[number], one, other)
        for n, first in enumerate(found):
            for m, second in enumerate(found):
                if first != second:
                    assert rows[n][0] != rows[m][1], (first, second)

    check()


def _pairs(
    spark: "SparkSession",
    source: Schema,
    target: Schema,
    values: list[Any],
    **options: bool,
) -> list[tuple[Any, Any, bool]]:
    schema = T.StructType.fromJson(to_spark_json(Schema.struct({"s": source})))
    frame = spark.createDataFrame([(each,) for each in values], schema)
    how = comparable(source, target, **options)
    frame = frame.selectExpr("s", f"{_there(source, target)} AS t")
    rows = frame.selectExpr(f"{how.source('s')} AS one", f"{how.target('t')} AS other")
    rows = rows.selectExpr("one", "other", "one <=> other")
    return [(row[0], row[1], row[2]) for row in rows.collect()]


def _equal(
    spark: "SparkSession", source: Schema, one: str, target: Schema, other: str, **how: bool
) -> bool:
    compared = comparable(source, target, **how)
    typed = [f"CAST({one} AS {sql_type(source)})", f"CAST({other} AS {sql_type(target)})"]
    sql = f"{compared.source(typed[0])} <=> {compared.target(typed[1])}"
    return bool(spark.sql(f"SELECT {sql}").collect()[0][0])


_SAME: list[tuple[Schema, str, Schema, str]] = [
    (_decimal(3, 2), "1.50", _decimal(2, 1), "1.5"),
    (F64, "double('NaN')", F64, "double('NaN')"),
    (F64, "-0.0D", F64, "0.0D"),
    (F64, "0.1D", F32, "0.1F"),
    (YES, "true", I8, "1"),
    (TEXT, "'1.50'", _decimal(3, 1), "1.5"),
    (
        ANY,
        """parse_json('{"b": 1.50, "a": [1, null]}')""",
        TEXT,
        """'{"a":[1,null],"b":1.5}'""",
    ),
    (_STRUCT, "named_struct('a', 1, 'b', 'x')", ANY, """parse_json('{"b":"x","a":1}')"""),
    (_NAMES, "map('b', 1, 'a', 2)", _NAMES, "map('a', 2, 'b', 1)"),
    (TEXT, "NULL", I64, "NULL"),
]
_OTHER: list[tuple[Schema, str, Schema, str]] = [
    (I64, "NULL", I64, "0"),
    (TEXT, "''", TEXT, "NULL"),
    (TEXT, "'a'", TEXT, "'A'"),
    (TEXT, "'a '", TEXT, "'a'"),
    (_decimal(20, 10), "1.0000000001", F32, "1.0F"),
    (_decimal(38, 20), "0.12345678901234567891", F64, "0.12345678901234567891D"),
    (_decimal(5, 3), "1.005", _decimal(4, 2), "1.01"),
    (Schema.array(I64), "array(1, NULL)", Schema.array(I64), "array(NULL, 1)"),
    (
        Schema.array(LOCAL),
        "array(timestamp'2024-05-01 10:00:00.123456')",
        Schema.array(LOCAL),
        "array(timestamp'2024-05-01 10:00:00.123')",
    ),
    (ANY, """parse_json('{"a": "1"}')""", TEXT, """'{"a": 1}'"""),
]


@pytest.mark.spark
@pytest.mark.parametrize(("source", "one", "target", "other"), _SAME)
def test_the_same_value_in_another_form_is_equal(
    spark: "SparkSession", source: Schema, one: str, target: Schema, other: str
) -> None:
    assert _equal(spark, source, one, target, other)


@pytest.mark.spark
@pytest.mark.parametrize(("source", "one", "target", "other"), _OTHER)
def test_another_value_differs(
    spark: "SparkSession", source: Schema, one: str, target: Schema, other: str
) -> None:
    assert not _equal(spark, source, one, target, other)


_LOSSES = [
    (MOMENT, "timestamp'2024-05-01 10:00:00.123456'", _coarse(MOMENT, "x timestamp(3)"),
     "timestamp'2024-05-01 10:00:00.123'", "source timestamp(6) → target timestamp(3)"),
    (_decimal(5, 3), "1.005", _decimal(4, 2), "1.01",
     "source decimal(5,3) → target decimal(4,2)"),
    (F64, "1.25D", _decimal(4, 1), "1.3", "source float64 → target decimal(4,1)"),
    (_decimal(38, 20), "0.12345678901234567891", F64, "0.12345678901234568D",
     "source decimal(38,20) → target float64"),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(("source", "one", "target", "other", "loss"), _LOSSES)
def test_digits_that_the_target_cannot_hold_differ_unless_that_is_allowed(  # noqa: PLR0917 - a case
    spark: "SparkSession", source: Schema, one: str, target: Schema, other: str, loss: str
) -> None:
    assert comparable(source, target).loss == loss
    assert not _equal(spark, source, one, target, other)
    assert _equal(spark, source, one, target, other, allow_loss=True)


@pytest.mark.spark
def test_a_target_may_cut_digits_off_instead_of_rounding(spark: "SparkSession") -> None:
    how = comparable(MOMENT, _coarse(MOMENT, "x datetime(0)"), allow_loss=True)
    assert how.truncated is not None
    value = "timestamp'1969-12-31 23:59:58.900000'"
    rounded, cut = spark.sql(f"SELECT {how.source(value)}, {how.truncated(value)}").collect()[0]
    assert (rounded, cut) == (-1_000_000, -2_000_000)


def test_a_type_that_holds_all_digits_loses_none() -> None:
    assert comparable(_coarse(MOMENT, "x timestamp(3)"), MOMENT).loss is None
    assert comparable(I64, _decimal(38, 4)).loss is None
    assert comparable(F64, F32).loss is None
