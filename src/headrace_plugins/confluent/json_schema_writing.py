"""Writes schemas as JSON Schema, and their values as JSON, as Confluent's converter does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import Type
from headrace.sdk.connectjson import connect_json
from headrace.sdk.schema import DECIMAL
from headrace.sdk.sqltext import literal, quote
from headrace_plugins.confluent.json_schema_payloads import (
    CONNECT_INDEX,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    CONNECT_VERSION,
    ENUM,
    KEY,
    NAMESPACE,
    NUMBERS,
    VALUE,
    is_object,
    is_union,
)
from headrace_plugins.converters.json_encoding import JsonWriter, compact, member_text

if TYPE_CHECKING:
    from headrace.sdk import Schema

_NULL = {"type": "null"}


def json_schema_text(schema: Schema, *, additional: bool) -> str:
    """Return the JSON Schema of values.

    Args:
        schema: The schema. Null is never written, so it is taken as required.
        additional: Whether objects may have properties that are not named.
    """
    return compact(_Writing(additional).whole(schema.replaced(optional=False)))


@dataclass(frozen=True)
class _Writing:
    additional: bool

    def whole(self, schema: Schema, index: int | None = None) -> dict[str, Any]:
        """Return the JSON Schema of a value that may be null."""
        if is_union(schema):
            nothing = [_NULL] if schema.optional else []
            told: dict[str, Any] = {"oneOf": nothing + self._members(schema)}
        else:
            told = {**self._plain(schema), **self._facts(schema)}
            told = {"oneOf": [_NULL, told]} if schema.optional else told
        return told if index is None else {**told, CONNECT_INDEX: index}

    def _members(self, schema: Schema) -> list[dict[str, Any]]:
        return [self.whole(f.schema.replaced(optional=False), f.index) for f in schema.fields]

    def _plain(self, schema: Schema) -> dict[str, Any]:
        if schema.type in NUMBERS:
            return {"type": NUMBERS[schema.type], CONNECT_TYPE: schema.type.value.lower()}
        match schema.type:
            case Type.BYTES:
                kind = "number" if schema.name == DECIMAL else "string"
                return {"type": kind, CONNECT_TYPE: "bytes"}
            case Type.ARRAY if schema.value_schema is not None:
                return {"type": "array", "items": self.whole(schema.value_schema)}
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                return self._map(schema, schema.key_schema, schema.value_schema)
            case Type.STRUCT:
                closed = {} if self.additional else {"additionalProperties": False}
                own = {f.name: self.whole(f.schema, f.index) for f in schema.fields}
                return {"type": "object", "properties": own, **closed}
            case Type.STRING if ENUM in schema.parameters:
                start = f"{ENUM}."
                names = [name for name in schema.parameters if name.startswith(start)]
                return {"enum": [name.removeprefix(start) for name in names]}
            case _:
                return {"type": schema.type.value.lower()}

    def _map(self, schema: Schema, keys: Schema, values: Schema) -> dict[str, Any]:
        if is_object(schema):
            told = {"type": "object", "additionalProperties": self.whole(values)}
        else:
            entry = {KEY: self.whole(keys, 0), VALUE: self.whole(values, 1)}
            told = {"type": "array", "items": {"type": "object", "properties": entry}}
        return {**told, CONNECT_TYPE: "map"}

    def _facts(self, schema: Schema) -> dict[str, Any]:
        parameters = {
            name: value
            for name, value in schema.parameters.items()
            if not name.startswith(NAMESPACE)
        }
        facts = {
            "title": schema.name,
            CONNECT_VERSION: schema.version,
            "description": schema.doc,
            CONNECT_PARAMETERS: parameters or None,
            "default": (connect_json(schema) or {}).get("default"),
        }
        return {name: fact for name, fact in facts.items() if fact is not None}


@dataclass(frozen=True)
class SchemaJsonWriter(JsonWriter):
    """Writes values as the JSON that a JSON Schema is about."""

    @override
    def _struct(self, sql: str, schema: Schema, depth: int) -> str:
        if not is_union(schema):
            return super()._struct(sql, schema, depth)
        members = [
            (own, member_text(self._value(own, field.schema, depth)))
            for field in schema.fields
            for own in (f"{sql}.{quote(field.name)}",)
        ]
        cases = [f"WHEN {own} IS NOT NULL THEN parse_json({text})" for own, text in members]
        return f"CASE {' '.join(cases)} END"

    @override
    def _map(self, sql: str, keys: Schema, values: Schema, depth: int) -> str:
        if keys.type is Type.STRING and not keys.optional:
            return super()._map(sql, keys, values, depth)
        entry = f"e{depth}"
        parts = ((KEY, f"{entry}.key", keys), (VALUE, f"{entry}.value", values))
        pair = ", ".join(
            f"{literal(name)}, {self._value(part, own, depth + 1)}" for name, part, own in parts
        )
        return f"transform(map_entries({sql}), {entry} -> named_struct({pair}))"
