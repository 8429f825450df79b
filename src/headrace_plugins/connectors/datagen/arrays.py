"""Makes rows as Arrow batches, a column at a time, in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk.arrow import to_arrow, to_arrow_type
from headrace_plugins.connectors.datagen.plan import (
    DAYS,
    ITEMS,
    RANGES,
    STEP_MICROS,
    UNIT,
    Hashes,
    decimal_sizes,
    hashes,
    kind,
    map_keys,
    part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from headrace.sdk import Schema
    from headrace_plugins.connectors.datagen.plan import Plan

_HEX = np.frombuffer("".join(f"{number:02X}" for number in range(256)).encode(), np.uint16)
_HEX_CHARS = 8


def make_rows(plan: Plan, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows of these numbers, as ``select_rows`` would compute them in Spark."""
    columns = [_Column(plan, rows, path).nullable(schema) for path, schema in plan.columns()]
    return pa.RecordBatch.from_arrays(columns, schema=to_arrow(plan.schema))


class _Column:
    """One column, or one slot of a nested one, of some rows."""

    def __init__(self, plan: Plan, rows: npt.NDArray[np.int64], path: str) -> None:
        self.plan = plan
        self.rows = rows
        self.path = path

    def nullable(self, schema: Schema) -> pa.Array:
        array = self.array(schema)
        if not (schema.optional and self.plan.nulls):
            return array
        chance = (self.hashes("?") >> np.uint64(11)).astype(np.float64) * UNIT
        gone = pa.array(chance < self.plan.nulls)
        return pc.if_else(gone, pa.nulls(len(array), array.type), array)

    def array(self, schema: Schema) -> pa.Array:
        return _MAKERS[kind(schema)](self, schema)

    def hashes(self, suffix: str = "") -> Hashes:
        return hashes(self.plan.salt(self.path + suffix), self.rows)

    def below(self, limit: int) -> Hashes:
        return (self.hashes() >> np.uint64(1)) % np.uint64(limit)

    def child(self, name: str) -> _Column:
        return _Column(self.plan, self.rows, f"{self.path}.{name}")


def _whole(column: _Column, schema: Schema) -> pa.Array:
    if column.plan.is_row_number(column.path, schema):
        return pa.array(column.rows)
    numbers = column.below(RANGES[schema.type])
    return pa.array(numbers.astype(to_arrow_type(schema).to_pandas_dtype()))


def _real(column: _Column, schema: Schema) -> pa.Array:
    numbers = (column.hashes() >> np.uint64(11)).astype(np.float64) * UNIT * 1000.0
    return pa.array(numbers.astype(to_arrow_type(schema).to_pandas_dtype()))


def _boolean(column: _Column, _: Schema) -> pa.Array:
    return pa.array((column.hashes() & np.uint64(1)).astype(np.bool_))


def _string(column: _Column, _: Schema) -> pa.Array:
    low = column.hashes().astype(">u8").view(np.uint8).reshape(-1, 8)[:, 4:]
    text = _HEX[low]
    offsets = np.arange(len(column.rows) + 1, dtype=np.int32) * _HEX_CHARS
    return pa.StringArray.from_buffers(len(low), pa.py_buffer(offsets), pa.py_buffer(text))


def _binary(column: _Column, _: Schema) -> pa.Array:
    low = column.hashes().astype(np.uint32).astype(">u4")
    offsets = np.arange(len(low) + 1, dtype=np.int32) * low.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(low)]
    return pa.Array.from_buffers(pa.binary(), len(low), buffers)


def _decimal(column: _Column, schema: Schema) -> pa.Array:
    precision, scale, limit = decimal_sizes(schema)
    # Two little-endian words, the high one zero, as the values are not negative.
    words = np.zeros((len(column.rows), 2), dtype="<u8")
    words[:, 0] = column.below(limit)
    buffers = [None, pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(words), buffers)


def _date(column: _Column, _: Schema) -> pa.Array:
    days = column.below(DAYS).astype(np.int32) + np.int32(column.plan.start_day)
    return pa.array(days).view(pa.date32())


def _timestamp(column: _Column, _: Schema) -> pa.Array:
    micros = column.rows * STEP_MICROS + column.plan.start_micros
    return pa.array(micros).view(pa.timestamp("us", tz="UTC"))


def _struct(column: _Column, schema: Schema) -> pa.Array:
    children = [column.child(m.name).array(m.schema) for m in schema.fields]
    return pa.StructArray.from_arrays(children, fields=list(to_arrow_type(schema)))


def _array(column: _Column, schema: Schema) -> pa.Array:
    slots = [column.child(str(slot)).array(part(schema.value_schema)) for slot in range(ITEMS)]
    offsets, taken = _lengths(column)
    items = pa.concat_arrays(slots).take(taken)
    return pa.ListArray.from_arrays(offsets, items, type=to_arrow_type(schema))


def _map(column: _Column, schema: Schema) -> pa.Array:
    keys = pa.array(map_keys(part(schema.key_schema)), to_arrow_type(part(schema.key_schema)))
    slots = [column.child(str(slot)).array(part(schema.value_schema)) for slot in range(ITEMS)]
    offsets, taken = _lengths(column)
    slot_of = pc.divide(taken, pa.scalar(max(len(column.rows), 1), pa.int64()))
    return pa.MapArray.from_arrays(
        offsets,
        keys.take(slot_of),
        pa.concat_arrays(slots).take(taken),
        type=to_arrow_type(schema),
    )


def _lengths(column: _Column) -> tuple[pa.Array, pa.Array]:
    """Return the offsets, and for each item its place in the slots laid end to end."""
    rows = len(column.rows)
    lengths = column.below(ITEMS + 1).astype(np.int32)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    used = np.arange(ITEMS) < lengths[:, None]
    places = np.arange(rows)[:, None] + np.arange(ITEMS) * rows
    return pa.array(offsets), pa.array(places[used])


_MAKERS: Mapping[str, Callable[[_Column, Schema], pa.Array]] = {
    "INT8": _whole,
    "INT16": _whole,
    "INT32": _whole,
    "INT64": _whole,
    "FLOAT32": _real,
    "FLOAT64": _real,
    "BOOLEAN": _boolean,
    "STRING": _string,
    "BYTES": _binary,
    "DECIMAL": _decimal,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "STRUCT": _struct,
    "ARRAY": _array,
    "MAP": _map,
}
