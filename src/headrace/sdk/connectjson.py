"""Kafka Connect's JSON form of schemas: what its JSON converter writes beside a payload.

It is ``{"type", "optional", "name", "version", "doc", "parameters", "default", ...}``, with
``fields``, ``items``, ``keys`` and ``values`` where the type has them. Payloads are in
`headrace.sdk.connectpayload`.
"""

from collections.abc import Mapping
from typing import Any

from headrace.sdk.connectpayload import (
    json_from_native,
    native_from_json,
    native_from_value,
    value_from_native,
)
from headrace.sdk.errors import ConfigError, RecordError
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema

__all__ = ["connect_json", "connect_schema", "json_from_native", "native_from_json"]

_NAMES: Mapping[Type, str] = {
    **{type_: type_.value.lower() for type_ in Type},
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
}
_TYPES = {name: type_ for type_, name in _NAMES.items()}


def connect_schema(tree: object) -> Schema | None:
    """Give the schema that a JSON form describes; None for null: no schema.

    Raises:
        RecordError: It is none; `field` is the path to the part at fault.
    """
    return None if tree is None else _schema(tree, "")


def connect_json(
    schema: Schema | None, *, decimals_as_text: bool = False
) -> dict[str, Any] | None:
    """Give the JSON form of a schema; None for no schema.

    Args:
        schema: The schema.
        decimals_as_text: Whether defaults that are Decimals are base64 of their digits, and
            never numbers.
    """
    if schema is None:
        return None

    def inner(part: Schema | None) -> dict[str, Any]:
        return connect_json(part, decimals_as_text=decimals_as_text) or {}

    told: dict[str, Any] = {"type": _NAMES[schema.type], "optional": schema.optional}
    if schema.type is Type.STRUCT:
        told["fields"] = [{**inner(own.schema), "field": own.name} for own in schema.fields]
    elif schema.key_schema is not None:
        told["keys"] = inner(schema.key_schema)
        told["values"] = inner(schema.value_schema)
    elif schema.value_schema is not None:
        told["items"] = inner(schema.value_schema)
    native = native_from_value(schema, schema.default)
    facts = {
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters) or None,
        "default": json_from_native(schema, native, decimals_as_text=decimals_as_text),
    }
    return told | {name: fact for name, fact in facts.items() if fact is not None}


def _schema(tree: object, path: str) -> Schema:
    if not isinstance(tree, Mapping) or not isinstance(tree.get("type"), str):
        raise _bad(problem="Schema must contain 'type' field", at=path)
    if (type_ := _TYPES.get(tree["type"])) is None:
        raise _bad(problem=f"Unknown schema type: {tree['type']}", at=path)
    try:
        bare = Schema(
            type_,
            optional=_given(tree, "optional", bool, path) or False,
            name=_given(tree, "name", str, path),
            version=_given(tree, "version", int, path),
            doc=_given(tree, "doc", str, path),
            parameters=_parameters(tree, path),
            **_parts(type_, tree, path),
        )
        if tree.get("default") is None:
            return bare
        default = native_from_json(bare, tree["default"], path=path)
        return bare.replaced(default=value_from_native(bare, default))
    except ConfigError as error:
        raise _bad(problem=error.problem, at=error.field or path) from error


def _given(tree: Mapping[str, Any], name: str, kind: type, path: str) -> Any:
    value = tree.get(name)
    if value is not None and type(value) is not kind:
        raise _bad(problem=f"Invalid schema {name}: must be a {_WORDS[kind]}", at=path)
    return value


_PARTS = {"items": "element type", "keys": "key type", "values": "value type"}
_WORDS = {bool: "boolean", str: "string", int: "whole number"}


def _parameters(tree: Mapping[str, Any], path: str) -> Mapping[str, str]:
    given = tree.get("parameters") or {}
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
        raise _bad(problem="Schema parameters must map strings to strings", at=path)
    return given


def _parts(type_: Type, tree: Mapping[str, Any], path: str) -> dict[str, Any]:
    match type_:
        case Type.ARRAY:
            return {"value_schema": _part(tree, "items", path)}
        case Type.MAP:
            keys, values = _part(tree, "keys", path), _part(tree, "values", path)
            return {"key_schema": keys, "value_schema": values}
        case Type.STRUCT:
            return {"fields": Schema.struct(_members(tree, path)).fields}
        case _:
            return {}


def _part(tree: Mapping[str, Any], name: str, path: str) -> Schema:
    if tree.get(name) is None:
        part = _PARTS[name]
        raise _bad(problem=f"{tree['type'].title()} schema did not specify the {part}", at=path)
    return _schema(tree[name], f"{path} {name}".strip())


def _members(tree: Mapping[str, Any], path: str) -> dict[str, Schema]:
    fields = tree.get("fields")
    if not isinstance(fields, list):
        raise _bad(problem='Struct schema\'s "fields" argument is not an array.', at=path)
    members: dict[str, Schema] = {}
    for field in fields:
        name = field.get("field") if isinstance(field, Mapping) else None
        if not isinstance(name, str) or not name:
            raise _bad(problem="Struct schema's field name not specified properly", at=path)
        if name in members:
            problem = f"Cannot create field because of field name duplication {name}"
            raise _bad(problem=problem, at=path)
        members[name] = _schema(field, f"{path}.{name}".strip("."))
    return members


def _bad(*, problem: str, at: str) -> RecordError:
    return RecordError(problem, field=at or None)
