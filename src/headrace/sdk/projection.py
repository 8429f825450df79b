"""Moves a value from the schema it was written with to the schema that is wanted."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from headrace.sdk.errors import RecordError
from headrace.sdk.frozen import thaw
from headrace.sdk.logical import DECIMAL
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Field, Schema, validate_value
from headrace.sdk.struct import Struct

__all__ = ["project"]

# Each may become any that follows it: the order of Kafka Connect's SchemaProjector.
_PROMOTIONS = (
    Type.INT8,
    Type.INT16,
    Type.INT32,
    Type.INT64,
    Type.FLOAT32,
    Type.FLOAT64,
)


def project(source: Schema, value: Any, target: Schema) -> Any:
    """Give the value of the source schema as a value of the target schema.

    The rules are those of Kafka Connect's SchemaProjector, to the depth: types must be equal
    but for the promotion of numbers; fields go by name, and a field that is missing becomes
    null if it is optional, and its default otherwise. Beyond Kafka's rules, whole numbers may
    become Decimals, and Decimals may have another scale.

    Raises:
        RecordError: The schemas do not go together, or the value does not fit the target;
            `field` is the path.
    """
    return _projected(source, value, target, "")


def _projected(source: Schema, value: Any, target: Schema, path: str) -> Any:
    if source == target:
        return value
    if value is None:
        return _absent(source, target, path)
    _check(source, target, path)
    projected = _converted(source, value, target, path)
    validate_value(target, projected, path=path)
    return projected


def _absent(source: Schema, target: Schema, path: str) -> Any:
    if target.default is not None:
        return thaw(target.default)
    if not target.optional:
        raise RecordError(
            problem=f"Writer schema of type {source.type.value} is optional and its value is "
            "null, but the target is required and has no default.",
            field=path or None,
        )
    return None


def _check(source: Schema, target: Schema, path: str) -> None:
    if source.type is not target.type and not _promotable(source, target):
        raise RecordError(
            problem=f"Schema type mismatch. source type: {source.type.value} and target type: "
            f"{target.type.value}",
            field=path or None,
        )
    logical = source.is_logical or target.is_logical
    if logical and source.name != target.name and not _promotable(source, target):
        raise RecordError(
            problem=f"Schema name mismatch. source name: {source.name} and target name: "
            f"{target.name}",
            field=path or None,
        )


def _promotable(source: Schema, target: Schema) -> bool:
    if source.is_logical:
        return False
    if target.is_logical:
        return target.name == DECIMAL and source.type in _PROMOTIONS[:4]
    if source.type not in _PROMOTIONS or target.type not in _PROMOTIONS:
        return False
    return _PROMOTIONS.index(source.type) <= _PROMOTIONS.index(target.type)


def _converted(source: Schema, value: Any, target: Schema, path: str) -> Any:
    if target.is_logical:
        return Decimal(value) if target.name == DECIMAL else value
    match target.type:
        case Type.FLOAT32 | Type.FLOAT64:
            return float(value)
        case Type.STRUCT:
            return _struct(source, value, target, path)
        case Type.ARRAY | Type.MAP:
            return _parts(source, value, target, path)
        case _:
            return value


def _parts(source: Schema, value: Any, target: Schema, path: str) -> Any:
    values, wanted = source.value_schema, target.value_schema
    if values is None or wanted is None:
        return value
    if not isinstance(value, Mapping):
        return [_projected(values, item, wanted, f"{path} element") for item in value]
    keys, wanted_keys = source.key_schema, target.key_schema
    if keys is None or wanted_keys is None:
        return value
    return {
        _projected(keys, key, wanted_keys, f"{path} key"): _projected(
            values, item, wanted, f"{path} value"
        )
        for key, item in value.items()
    }


def _struct(source: Schema, value: Struct, target: Schema, path: str) -> Struct:
    struct = Struct(target)
    for field in target.fields:
        where = f"{path}.{field.name}".strip(".")
        written = source.field(field.name)
        if written is None:
            item = _missing(field, where)
        elif written.schema == field.schema:
            item = value.get_without_default(written)
        else:
            item = _projected(written.schema, value.get(written), field.schema, where)
        if item is not None:
            struct.put(field, item)
    return struct


def _missing(field: Field, path: str) -> Any:
    if field.schema.optional:
        return None
    if field.schema.default is None:
        raise RecordError(
            problem=f"Required field `{field.name}` is missing from source schema",
            field=path,
        )
    return thaw(field.schema.default)
