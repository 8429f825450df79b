"""Schemas go to Arrow and back without loss, and Arrow comes in where its meaning is clear."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from tests.unit.sdk.strategies import ROWS, SCHEMAS

from headrace.sdk.arrow import from_arrow, to_arrow, to_arrow_field, to_arrow_type
from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import Schema

UTC_MICROS = pa.timestamp("us", tz="UTC")


@given(ROWS)
def test_rows_come_back_from_arrow_as_they_were(schema: Schema) -> None:
    assert from_arrow(to_arrow(schema)) == schema


@given(SCHEMAS)
def test_a_field_comes_back_from_arrow_as_it_was(schema: Schema) -> None:
    assert from_arrow(to_arrow_field("f", schema)) == schema


@given(ROWS)
def test_rows_come_back_from_arrows_own_bytes(schema: Schema) -> None:
    read = pa.ipc.read_schema(pa.BufferReader(to_arrow(schema).serialize()))
    assert from_arrow(read) == schema


@pytest.mark.parametrize(
    ("schema", "arrow"),
    [
        (Schema.int8(), pa.int8()),
        (Schema.float32(), pa.float32()),
        (Schema.bytes(), pa.binary()),
        (Schema.decimal(2, precision=9), pa.decimal128(9, 2)),
        (Schema.decimal(2), pa.decimal128(38, 2)),
        (Schema.date(), pa.date32()),
        (Schema.timestamp(), UTC_MICROS),
        (Schema.time(), pa.int64()),
        (
            Schema.array(Schema.string()),
            pa.list_(pa.field("element", pa.string(), nullable=False)),
        ),
        (
            Schema.map(Schema.string(), Schema.int8(optional=True)),
            pa.map_(pa.string(), pa.int8()),
        ),
    ],
)
def test_types_are_those_that_spark_takes(schema: Schema, arrow: pa.DataType) -> None:
    assert to_arrow_type(schema) == arrow


@pytest.mark.parametrize(
    ("arrow", "schema"),
    [
        (pa.large_string(), Schema.string()),
        (pa.string_view(), Schema.string()),
        (pa.large_binary(), Schema.bytes()),
        (pa.binary(4), Schema.bytes()),
        (pa.uint8(), Schema.int16()),
        (pa.uint32(), Schema.int64()),
        (pa.uint64(), Schema.decimal(0, precision=20)),
        (pa.float16(), Schema.float32()),
        (pa.timestamp("ns"), Schema.local_timestamp()),
        (pa.timestamp("s", tz="Europe/Paris"), Schema.timestamp()),
        (pa.date64(), Schema.date()),
        (pa.time32("ms"), Schema.time()),
        (pa.time64("ns"), Schema.time()),
        (pa.dictionary(pa.int8(), pa.large_string()), Schema.string()),
        (pa.null(), Schema.string(optional=True)),
        (pa.decimal256(20, 3), Schema.decimal(3, precision=20)),
        (pa.large_list(pa.int8()), Schema.array(Schema.int8(optional=True))),
        (pa.list_(pa.int8(), 3), Schema.array(Schema.int8(optional=True))),
        (pa.list_view(pa.int8()), Schema.array(Schema.int8(optional=True))),
        (pa.run_end_encoded(pa.int32(), pa.int8()), Schema.int8()),
        (pa.uuid(), Schema.bytes()),
        (pa.json_(), Schema.string()),
    ],
)
def test_arrow_types_with_a_clear_meaning_are_taken(arrow: pa.DataType, schema: Schema) -> None:
    assert from_arrow(arrow) == schema


@pytest.mark.parametrize(
    "arrow",
    [
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.decimal256(60, 3),
        pa.decimal128(5, -2),
    ],
)
def test_arrow_types_without_a_clear_meaning_are_refused_by_path(arrow: pa.DataType) -> None:
    schema = pa.schema([("outer", pa.struct([("inner", pa.list_(arrow))]))])
    with pytest.raises(ConfigError) as caught:
        from_arrow(schema)
    assert caught.value.field == "outer.inner element"


def test_a_column_that_was_cast_is_what_it_is_now() -> None:
    schema = Schema.struct(
        {"t": Schema.time(doc="when", default=time(1)), "n": Schema.int8(default=1)}
    )
    arrow = to_arrow(schema)
    arrow = arrow.set(0, arrow.field(0).with_type(pa.string()))
    arrow = arrow.set(1, arrow.field(1).with_type(pa.string()))
    assert from_arrow(arrow) == Schema.struct(
        {"t": Schema.string(doc="when"), "n": Schema.string()}
    )


def test_metadata_of_others_is_left_alone() -> None:
    field = pa.field("a", pa.int8(), nullable=False, metadata={b"PARQUET:field_id": b"1"})
    assert from_arrow(field) == Schema.int8()


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="Two columns"):
        from_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


@pytest.mark.parametrize("scale", [-1, 39])
def test_a_scale_that_spark_lacks_is_refused_by_path(scale: int) -> None:
    schema = Schema.struct({"a": Schema.struct({"b": Schema.decimal(scale)})})
    with pytest.raises(ConfigError) as caught:
        to_arrow(schema)
    assert caught.value.field == "a.b"


def test_rows_must_be_a_struct() -> None:
    with pytest.raises(ConfigError, match="STRUCT"):
        to_arrow(Schema.int8())


@pytest.mark.parametrize(
    ("schema", "value", "stored"),
    [
        (Schema.decimal(2), Decimal("1.25"), Decimal("1.25")),
        (Schema.date(), date(2026, 1, 2), date(2026, 1, 2)),
        (
            Schema.timestamp(),
            datetime(2026, 1, 2, tzinfo=UTC),
            datetime(2026, 1, 2, tzinfo=UTC),
        ),
    ],
)
def test_values_that_fit_the_schema_fit_the_arrow_type(
    schema: Schema, value: Any, stored: Any
) -> None:
    array = pa.array([value], to_arrow_type(schema))
    assert pc.equal(array, pa.scalar(stored, array.type)).to_pylist() == [True]
