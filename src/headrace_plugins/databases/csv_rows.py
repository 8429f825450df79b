"""Rows that a database writes as CSV, parsed into Arrow: exact, or rejected with the reason."""

from __future__ import annotations

import binascii
import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected

_PATTERNS = {
    DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    TIME: r"^([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]+)?$",
    TIMESTAMP: r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(\+00)?$",
    DECIMAL: r"^-?[0-9]+(\.[0-9]+)?$",
}
"""What texts of these types look like that Arrow has a value for."""
_SHOWN = 200


@dataclass(frozen=True)
class CsvRows:
    """Parses blocks of whole CSV records, without a header, of a select's columns.

    A null is an empty value without quotes, and an empty text one in quotes. Bytes are in
    hexadecimal, behind two signs.

    Args:
        columns: What the records have, in their order.
        nulls: Whether a value that the schema has nothing for becomes null where it may.
    """

    columns: Sequence[Column]
    nulls: bool = False

    def parse(self, block: bytes) -> tuple[pa.RecordBatch, Rejected]:
        """Return the rows of a block, and those that no values of the schemas stand for."""
        try:
            return self._batch(self._read(block, self._types)), ()
        except pa.ArrowInvalid:
            return self._parse_one_by_one(block)

    def _parse_one_by_one(self, block: bytes) -> tuple[pa.RecordBatch, Rejected]:
        """Parse all as texts, and find the values that are none of their types."""
        names = self._names
        texts = self._read(block, dict.fromkeys(names, pa.string()))
        good, reasons = pa.array([True] * len(texts)), dict[int, str]()
        arrays = list(texts.columns)
        for number, column in enumerate(self.columns):
            pattern = _PATTERNS.get(column.schema.name or "")
            if pattern is None:
                continue
            fits = pc.fill_null(pc.match_substring_regex(arrays[number], pattern), True)  # noqa: FBT003 - Arrow's
            if column.schema.name == DECIMAL:
                fits = pc.and_(fits, self._fits_decimal(arrays[number], column.schema, fits))
            if pc.all(fits).as_py():
                continue
            if self.nulls and column.schema.optional:
                arrays[number] = pc.if_else(fits, arrays[number], None)
                continue
            for row in pc.indices_nonzero(pc.invert(fits)).to_pylist():
                reasons.setdefault(
                    row,
                    f"The column {column.name} of type {column.type} holds "
                    f"{arrays[number][row].as_py()!r}, which a value of its schema cannot be.",
                )
            good = pc.and_(good, fits)
        table = pa.table(arrays, names)
        rejected = [(_text(texts.slice(row, 1)), why) for row, why in sorted(reasons.items())]
        kept = io.BytesIO()
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
        csv.write_csv(table.filter(good), kept, options)
        return self._batch(self._read(kept.getvalue(), self._types)), rejected

    def _fits_decimal(self, texts: pa.Array, schema: Schema, looks: pa.Array) -> pa.Array:
        kind = to_arrow_type(schema.bare())
        whole = kind.precision - kind.scale
        digits = pc.utf8_length(
            pc.replace_substring_regex(
                pc.if_else(looks, texts, "0"), r"^-?0*([0-9]*)(\..*)?$", r"\1"
            )
        )
        return pc.fill_null(pc.less_equal(digits, whole), True)  # noqa: FBT003 - Arrow's

    def _read(self, block: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        if not block:
            return pa.table([pa.array([], kind) for kind in types.values()], list(types))
        table = csv.read_csv(
            pa.BufferReader(block),
            read_options=csv.ReadOptions(
                column_names=self._names, use_threads=False, block_size=len(block) + 1
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                true_values=["t", "1"],
                false_values=["f", "0"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return table.combine_chunks()

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        arrays = []
        for column, values in zip(self.columns, table.columns, strict=True):
            array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            if column.schema.type is Type.BYTES and not column.schema.is_logical:
                array = unhex(pc.utf8_slice_codeunits(array, 2))
            elif column.schema.is_local:
                array = array.cast(pa.timestamp("us", "UTC"))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])

    @cached_property
    def _names(self) -> list[str]:
        # Columns of a query may share a name.
        return [f"c{number}" for number in range(len(self.columns))]

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {
            name: _csv_type(column.schema)
            for name, column in zip(self._names, self.columns, strict=True)
        }


def _csv_type(schema: Schema) -> pa.DataType:
    if schema.name == TIME:
        return pa.time64("us")
    if schema.is_local:
        return pa.timestamp("us")
    if schema.type is Type.BYTES and not schema.is_logical:
        return pa.string()
    return to_arrow_type(schema.bare())


def _text(row: pa.Table) -> str:
    values = [value for column in row.columns for value in column.to_pylist()]
    shown = ",".join("" if value is None else str(value) for value in values)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def unhex(texts: pa.Array) -> pa.Array:
    """Return the bytes that texts of hexadecimal digits stand for, all at once."""
    texts = pa.concat_arrays([texts])  # its offsets begin at 0
    validity, offsets, data = texts.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(texts) + 1)
    raw = binascii.unhexlify(memoryview(data)[: numbers[-1]]) if data is not None else b""
    halves = pa.py_buffer((numbers // 2).astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(texts), [validity, halves, pa.py_buffer(raw)], texts.null_count
    )


def to_hex(values: pa.Array) -> pa.Array:
    """Return bytes as texts of hexadecimal digits, all at once."""
    values = pa.concat_arrays([values])
    validity, offsets, data = values.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(values) + 1)
    raw = binascii.hexlify(memoryview(data)[: numbers[-1]]) if data is not None else b""
    doubled = pa.py_buffer((numbers * 2).astype(np.int32))
    return pa.Array.from_buffers(
        pa.string(), len(values), [validity, doubled, pa.py_buffer(raw)], values.null_count
    )
