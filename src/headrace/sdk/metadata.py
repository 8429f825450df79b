"""Attributes of Kafka Connect schemas that Arrow and Spark lack, as metadata strings by key.

Arrow and Spark have types, field names and nullability. Other attributes (names, versions,
descriptions, parameters, defaults, and types they lack) are stored in the metadata of the
field, under keys that start with `headrace.`: `headrace.doc` for the field itself,
`headrace.value.doc` for the items of an array or the values of a map, `headrace.key.doc` for
the keys of a map. The fields of a struct have their own metadata.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from headrace.sdk.errors import ConfigError, HeadraceError
from headrace.sdk.frozen import FrozenMap, freeze
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    FLOATS,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    Schema,
    Type,
    precision_of,
    scale_of,
)
from headrace.sdk.struct import Struct

PREFIX = "headrace."
ROOT = "headrace.root."


@dataclass(frozen=True, slots=True)
class Head:
    """The attributes of a schema that determine the Python type of its values."""

    type: Type
    name: str | None = None
    version: int | None = None
    parameters: Mapping[str, str] = FrozenMap()

    @classmethod
    def of(cls, schema: Schema) -> "Head":
        """Return the head of a schema."""
        return cls(schema.type, schema.name, schema.version, schema.parameters)


def native_head(schema: Schema, path: str = "") -> Head:
    """Return the part of a schema's head that Arrow and Spark types can represent.

    Decimals get a precision. Times become integers, microseconds since midnight: Spark has a
    type for them, but Delta tables do not support it. Other schema names are lost. Raises
    ConfigError: a Decimal's scale is not supported; the error names the path.
    """
    if not schema.is_logical:
        return Head(schema.type)
    if schema.name == TIME:
        return Head(Type.INT64)
    if schema.name == VARIANT:
        return Head(Type.STRING)
    if schema.name != DECIMAL:
        return Head(schema.type, schema.name, 1)
    scale = scale_of(schema.parameters)
    if scale is None or not 0 <= scale <= MAX_PRECISION:
        raise ConfigError(
            problem=f"A Decimal of scale {scale} does not fit into Spark's types.",
            fix=f"Use a scale from 0 to {MAX_PRECISION}.",
            field=path or None,
        )
    precision = max(precision_of(schema.parameters) or MAX_PRECISION, scale)
    return Head.of(Schema.decimal(scale, precision=precision))


def metadata_of(schema: Schema, prefix: str = PREFIX, *, key: bool = False) -> dict[str, str]:
    """Return the attributes of a field's schema that Arrow and Spark types cannot represent.

    `key` means that it is a map's key, which is always required in Arrow and Spark.
    """
    metadata: dict[str, str] = {}
    head = Head.of(schema)
    if head != Head(schema.type) and head != native_head(schema):
        metadata["type"] = schema.type.value
        metadata |= {} if head.name is None else {"name": head.name}
        metadata |= {} if head.version is None else {"version": str(head.version)}
        if head.parameters:
            metadata["parameters"] = json.dumps(dict(head.parameters))
    if schema.doc is not None:
        metadata["doc"] = schema.doc
    if schema.default is not None:
        metadata["default"] = json.dumps(default_to_json(schema, schema.default))
    if key and schema.optional:
        metadata["optional"] = "true"
    named = {prefix + name: text for name, text in metadata.items()}
    if schema.key_schema is not None:
        named |= metadata_of(schema.key_schema, f"{prefix}key.", key=True)
    if schema.value_schema is not None:
        named |= metadata_of(schema.value_schema, f"{prefix}value.")
    return named


def root_metadata_of(schema: Schema) -> dict[str, str]:
    """Return the attributes of a row's schema that Arrow and Spark types cannot represent."""
    return metadata_of(schema, ROOT, key=True)


def with_metadata(native: Schema, metadata: Mapping[str, str], prefix: str = PREFIX) -> Schema:
    """Restore the schema from the output of `metadata_of`.

    Args:
        native: The schema derived from the Arrow or Spark type.
        metadata: The metadata. Keys without the prefix are ignored, and so is a type that no
            longer matches because the column was cast.
        prefix: The prefix of the keys.
    """
    if not any(key.startswith(prefix) for key in metadata):
        return native
    schema = native
    if native.key_schema is not None:
        keys = with_metadata(native.key_schema, metadata, f"{prefix}key.")
        if metadata.get(f"{prefix}key.optional") == "true":
            keys = keys.replaced(optional=True)
        schema = replace(schema, key_schema=keys)
    if native.value_schema is not None:
        values = with_metadata(native.value_schema, metadata, f"{prefix}value.")
        schema = replace(schema, value_schema=values)
    named = _with_head(schema, metadata, prefix)
    documented = named.replaced(doc=metadata.get(f"{prefix}doc", named.doc))
    default = metadata.get(f"{prefix}default")
    if default is None or (f"{prefix}type" in metadata and Head.of(named) == Head.of(native)):
        return documented
    try:
        return documented.replaced(default=default_from_json(named, json.loads(default)))
    except (HeadraceError, ArithmeticError, AttributeError, TypeError, ValueError):
        # Metadata survives casts: the default belongs to the column's previous type.
        return documented


def with_root_metadata(native: Schema, metadata: Mapping[str, str]) -> Schema:
    """Restore the schema from the output of `root_metadata_of`."""
    schema = with_metadata(native, metadata, ROOT)
    return schema.replaced(optional=metadata.get(f"{ROOT}optional") == "true")


def _with_head(native: Schema, metadata: Mapping[str, str], prefix: str) -> Schema:
    type_name = metadata.get(f"{prefix}type")
    if type_name is None or type_name not in Type.__members__:
        return native
    version = metadata.get(f"{prefix}version")
    schema = replace(
        native,
        type=Type(type_name),
        name=metadata.get(f"{prefix}name"),
        version=None if version is None else int(version),
        parameters=json.loads(metadata.get(f"{prefix}parameters", "{}")),
    )
    # If the column was cast since, its metadata no longer applies.
    return schema if native_head(schema) == Head.of(native) else native


def default_to_json(schema: Schema, value: Any) -> Any:
    """Return a default as JSON values; parsing them requires the schema."""
    match value:
        case None:
            return None
        case bytes():
            return base64.b64encode(value).decode()
        case date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case Struct():
            return {
                field.name: default_to_json(field.schema, value.get_without_default(field))
                for field in value.schema.fields
            }
        case tuple() | list() if schema.value_schema is not None:
            return [default_to_json(schema.value_schema, item) for item in value]
        case Mapping() if schema.key_schema is not None and schema.value_schema is not None:
            return [
                [
                    default_to_json(schema.key_schema, key),
                    default_to_json(schema.value_schema, item),
                ]
                for key, item in value.items()
            ]
        case _:
            return value


def default_from_json(schema: Schema, value: Any) -> Any:
    """Parse the output of `default_to_json`, also with a schema that was widened since."""
    keys, items = schema.key_schema, schema.value_schema
    if value is None:
        return None
    if schema.is_logical:
        return _LOGICAL_READERS[str(schema.name)](value)
    if schema.type is Type.BYTES:
        return base64.b64decode(value)
    if schema.type in FLOATS:
        return float(value)
    if schema.type is Type.STRUCT:
        fields = {field.name: field.schema for field in schema.fields}
        values = {name: default_from_json(fields[name], item) for name, item in value.items()}
        return Struct(schema, {name: item for name, item in values.items() if item is not None})
    if items is not None and keys is not None:
        pairs = [(default_from_json(keys, k), default_from_json(items, v)) for k, v in value]
        return FrozenMap({freeze(key): item for key, item in pairs})
    return value if items is None else [default_from_json(items, item) for item in value]


_LOGICAL_READERS: Mapping[str, Callable[[str], Any]] = {
    DECIMAL: Decimal,
    DATE: date.fromisoformat,
    TIME: time.fromisoformat,
    TIMESTAMP: datetime.fromisoformat,
    VARIANT: str,
}
