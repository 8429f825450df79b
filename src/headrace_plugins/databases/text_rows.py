"""Serializes Arrow rows as the tab-separated text that LOAD DATA reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk.schema import TIME, TIMESTAMP, Schema, Type
from headrace_plugins.databases.csv_rows import to_hex, to_time

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
