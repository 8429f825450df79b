"""Gives Arrow batches exactly the schema that was declared for them.

Spark's mapInArrow wants equality to the last detail: order of columns, nullability,
timestamps in microseconds and UTC, no large, dictionary or view types.
"""

from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk.errors import ConfigError, RecordError

__all__ = ["conform"]

Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


def conform(batch: Batch, schema: pa.Schema) -> Batch:
    """Give the batch with exactly this schema's columns, in its order and of its types.

    Called for each batch, on executors. A batch that fits already is given back as it is,
    and columns that fit are shared, not copied. Missing nullable columns are filled with
    null, and columns that the schema does not have are left out. Values are cast where no
    value is bent by it; only timestamps may lose digits, below the microsecond. Times of day
    become microseconds since midnight where the schema wants int64.

    Args:
        batch: A record batch or a table.
        schema: What `to_arrow` gave.

    Raises:
        ConfigError: A required column is missing, or a name is there twice; `field` is it.
        RecordError: A value cannot be cast, or is null where it is required; `field` is the
            path to it.
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


def _fitted(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if not field.nullable and array.null_count:
        raise RecordError(
            problem=f"{array.null_count} of {len(array)} values are null, but one is required.",
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
        return _map(array, target, path)
    if pa.types.is_list(target) and _is_list(source):
        items = _fitted(array.flatten(), target.value_field, f"{path} element")
        return pa.ListArray.from_arrays(
            _offsets(array), items, type=target, mask=array.is_null()
        )
    try:
        if pa.types.is_time(source) and pa.types.is_int64(target):
            array = array.cast(pa.time64("us"), safe=False)
        return pc.cast(array, options=_options(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordError(
            problem=f"The column is {source} and cannot be made {target}: {error}",
            fix="Declare the column with the type that it has, or cast it in the source.",
            field=path,
        ) from error


def _options(target: pa.DataType) -> Any:
    return pc.CastOptions(target, allow_time_truncate=True)


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array))
    return array


def _is_list(arrow: pa.DataType) -> bool:
    # Not by a cast to a list: that of a list view gives an array without its last offset.
    return hasattr(arrow, "value_field") and not pa.types.is_map(arrow)


def _struct(array: pa.StructArray, target: pa.DataType, path: str) -> pa.Array:
    names = array.type
    children = [
        _member(array, names.get_field_index(field.name), field, f"{path}.{field.name}")
        for field in target
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _member(array: pa.StructArray, index: int, field: pa.Field, path: str) -> pa.Array:
    if index < 0:
        if not field.nullable:
            raise ConfigError(problem="This required field is missing.", field=path)
        return pa.nulls(len(array), field.type)
    child = array.field(index)
    if not field.nullable and child.null_count:
        # Where the struct itself is null, its fields may be anything.
        nulls = pc.sum(pc.and_(child.is_null(), array.is_valid())).as_py()
        if nulls:
            raise RecordError(
                problem=f"{nulls} of {len(array)} values are null, but one is required.",
                field=path,
            )
    return child if child.type.equals(field.type) else _cast(child, field.type, path)


def _map(array: pa.MapArray, target: pa.DataType, path: str) -> pa.Array:
    # As a list of structs, since `keys` and `items` of a slice are those of the whole.
    entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
    pairs = array.cast(entries)
    flat = pairs.flatten()
    return pa.MapArray.from_arrays(
        _offsets(pairs),
        _fitted(flat.field(0), target.key_field, f"{path} key"),
        _fitted(flat.field(1), target.item_field, f"{path} value"),
        type=target,
        mask=array.is_null(),
    )


def _offsets(array: pa.Array) -> pa.Array:
    """Give the offsets of a list's items after `flatten`, which drops those of null lists."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
