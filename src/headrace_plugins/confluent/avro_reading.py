"""What an Avro schema is to Kafka Connect, as Confluent's converter has it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from headrace.sdk import RecordError, Schema
from headrace.sdk.connectjson import connect_schema
from headrace.sdk.logical import (
    DATE,
    DECIMAL,
    LOGICAL_BASES,
    TIME,
    TIMESTAMP,
    decimal_parameters,
)
from headrace_plugins.confluent.avro_types import MAX_DIGITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace_plugins.confluent.avro_types import AvroField, AvroType

UNION = "io.confluent.connect.avro.Union"
ENUM = "io.confluent.connect.avro.Enum"
UNNAMED = "io.confluent.connect.avro.ConnectDefault"
FIXED_SIZE = "connect.fixed.size"
LEGACY_PRECISION = 64
"""What Confluent's converter writes for a Decimal whose precision is not known."""

_TYPES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    "date": DATE,
    "time-millis": TIME,
    "time-micros": TIME,
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
}
_MICROS = frozenset({"time-micros", "timestamp-micros"})
_SMALL = frozenset({"int8", "int16"})


def connect_of(type_: AvroType, *, enhanced: bool = False) -> Schema:
    """Return the schema of an Avro type's values.

    Args:
        type_: The type.
        enhanced: Whether branches of unions are called by their full names.

    Raises:
        RecordError: There are no such values, or a default does not fit.
    """
    schema = connect_schema(_Reading(enhanced=enhanced).tree(type_))
    assert schema is not None
    return schema


def member_name(type_: AvroType, *, enhanced: bool) -> str:
    """Return what the field for a branch of a union is called."""
    if type_.name is None:
        return type_.kind
    return type_.name if enhanced else type_.name.rpartition(".")[2]


class _Reading:
    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced

    def tree(self, type_: AvroType) -> dict[str, Any]:
        """Return the schema in Kafka Connect's JSON form."""
        if type_.kind == "union":
            return self._union(type_)
        return {**self._plain(type_), **self._facts(type_)}

    def _union(self, type_: AvroType) -> dict[str, Any]:
        if (only := type_.only_part) is not None:
            return self.tree(only)
        if (part := type_.optional_part) is not None:
            return {**self.tree(part), "optional": True}
        names = [member_name(part, enhanced=self._enhanced) for part in type_.branches]
        if not names or len(set(names)) != len(names):
            raise RecordError(problem=f"A union has branches of one name: {names}.")
        fields = [
            {**self.tree(part), "optional": True, "field": name}
            for name, part in zip(names, type_.branches, strict=True)
        ]
        tree = {"type": "struct", "name": UNION, "fields": fields}
        return {**tree, "optional": type_.is_nullable}

    def _plain(self, type_: AvroType) -> dict[str, Any]:
        if type_.is_entry:
            key, value = (field.type for field in type_.parts[0].fields)
            return {"type": "map", "keys": self.tree(key), "values": self.tree(value)}
        match type_.kind:
            case "record":
                fields = [self._field(field) for field in type_.fields]
                return {"type": "struct", "fields": fields}
            case "array":
                return {"type": "array", "items": self.tree(type_.parts[0])}
            case "map":
                values = self.tree(type_.parts[0])
                return {"type": "map", "keys": {"type": "string"}, "values": values}
            case "null":
                problem = "Standalone null schemas are not supported by this converter"
                raise RecordError(problem=problem)
            case _:
                return self._scalar(type_)

    def _scalar(self, type_: AvroType) -> dict[str, Any]:
        tree: dict[str, Any] = {"type": _TYPES[type_.kind]}
        logical, kept = type_.logical, type_.facts.get("connect.type")
        if logical == "decimal":
            _, scale = type_.digits
            precision = type_.facts.get("precision")
            known = isinstance(precision, int) and 0 < precision <= MAX_DIGITS
            tree["parameters"] = decimal_parameters(scale, precision if known else None)
            tree |= {"name": DECIMAL, "version": 1}
        elif logical is not None:
            name = _LOGICAL[logical]
            tree = {"type": LOGICAL_BASES[name].value.lower(), "name": name, "version": 1}
        elif type_.kind == "int" and kept in _SMALL:
            tree["type"] = kept
        if type_.kind == "fixed" and logical is None:
            tree["parameters"] = {FIXED_SIZE: str(type_.facts["size"])}
        if type_.kind == "enum":
            symbols = {f"{ENUM}.{symbol}": symbol for symbol in type_.facts["symbols"]}
            tree["parameters"] = {ENUM: str(type_.name), **symbols}
        return tree

    def _facts(self, type_: AvroType) -> dict[str, Any]:
        facts = type_.facts
        given: dict[str, Any] = {}
        doc = facts.get("doc", facts.get("connect.doc"))
        if isinstance(doc, str):
            given["doc"] = doc
        if isinstance(facts.get("connect.version"), int):
            given["version"] = facts["connect.version"]
        if isinstance(facts.get("connect.parameters"), dict):
            plain = self._scalar(type_).get("parameters", {}) if type_.kind in _TYPES else {}
            given["parameters"] = {**plain, **facts["connect.parameters"]}
        name = facts.get("connect.name", type_.name)
        if isinstance(name, str) and type_.logical is None and not name.startswith(UNNAMED):
            given["name"] = name
        if facts.get("connect.default") is not None:
            given["default"] = self._default(type_, facts["connect.default"])
        return given

    def _field(self, field: AvroField) -> dict[str, Any]:
        tree = {**self.tree(field.type), "field": field.name}
        if isinstance(field.doc, str):
            tree["doc"] = field.doc
        if field.has_default and field.default is not None:
            tree["default"] = self._default(field.type, field.default)
        return tree

    def _default(self, type_: AvroType, value: Any) -> Any:
        """Return a default as Kafka Connect's JSON has it."""
        if value is None:
            return None
        if type_.kind in {"bytes", "fixed"} and isinstance(value, str):
            return base64.b64encode(value.encode("latin-1")).decode()
        if type_.logical in _MICROS and isinstance(value, int):
            return value // 1000
        match type_.kind:
            case "union":
                return self._of_union(type_, value)
            case "record" if isinstance(value, dict):
                return self._of_record(type_, value)
            case "array" if isinstance(value, list):
                return self._of_array(type_, value)
            case "map" if isinstance(value, dict):
                return {key: self._default(type_.parts[0], item) for key, item in value.items()}
            case _:
                return value

    def _of_union(self, type_: AvroType, value: Any) -> Any:
        one = type_.only_part or type_.optional_part
        if one is not None:
            return self._default(one, value)
        # A default is one of the first branch.
        names = [member_name(part, enhanced=self._enhanced) for part in type_.branches]
        first = {names[0]: self._default(type_.branches[0], value)}
        return dict.fromkeys(names) | first

    def _of_record(self, type_: AvroType, value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            field.name: self._default(field.type, value.get(field.name, field.default))
            for field in type_.fields
        }

    def _of_array(self, type_: AvroType, value: list[Any]) -> Any:
        items = [self._default(type_.parts[0], item) for item in value]
        if not type_.is_entry:
            return items
        pairs = [[item["key"], item["value"]] for item in items]
        return dict(pairs) if type_.parts[0].fields[0].type.kind == "string" else pairs
