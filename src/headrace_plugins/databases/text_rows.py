"""Columns and rows as text: parsed to typed Arrow exactly or rejected, and written.

Rows are the CSV of COPY, and the tab-separated lines that LOAD DATA reads.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

if TYPE_CHECKING:
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected

_DAY = re.sub(
    r"\s",
    "",
    r"""(
    (000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-(
        (0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])
        |(0[469]|11)-(0[1-9]|[12][0-9]|30)
        |02-(0[1-9]|1[0-9]|2[0-8]))
    |([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)""",
)
"""The days from 0001-01-01 to 9999-12-31, leap days included."""
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_PATTERNS = {
    DATE: f"^{_DAY}$",
    TIME: f"^{_CLOCK}$",
    TIMESTAMP: rf"^{_DAY} {_CLOCK}(\+00)?$",
    DECIMAL: r"^-?[0-9]+(\.[0-9]+)?$",
}
"""The text formats of values of these types that Arrow, Python and Spark can represent."""
_INSTANT = pa.timestamp("us", "UTC")
_SHOWN = 200


@dataclass(frozen=True)
class TextColumns:
    """Parses text columns; bytes columns are already bytes.

    Args:
        columns: The columns.
        nulls: Whether values that the schema cannot represent become null if nullable.
        zone: The suffix of times with a zone, which are all in UTC.
    """

    columns: Sequence[Column]
    nulls: bool = False
    zone: str = ""

    def parse(self, texts: Sequence[pa.Array]) -> tuple[pa.RecordBatch, Rejected]:
        """Return the rows as Arrow, and the rejected rows."""
        try:
            return self._batch(texts), ()
        except pa.ArrowInvalid:
            return self._parse_one_by_one(list(texts))

    def _parse_one_by_one(self, texts: list[pa.Array]) -> tuple[pa.RecordBatch, Rejected]:
        """Find invalid values, and parse the valid rows."""
        good, reasons = pa.array([True] * len(texts[0])), dict[int, str]()
        given = list(texts)
        for number, column in enumerate(self.columns):
            pattern = _PATTERNS.get(column.schema.name or "")
            if pattern is None:
                continue
            fits = pc.fill_null(pc.match_substring_regex(texts[number], pattern), True)  # noqa: FBT003 - Arrow's
            if column.schema.name == DECIMAL:
                fits = pc.and_(fits, _fits_decimal(texts[number], column.schema, fits))
            if pc.all(fits).as_py():
                continue
            if self.nulls and column.schema.optional:
                texts[number] = pc.if_else(fits, texts[number], None)
                continue
            for row in pc.indices_nonzero(pc.invert(fits)).to_pylist():
                reasons.setdefault(
                    row,
                    f"The column {column.name} of type {column.type} contains "
                    f"{texts[number][row].as_py()!r}, which its schema cannot represent.",
                )
            good = pc.and_(good, fits)
        rejected = [(_shown(given, row), why) for row, why in sorted(reasons.items())]
        return self._batch([each.filter(good) for each in texts]), rejected

    def _batch(self, texts: Sequence[pa.Array]) -> pa.RecordBatch:
        arrays = [
            self._typed(array, column.schema)
            for array, column in zip(texts, self.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])

    def _typed(self, texts: pa.Array, schema: Schema) -> pa.Array:
        if schema.type is Type.BOOLEAN:
            return pc.match_substring_regex(texts, "^[t1]")
        if schema.name == TIME:
            # Arrow cannot cast strings to times.
            moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
            return moments.cast(pa.timestamp("us")).cast(pa.time64("us"))
        if schema.name == TIMESTAMP:
            zone = "UTC" if self.zone and not schema.is_local else None
            first = pa.scalar(datetime.min.replace(tzinfo=UTC), _INSTANT)
            return _since(texts.cast(pa.timestamp("us", zone)).cast(_INSTANT), first)
        if schema.name == DATE:
            return _since(texts.cast(pa.date32()), pa.scalar(date.min))
        return texts.cast(to_arrow_type(schema.bare()))


def _since(values: pa.Array, first: pa.Scalar) -> pa.Array:
    """Return the values. Raises ArrowInvalid for the year 0, which Python does not support."""
    least = pc.min(values)
    if least.is_valid and pc.less(least, first).as_py():
        message = "a day before the year 1"
        raise pa.ArrowInvalid(message)
    return values


def _fits_decimal(texts: pa.Array, schema: Schema, looks: pa.Array) -> pa.Array:
    kind = to_arrow_type(schema.bare())
    whole = kind.precision - kind.scale
    digits = pc.utf8_length(
        pc.replace_substring_regex(
            pc.if_else(looks, texts, "0"), r"^-?0*([0-9]*)(\..*)?$", r"\1"
        )
    )
    return pc.fill_null(pc.less_equal(digits, whole), True)  # noqa: FBT003 - Arrow's


def _shown(texts: Sequence[pa.Array], row: int) -> str:
    values = [array[row].as_py() for array in texts]
    shown = ",".join(
        value.hex() if isinstance(value, bytes) else "" if value is None else value
        for value in values
    )
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


@dataclass(frozen=True)
class CsvRows:
    """Parses blocks of complete CSV records, without a header, of a select's columns.

    Rows are parsed exactly, or rejected with the reason. Null is an empty value without quotes,
    an empty string has quotes. Bytes are hexadecimal with a prefix of two characters.

    Args:
        columns: The columns of the records, in order.
        nulls: Whether values that the schema cannot represent become null if nullable.
    """

    columns: Sequence[Column]
    nulls: bool = False

    def parse(self, block: bytes) -> tuple[pa.RecordBatch, Rejected]:
        """Return the rows of a block, and the rejected rows."""
        try:
            return self._batch(self._read(block, self._types)), ()
        except pa.ArrowInvalid:
            texts = self._read(block, dict.fromkeys(self._names, pa.string()))
            arrays = [
                unhexed(values.combine_chunks(), column.schema)
                for values, column in zip(texts.columns, self.columns, strict=True)
            ]
            return TextColumns(self.columns, self.nulls, zone="+00").parse(arrays)

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
            array = unhexed(values.combine_chunks(), column.schema)
            if column.schema.is_local:
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


def unhexed(values: pa.Array, schema: Schema) -> pa.Array:
    """Return a column's values; decode the hexadecimal text of a bytes column."""
    if schema.type is not Type.BYTES or schema.is_logical:
        return values
    return unhex(pc.utf8_slice_codeunits(values, 2))


def unhex(texts: pa.Array) -> pa.Array:
    """Decode hexadecimal strings to bytes, vectorized."""
    texts = pa.concat_arrays([texts])  # the offsets of the copy begin at 0
    validity, offsets, data = texts.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(texts) + 1)
    raw = binascii.unhexlify(memoryview(data)[: numbers[-1]]) if data is not None else b""
    halves = pa.py_buffer((numbers // 2).astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), len(texts), [validity, halves, pa.py_buffer(raw)], texts.null_count
    )


_WRITTEN = csv.WriteOptions(include_header=False, quoting_style="needed")
"""Strings are quoted, including empty ones; null is an empty value without quotes."""


def to_csv(rows: pa.RecordBatch, schemas: Sequence[Schema]) -> memoryview:
    """Return rows as CSV in UTF-8 for PostgreSQL; times with a zone are in UTC."""
    arrays = [
        _writable(column, schema) for column, schema in zip(rows.columns, schemas, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, [str(n) for n in range(len(arrays))])
    lines = pa.BufferOutputStream()
    csv.write_csv(batch, lines, _WRITTEN)
    return memoryview(lines.getvalue())


def _writable(column: pa.Array, schema: Schema) -> pa.Array:
    """Convert values so that Arrow's CSV writer produces PostgreSQL's text format."""
    if schema.type is Type.BOOLEAN:
        return pc.if_else(column, "t", "f")
    if schema.name == TIME:
        return to_time(column)
    if schema.name == TIMESTAMP:
        local = column.cast(pa.timestamp("us"))
        if schema.is_local:
            return local
        # Arrow is eight times slower at formatting times with a zone.
        return pc.binary_join_element_wise(local.cast(pa.string()), "+00", "")
    if schema.type is Type.BYTES and not schema.is_logical:
        return pc.binary_join_element_wise("\\x", to_hex(column), "")
    return column


def to_time(column: pa.Array) -> pa.Array:
    """Return times of day, which may be microseconds as integers, as Arrow times."""
    micros = column if pa.types.is_time(column.type) else column.cast(pa.int64())
    return micros.cast(pa.time64("us"))


def to_hex(values: pa.Array) -> pa.Array:
    """Encode bytes as hexadecimal strings, vectorized."""
    values = pa.concat_arrays([values])
    validity, offsets, data = values.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(values) + 1)
    raw = binascii.hexlify(memoryview(data)[: numbers[-1]]) if data is not None else b""
    doubled = pa.py_buffer((numbers * 2).astype(np.int32))
    return pa.Array.from_buffers(
        pa.string(), len(values), [validity, doubled, pa.py_buffer(raw)], values.null_count
    )


_SPECIAL = r"[\\\t\n\r]"
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


@dataclass(frozen=True)
class TextRows:
    r"""Serializes rows as tab-separated lines, with \N for null and backslash escapes.

    This is the default format of MySQL's LOAD DATA. True is 1, bytes are hexadecimal, times are
    in UTC.

    Args:
        schemas: The schemas of the columns, in order.
    """

    schemas: Sequence[Schema]

    def lines(self, rows: pa.RecordBatch) -> memoryview:
        """Return the lines of the rows, in UTF-8, as one Arrow buffer."""
        if not rows.num_rows:
            return memoryview(b"")
        joined = pc.binary_join_element_wise(
            *self.texts(rows), "\t", null_handling="replace", null_replacement="\\N"
        )
        ended = pc.binary_join_element_wise(joined, "", "\n")
        _, offsets, data = ended.buffers()
        end = memoryview(offsets).cast("i")[len(ended)]
        return memoryview(data)[:end]

    def texts(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the escaped text values of each column; nulls stay null."""
        return [
            self._texts(column, schema)
            for column, schema in zip(rows.columns, self.schemas, strict=True)
        ]

    def _texts(self, column: pa.Array, schema: Schema) -> pa.Array:
        if schema.type is Type.BOOLEAN:
            return pc.if_else(column, "1", "0")
        if schema.name == TIME:
            return to_time(column).cast(pa.string())
        if schema.name == TIMESTAMP:
            return column.cast(pa.timestamp("us")).cast(pa.string())
        if schema.type is Type.BYTES and not schema.is_logical:
            return to_hex(column)
        text = column if pa.types.is_string(column.type) else column.cast(pa.string())
        if schema.type is Type.STRING and _has_special(text):
            for sign, escaped in _ESCAPES:
                text = pc.replace_substring(text, sign, escaped)
        return text


def _has_special(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py())
