"""Kafka Connect's JSON form of schemas and payloads."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from tests.unit.sdk.strategies import ROWS, SCHEMAS

from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.connectjson import (
    connect_json,
    connect_schema,
    json_from_native,
    native_from_json,
)

LOGICAL = "org.apache.kafka.connect.data."


def _as_sent(tree: object) -> Any:
    return json.loads(json.dumps(tree))


@given(SCHEMAS | ROWS)
def test_a_schema_comes_back_from_its_json_form(schema: Schema) -> None:
    """Times in defaults are cut to milliseconds, so the forms are compared."""
    form = _as_sent(connect_json(schema))
    again = connect_schema(form)
    assert again is not None
    assert _as_sent(connect_json(again)) == form
    if "default" not in json.dumps(form):
        assert again == schema


def test_the_form_has_what_kafka_writes_and_no_more() -> None:
    row = Schema.struct({"a": Schema.int32(), "b": Schema.string(optional=True, default="x")})
    assert connect_json(row) == {
        "type": "struct",
        "optional": False,
        "fields": [
            {"type": "int32", "optional": False, "field": "a"},
            {"type": "string", "optional": True, "default": "x", "field": "b"},
        ],
    }
    assert connect_json(None) is None
    assert connect_schema(None) is None


@pytest.mark.parametrize(
    ("tree", "problem", "field"),
    [
        ({"type": "nope"}, "Unknown schema type: nope", None),
        ({}, "Schema must contain 'type' field", None),
        ({"type": "array"}, "Array schema did not specify the element type", None),
        ({"type": "struct", "fields": [{"type": "int8"}]}, "field name not specified", None),
        (
            {"type": "struct", "fields": [{"field": "a", "type": "nope"}]},
            "Unknown schema type: nope",
            "a",
        ),
        ({"type": "int8", "default": 300}, "Invalid JSON for schema of type INT8: 300", None),
        ({"type": "string", "optional": "yes"}, "must be a boolean", None),
        ({"type": "bytes", "name": f"{LOGICAL}Decimal"}, "needs the parameter scale", None),
    ],
)
def test_a_form_that_is_none_is_refused(tree: object, problem: str, field: str | None) -> None:
    with pytest.raises(RecordError) as caught:
        connect_schema(tree)
    assert problem in caught.value.problem
    assert caught.value.field == (field or caught.value.field)


@pytest.mark.parametrize(
    ("schema", "payload", "native"),
    [
        (Schema.int8(), -128, -128),
        (Schema.float64(), 1, 1.0),
        (Schema.float32(), "-Infinity", float("-inf")),
        (Schema.bytes(), "AAE=", b"\x00\x01"),
        (Schema.date(), -1, -1),
        (Schema.time(), 1456, 1_456_000),
        (Schema.timestamp(), 1483228801456, 1483228801456000),
        (Schema.decimal(2), 1.25, Decimal("1.25")),
        (Schema.decimal(30), "AQ==", Decimal("1E-30")),
        (Schema.map(Schema.string(), Schema.int8()), {"k": 1}, [("k", 1)]),
        (Schema.map(Schema.int8(), Schema.int8()), [[1, 2]], [(1, 2)]),
        (
            Schema.struct({"a": Schema.int8(), "b": Schema.string(optional=True, default="x")}),
            {"a": 1, "b": None},
            {"a": 1, "b": None},
        ),
        (Schema.array(Schema.int32()), [1, 2], [1, 2]),
    ],
)
def test_a_payload_is_read_and_written(schema: Schema, payload: object, native: object) -> None:
    assert native_from_json(schema, payload) == native
    assert native_from_json(schema, _as_sent(json_from_native(schema, native))) == native
    assert len(pa.array([native], to_arrow_type(schema))) == 1


def test_a_null_that_is_required_takes_the_default_or_is_refused() -> None:
    assert native_from_json(Schema.string(default="d"), None) == "d"
    row = Schema.struct({"a": Schema.struct({"b": Schema.int32()})})
    with pytest.raises(RecordError) as caught:
        native_from_json(row, {"a": {}})
    assert (caught.value.problem, caught.value.field) == (
        "Invalid null value for required INT32 field",
        "a.b",
    )


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (Schema.int8(), 128),
        (Schema.int32(), 1.0),
        (Schema.int64(), True),
        (Schema.boolean(), 1),
        (Schema.string(), 1),
        (Schema.bytes(), "!"),
        (Schema.float32(), "x"),
        (Schema.decimal(2), True),
        (Schema.decimal(2), 1e40),
        (Schema.array(Schema.int8()), {}),
        (Schema.map(Schema.int8(), Schema.int8()), [1]),
        (Schema.struct({"a": Schema.int8()}), [1]),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(schema: Schema, payload: object) -> None:
    with pytest.raises(RecordError, match="Invalid JSON for schema"):
        native_from_json(schema, payload)


@pytest.mark.parametrize("payload", [[1.5], {"a": 1.5}])
def test_a_list_or_an_object_is_no_floating_point_number(payload: object) -> None:
    with pytest.raises(RecordError, match="Invalid JSON for schema of type FLOAT64"):
        native_from_json(Schema.float64(), payload)
