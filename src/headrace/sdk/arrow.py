"""Lossless conversion of schemas and values to Arrow and back.

`to_arrow` returns types that Spark accepts: timestamps in microseconds and UTC, no large,
dictionary or view types. `from_arrow` accepts any type with an unambiguous meaning.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk.errors import ConfigError, RecordError
from headrace.sdk.metadata import (
    metadata_of,
    native_head,
    root_metadata_of,
    with_metadata,
    with_root_metadata,
)
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    day_micros,
    precision_of,
    scale_of,
)
from headrace.sdk.struct import Struct


def to_arrow(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of rows with a STRUCT schema.

    Raises ConfigError: the schema is not a STRUCT, or the scale of a Decimal is not supported;
    `field` is the path to the Decimal.
    """
    if schema.type is not Type.STRUCT:
        raise ConfigError(
            problem=f"Rows need a schema of type STRUCT, not {schema.type.value}.",
            fix="Wrap it: Schema.struct({'value': schema}).",
        )
    fields = [_field(member.name, member.schema, member.name) for member in schema.fields]
    return pa.schema(fields, metadata=_bytes(root_metadata_of(schema)))


def to_arrow_field(name: str, schema: Schema) -> pa.Field:
    """Return the Arrow field of that name for any schema; raises the errors of `to_arrow`."""
    return _field(name, schema, name)


def to_arrow_type(schema: Schema) -> pa.DataType:
    """Return the Arrow type of any schema, without the attributes that only fields have."""
    return _type(schema, "")


def from_arrow(arrow: pa.Schema | pa.Field | pa.DataType) -> Schema:
    """Return the schema for an Arrow schema, field or type; a type alone becomes required.

    Unsigned integers become the next larger type, uint64 a Decimal; naive timestamps become
    local timestamps; a dictionary or extension type becomes its value or storage type; the null
    type becomes STRING. Raises ConfigError: a type is not supported, such as a union or an
    interval; `field` is the path to it.
    """
    if isinstance(arrow, pa.Schema):
        struct = Schema.struct(_members(arrow, ""))
        return with_root_metadata(struct, _texts(arrow.metadata))
    if isinstance(arrow, pa.Field):
        return _from_field(arrow, arrow.name)
    return _from_type(arrow, "")


_Value = Callable[[Any], Any]


def to_array(values: Sequence[Any], schema: Schema) -> pa.Array:
    """Return an Arrow array of values with one schema; nulls stay null.

    Rows are Structs or mappings. Fields that are optional or have a default may be missing;
    fields that are not in the schema are left out. Raises RecordError: a value does not fit the
    schema, or a required part of it is null or missing; `field` is the path to it.
    """
    change, target = _value_maker(schema), to_arrow_type(schema)
    try:
        made = values if change is None else [None if v is None else change(v) for v in values]
        # With all parts nullable: pyarrow would silently put nulls into required fields.
        array = pa.array(made, _nullable(target))
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"A value does not fit its schema {schema.type.value}: {error}"
        raise RecordError(problem) from error
    return _cast(array, target, "")


def to_batch(rows: Sequence[Mapping[str, Any] | Struct], schema: Schema) -> pa.RecordBatch:
    """Return rows with a STRUCT schema as an Arrow record batch; see `to_array`."""
    batch = pa.RecordBatch.from_struct_array(to_array(rows, schema))
    return conform(batch, to_arrow(schema))


def _nullable(arrow: pa.DataType) -> pa.DataType:
    """Return a type of `to_arrow_type` with all parts nullable except the keys of maps."""
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(pa.field(arrow.value_field.name, _nullable(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(arrow.key_field, _nullable(arrow.item_type))
    return arrow


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
    return pa.field(name, arrow, nullable=schema.optional, metadata=_bytes(metadata_of(schema)))


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
    # The part names (key, value, element) are those of Spark.
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
    # A column of the null type is always optional: it contains only nulls.
    optional = field.nullable or native.optional
    return with_metadata(native.replaced(optional=optional), _texts(field.metadata))


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
        problem=f"The Arrow type {arrow} is not supported.",
        fix="Cast the column to another type, or remove it.",
        field=path or None,
    )


def _from_decimal(arrow: pa.DataType, path: str) -> Schema:
    if arrow.precision > MAX_PRECISION or arrow.scale < 0:
        raise ConfigError(
            problem=f"The Arrow type {arrow} does not fit into Spark's decimals.",
            fix=f"Cast it to a decimal of at most {MAX_PRECISION} digits, or to a string.",
            field=path or None,
        )
    precision = max(arrow.precision, arrow.scale)
    return Schema.decimal(arrow.scale, precision=precision)


def _from_list(arrow: pa.DataType, path: str) -> Schema:
    return Schema.array(_from_field(arrow.value_field, f"{path} element"))


def _from_map(arrow: pa.DataType, path: str) -> Schema:
    keys = _from_field(arrow.key_field, f"{path} key").replaced(optional=False)
    return Schema.map(keys, _from_field(arrow.item_field, f"{path} value"))


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
    (pa.types.is_string, _always(Schema.string())),
    (pa.types.is_large_string, _always(Schema.string())),
    (pa.types.is_string_view, _always(Schema.string())),
    (pa.types.is_binary, _always(Schema.bytes())),
    (pa.types.is_large_binary, _always(Schema.bytes())),
    (pa.types.is_fixed_size_binary, _always(Schema.bytes())),
    (pa.types.is_binary_view, _always(Schema.bytes())),
    (pa.types.is_date, _always(Schema.date())),
    (pa.types.is_time, _always(Schema.time())),
    (
        pa.types.is_timestamp,
        lambda arrow, _: Schema.timestamp() if arrow.tz else Schema.local_timestamp(),
    ),
    (pa.types.is_null, _always(Schema.string(optional=True))),
    (pa.types.is_decimal, _from_decimal),
    (pa.types.is_map, _from_map),
    # Lists of any form, and their views.
    (lambda arrow: hasattr(arrow, "value_field"), _from_list),
    (pa.types.is_struct, lambda arrow, path: Schema.struct(_members(arrow, path))),
)


Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


def conform(batch: Batch, schema: pa.Schema) -> Batch:
    """Return the batch with exactly this schema's columns, in its order and with its types.

    Called for each batch, on executors. A batch that already fits is returned unchanged, and
    columns that fit are shared, not copied. Missing nullable columns are filled with nulls, and
    columns that are not in the schema are left out. Values are cast only if that is lossless;
    only timestamps may lose digits, below the microsecond. Times of day become microseconds
    since midnight if the schema has int64.

    Args:
        batch: A record batch or a table.
        schema: A schema from `to_arrow`.

    Raises ConfigError: a required column is missing, or a column name occurs twice; `field` is
    the name. Raises RecordError: a value cannot be cast, or is null although required; `field`
    is the path to it.
    """
    if batch.schema.equals(schema):
        return batch
    if isinstance(batch, pa.Table):
        return pa.Table.from_batches([conform(b, schema) for b in batch.to_batches()], schema)
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index >= 0:
        return _fitted(batch.column(index), field, field.name)
    if batch.schema.get_all_field_indices(field.name):
        raise ConfigError(problem="Two columns have this name.", field=field.name)
    if not field.nullable:
        raise ConfigError(
            problem="This required column is missing.",
            fix=f"The batch has the columns: {', '.join(batch.schema.names) or 'none'}.",
            field=field.name,
        )
    return pa.nulls(batch.num_rows, field.type)


def _fitted(
    array: pa.Array, field: pa.Field, path: str, within: pa.Array | None = None
) -> pa.Array:
    if not field.nullable and array.null_count:
        # If the struct itself is null, its fields may have any value.
        nulls = array.is_null() if within is None else pc.and_(array.is_null(), within)
        if count := pc.sum(nulls).as_py():
            raise RecordError(
                problem=f"{count} of {len(array)} values are null, but the field is required.",
                field=path,
            )
    return array if array.type.equals(field.type) else _cast(array, field.type, path)


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    array = _plain(array)
    source = array.type
    if source.equals(target):
        return array
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(array, target, path)
    if pa.types.is_map(source) and pa.types.is_map(target):
        pairs = entries(array)
        keys, values = pairs.flatten().flatten()
        keys = _fitted(keys, target.key_field, f"{path} key".strip())
        values = _fitted(values, target.item_field, f"{path} value".strip())
        return remapped(pairs, keys, values, target)
    # Without a cast to list: casting a list view returns an array without its last offset.
    if pa.types.is_list(target) and hasattr(source, "value_field"):
        items = _fitted(array.flatten(), target.value_field, f"{path} element".strip())
        return pa.ListArray.from_arrays(
            offsets(array), items, type=target, mask=array.is_null()
        )
    try:
        if pa.types.is_time(source) and pa.types.is_int64(target):
            array = array.cast(pa.time64("us"), safe=False)
        return pc.cast(array, options=pc.CastOptions(target, allow_time_truncate=True))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordError(
            problem=f"The column has type {source} and cannot be cast to {target}: {error}",
            fix="Declare the column with its actual type, or cast it in the source.",
            field=path,
        ) from error


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array))
    return array


def _struct(array: pa.StructArray, target: pa.DataType, path: str) -> pa.Array:
    names = array.type
    children = [
        _member(
            array, names.get_field_index(field.name), field, f"{path}.{field.name}".strip(".")
        )
        for field in target
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _member(array: pa.StructArray, index: int, field: pa.Field, path: str) -> pa.Array:
    if index >= 0:
        return _fitted(array.field(index), field, path, array.is_valid())
    if not field.nullable:
        raise ConfigError(problem="This required field is missing.", field=path)
    return pa.nulls(len(array), field.type)


def offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of a list's items after `flatten`, which drops items of null lists."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def remapped(
    pairs: pa.ListArray, keys: pa.Array, values: pa.Array, kind: pa.DataType
) -> pa.MapArray:
    """Return maps with new keys and values in place of those in their `entries`."""
    mask = pairs.is_null()
    return pa.MapArray.from_arrays(offsets(pairs), keys, values, type=kind, mask=mask)


def entries(array: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of structs; needed because `keys` and `items` ignore slicing."""
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _value_maker(schema: Schema) -> _Value | None:
    """Return the function that converts values of ``schema`` for Arrow; None if not needed."""
    if schema.is_logical:
        return day_micros if schema.name == TIME else None
    if schema.type is Type.STRUCT:
        return _struct_value(schema)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        item = _value_maker(schema.value_schema)
        return None if item is None else _list_value(item)
    if schema.type is Type.MAP and schema.value_schema and schema.key_schema:
        return _map_value(_value_maker(schema.key_schema), _value_maker(schema.value_schema))
    return None


def _struct_value(schema: Schema) -> _Value:
    names = [field.name for field in schema.fields]
    changes: list[tuple[str, _Value | None, Any]] = []
    for field in schema.fields:
        change, default = _value_maker(field.schema), field.schema.default
        default = None if field.schema.optional else default
        if change is not None or default is not None:
            changes.append((field.name, change, default))

    def plain(value: Any) -> dict[str, Any]:
        if not isinstance(value, Struct | Mapping):
            problem = f"A value of type {type(value).__name__} does not fit a STRUCT."
            raise RecordError(problem)
        get = value.get
        fields = {name: get(name) for name in names}
        for name, change, default in changes:
            item = default if fields[name] is None else fields[name]
            fields[name] = item if item is None or change is None else change(item)
        return fields

    return plain


def _list_value(item: _Value) -> _Value:
    return lambda value: [None if part is None else item(part) for part in value]


def _map_value(key: _Value | None, item: _Value | None) -> _Value:
    def plain(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        return [
            (k if key is None else key(k), v if item is None or v is None else item(v))
            for k, v in value.items()
        ]

    return plain
