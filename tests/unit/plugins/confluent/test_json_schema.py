"""JSON Schemas are read and written as Confluent's converter does."""

import json
from typing import Any

import pytest
from jsonschema import Draft7Validator

from headrace.sdk import RecordError, Schema
from headrace_plugins.confluent.json_schema_converter import json_schema_text
from headrace_plugins.confluent.json_schemas import is_apart, payload, schema_of_json_schema

UNION = "io.confluent.connect.json.OneOf"


def read(raw: Any, *, optional: bool = False, **references: Any) -> Schema:
    texts = {name.replace("_", "."): json.dumps(each) for name, each in references.items()}
    return schema_of_json_schema(json.dumps(raw), texts, optional_unless_required=optional)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


EVERYTHING = Schema.struct(
    {
        "small": Schema.int8(),
        "short": Schema.int16(doc="said"),
        "int": Schema.int32(default=7),
        "long": Schema.int64(optional=True),
        "float": Schema.float32(),
        "double": Schema.float64(optional=True, default=1.5),
        "flag": Schema.boolean(),
        "text": Schema.string(optional=True, parameters={"a": "b"}, name="Text", version=3),
        "raw": Schema.bytes(),
        "price": Schema.decimal(2, precision=10, optional=True),
        "day": Schema.date(),
        "clock": Schema.time(optional=True),
        "at": Schema.timestamp(),
        "tags": Schema.array(Schema.string(optional=True), optional=True),
        "deep": Schema.struct({"x": Schema.int32()}, optional=True, name="a.Deep"),
        "names": Schema.map(Schema.string(), Schema.int64(optional=True)),
        "numbers": Schema.map(Schema.int32(), Schema.date()),
        "either": Schema.struct(
            {
                f"{UNION}.field.0": Schema.int32(optional=True),
                f"{UNION}.field.1": Schema.string(optional=True),
            },
            name=UNION,
            optional=True,
        ),
        "colour": Schema.string(
            parameters={
                "io.confluent.connect.json.Enum": "",
                "io.confluent.connect.json.Enum.red": "red",
            }
        ),
    },
    name="a.Row",
    version=2,
)


@pytest.mark.parametrize("additional", [True, False])
def test_every_type_of_records_comes_back_from_its_json_schema(additional: bool) -> None:
    text = json_schema_text(EVERYTHING, additional=additional)
    tree = json.loads(text)
    Draft7Validator.check_schema(tree)
    assert schema_of_json_schema(text, {}, optional_unless_required=False) == EVERYTHING
    assert tree.get("additionalProperties", True) is additional
    assert tree["properties"]["day"] == {
        "type": "integer",
        "connect.type": "int32",
        "title": "org.apache.kafka.connect.data.Date",
        "connect.version": 1,
        "connect.index": 10,
    }
    assert tree["properties"]["long"] == {
        "oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int64"}],
        "connect.index": 3,
    }


@pytest.mark.parametrize(
    ("raw", "schema"),
    [
        ({"type": "integer"}, Schema.int64()),
        ({"type": "number", "minimum": 0}, Schema.float64()),
        ({"type": "string", "format": "date-time"}, Schema.string()),
        ({"type": ["null", "string"]}, Schema.string(optional=True)),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, Schema.boolean(optional=True)),
        ({"const": 5}, Schema.int64()),
        ({"minLength": 1}, Schema.string()),
        ({"items": {"type": "integer"}}, Schema.array(Schema.int64())),
        (
            {"additionalProperties": {"type": "number"}},
            Schema.map(Schema.string(), Schema.float64()),
        ),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, Schema.string()),
        (
            {"allOf": [obj(a={"type": "integer"}), obj(b={"type": "string"})], "title": "T"},
            Schema.struct({"a": Schema.int64(), "b": Schema.string()}, name="T"),
        ),
        (
            obj(
                b={"type": "string", "connect.index": 1},
                a={"type": "string", "connect.index": 0},
            ),
            Schema.struct({"a": Schema.string(), "b": Schema.string()}),
        ),
        (
            {
                "$ref": "#/definitions/P",
                "definitions": {
                    "P": obj(a={"$ref": "#/definitions/N"}),
                    "N": {"type": "number"},
                },
            },
            Schema.struct({"a": Schema.float64()}),
        ),
    ],
)
def test_schemas_that_others_wrote_are_read(raw: Any, schema: Schema) -> None:
    assert read(raw) == schema


def test_what_is_not_required_is_optional_only_where_that_is_wanted() -> None:
    raw = {**obj(a={"type": "integer"}, b={"type": "integer"}), "required": ["a"]}
    plain = {"a": Schema.int64(), "b": Schema.int64()}
    assert read(raw) == Schema.struct(plain)
    relaxed = {**plain, "b": Schema.int64(optional=True)}
    assert read(raw, optional=True) == Schema.struct(relaxed)


def test_references_to_other_schemas_are_followed() -> None:
    town = {**obj(name={"type": "string"}), "title": "Town"}
    raw = {"$id": "http://a.example/user.json", **obj(town={"$ref": "town.json"})}
    assert read(raw, town_json=town) == Schema.struct(
        {"town": Schema.struct({"name": Schema.string()}, name="Town")}
    )


@pytest.mark.parametrize(
    ("raw", "problem", "field"),
    [
        (obj(a={"type": "array"}), "items", "a"),
        (obj(a={}), "does not describe", "a"),
        (obj(a={"type": "object"}), "without properties", "a"),
        ({**obj(a={"$ref": "#"})}, "itself", "a.a"),
        (obj(a={"$ref": "#/definitions/none"}), "Unknown reference", None),
        ({"type": "integer", "connect.type": "uint"}, "uint", None),
        (obj(a={"type": "integer", "default": "x"}), "x", "a"),
        (
            {
                "type": "number",
                "connect.type": "bytes",
                "title": "org.apache.kafka.connect.data.Decimal",
            },
            "scale",
            None,
        ),
    ],
)
def test_what_no_record_can_hold_is_refused_with_its_place(
    raw: Any, problem: str, field: str | None
) -> None:
    with pytest.raises(RecordError) as refused:
        read(raw)
    assert problem in str(refused.value)
    if field is not None:
        assert refused.value.field == field


def test_a_union_is_read_as_the_member_that_fits_best() -> None:
    small, large = obj(a={"type": "integer"}), obj(a={"type": "integer"}, b={"type": "string"})
    union = read(
        {
            "oneOf": [
                {"type": "integer"},
                small,
                large,
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    )
    assert is_apart(union)
    names = [f.name for f in union.fields]
    assert payload(union, 5) == {names[0]: 5}
    assert payload(union, {"a": 1}) == {names[1]: {"a": 1}}
    assert payload(union, {"a": 1, "b": "x"}) == {names[2]: {"a": 1, "b": "x"}}
    assert payload(union, ["x"]) == {names[3]: ["x"]}
    for misfit in (True, "x", 1.5):
        with pytest.raises(RecordError, match="oneof"):
            payload(union, misfit)
