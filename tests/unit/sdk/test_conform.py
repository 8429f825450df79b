"""Batches get exactly the declared schema, and what cannot is refused by column."""

from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk.arrow import conform, from_arrow, to_array, to_arrow, to_batch
from headrace.sdk.errors import ConfigError, RecordError
from headrace.sdk.schema import Schema
from headrace.sdk.struct import Struct

REQUIRED_TEXT = pa.field("s", pa.string(), nullable=False)


def batch(**columns: Any) -> pa.RecordBatch:
    arrays = {
        name: c if isinstance(c, pa.Array) else pa.array(c) for name, c in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def one(array: pa.Array, target: pa.DataType, *, nullable: bool = True) -> pa.Array:
    schema = pa.schema([pa.field("c", target, nullable=nullable)])
    result = conform(batch(c=array), schema)
    assert result.schema.equals(schema)
    result.validate(full=True)
    return result.column(0)


def test_a_batch_that_fits_is_given_back_itself() -> None:
    given_batch = batch(a=[1, 2])
    assert conform(given_batch, pa.schema([("a", pa.int64())])) is given_batch


def test_a_column_that_fits_shares_its_memory() -> None:
    given_batch = batch(a=[1, 2], b=["x", "y"])
    schema = pa.schema([("b", pa.string()), pa.field("a", pa.int64(), nullable=False)])
    result = conform(given_batch, schema)
    before = given_batch.column(0).buffers()[1].address
    assert result.column(1).buffers()[1].address == before


def test_columns_are_ordered_selected_and_filled() -> None:
    schema = pa.schema([("new", pa.int32()), ("b", pa.string())])
    result = conform(batch(a=[1], b=["x"]), schema)
    assert result.schema == schema
    assert result.to_pylist() == [{"new": None, "b": "x"}]


def test_a_missing_required_column_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        conform(batch(a=[1]), pa.schema([REQUIRED_TEXT]))
    assert caught.value.field == "s"


def test_a_null_in_a_required_column_is_refused_by_name() -> None:
    with pytest.raises(RecordError) as caught:
        conform(batch(s=["x", None]), pa.schema([REQUIRED_TEXT]))
    assert caught.value.field == "s"
    assert "1 of 2" in caught.value.problem


def test_a_value_that_would_be_bent_is_refused_by_path() -> None:
    array = pa.array([{"n": 300}])
    with pytest.raises(RecordError) as caught:
        one(array, pa.struct([("n", pa.int8())]))
    assert caught.value.field == "c.n"


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ConfigError, match="Two columns"):
        conform(twice, pa.schema([("a", pa.int32())]))


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
        (pa.array(["x"], pa.string_view()), pa.string(), ["x"]),
        (pa.array(["x", "x"]).dictionary_encode(), pa.string(), ["x", "x"]),
        (pc.run_end_encode(pa.array([1, 1])), pa.int64(), [1, 1]),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
        (pa.array([1.5], pa.float16()), pa.float32(), [1.5]),
        (pa.array([None, None]), pa.list_(pa.int8()), [None, None]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([b"x" * 16], pa.uuid()), pa.binary(), [b"x" * 16]),
        (pa.array([time(0, 0, 1)], pa.time32("ms")), pa.int64(), [1_000_000]),
        (pa.array([1999], pa.time64("ns")), pa.int64(), [1]),
        (
            pa.array([1999], pa.timestamp("ns")),
            pa.timestamp("us", tz="UTC"),
            [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
        ),
        (
            pa.array([0], pa.timestamp("us", tz="Asia/Tokyo")),
            pa.timestamp("us", tz="UTC"),
            [datetime(1970, 1, 1, tzinfo=UTC)],
        ),
        (
            pa.array([[1], None, []], pa.large_list(pa.int64())),
            pa.list_(pa.int32()),
            [[1], None, []],
        ),
        (
            pa.array([[1], None, [2]], pa.list_view(pa.int64())),
            pa.list_(pa.int32()),
            [[1], None, [2]],
        ),
        (
            pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
            pa.list_(pa.int32()),
            [[1, 2], None],
        ),
        (
            pa.array([{"a": 1, "b": "x"}, None]),
            pa.struct([("b", pa.string()), ("z", pa.int8()), ("a", pa.int8())]),
            [{"b": "x", "z": None, "a": 1}, None],
        ),
        (
            pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.int64())),
            pa.map_(pa.string(), pa.int8()),
            [[("k", 1)], None, []],
        ),
    ],
)
def test_columns_are_cast_to_what_spark_takes(
    array: pa.Array, target: pa.DataType, expected: list[Any]
) -> None:
    assert one(array, target).to_pylist() == expected


def test_slices_are_cast_as_slices() -> None:
    lists = pa.array([[9], [1], None, [2, 3]], pa.large_list(pa.int64()))
    assert one(lists.slice(1), pa.list_(pa.int32())).to_pylist() == [[1], None, [2, 3]]
    maps = pa.array([[("z", 9)], [("k", 1)], None], pa.map_(pa.string(), pa.int64()))
    expected = [[("k", 1)], None]
    assert one(maps.slice(1), pa.map_(pa.string(), pa.int8())).to_pylist() == expected
    structs = pa.array([{"a": 9}, {"a": 1}, None])
    assert one(structs.slice(1), pa.struct([("a", pa.int8())])).to_pylist() == [{"a": 1}, None]


def test_nested_parts_become_required_where_no_null_is_in_them() -> None:
    target = pa.struct(
        [pa.field("a", pa.list_(pa.field("element", pa.int64(), nullable=False)))]
    )
    assert one(pa.array([{"a": [1]}, None]), target).to_pylist() == [{"a": [1]}, None]
    with pytest.raises(RecordError) as caught:
        one(pa.array([{"a": [None]}], pa.struct([("a", pa.list_(pa.int64()))])), target)
    assert caught.value.field == "c.a element"


def test_a_required_field_of_a_null_struct_may_be_null() -> None:
    target = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    assert one(pa.array([{"a": 1}, None]), target).to_pylist() == [{"a": 1}, None]
    with pytest.raises(RecordError) as caught:
        one(pa.array([{"a": 1}, {"a": None}]), target)
    assert caught.value.field == "c.a"


def test_a_table_is_conformed_chunk_by_chunk() -> None:
    table = pa.Table.from_batches([batch(a=[1]), batch(a=[2])])
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False)])
    result = conform(table, schema)
    assert result.schema == schema
    assert result.column("a").num_chunks == 2
    assert conform(table.slice(0, 0), schema).schema == schema


ARROW_TYPES = st.sampled_from(
    [
        pa.int8(),
        pa.uint16(),
        pa.uint64(),
        pa.large_string(),
        pa.binary(),
        pa.time32("s"),
        pa.timestamp("ms"),
        pa.date32(),
        pa.float16(),
        pa.null(),
        pa.bool_(),
    ]
)


@given(st.lists(ARROW_TYPES, min_size=1, max_size=4))
def test_whatever_from_arrow_takes_conforms_to_what_to_arrow_gives(
    types: list[pa.DataType],
) -> None:
    source = pa.schema([(f"c{index}", kind) for index, kind in enumerate(types)])
    arrays = [pa.nulls(2, field.type) for field in source]
    target = to_arrow(from_arrow(source))
    result = conform(pa.RecordBatch.from_arrays(arrays, schema=source), target)
    assert result.schema.equals(target)


def test_times_of_a_declared_schema_are_microseconds() -> None:
    schema = to_arrow(Schema.struct({"t": Schema.time()}))
    result = conform(batch(t=pa.array([time(0, 0, 0, 7)], pa.time64("us"))), schema)
    assert result.column(0).to_pylist() == [7]


def test_rows_become_arrow_by_their_schema() -> None:
    inner = Schema.struct({"at": Schema.time(optional=True)}, optional=True)
    tags = Schema.map(Schema.string(), Schema.int8(), optional=True)
    schema = Schema.struct({"id": Schema.int16(), "inner": inner, "tags": tags})
    rows: list[Any] = [
        {"id": 1, "inner": {"at": time(0, 0, 1)}, "more": "left out"},
        Struct.of(schema, {"id": 2, "tags": {"a": 1}}),
    ]
    made = to_batch(rows, schema)
    assert made.schema.equals(to_arrow(schema), check_metadata=True)
    assert made.to_pylist() == [
        {"id": 1, "inner": {"at": 1_000_000}, "tags": None},
        {"id": 2, "inner": None, "tags": [("a", 1)]},
    ]
    with pytest.raises(RecordError, match="null, but the field is required"):
        to_batch([{"inner": None}], schema)
    deep = Schema.struct({"inner": Schema.array(Schema.struct({"id": Schema.int8()}))})
    with pytest.raises(RecordError, match="values are null"):
        to_batch([{"inner": [{"id": 1}, {}]}], deep)
    with pytest.raises(RecordError, match="does not fit"):
        to_batch([{"id": "x"}], schema)


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        (Schema.struct({"a": Schema.struct({"b": Schema.int8()})}), {"a": {}}, "a.b"),
        (Schema.array(Schema.int8()), [1, None], "element"),
        (Schema.map(Schema.string(), Schema.int8()), {"k": None}, "value"),
        (Schema.struct({"m": Schema.array(Schema.string())}), {"m": [None]}, "m element"),
    ],
)
def test_a_null_in_a_required_part_of_a_value_is_refused_by_its_path(
    schema: Schema, value: object, path: str
) -> None:
    with pytest.raises(RecordError, match="values are null") as caught:
        to_array([value, None], schema)
    assert caught.value.field == path
