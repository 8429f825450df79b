"""Moves a value from the schema it was written with to the schema that is wanted."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from headrace.sdk.errors import RecordError
from headrace.sdk.frozen import thaw
from headrace.sdk.logical import DECIMAL
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Field, Schema, validate_value
from headrace.sdk.struct import Struct

__all__ = ["carry", "project"]

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

    The rules and the texts of errors are those of Kafka Connect's SchemaProjector, to the
    depth: types must be equal but for the promotion of numbers, names and parameters must be
    equal, what is optional fits what is required only where there is a default, and fields go
    by name: a field that is missing is null if it is optional, and its default otherwise. One
    thing differs: a null between equal schemas stays a null, whatever their default.

    Raises:
        RecordError: The schemas do not go together, or the value does not fit the target;
            `field` is the path.
    """
    return _projected(source, value, target, "", _check_projector)


def carry(source: Schema, value: Any, target: Schema) -> Any:
    """Give the value as one of a schema that `evolve` made from its own and another.

    It takes what `project` takes, and more: whole numbers may become Decimals, Decimals may
    have another scale, names of other than logical types do not count, and a value that is
    there fits what is required.

    Raises:
        RecordError: As `project`.
    """
    return _projected(source, value, target, "", _check_evolved)


_Check = Callable[[Schema, Any, Schema, str], None]


def _projected(source: Schema, value: Any, target: Schema, path: str, check: _Check) -> Any:
    if source == target:
        return value
    check(source, value, target, path)
    if value is None:
        return None if target.optional else thaw(target.default)
    projected = _converted(source, value, target, path, check)
    validate_value(target, projected, path=path)
    return projected


def _check_projector(source: Schema, _: Any, target: Schema, path: str) -> None:
    fault = None
    if source.type is not target.type and not _promoted(source.type, target.type):
        fault = (
            f"Schema type mismatch. source type: {source.type.value} and target type: "
            f"{target.type.value}"
        )
    elif source.name != target.name:
        fault = (
            f"Schema name mismatch. source name: {source.name} and target name: {target.name}"
        )
    elif source.parameters != target.parameters:
        fault = (
            f"Schema parameters not equal. source parameters: {source.parameters} and target "
            f"parameters: {target.parameters}"
        )
    elif source.optional and not target.optional and target.default is None:
        fault = (
            "Writer schema is optional, however, target schema does not provide a "
            "default value."
        )
    if fault is not None:
        raise RecordError(problem=fault, field=path or None)


def _check_evolved(source: Schema, value: Any, target: Schema, path: str) -> None:
    fault = None
    if value is None and not target.optional and target.default is None:
        fault = "A value is null, but the target is required and has no default."
    elif source.type is not target.type and not _promotable(source, target):
        fault = f"A value of type {source.type.value} does not fit {target.type.value}."
    elif source.name != target.name and not _promotable(source, target):
        logical = source.is_logical or target.is_logical
        fault = f"A value of {source.name} does not fit {target.name}." if logical else None
    if fault is not None:
        raise RecordError(problem=fault, field=path or None)


def _promotable(source: Schema, target: Schema) -> bool:
    if source.is_logical:
        return False
    if target.is_logical:
        return target.name == DECIMAL and source.type in _PROMOTIONS[:4]
    return _promoted(source.type, target.type)


def _promoted(source: Type, target: Type) -> bool:
    if source not in _PROMOTIONS or target not in _PROMOTIONS:
        return False
    return _PROMOTIONS.index(source) <= _PROMOTIONS.index(target)


def _converted(source: Schema, value: Any, target: Schema, path: str, check: _Check) -> Any:
    if target.is_logical:
        return Decimal(value) if target.name == DECIMAL else value
    match target.type:
        case Type.FLOAT32 | Type.FLOAT64:
            return float(value)
        case Type.STRUCT:
            return _struct(source, value, target, path, check)
        case Type.ARRAY | Type.MAP:
            return _parts(source, value, target, path, check)
        case _:
            return value


def _parts(source: Schema, value: Any, target: Schema, path: str, check: _Check) -> Any:
    values, wanted = source.value_schema, target.value_schema
    if values is None or wanted is None:
        return value
    if not isinstance(value, Mapping):
        return [_projected(values, item, wanted, f"{path} element", check) for item in value]
    keys, wanted_keys = source.key_schema, target.key_schema
    if keys is None or wanted_keys is None:
        return value
    return {
        _projected(keys, key, wanted_keys, f"{path} key", check): _projected(
            values, item, wanted, f"{path} value", check
        )
        for key, item in value.items()
    }


def _struct(source: Schema, value: Struct, target: Schema, path: str, check: _Check) -> Struct:
    struct = Struct(target)
    for field in target.fields:
        where = f"{path}.{field.name}".strip(".")
        written = source.field(field.name)
        if written is None:
            item = _missing(field, where)
        elif written.schema == field.schema:
            item = value.get_without_default(written)
        else:
            item = _projected(written.schema, value.get(written), field.schema, where, check)
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
