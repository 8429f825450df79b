"""Values are parsed and written by Kafka Connect's rules."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import Schema, Struct
from headrace.sdk.connectjson import to_string, type_name
from headrace_plugins.kafka_compat.value_parsing import parse_string

# Text, type, text in its normal form. All were taken from Kafka Connect 4.3.
PARSED = [
    ("", "string", ""),
    ("null", None, None),
    ("true", "boolean", "true"),
    (" false ", "boolean", "false"),
    ("True", "string", "True"),
    ("true}", "string", "true}"),
    ("1", "int8", "1"),
    ("-5", "int8", "-5"),
    ("+5", "int8", "5"),
    ("128", "int16", "128"),
    ("70000", "int32", "70000"),
    ("2147483648", "int64", "2147483648"),
    ("9223372036854775808", "decimal", "9223372036854775808"),
    ("1e10", "int64", "10000000000"),
    ("1.0", "int8", "1"),
    ("1.5", "float32", "1.5"),
    ("+.5", "float32", "0.5"),
    ("1e-50", "float32", "0.0"),
    ("1.1234567890123456789", "float32", "1.1234568"),
    ("99999999999999999999.5", "float32", "1.0E20"),
    ("1.5e300", "float64", "1.5E300"),
    ("1e400", "decimal", "1E+400"),
    ("NaN", "string", "NaN"),
    ("0x10", "string", "0x10"),
    ("1_000", "string", "1_000"),
    ("-", "string", "-"),
    ("foo,bar", "string", "foo,bar"),
    ("1,2", "int8", "1"),
    ("2019-08-23", "date", "2019-08-23"),
    ("2019-13-45", "date", "2020-02-14"),
    ("2019-08-2x", "date", "2019-08-02"),
    ("14:34:54.346Z", "time", "14:34:54.346Z"),
    ("14:34:54", "int8", "14"),
    ("2019-08-23T14:34:54.346Z", "timestamp", "2019-08-23T14:34:54.346Z"),
    ("[]", "array", "[]"),
    ("{}", "map", "{}"),
    ("[1, 2.5, 300]", "array", "[1.0,2.5,300.0]"),
    ('[1,"a"]', "array", '[1,"a"]'),
    ("[1,null]", "string", "[1,null]"),
    ("[[1],[300]]", "array", "[[1],[300]]"),
    ('["2019-08-23"]', "array", "[2019-08-23]"),
    ("[1,14:34:54.346Z,2019-08-23]", "array", "[1970-01-02,14:34:54.346Z,2019-08-23]"),
    ("[1,2", "string", "[1,2"),
    ("[1,,2]", "string", "[1,,2]"),
    ("[1,2] and more", "array", "[1,2]"),
    ("{a:1}", "string", "{a:1}"),
    ('{"k":null}', "map", '{"k":null}'),
    ("{1:2, 300:2.5}", "map", "{1:2.0,300:2.5}"),
    ('{"a":[true],"b":[]}', "map", '{"a":[true],"b":[]}'),
    ('{"a" "b"}', "string", '{"a" "b"}'),
    ("{null:1}", "string", "{null:1}"),
]


@pytest.mark.parametrize(("text", "kind", "normal"), PARSED)
def test_a_text_is_the_value_that_kafka_connect_reads(
    text: str, kind: str | None, normal: str | None
) -> None:
    parsed = parse_string(text)
    assert (parsed.kind, parsed.text) == (kind, normal)


def test_what_is_parsed_has_python_values_and_schemas() -> None:
    assert parse_string("[1, 300]").schema == Schema.array(Schema.int16())
    assert parse_string("1.10").value == pytest.approx(1.1)
    assert parse_string("9223372036854775808").schema == Schema.decimal(0)
    assert parse_string('{"a":1}').value == {"a": 1}
    assert parse_string("2019-08-23").value == date(2019, 8, 23)
    assert parse_string("00:00:01.000Z").value == time(0, 0, 1)
    assert parse_string(None).schema is None


@given(st.text(alphabet='[]{},:"\\ 0123456789.-+eTZnulrfasx\t', max_size=30))
def test_every_text_is_some_value_that_can_be_written(text: str) -> None:
    parsed = parse_string(text)
    assert (parsed.text is None) == (parsed.value is None)


@given(st.integers(-(2**63), 2**63 - 1) | st.booleans())
def test_what_is_written_is_read_again(value: int) -> None:
    assert parse_string(to_string(value)).value == value


TEXTS = [
    ("a b", "a b"),
    (["a", 'q"\\', None, b"\x01"], '["a","q\\"\\\\",null,"AQ=="]'),
    ({"a": {"b": True}}, '{"a":{"b":true}}'),
    (1e-5, "1.0E-5"),
    (-12345678.5, "-1.23456785E7"),
    (100.0, "100.0"),
    (float("inf"), "Infinity"),
    (Decimal("1E+3"), "1E+3"),
    (datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00.000Z"),
    (date(1960, 1, 1), "1960-01-01"),
    (b"\xff", "/w=="),
    (Struct.of(Schema.struct({"a": Schema.int32()}), {"a": 1}), '{"a":1}'),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_a_value_has_kafka_connects_text(value: Any, text: str) -> None:
    assert to_string(value) == text


def test_types_have_names_for_headers() -> None:
    assert type_name(None) is None
    assert type_name(Schema.float32()) == "float32"
    assert type_name(Schema.decimal(2)) == "decimal"
    assert type_name(Schema.struct({}, name="row")) == "struct"
