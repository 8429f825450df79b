"""What a schema of Kafka Connect's is in Avro, as Confluent's converter has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.connectpayload import json_from_native, native_from_value
from headrace.sdk.logical import DATE, DECIMAL, TIME, TIMESTAMP, precision_of, scale_of
from headrace.sdk.struct import Struct
from headrace_plugins.confluent.avro_reading import (
    ENUM,
    FIXED_SIZE,
    LEGACY_PRECISION,
    UNION,
    UNNAMED,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE, _, _DEFAULT_NAME = UNNAMED.rpartition(".")
_TYPES = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_SMALL = {Type.INT8: "int8", Type.INT16: "int16"}
_LOGICAL = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}


def avro_of(schema: Schema, *, enhanced: bool = False, facts: bool = True) -> Any:
    """Return an Avro schema, as a JSON tree, for values of a schema that are not null.

    Args:
        schema: The schema.
        enhanced: Whether texts that came from an enum become one again.
        facts: Whether what Avro has no words for is told in properties.

    Raises:
        RecordError: A name is none in Avro.
    """
    return _Writing(enhanced=enhanced, facts=facts).base(schema)


class _Writing:
    def __init__(self, *, enhanced: bool, facts: bool) -> None:
        self._enhanced = enhanced
        self._facts = facts
        self._unnamed = 0
        self._entries = 0
        self._known: dict[str, Schema] = {}
        self._told_names: set[str] = set()

    def type(self, schema: Schema) -> Any:
        """Return the type, which allows null where the schema does."""
        if schema.name == UNION and schema.type is Type.STRUCT:
            return self._union(schema)
        base = self.base(schema)
        if not schema.optional:
            return base
        # A default is one of the first branch.
        return ["null", base] if schema.default is None else [base, "null"]

    def base(self, schema: Schema) -> Any:
        """Return the type without null."""
        if schema.name == UNION and schema.type is Type.STRUCT:
            return self._union(schema.replaced(optional=False))
        match schema.type:
            case Type.STRUCT:
                return self._record(schema)
            case Type.ARRAY if schema.value_schema is not None:
                tree = {"type": "array", "items": self.type(schema.value_schema)}
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                tree = self._map(schema.key_schema, schema.value_schema)
            case _:
                return self._scalar(schema)
        return self._told(tree, schema)

    def _union(self, schema: Schema) -> list[Any]:
        branches = [self.base(field.schema) for field in schema.fields]
        return ["null", *branches] if schema.optional else branches

    def _record(self, schema: Schema) -> Any:
        name = schema.name
        if name is None:
            self._unnamed += 1
            name = f"{UNNAMED}{self._unnamed if self._unnamed > 1 else ''}"
        elif self._is_told(name, schema):
            return name
        space, _, own = name.rpartition(".")
        for part in (*filter(None, space.split(".")), own):
            _check(part)
        tree: dict[str, Any] = {"type": "record", "name": own}
        if space:
            tree["namespace"] = space
        tree["fields"] = [self._field(f.name, f.schema) for f in schema.fields]
        return self._told(tree, schema)

    def _is_told(self, name: str, schema: Schema) -> bool:
        """Return whether a name is defined already; a definition may not come twice."""
        known = self._known.setdefault(name, schema.bare())
        if known != schema.bare():
            raise RecordError(problem=f"Two different schemas are called {name}.")
        told = name in self._told_names
        self._told_names.add(name)
        return told

    def _field(self, name: str, schema: Schema) -> dict[str, Any]:
        _check(name)
        tree = {"name": name, "type": self.type(schema)}
        if schema.doc is not None and self._facts:
            tree["doc"] = schema.doc
        if schema.default is not None:
            tree["default"] = _default(schema, schema.default)
        elif schema.optional and tree["type"][0] == "null":
            tree["default"] = None
        return tree

    def _map(self, keys: Schema, values: Schema) -> dict[str, Any]:
        if keys.type is Type.STRING and not keys.optional and not keys.is_logical:
            return {"type": "map", "values": self.type(values)}
        self._entries += 1
        number = self._entries if self._entries > 1 else ""
        entry = {
            "type": "record",
            "name": f"MapEntry{number}",
            "namespace": _SPACE,
            "fields": [
                {"name": "key", "type": self.type(keys)},
                {"name": "value", "type": self.type(values)},
            ],
            "connect.internal.type": "MapEntry",
        }
        return {"type": "array", "items": entry}

    def _scalar(self, schema: Schema) -> Any:
        tree: dict[str, Any] = {"type": _TYPES[schema.type]}
        if self._enhanced and ENUM in schema.parameters and schema.type is Type.STRING:
            prefix = f"{ENUM}."
            symbols = [s for key, s in schema.parameters.items() if key.startswith(prefix)]
            if self._is_told(schema.parameters[ENUM], schema):
                return schema.parameters[ENUM]
            tree = {"type": "enum", "name": schema.parameters[ENUM], "symbols": symbols}
        elif FIXED_SIZE in schema.parameters and schema.name is not None:
            size = int(schema.parameters[FIXED_SIZE])
            if self._is_told(schema.name, schema):
                return schema.name
            tree = {"type": "fixed", "name": schema.name, "size": size}
        if schema.type in _SMALL and self._facts:
            tree["connect.type"] = _SMALL[schema.type]
        told = self._told(tree, schema)
        return told["type"] if len(told) == 1 else told

    def _told(self, tree: dict[str, Any], schema: Schema) -> dict[str, Any]:
        if self._facts:
            # A name stands for all that its first use says, which had a default of its own.
            default = None if "name" in tree else _default(schema, schema.default)
            told: Mapping[str, Any] = {
                "connect.doc": schema.doc,
                "connect.version": schema.version,
                "connect.parameters": dict(schema.parameters) or None,
                "connect.default": default,
                "connect.name": schema.name,
            }
            tree |= {key: fact for key, fact in told.items() if fact is not None}
        if schema.is_logical:
            tree |= _logical(schema)
        return tree


def _logical(schema: Schema) -> dict[str, Any]:
    if schema.name != DECIMAL:
        name = _LOGICAL.get(str(schema.name))
        return {} if name is None else {"logicalType": name}
    scale, precision = scale_of(schema.parameters) or 0, precision_of(schema.parameters)
    digits = LEGACY_PRECISION if precision is None else precision
    if not 0 <= scale <= digits:
        raise RecordError(problem=f"Avro has no decimal of scale {scale} with {digits} digits.")
    return {"logicalType": "decimal", "precision": digits, "scale": scale}


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RecordError(problem=f"Illegal character in: {name}")


def _default(schema: Schema, value: Any) -> Any:
    """Return a default as Avro's JSON has it."""
    if schema.is_logical and schema.name in _LOGICAL_DEFAULTS:
        return None if value is None else _LOGICAL_DEFAULTS[str(schema.name)](schema, value)
    match value:
        case Struct():
            return {
                field.name: _default(field.schema, value.get_without_default(field))
                for field in value.schema.fields
            }
        case bytes():
            return value.decode("latin-1")
        case Mapping() if schema.value_schema is not None and schema.key_schema is not None:
            return _map_default(schema.key_schema, schema.value_schema, value)
        case list() | tuple() if schema.value_schema is not None:
            return [_default(schema.value_schema, item) for item in value]
        case float():
            return json_from_native(schema, value)
        case _:
            return value


def _decimal_default(schema: Schema, value: Decimal) -> str:
    number = int(value.scaleb(scale_of(schema.parameters) or 0))
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True).decode("latin-1")


_LOGICAL_DEFAULTS: Mapping[str, Callable[[Schema, Any], Any]] = {
    DECIMAL: _decimal_default,
    **dict.fromkeys(
        (DATE, TIME, TIMESTAMP),
        lambda schema, value: json_from_native(schema, native_from_value(schema, value)),
    ),
}


def _map_default(keys: Schema, values: Schema, value: Mapping[Any, Any]) -> Any:
    if keys.type is Type.STRING and not keys.optional:
        return {key: _default(values, item) for key, item in value.items()}
    return [
        {"key": _default(keys, key), "value": _default(values, item)}
        for key, item in value.items()
    ]
