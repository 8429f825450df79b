"""What an Avro reader can read: the resolution rules of Avro's specification."""

import json
from typing import Any

import pytest

from headrace_registry.languages.avro import parse_avro


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


X = {"name": "x", "type": "int"}
Y = {"name": "y", "type": "int"}
Y_DEFAULT = {**Y, "default": 0}
LIST = record({"name": "next", "type": ["null", "R"], "default": None})
LONGER = record({"name": "next", "type": ["null", "R"], "default": None}, Y)


@pytest.mark.parametrize(
    ("reader", "writer", "readable"),
    [
        ("int", "int", True),
        ("long", "int", True),
        ("float", "long", True),
        ("double", "float", True),
        ("string", "bytes", True),
        ("bytes", "string", True),
        ("int", "long", False),
        ("string", "int", False),
        (record(X, Y_DEFAULT), record(X), True),
        (record(X, Y), record(X), False),
        (record(X), record(X, Y), True),
        (record({**X, "name": "z", "aliases": ["x"]}), record(X), True),
        (record({**X, "name": "z"}), record(X), False),
        (record(X), record(X, name="Other"), False),
        (record(X, aliases=["Other"]), record(X, name="Other"), True),
        (enum("A", "B"), enum("A"), True),
        (enum("A"), enum("A", "B"), False),
        (enum("A", default="A"), enum("A", "B"), True),
        (fixed(4), fixed(4), True),
        (fixed(4), fixed(8), False),
        (["null", "int"], "int", True),
        ("int", ["null", "int"], False),
        ("int", ["int"], True),
        (["null", "string"], ["null", "int"], False),
        (["null", "long", "string"], ["null", "int"], True),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False),
        (LIST, LONGER, True),
        (LONGER, LIST, False),
    ],
)
def test_resolution(reader: Any, writer: Any, readable: bool) -> None:
    reads = parse_avro(json.dumps(reader), {})
    found = reads.unreadable(parse_avro(json.dumps(writer), {}))
    assert (not found) is readable, found


def test_what_is_referred_to_is_compared_too() -> None:
    text = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"R"}]}'
    old, new = ({"R": json.dumps(each)} for each in (record(X), record(X, Y)))
    found = parse_avro(text, new).unreadable(parse_avro(text, old))
    assert "reader_field_missing_default_value at" in found[0]


def test_a_normalized_schema_has_the_specifications_order() -> None:
    text = '{"fields": [{"type": {"type": "int"}, "name": "x"}], "doc": "d", "name": "R", '
    found = parse_avro(text + '"type": "record"}', {}).normalized
    assert found == (
        '{"name":"R","type":"record","fields":[{"name":"x","type":"int"}],"doc":"d"}'
    )
