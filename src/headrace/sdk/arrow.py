"""Schemas as Arrow's types, and back, exactly.

What `to_arrow` gives is what Spark takes: timestamps in microseconds and UTC, no large,
dictionary or view types. What `from_arrow` takes is any type that has one clear meaning.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headrace.sdk.errors import ConfigError
from headrace.sdk.facts import (
    facts_of,
    native_head,
    root_facts_of,
    with_facts,
    with_root_facts,
)
from headrace.sdk.logical import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIMESTAMP,
    precision_of,
    scale_of,
)
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema

__all__ = ["from_arrow", "to_arrow", "to_arrow_field", "to_arrow_type"]


def to_arrow(schema: Schema) -> pa.Schema:
    """Give the Arrow schema of rows that a STRUCT describes.

    Raises:
        ConfigError: The schema is no STRUCT, or a Decimal's scale does not fit; `field`
            is the path to it.
    """
    if schema.type is not Type.STRUCT:
        raise ConfigError(
            problem=f"Rows need a schema of type STRUCT, not {schema.type.value}.",
            fix="Wrap it: Schema.struct({'value': schema}).",
        )
    fields = [_field(member.name, member.schema, member.name) for member in schema.fields]
    return pa.schema(fields, metadata=_bytes(root_facts_of(schema)))


def to_arrow_field(name: str, schema: Schema) -> pa.Field:
    """Give the Arrow field of that name for any schema; errors as `to_arrow`'s."""
    return _field(name, schema, name)


def to_arrow_type(schema: Schema) -> pa.DataType:
    """Give the Arrow type of any schema, which loses what only a field can say."""
    return _type(schema, "")


def from_arrow(arrow: pa.Schema | pa.Field | pa.DataType) -> Schema:
    """Give the schema of Arrow's rows, field or type; a type alone is taken as required.

    Unsigned integers take the next larger type, uint64 a Decimal; naive timestamps are
    taken as UTC; a dictionary or an extension is taken as what it holds; nulls are texts.

    Raises:
        ConfigError: A type has no clear meaning, such as a union or an interval; `field` is
            the path to it.
    """
    if isinstance(arrow, pa.Schema):
        struct = Schema.struct(_members(arrow, ""))
        return with_root_facts(struct, _texts(arrow.metadata))
    if isinstance(arrow, pa.Field):
        return _from_field(arrow, arrow.name)
    return _from_type(arrow, "")


def _bytes(facts: Mapping[str, str]) -> dict[bytes, bytes] | None:
    return {key.encode(): fact.encode() for key, fact in facts.items()} or None


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {
        key.decode(): fact.decode()
        for key, fact in (metadata or {}).items()
        if key.startswith(b"headrace.")
    }


def _field(name: str, schema: Schema, path: str) -> pa.Field:
    arrow = _type(schema, path)
    return pa.field(name, arrow, nullable=schema.optional, metadata=_bytes(facts_of(schema)))


def _type(schema: Schema, path: str) -> pa.DataType:
    head = native_head(schema, path)
    if head.name == DECIMAL:
        return pa.decimal128(precision_of(head.parameters), scale_of(head.parameters))
    if head.name is not None:
        return _LOGICAL[head.name]
    if head.type in _SCALARS:
        return _SCALARS[head.type]
    if head.type is Type.STRUCT:
        return pa.struct(
            [_field(m.name, m.schema, f"{path}.{m.name}".strip(".")) for m in schema.fields]
        )
    # The names of the parts are Spark's.
    if schema.value_schema is not None and schema.key_schema is not None:
        keys = pa.field("key", _type(schema.key_schema, f"{path} key"), nullable=False)
        return pa.map_(keys, _part("value", schema.value_schema, f"{path} value"))
    if schema.value_schema is not None:
        return pa.list_(_part("element", schema.value_schema, f"{path} element"))
    message = f"{schema!r} has no parts"
    raise AssertionError(message)


def _part(name: str, schema: Schema, path: str) -> pa.Field:
    return pa.field(name, _type(schema, path), nullable=schema.optional)


_SCALARS: Mapping[Type, pa.DataType] = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_LOGICAL: Mapping[str, pa.DataType] = {
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


def _from_field(field: pa.Field, path: str) -> Schema:
    native = _from_type(field.type, path)
    # A null column is optional whatever the field says: it can hold nothing else.
    optional = field.nullable or native.optional
    return with_facts(native.replaced(optional=optional), _texts(field.metadata))


def _members(fields: Any, path: str) -> dict[str, Schema]:
    members: dict[str, Schema] = {}
    for field in fields:
        where = f"{path}.{field.name}".strip(".")
        if field.name in members:
            raise ConfigError(problem="Two columns have this name.", field=where)
        members[field.name] = _from_field(field, where)
    return members


def _from_type(arrow: pa.DataType, path: str) -> Schema:
    if isinstance(arrow, pa.BaseExtensionType):
        return _from_type(arrow.storage_type, path)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _from_type(arrow.value_type, path)
    for has_type, meaning in _MEANINGS:
        if has_type(arrow):
            return meaning(arrow, path)
    raise ConfigError(
        problem=f"The Arrow type {arrow} has no counterpart.",
        fix="Cast the column to another type, or leave it out.",
        field=path or None,
    )


def _from_decimal(arrow: pa.DataType, path: str) -> Schema:
    if arrow.precision > MAX_PRECISION or arrow.scale < 0:
        raise ConfigError(
            problem=f"The Arrow type {arrow} does not fit into Spark's decimals.",
            fix=f"Cast it to a decimal of at most {MAX_PRECISION} digits, or to a text.",
            field=path or None,
        )
    precision = max(arrow.precision, arrow.scale)
    return Schema.decimal(arrow.scale, precision=precision)


def _from_list(arrow: pa.DataType, path: str) -> Schema:
    return Schema.array(_from_field(arrow.value_field, f"{path} element"))


def _from_map(arrow: pa.DataType, path: str) -> Schema:
    keys = _from_field(arrow.key_field, f"{path} key").replaced(optional=False)
    return Schema.map(keys, _from_field(arrow.item_field, f"{path} value"))


def _is_any_list(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(arrow)
        or kinds.is_large_list(arrow)
        or kinds.is_fixed_size_list(arrow)
        or kinds.is_list_view(arrow)
        or kinds.is_large_list_view(arrow)
    )


def _is_any_text(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(arrow) or kinds.is_large_string(arrow) or kinds.is_string_view(arrow)
    )


def _is_any_binary(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_binary(arrow)
        or kinds.is_large_binary(arrow)
        or kinds.is_fixed_size_binary(arrow)
        or kinds.is_binary_view(arrow)
    )


_Meaning = Callable[[pa.DataType, str], Schema]


def _always(schema: Schema) -> _Meaning:
    return lambda _, __: schema


_MEANINGS: tuple[tuple[Callable[[pa.DataType], bool], _Meaning], ...] = (
    (pa.types.is_int8, _always(Schema.int8())),
    (pa.types.is_int16, _always(Schema.int16())),
    (pa.types.is_int32, _always(Schema.int32())),
    (pa.types.is_int64, _always(Schema.int64())),
    (pa.types.is_uint8, _always(Schema.int16())),
    (pa.types.is_uint16, _always(Schema.int32())),
    (pa.types.is_uint32, _always(Schema.int64())),
    (pa.types.is_uint64, _always(Schema.decimal(0, precision=20))),
    (pa.types.is_float16, _always(Schema.float32())),
    (pa.types.is_float32, _always(Schema.float32())),
    (pa.types.is_float64, _always(Schema.float64())),
    (pa.types.is_boolean, _always(Schema.boolean())),
    (_is_any_text, _always(Schema.string())),
    (_is_any_binary, _always(Schema.bytes())),
    (pa.types.is_date, _always(Schema.date())),
    (pa.types.is_time, _always(Schema.time())),
    (pa.types.is_timestamp, _always(Schema.timestamp())),
    (pa.types.is_null, _always(Schema.string(optional=True))),
    (pa.types.is_decimal, _from_decimal),
    (_is_any_list, _from_list),
    (pa.types.is_map, _from_map),
    (pa.types.is_struct, lambda arrow, path: Schema.struct(_members(arrow, path))),
)
