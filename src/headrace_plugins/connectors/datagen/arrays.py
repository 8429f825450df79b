"""Generates rows as Arrow batches, column by column, in numpy."""

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
    import numpy.typing as npt

    from headrace.sdk import Schema
    from headrace_plugins.connectors.datagen.plan import Plan

_HEX = np.frombuffer("".join(f"{number:02X}" for number in range(256)).encode(), np.uint16)
_HEX_CHARS = 8


def make_rows(plan: Plan, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows with these numbers: the same values as ``value_sql`` in Spark."""
    columns = [_Column(plan, rows, path).nullable(schema) for path, schema in plan.columns()]
    return pa.RecordBatch.from_arrays(columns, schema=to_arrow(plan.schema))


class _Column:
    """A column, or a slot of a nested column; one method for each kind of value."""

    def __init__(self, plan: Plan, rows: npt.NDArray[np.int64], path: str) -> None:
        self.plan = plan
        self.rows = rows
        self.path = path

    def nullable(self, schema: Schema) -> pa.Array:
        array = self.made(schema)
        if not (schema.optional and self.plan.nulls):
            return array
        chance = (self.hashes("?") >> np.uint64(11)).astype(np.float64) * UNIT
        gone = pa.array(chance < self.plan.nulls)
        return pc.if_else(gone, pa.nulls(len(array), array.type), array)

    def made(self, schema: Schema) -> pa.Array:
        return getattr(self, kind(schema))(schema)

    def hashes(self, suffix: str = "") -> Hashes:
        return hashes(self.plan.salt(self.path + suffix), self.rows)

    def below(self, limit: int) -> Hashes:
        return (self.hashes() >> np.uint64(1)) % np.uint64(limit)

    def child(self, name: str, schema: Schema) -> pa.Array:
        return _Column(self.plan, self.rows, f"{self.path}.{name}").made(schema)

    def whole(self, schema: Schema) -> pa.Array:
        if self.plan.is_row_number(self.path, schema):
            return pa.array(self.rows)
        numbers = self.below(RANGES[schema.type])
        return pa.array(numbers.astype(to_arrow_type(schema).to_pandas_dtype()))

    def real(self, schema: Schema) -> pa.Array:
        numbers = (self.hashes() >> np.uint64(11)).astype(np.float64) * UNIT * 1000.0
        return pa.array(numbers.astype(to_arrow_type(schema).to_pandas_dtype()))

    def boolean(self, _: Schema) -> pa.Array:
        return pa.array((self.hashes() & np.uint64(1)).astype(np.bool_))

    def string(self, _: Schema) -> pa.Array:
        low = self.hashes().astype(">u8").view(np.uint8).reshape(-1, 8)[:, 4:]
        text = _HEX[low]
        offsets = np.arange(len(self.rows) + 1, dtype=np.int32) * _HEX_CHARS
        return pa.StringArray.from_buffers(len(low), pa.py_buffer(offsets), pa.py_buffer(text))

    def bytes(self, _: Schema) -> pa.Array:
        low = self.hashes().astype(np.uint32).astype(">u4")
        offsets = np.arange(len(low) + 1, dtype=np.int32) * low.itemsize
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(low)]
        return pa.Array.from_buffers(pa.binary(), len(low), buffers)

    def decimal(self, schema: Schema) -> pa.Array:
        precision, scale, limit = decimal_sizes(schema)
        # Two little-endian words, the high one zero, as the values are not negative.
        words = np.zeros((len(self.rows), 2), dtype="<u8")
        words[:, 0] = self.below(limit)
        buffers = [None, pa.py_buffer(words)]
        return pa.Array.from_buffers(pa.decimal128(precision, scale), len(words), buffers)

    def date(self, _: Schema) -> pa.Array:
        days = self.below(DAYS).astype(np.int32) + np.int32(self.plan.start_day)
        return pa.array(days).view(pa.date32())

    def timestamp(self, _: Schema) -> pa.Array:
        micros = self.rows * STEP_MICROS + self.plan.start_micros
        return pa.array(micros).view(pa.timestamp("us", tz="UTC"))

    def struct(self, schema: Schema) -> pa.Array:
        children = [self.child(m.name, m.schema) for m in schema.fields]
        return pa.StructArray.from_arrays(children, fields=list(to_arrow_type(schema)))

    def array(self, schema: Schema) -> pa.Array:
        offsets, taken = self._lengths()
        items = self._slots(schema).take(taken)
        return pa.ListArray.from_arrays(offsets, items, type=to_arrow_type(schema))

    def map(self, schema: Schema) -> pa.Array:
        key_schema = part(schema.key_schema)
        keys = pa.array(map_keys(key_schema), to_arrow_type(key_schema))
        offsets, taken = self._lengths()
        slot_of = pc.divide(taken, pa.scalar(max(len(self.rows), 1), pa.int64()))
        return pa.MapArray.from_arrays(
            offsets,
            keys.take(slot_of),
            self._slots(schema).take(taken),
            type=to_arrow_type(schema),
        )

    def _slots(self, schema: Schema) -> pa.Array:
        items = part(schema.value_schema)
        return pa.concat_arrays([self.child(str(slot), items) for slot in range(ITEMS)])

    def _lengths(self) -> tuple[pa.Array, pa.Array]:
        """Return the list offsets, and the index of each item in the concatenated slots."""
        rows = len(self.rows)
        lengths = self.below(ITEMS + 1).astype(np.int32)
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        used = np.arange(ITEMS) < lengths[:, None]
        places = np.arange(rows)[:, None] + np.arange(ITEMS) * rows
        return pa.array(offsets), pa.array(places[used])
