"""What Confluent's JSON Schema converter calls what JSON Schema has no word for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import Type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sdk import Schema

CONNECT_TYPE = "connect.type"
CONNECT_INDEX = "connect.index"
CONNECT_VERSION = "connect.version"
CONNECT_PARAMETERS = "connect.parameters"

NAMESPACE = "io.confluent.connect.json"
UNION = f"{NAMESPACE}.OneOf"
"""The name of a struct of which one field has a value: that of a oneOf or an anyOf."""
ENUM = f"{NAMESPACE}.Enum"
"""The parameter of a text that is one of those in the parameters that begin with it."""

KEY, VALUE = "key", "value"
"""The members of the objects that stand for the entries of a map whose keys are no texts."""

NUMBERS: Mapping[Type, str] = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), "integer"),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), "number"),
}
"""JSON Schema's types of numbers; ``connect.type`` is the name of the type in small letters."""


def union_field(number: int) -> str:
    """Return the name of a field of a union."""
    return f"{UNION}.field.{number}"


def is_union(schema: Schema) -> bool:
    """Return whether a value is that of one of the struct's fields."""
    return schema.type is Type.STRUCT and schema.name == UNION


def is_object(schema: Schema) -> bool:
    """Return whether a map is an object, and not a list of its entries."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional
