"""Casts of values, as Java does them."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from tests.integration.transforms.outcomes import (
    Trial,
    outcomes,
    shape_after,
    step,
    with_schema,
)

from headrace.sdk import ConfigErrors, RecordError, Schema, Type
from headrace_plugins.transforms.cast import Cast, cast_value

pytestmark = pytest.mark.spark

OUT_OF_RANGE = "Value ({}) was out of range for requested data type"
S8, S16, S32, S64 = Schema.int8(), Schema.int16(), Schema.int32(), Schema.int64()
F32, F64, TEXT, FLAG = Schema.float32(), Schema.float64(), Schema.string(), Schema.boolean()
DEC2, DEC9 = Schema.decimal(2), Schema.decimal(9)
DAY, CLOCK, INSTANT = Schema.date(), Schema.time(), Schema.timestamp()
NAN, INF = float("nan"), float("inf")


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


CASTS: list[tuple[Schema, Any, str, Any]] = [
    (S64, 300, "int8", 44),
    (S64, -129, "int8", 127),
    (S16, 128, "int8", -128),
    (S64, 2**31, "int32", -(2**31)),
    (S64, 2**63 - 1, "int16", -1),
    (S32, 70000, "int16", 4464),
    (S64, 2**53 + 1, "float64", 2.0**53),
    (S64, 16777217, "float32", 16777216.0),
    (S64, 0, "boolean", False),
    (S64, 2**32, "boolean", True),
    (S8, -5, "string", "-5"),
    (F64, 3.99, "int32", 3),
    (F64, -3.99, "int64", -3),
    (F64, 1e10, "int32", 2**31 - 1),
    (F64, -1e10, "int32", -(2**31)),
    (F64, 1e10, "int8", -1),
    (F64, -1e10, "int16", 0),
    (F64, 300.7, "int8", 44),
    (F64, 1e300, "int64", 2**63 - 1),
    (F64, -INF, "int64", -(2**63)),
    (F64, NAN, "int32", 0),
    (F64, NAN, "boolean", False),
    (F64, 0.9, "boolean", False),
    (F64, -1.0, "boolean", True),
    (F64, 1e300, "float32", INF),
    (F64, 1e10, "string", "1.0E10"),
    (F64, 0.001, "string", "0.001"),
    (F64, 1234567.0, "string", "1234567.0"),
    (F64, 1e-7, "string", "1.0E-7"),
    (F64, -INF, "string", "-Infinity"),
    (F32, 1.5, "string", "1.5"),
    (F32, 0.1, "string", "0.1"),
    (F32, 1.5, "float64", 1.5),
    (F32, 3e9, "int32", 2**31 - 1),
    (FLAG, True, "int8", 1),
    (FLAG, False, "float64", 0.0),
    (FLAG, True, "string", "true"),
    (TEXT, "+12", "int8", 12),
    (TEXT, "-0", "int16", 0),
    (TEXT, "9223372036854775807", "int64", 2**63 - 1),
    (TEXT, "128", "int8", OUT_OF_RANGE),
    (TEXT, " 1", "int32", OUT_OF_RANGE),
    (TEXT, "1\n", "int32", OUT_OF_RANGE),
    (TEXT, "1.0", "int32", OUT_OF_RANGE),
    (TEXT, "", "int64", OUT_OF_RANGE),
    (TEXT, "-", "int64", OUT_OF_RANGE),
    (TEXT, "1e3", "float64", 1000.0),
    (TEXT, " 2.5 ", "float32", 2.5),
    (TEXT, "1e999", "float64", INF),
    (TEXT, "1.5d", "float64", 1.5),
    (TEXT, ".5f", "float32", 0.5),
    (TEXT, "-Infinity", "float64", -INF),
    (TEXT, "-0x1.8p3", "float64", -12.0),
    (TEXT, "inf", "float64", OUT_OF_RANGE),
    (TEXT, "nan", "float32", OUT_OF_RANGE),
    (TEXT, "1,5", "float64", OUT_OF_RANGE),
    (TEXT, "TrUe", "boolean", True),
    (TEXT, "yes", "boolean", False),
    (TEXT, " true", "boolean", False),
    (Schema.bytes(), b"\x00" * 60, "string", "A" * 80),
    (Schema.bytes(), b"a", "int8", "Unexpected type in Cast transformation: class [B"),
    (DEC2, Decimal("12.99"), "int32", 12),
    (DEC2, Decimal("-12.99"), "int64", -12),
    (DEC2, Decimal("300.00"), "int8", 44),
    (DEC2, Decimal("18446744073709551617.50"), "int64", 1),
    (DEC2, Decimal("-9223372036854775809.00"), "int64", 2**63 - 1),
    (DEC2, Decimal("0.99"), "boolean", False),
    (DEC2, Decimal("1.50"), "string", "1.50"),
    (DEC2, Decimal("0.10"), "float64", 0.1),
    (DEC9, Decimal("1E-9"), "string", "1E-9"),
    (DEC9, Decimal("-0.000000120"), "string", "-1.20E-7"),
    (DEC9, Decimal("0E-9"), "string", "0E-9"),
    (DEC9, Decimal("0.000001000"), "string", "0.000001000"),
    (DAY, date(2020, 5, 17), "string", "2020-05-17"),
    (DAY, date(1970, 1, 1), "string", "00:00:00.000Z"),
    (DAY, date(1969, 1, 1), "string", "00:00:00.000Z"),
    (DAY, date(1970, 1, 3), "int32", 2),
    (DAY, date(2020, 5, 17), "int8", -33),
    (CLOCK, time(1, 2, 3, 4999), "string", "01:02:03.004Z"),
    (CLOCK, time(0, 0, 1, 5999), "int64", 1005),
    (INSTANT, at(2020, 5, 17, 1, 2, 3, 4999), "string", "2020-05-17T01:02:03.004Z"),
    (INSTANT, at(2020, 5, 17), "string", "2020-05-17"),
    (INSTANT, at(1970, 1, 1, 23), "string", "23:00:00.000Z"),
    (INSTANT, at(1969, 12, 31, 23, 59, 59, 999_000), "int64", -1),
    (INSTANT, at(1970, 1, 1, 0, 0, 2), "boolean", True),
]


def test_values_are_cast_as_java_does_in_fields_and_as_a_whole(spark) -> None:
    trials = [Trial(step(Cast, {"spec": kind}), with_schema(s, v)) for s, v, kind, _ in CASTS]
    trials += [
        Trial(
            step(Cast, {"spec": f"f:{kind}"}),
            with_schema(Schema.struct({"f": s.replaced(optional=True)}), {"f": v}),
        )
        for s, v, kind, _ in CASTS
    ]
    found = outcomes(spark, trials)
    told = [
        item["message"] if "error" in item else item["value"] for item in found[: len(CASTS)]
    ]
    wanted = [
        want.format(value) if isinstance(want, str) else want for _, value, _, want in CASTS
    ]
    assert dict(enumerate(told)) == dict(enumerate(wanted))
    fields = [
        item["message"] if "error" in item else item["value"]["f"]
        for item in found[len(CASTS) :]
    ]
    assert dict(enumerate(fields)) == dict(enumerate(wanted))


@pytest.mark.parametrize(("schema", "value", "kind", "want"), CASTS)
def test_defaults_are_cast_like_values(
    schema: Schema, value: object, kind: str, want: object
) -> None:
    target = Type(kind.upper())
    if isinstance(want, str) and target is not Type.STRING:
        with pytest.raises(RecordError) as caught:
            cast_value(schema, value, target)
        assert caught.value.problem == want.format(value)
    else:
        assert cast_value(schema, value, target) == want


def test_fields_keep_that_they_are_optional_and_their_defaults(spark) -> None:
    schema = Schema.struct(
        {
            "a": Schema.string(optional=True, default="7", doc="gone"),
            "b": Schema.int64(optional=True),
            "c": Schema.array(Schema.int8(), optional=True),
        },
        name="n",
        version=3,
    )
    nulls = with_schema(schema, {})
    trials = [
        Trial(step(Cast, {"spec": "a:int32,b:boolean,c:string,zz:int8"}), nulls),
        Trial(step(Cast, {"spec": "a:int32", "replace.null.with.default": "false"}), nulls),
        Trial(step(Cast, {"spec": "c:string"}), with_schema(schema, {"c": [1]})),
        Trial(step(Cast, {"spec": "string"}), nulls),
        Trial(step(Cast, {"spec": "b:int8"}), with_schema(Schema.string(), "x")),
        Trial(step(Cast, {"spec": "b:int8"}), with_schema(Schema.string(optional=True), None)),
    ]
    found = outcomes(spark, trials)
    assert found[0]["value"] == {"a": 7, "b": None, "c": None}
    assert found[1]["value"] == {"a": None, "b": None, "c": None}
    kinds = "[INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES]"
    refused = (
        "Cast transformation does not support casting from {}; supported types are " + kinds
    )
    assert [item.get("message") for item in found[2:]] == [
        refused.format("ARRAY"),
        refused.format("STRUCT"),
        "Cannot list fields on non-struct type",
        None,
    ]
    after = trials[0].step.apply(trials[0].shape).value.schema
    assert after == Schema.struct(
        {
            "a": Schema.int32(optional=True, default=7),
            "b": Schema.boolean(optional=True),
            "c": Schema.string(optional=True),
        },
        name="n",
        version=3,
    )


def test_a_default_that_cannot_be_cast_rejects_every_record(spark) -> None:
    schema = Schema.struct({"a": Schema.string(default="x")})
    found = outcomes(
        spark, [Trial(step(Cast, {"spec": "a:int8"}), with_schema(schema, {"a": "1"}))]
    )
    assert found[0]["message"] == OUT_OF_RANGE.format("x")


def test_a_logical_type_that_is_cast_as_a_whole_becomes_a_plain_one() -> None:
    trial = Trial(step(Cast, {"spec": "int32"}), with_schema(Schema.date(), date(1970, 1, 2)))
    assert shape_after(trial).value.schema == Schema.int32()
    named = Schema.int64(name="n", version=1, doc="d", parameters={"p": "q"}, default=300)
    trial = Trial(step(Cast, {"spec": "int8"}), with_schema(named, 1))
    assert shape_after(trial).value.schema == Schema.int8(
        name="n", version=1, doc="d", parameters={"p": "q"}, default=44
    )


def test_nested_fields_are_cast_where_their_parents_are(spark) -> None:
    inner = Schema.struct({"x.y": Schema.string()}, optional=True)
    schema = Schema.struct({"in": inner, "n": Schema.int32()})
    second = {"spec": "in.`x.y`:int32,n.no:int8,no.x:int8", "field.syntax.version": "V2"}
    values = [{"in": {"x.y": "5"}, "n": 1}, {"n": 1}, {"in": {"x.y": "q"}, "n": 1}]
    trials = [Trial(step(Cast, second), with_schema(schema, value)) for value in values]
    found = outcomes(spark, trials)
    assert found[0]["value"] == {"in": {"x.y": 5}, "n": 1}
    assert found[1]["value"] == {"in": None, "n": 1}
    assert found[2]["message"] == OUT_OF_RANGE.format("q")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("int8,a:int8", "Cast transformations that specify a type to cast the entire value to"),
        ("a:b:int8", "Invalid value [a:b:int8] for configuration renames: Invalid rename"),
        ("a:", "Invalid type found in casting spec: a"),
        ("a:int", "Invalid type found in casting spec: int"),
        ("a:bytes", "Cast transformation does not support casting to BYTES; supported types"),
    ],
)
def test_a_wrong_spec_is_refused_in_kafkas_words(spec: str, problem: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        step(Cast, {"spec": spec})
    assert caught.value.errors[0].problem.startswith(problem)


def test_types_may_be_written_in_any_case_and_with_spaces(spark) -> None:
    found = outcomes(spark, [Trial(step(Cast, {"spec": "Int8"}), with_schema(S64, 1))])
    assert found[0]["value"] == 1
