"""Turns blocks of lines into Arrow batches; a line that does not fit is set aside alone."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import conform, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace_plugins.connectors.file.dialect import Dialect

__all__ = ["CsvLines", "JsonLines", "Parsed", "text_lines"]

TEXT = pa.schema([pa.field("value", pa.string(), nullable=False)])
_NAIVE = pa.timestamp("us")
_FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, RecordError)
_READ_AS_TEXT = (pa.types.is_temporal, pa.types.is_decimal, pa.types.is_binary)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a block, and the lines that are none, each with the reason."""

    rows: pa.RecordBatch
    rejected: list[tuple[bytes, str]] = field(default_factory=list)


def text_lines(block: bytes, dialect: Dialect) -> Parsed:
    """Return each line as a text, without its end."""
    encoding = dialect.encoding.upper()
    if encoding not in {"UTF-8", "UTF8", "US-ASCII"}:
        block = block.decode(dialect.encoding, errors="replace").encode()
    return _salvaged(block, _texts, TEXT)


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Reads lines of CSV.

    Args:
        schema: The rows.
        names: The columns of the file, in its order.
        dialect: The conventions.
    """

    schema: Schema
    names: Sequence[str]
    dialect: Dialect

    def read(self, block: bytes) -> Parsed:
        """Return the rows of whole lines, none of which is a header."""
        return _rows(block, self._parse, to_arrow(self.schema))

    def _parse(self, lines: bytes, target: pa.Schema, zone: str | None) -> Parsed:
        if not lines.strip():
            return Parsed(_none(target))
        ragged: list[tuple[bytes, str]] = []

        def handle(row: pa_csv.InvalidRow) -> str:
            reason = f"{row.actual_columns} values instead of {row.expected_columns}"
            ragged.append((row.text.encode(), reason))
            return "skip"

        types = {column.name: self._type(column.type, zone) for column in target}
        table = pa_csv.read_csv(
            io.BytesIO(lines),
            pa_csv.ReadOptions(
                column_names=list(self.names), block_size=len(lines) + 1, use_threads=False
            ),
            self.dialect.arrow_parse(invalid_row_handler=handle),
            self.dialect.arrow_convert(
                column_types=types,
                include_columns=target.names,
                include_missing_columns=True,
            ),
        )
        return Parsed(_batch(table, target, self.dialect), ragged)

    def _type(self, arrow: pa.DataType, zone: str | None) -> pa.DataType:
        if pa.types.is_timestamp(arrow):
            return pa.timestamp("us", zone)
        # Arrow reads dates in other patterns as times only.
        return _NAIVE if pa.types.is_date(arrow) and self.dialect.date_format else arrow


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Reads JSON objects, one a line.

    Args:
        schema: The rows.
        dialect: The conventions.
    """

    schema: Schema
    dialect: Dialect

    def read(self, block: bytes) -> Parsed:
        """Return the rows of whole lines."""
        return _rows(block, self._parse, to_arrow(self.schema))

    def _parse(self, lines: bytes, target: pa.Schema, zone: str | None) -> Parsed:
        if not lines.strip():
            return Parsed(_none(target))
        parse = pa_json.ParseOptions(
            explicit_schema=pa.schema([(f.name, _json_type(f.type)) for f in target]),
            unexpected_field_behavior="ignore",
        )
        read = pa_json.ReadOptions(block_size=len(lines) + 1, use_threads=False)
        table = pa_json.read_json(io.BytesIO(lines), read, parse)
        for number, column in enumerate(target):
            if table.schema.field(number).type != _json_type(column.type):
                continue
            if any(test(column.type) for test in _READ_AS_TEXT):
                values = self._from_text(table.column(number), column.type, zone)
                table = table.set_column(number, column.name, values)
        return Parsed(_batch(table, target, self.dialect))

    def _from_text(
        self, texts: pa.ChunkedArray, arrow: pa.DataType, zone: str | None
    ) -> pa.ChunkedArray:
        if pa.types.is_timestamp(arrow):
            pattern = self.dialect.arrow_times()[0] if self.dialect.timestamp_format else None
            if isinstance(pattern, str):
                return pc.strptime(texts, format=pattern, unit="us")
            return pc.cast(texts, pa.timestamp("us", zone))
        return pc.cast(texts, arrow)


def _texts(lines: bytes) -> Parsed:
    whole = pa.array([lines.removesuffix(b"\n")], pa.binary()).cast(pa.string())
    texts = pc.split_pattern(whole, "\n").flatten()
    if b"\r" in lines:
        texts = pc.replace_substring_regex(texts, "\r$", "")
    return Parsed(pa.RecordBatch.from_arrays([texts], schema=TEXT))


def _rows(
    block: bytes,
    parse: Callable[[bytes, pa.Schema, str | None], Parsed],
    schema: pa.Schema,
) -> Parsed:
    def either(lines: bytes) -> Parsed:
        return _either_zone(lambda zone: parse(lines, schema, zone))

    return _salvaged(block, either, schema)


def _salvaged(block: bytes, parse: Callable[[bytes], Parsed], schema: pa.Schema) -> Parsed:
    """Parse a block; if it fails, halve it until the lines at fault stand alone."""
    try:
        return parse(block)
    except _FAULTS:
        pending = [[line + b"\n" for line in block.removesuffix(b"\n").split(b"\n")]]
    parts: list[Parsed] = []
    while pending:
        lines = pending.pop()
        try:
            parts.append(parse(b"".join(lines)))
        except _FAULTS as error:
            if len(lines) == 1:
                parts.append(
                    Parsed(_none(schema), [(lines[0].rstrip(b"\r\n"), _reason(error))])
                )
            else:
                half = len(lines) // 2
                pending += [lines[half:], lines[:half]]
    table = pa.Table.from_batches([part.rows for part in parts], schema).combine_chunks()
    rows = next(iter(table.to_batches()), _none(schema))
    return Parsed(rows, [line for part in parts for line in part.rejected])


def _reason(error: Exception) -> str:
    text = error.problem if isinstance(error, RecordError) else str(error)
    return text.splitlines()[0]


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def _either_zone(parse: Callable[[str | None], Parsed]) -> Parsed:
    """Parse times that name no zone, or else such that do: Arrow takes one kind at a time."""
    try:
        return parse(None)
    except pa.ArrowInvalid as error:
        try:
            return parse("UTC")
        except pa.ArrowInvalid:
            raise error from None


def _json_type(arrow: pa.DataType) -> pa.DataType:
    return pa.string() if any(test(arrow) for test in _READ_AS_TEXT) else arrow


def _batch(table: pa.Table, target: pa.Schema, dialect: Dialect) -> pa.RecordBatch:
    for number, column in enumerate(table.schema):
        if not pa.types.is_timestamp(column.type):
            continue
        values = table.column(number)
        if pa.types.is_date(target.field(column.name).type):
            values = pc.cast(values, pa.date32())
        elif column.type.tz is None and dialect.time_zone != "UTC":
            values = pc.cast(
                pc.assume_timezone(values, dialect.time_zone), pa.timestamp("us", "UTC")
            )
        table = table.set_column(number, column.name, values)
    batches = table.combine_chunks().to_batches()
    return conform(batches[0], target) if batches else _none(target)
