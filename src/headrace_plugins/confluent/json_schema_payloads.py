"""Converts JSON that follows a JSON Schema to the form of Kafka Connect's JSON converter.

The two differ in unions, which JSON Schema writes as the plain value, and in maps with keys
other than strings, which it writes as objects with a key and a value. The property names that
Confluent's converter writes into JSON Schemas are also defined here.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.sdk import RecordError, Type
from headrace.sdk.schema import WHOLE_NUMBERS

if TYPE_CHECKING:
    from headrace.sdk import Schema


CONNECT_TYPE = "connect.type"
CONNECT_INDEX = "connect.index"
CONNECT_VERSION = "connect.version"
CONNECT_PARAMETERS = "connect.parameters"

NAMESPACE = "io.confluent.connect.json"
UNION = f"{NAMESPACE}.OneOf"
"""The name of the struct for a oneOf or an anyOf: only one of its fields has a value."""
ENUM = f"{NAMESPACE}.Enum"
"""The parameter that marks a string as an enum, and the prefix of those with its symbols."""

KEY, VALUE = "key", "value"
"""The members of the objects for the entries of a map with keys other than strings."""

NUMBERS: Mapping[Type, str] = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), "integer"),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), "number"),
}
"""JSON Schema's types of numbers; ``connect.type`` is the lowercase name of the type."""


def union_field(number: int) -> str:
    """Return the name of a field of a union."""
    return f"{UNION}.field.{number}"


def is_union(schema: Schema) -> bool:
    """Return whether a struct represents a union: a oneOf or an anyOf."""
    return schema.type is Type.STRUCT and schema.name == UNION


def is_object(schema: Schema) -> bool:
    """Return whether JSON Schema writes a map as an object, not as a list of entries."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional


_PAYLOAD_KINDS: Mapping[Type, tuple[type, ...]] = {
    **dict.fromkeys(WHOLE_NUMBERS, (int,)),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), (int, float, Decimal)),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (str, int, float, Decimal),
    Type.ARRAY: (list,),
}


def is_apart(schema: Schema) -> bool:
    """Return whether `payload` must convert the JSON of values."""
    if is_union(schema) or (schema.key_schema is not None and not is_object(schema)):
        return True
    parts = (schema.key_schema, schema.value_schema, *(f.schema for f in schema.fields))
    return any(part is not None and is_apart(part) for part in parts)


def payload(schema: Schema, tree: Any) -> Any:
    """Convert a JSON value to the form of Kafka Connect's JSON converter.

    Parts that do not fit the schema stay unchanged; the reader of that form rejects them.
    Raises RecordError if no member of a union fits.
    """
    if tree is None:
        return None
    if is_union(schema):
        return _of_union(schema, tree)
    if schema.fields and isinstance(tree, Mapping):
        return {f.name: payload(f.schema, tree.get(f.name)) for f in schema.fields}
    values = schema.value_schema
    if schema.key_schema is not None and values is not None:
        return _of_map(schema, schema.key_schema, values, tree)
    if values is not None and isinstance(tree, list):
        return [payload(values, item) for item in tree]
    return tree


def _of_map(schema: Schema, keys: Schema, values: Schema, tree: Any) -> Any:
    if is_object(schema):
        if not isinstance(tree, Mapping):
            raise RecordError(problem="A map with string keys must be a JSON object.")
        return {name: payload(values, item) for name, item in tree.items()}
    if not isinstance(tree, list):
        return tree
    for entry in tree:
        if not isinstance(entry, Mapping) or entry.keys() != {KEY, VALUE}:
            raise RecordError(problem="A map entry must be an object with a key and a value.")
    return [[payload(keys, one[KEY]), payload(values, one[VALUE])] for one in tree]


def _of_union(schema: Schema, tree: Any) -> dict[str, Any]:
    """Choose the first member that fits; for objects, the one with the most matching names."""
    best, known = None, -1
    for field in schema.fields:
        if field.schema.type is Type.STRUCT:
            names = {own.name for own in field.schema.fields}
            if isinstance(tree, Mapping) and len(names & tree.keys()) > known:
                best, known = field, len(names & tree.keys())
        elif _fits(field.schema, tree):
            best = field
            break
    if best is None:
        raise RecordError(problem=f"Did not find matching oneof field for data: {tree}")
    return {best.name: payload(best.schema, tree)}


def _fits(schema: Schema, tree: Any) -> bool:
    if schema.type is Type.MAP:
        return isinstance(tree, Mapping if is_object(schema) else list)
    return type(tree) in _PAYLOAD_KINDS[schema.type]
