"""Which newer JSON Schemas allow all that an older one does: Confluent's documented rules."""

import json
from typing import Any

import pytest

from headrace_plugins.confluent.schema_registry import InvalidSchemaError
from headrace_registry.languages.avro import parse_avro
from headrace_registry.languages.json_schema import parse_json

MODERN = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
CLOSED = {"additionalProperties": False}


def properties(more: dict[str, Any] | None = None, **named: Any) -> dict[str, Any]:
    return {"type": "object", "properties": named, **(more or {})}


def limits(kind: str, keyword: str, name: str) -> list[tuple[Any, Any, str]]:
    """Return a limit's cases: added, removed, loosened, tightened."""
    upper = keyword.lower().startswith(("max", "exclusivemax"))
    loose, tight = (9, 5) if upper else (5, 9)
    bare = {"type": kind}
    way = "DECREASED" if upper else "INCREASED"
    return [
        (bare, {**bare, keyword: loose}, f"{name}_ADDED"),
        ({**bare, keyword: loose}, bare, ""),
        ({**bare, keyword: tight}, {**bare, keyword: loose}, ""),
        ({**bare, keyword: loose}, {**bare, keyword: tight}, f"{name}_{way}"),
    ]


def tree(**more: Any) -> dict[str, Any]:
    node = properties({**CLOSED, **more}, next={"$ref": "#/definitions/n"}, x=STRING)
    return {"$ref": "#/definitions/n", "definitions": {"n": node}}


CASES: list[tuple[Any, Any, str]] = [
    *limits("string", "maxLength", "MAX_LENGTH"),
    *limits("string", "minLength", "MIN_LENGTH"),
    *limits("number", "maximum", "MAXIMUM"),
    *limits("number", "minimum", "MINIMUM"),
    *limits("number", "exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
    *limits("object", "maxProperties", "MAX_PROPERTIES"),
    *limits("array", "maxItems", "MAX_ITEMS"),
    *limits("array", "minItems", "MIN_ITEMS"),
    (STRING, {**STRING, "pattern": "a"}, "PATTERN_ADDED"),
    ({**STRING, "pattern": "b"}, {**STRING, "pattern": "a"}, "PATTERN_CHANGED"),
    ({**STRING, "pattern": "b"}, STRING, ""),
    ({**NUMBER, "multipleOf": 10}, {**NUMBER, "multipleOf": 5}, ""),
    ({**NUMBER, "multipleOf": 5}, {**NUMBER, "multipleOf": 10}, "MULTIPLE_OF_EXPANDED"),
    ({**NUMBER, "multipleOf": 5}, {**NUMBER, "multipleOf": 7}, "MULTIPLE_OF_CHANGED"),
    (INTEGER, NUMBER, ""),
    (NUMBER, INTEGER, "TYPE_NARROWED"),
    (STRING, NUMBER, "TYPE_CHANGED"),
    (STRING, True, ""),
    (STRING, {}, ""),
    (True, STRING, "TYPE_CHANGED"),
    (False, STRING, ""),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ""),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED"),
    ({"enum": ["a"]}, {"enum": ["b"]}, "ENUM_ARRAY_CHANGED"),
    ({"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED"),
    ({"type": ["string"]}, {"type": ["string", "null"]}, ""),
    ({"type": ["string", "null"]}, {"type": ["string"]}, "SUM_TYPE_NARROWED"),
    (STRING, {"anyOf": [STRING, NUMBER]}, ""),
    ({"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING]}, "SUM_TYPE_NARROWED"),
    ({"oneOf": [STRING]}, {"oneOf": [STRING, NUMBER]}, ""),
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, ""),
    (
        {"oneOf": [STRING, NUMBER]},
        {"oneOf": [STRING, {"type": "null"}]},
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    ({"anyOf": [STRING, NUMBER]}, {"oneOf": [STRING, NUMBER]}, "COMBINED_TYPE_CHANGED"),
    ({"allOf": [STRING]}, {"allOf": [STRING, {"maxLength": 1}]}, "PRODUCT_TYPE_EXTENDED"),
    ({"allOf": [STRING, {"maxLength": 1}]}, {"allOf": [STRING]}, ""),
    ({"not": STRING}, {"not": {**STRING, "maxLength": 1}}, ""),
    ({"not": {**STRING, "maxLength": 1}}, {"not": STRING}, "NOT_TYPE_EXTENDED"),
    (properties(), properties(x=STRING), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (properties(), properties(x={}), ""),
    (properties(CLOSED), properties(CLOSED, x=STRING), ""),
    (
        properties(CLOSED),
        properties({**CLOSED, "required": ["x"]}, x=STRING),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    ),
    (
        properties(CLOSED),
        properties({**CLOSED, "required": ["x"]}, x={**STRING, "default": ""}),
        "",
    ),
    (properties(x=STRING), properties(), ""),
    (
        properties(CLOSED, x=STRING),
        properties(CLOSED),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    (properties({"additionalProperties": STRING}, x=STRING), properties(CLOSED), "REMOVED"),
    (
        properties({"additionalProperties": STRING}),
        properties({"additionalProperties": STRING}, x=NUMBER),
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (
        properties({"patternProperties": {"^x": STRING}}, xs=STRING),
        properties({"patternProperties": {"^x": STRING}, **CLOSED}),
        "ADDITIONAL_PROPERTIES_REMOVED",
    ),
    (
        properties({"patternProperties": {"^(a|aa)+$": STRING}, **CLOSED}),
        properties(CLOSED, **{f"{'a' * 100}!": STRING}),
        "",
    ),
    (properties(), properties(CLOSED), "ADDITIONAL_PROPERTIES_REMOVED"),
    (properties(CLOSED), properties(), ""),
    (
        properties(x=STRING),
        properties({"required": ["x"]}, x=STRING),
        "REQUIRED_ATTRIBUTE_ADDED",
    ),
    (properties({"required": ["x"]}, x=STRING), properties(x=STRING), ""),
    (
        properties({"dependencies": {"x": ["y"]}}),
        properties({"dependencies": {"x": ["y", "z"]}}),
        "DEPENDENCY_ARRAY_EXTENDED",
    ),
    (
        properties({"dependencies": {"x": {"required": ["y"]}, "z": ["y"]}}),
        properties({"dependencies": {"x": {"required": ["y"]}}}),
        "",
    ),
    (
        properties(),
        properties({"dependencies": {"x": {"required": ["y"]}}}),
        "DEPENDENCY_SCHEMA_ADDED",
    ),
    ({"type": "array"}, {"type": "array", "items": STRING}, "SCHEMA_ADDED"),
    ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, ""),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED"),
    (
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING, NUMBER]},
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    (
        {"type": "array", "items": [STRING], "additionalItems": False},
        {"type": "array", "items": [STRING, NUMBER], "additionalItems": False},
        "",
    ),
    (
        {**MODERN, "type": "array", "prefixItems": [STRING, NUMBER], "items": False},
        {**MODERN, "type": "array", "prefixItems": [STRING], "items": False},
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    (
        {**MODERN, **properties()},
        {**MODERN, **properties({"unevaluatedProperties": False})},
        "UNEVALUATED_PROPERTIES_REMOVED",
    ),
    (tree(), tree(required=["x"]), "REQUIRED_ATTRIBUTE_ADDED"),
    (tree(required=["x"]), tree(), ""),
]


@pytest.mark.parametrize(("original", "update", "finding"), CASES)
def test_differences(original: Any, update: Any, finding: str) -> None:
    newer = parse_json(json.dumps(update), {})
    found = newer.unreadable(parse_json(json.dumps(original), {}))
    assert bool(found) is bool(finding), found
    assert not finding or any(finding in each for each in found), found


def test_a_difference_says_where_it_is() -> None:
    original = properties(a=properties(b=STRING))
    update = properties(a=properties(b=NUMBER))
    newer = parse_json(json.dumps(update), {})
    found = newer.unreadable(parse_json(json.dumps(original), {}))
    assert list(found) == ["TYPE_CHANGED at #/properties/a/properties/b"]


def test_what_is_referred_to_in_other_documents_is_compared() -> None:
    text = json.dumps({"$id": "http://example.com/a.json", **properties(x={"$ref": "b.json"})})
    older, newer = ({"b.json": json.dumps(each)} for each in (STRING, NUMBER))
    found = parse_json(text, newer).unreadable(parse_json(text, older))
    assert list(found) == ["TYPE_CHANGED at #/properties/x"]


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    inner = '{"items":' * 900 + "1" + "}" * 900
    avro = f'{{"type": "record", "name": "a", "fields": [], "items": {inner}}}'
    for parse, text in ((parse_json, inner), (parse_avro, avro)):
        with pytest.raises(InvalidSchemaError, match="nested more than 200 deep"):
            parse(text, {})
