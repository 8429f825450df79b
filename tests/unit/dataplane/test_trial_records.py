"""Records as `transform try` takes them and gives them back."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.dataplane.trial import natives, read_input, record_json
from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.connectjson import connect_json

ROW = Schema.struct(
    {
        "id": Schema.int8(),
        "price": Schema.decimal(2),
        "day": Schema.date(),
        "noon": Schema.time(),
        "at": Schema.timestamp(optional=True),
        "tags": Schema.map(Schema.string(), Schema.array(Schema.float32())),
        "inner": Schema.struct({"raw": Schema.bytes()}, optional=True),
    },
    name="com.example.Row",
)
VALUE = {
    "id": 1,
    "price": 1.25,
    "day": -1,
    "noon": 43_200_000,
    "at": None,
    "tags": {"x": [0.1, 2.5]},
    "inner": {"raw": "AAE="},
}


def _again(record: dict[str, Any]) -> dict[str, Any]:
    """Read a record, carry it through Arrow, and write it."""
    given = read_input(record)
    columns = given.kind.table([given.row])
    state = {name: natives(columns[name].combine_chunks())[0] for name in columns.column_names}
    shape = given.kind.shape()
    return record_json(state, shape.key, shape.value)


def test_a_record_with_schemas_comes_back() -> None:
    record = {
        "topic": "orders",
        "partition": 3,
        "key": "k",
        "value": VALUE,
        "headers": [{"key": "h", "value": "1", "type": "int8"}, {"key": "h", "value": "x"}],
        "timestamp": -1,
        "key_schema": {"type": "string", "optional": False},
        "value_schema": connect_json(ROW),
    }
    assert _again(record) == record


def test_a_record_without_schemas_comes_back() -> None:
    value = {"a": 1, "b": 1.5, "c": [1, 2.5], "d": {"e": None, "f": [{"x": 1}, {"y": True}]}}
    again = _again({"key": [True], "value": value})
    assert again["key"] == [True]
    assert again["value"]["d"]["f"] == [{"x": 1, "y": None}, {"x": None, "y": True}]
    assert {**again["value"], "d": None} == {**value, "d": None}
    assert "value_schema" not in again
    assert again["topic"] == "topic"


def test_a_field_that_is_null_in_some_items_has_the_type_that_it_has_in_others() -> None:
    value = [{"a": None, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": None}]
    found = read_input({"value": value}).kind.value.schema
    assert found is not None
    assert found.value_schema == Schema.struct(
        {"b": Schema.string(optional=True), "a": Schema.int64(optional=True)}
    )
    mixed = read_input({"value": [1, "x"]}).kind.value.schema
    assert mixed == Schema.array(Schema.variant(optional=True))


def test_records_of_one_form_are_of_one_kind_and_others_are_not() -> None:
    kinds = [
        read_input({"value": value}).kind
        for value in ({"a": 1}, {"a": 2}, {"a": 2.5}, {"a": None}, {}, None, {"b": 1})
    ]
    assert kinds[0] == kinds[1]
    assert len(set(kinds)) == 6


def test_a_value_without_schema_is_told_from_one_whose_schema_is_the_same() -> None:
    plain = read_input({"value": 1}).kind.value
    typed = read_input({"value": 1, "value_schema": {"type": "int64"}}).kind.value
    assert plain.schema == typed.schema
    assert (plain.schemaless, typed.schemaless) == (True, False)


def test_only_a_record_with_an_offset_has_a_place() -> None:
    assert read_input({"offset": 7}).kind.shape().offset == "offset"
    assert read_input({}).kind.shape().offset is None


def test_headers_that_are_no_text_get_their_type() -> None:
    headers = [{"key": "h", "value": value} for value in ("x", 1, 1.5, True, None)]
    given = read_input({"headers": headers}).row["headers"]
    assert [(header["value"], header["type"]) for header in given] == [
        ("x", "string"),
        ("1", "int64"),
        ("1.5", "float64"),
        ("true", "boolean"),
        (None, "string"),
    ]


@pytest.mark.parametrize(
    ("record", "field", "problem"),
    [
        ([1], None, "JSON object"),
        ({"valu": 1}, "valu", "Unknown key"),
        ({"topic": 1}, "topic", "type STRING: 1"),
        ({"partition": "1"}, "partition", "type INT32: 1"),
        ({"timestamp": 2**60}, "timestamp", "type INT64: "),
        ({"headers": {"h": 1}}, "headers", "list of objects"),
        ({"value": 2**63}, "value", "64 bits"),
        ({"value": 1, "value_schema": {"type": "nope"}}, "value_schema", "nope"),
        ({"key": "x", "key_schema": {"type": "int8"}}, "key", "Invalid JSON"),
    ],
)
def test_a_record_that_is_none_is_refused_with_its_field(
    record: object, field: str | None, problem: str
) -> None:
    with pytest.raises(RecordError, match=problem) as caught:
        read_input(record)
    assert caught.value.field == field


def test_nulls_and_slices_of_arrays_are_taken_as_they_are() -> None:
    rows: list[Any] = [
        None,
        {"a": [1, None], "b": [("k", 1)]},
        {"a": None, "b": None},
        {"a": [], "b": []},
    ]
    kind = pa.struct([("a", pa.list_(pa.int8())), ("b", pa.map_(pa.string(), pa.date32()))])
    array = pa.array(rows, kind)
    expected = [None, {"a": [1, None], "b": [("k", 1)]}, {"a": None, "b": None}]
    assert natives(array)[:3] == expected
    assert natives(array.slice(1)) == natives(array)[1:]
    assert natives(pa.array([{}, None], pa.struct([]))) == [{}, None]


def test_times_without_schema_are_told_in_the_form_of_iso() -> None:
    schema = Schema.struct(
        {"day": Schema.date(), "noon": Schema.time(), "at": Schema.timestamp()}
    )
    part = read_input({"value": {"a": 1}}).kind.value
    whole = type(part)(schema, schemaless=True).part("value")
    assert schema.type is Type.STRUCT
    state = dict.fromkeys(["topic", "partition", "key", "headers", "timestamp"])
    state["value"] = {"day": 1, "noon": 43_200_000_000, "at": 1_483_228_801_456_000}
    told = record_json(state, read_input({}).kind.key.part("key"), whole)
    assert told["value"] == {
        "day": "1970-01-02",
        "noon": "12:00:00.000",
        "at": "2017-01-01T00:00:01.456Z",
    }
