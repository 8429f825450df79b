"""The formats of files: known by names, written for Spark and Arrow, and lines read as rows."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from headrace.sdk import ConfigError, RecordError, Schema
from headrace.sdk.arrow import conform, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.sdk.config import Config


class Format(StrEnum):
    """What is in a file."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    TEXT = "text"


_BY_SUFFIX = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".avro": Format.AVRO,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".log": Format.TEXT,
}
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate"})


def format_of(name: str) -> Format | None:
    """Return the format that a name or a pattern ends with, as in ``*.csv.gz``."""
    path = PurePath(name)
    if path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    return _BY_SUFFIX.get(path.suffix.lower())


def is_compressed(name: str) -> bool:
    """Return whether the name says that the whole file is compressed."""
    return PurePath(name).suffix.lower() in _COMPRESSED


_NAMED = {"\\t": "\t", "tab": "\t", "space": " ", "\\u0001": "\x01"}
_STRPTIME = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
_PATTERN = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The conventions of a text file, see ``TextSettings``.

    With ``multiline`` a CSV value may hold line breaks, and a JSON file is one document.
    """

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null_value: str = ""
    encoding: str = "UTF-8"
    timestamp_format: str | None = None
    date_format: str | None = None
    time_zone: str = "UTC"
    multiline: bool = False

    @classmethod
    def from_config(cls, config: Config, *, tabs: bool = False) -> Dialect:
        """Read the keys; ``tabs`` says that the file's name ends with .tsv.

        Raises ConfigError for a character that is not a single one.
        """
        return cls(
            header=config.get_bool("header"),
            delimiter=_character(config, "delimiter") or ("\t" if tabs else ","),
            quote=_character(config, "quote") or '"',
            escape=_character(config, "escape") or '"',
            null_value=config.originals.get("null.value", ""),
            encoding=config.get_str("encoding"),
            timestamp_format=config.find_str("timestamp.format"),
            date_format=config.find_str("date.format"),
            time_zone=config.get_str("time.zone"),
            multiline=bool(config.get("multiline", False)),
        )

    @property
    def is_utf8(self) -> bool:
        """Return whether texts are in UTF-8, or in a part of it."""
        return self.encoding.upper() in {"UTF-8", "UTF8", "US-ASCII"}

    def spark_csv(self) -> dict[str, str]:
        """Return Spark's options for reading or writing CSV."""
        return {
            "header": str(self.header).lower(),
            "sep": self.delimiter,
            "quote": self.quote,
            "escape": self.escape,
            "nullValue": self.null_value,
            # When it writes, Spark takes blanks and control characters away by default.
            "ignoreLeadingWhiteSpace": "false",
            "ignoreTrailingWhiteSpace": "false",
            **self._spark_text(),
        }

    def spark_json(self) -> dict[str, str]:
        """Return Spark's options for reading or writing JSON."""
        return self._spark_text()

    def _spark_text(self) -> dict[str, str]:
        formats = {"timestampFormat": self.timestamp_format, "dateFormat": self.date_format}
        return {
            "encoding": self.encoding,
            "timeZone": self.time_zone,
            "multiLine": str(self.multiline).lower(),
            **{name: pattern for name, pattern in formats.items() if pattern},
        }

    def arrow_parse(self, **more: Any) -> pa_csv.ParseOptions:
        """Return Arrow's options for dividing CSV into values."""
        doubled = self.escape == self.quote
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote,
            double_quote=doubled,
            escape_char=False if doubled else self.escape,
            newlines_in_values=self.multiline,
            **more,
        )

    def arrow_convert(self, **more: Any) -> pa_csv.ConvertOptions:
        """Return Arrow's options for reading values."""
        return pa_csv.ConvertOptions(
            null_values=list({"", self.null_value}),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=self.arrow_times(),
            **more,
        )

    def arrow_times(self) -> list[Any]:
        """Return the patterns of times as Arrow takes them; ISO 8601 is always among them."""
        both = (_strptime(p) for p in (self.timestamp_format, self.date_format) if p)
        return [pattern for pattern in both if pattern] + [pa_csv.ISO8601]


def _character(config: Config, key: str) -> str | None:
    # The text as it was given: parsing takes tabs and spaces away.
    text = config.originals.get(key) or config.find_str(key)
    if text is None:
        return None
    text = _NAMED.get(text, text)
    if len(text) != 1:
        raise ConfigError(
            problem=f"{text!r} is not a single character.",
            fix="Give one character; tab and space may be written as words.",
            field=key,
        )
    return text


def _strptime(pattern: str) -> str | None:
    """Translate a pattern of Spark's; None when Arrow has no counterpart for it."""
    parts = []
    for found in _PATTERN.finditer(pattern):
        text = found.group(0)
        if found.group(2) is None:
            parts.append(found.group(1) if text.startswith("'") else text)
        elif text in _STRPTIME:
            parts.append(_STRPTIME[text])
        else:
            return None
    return "".join(parts)


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
    if not dialect.is_utf8:
        block = block.decode(dialect.encoding, errors="replace").encode()
    return _salvaged(block, _texts, TEXT)


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Reads lines of CSV as rows of a schema; ``names`` are the file's columns, in order."""

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
    """Reads JSON objects, one a line, as rows of a schema."""

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
        # Times that name no zone, or else such that do: Arrow takes one kind at a time.
        try:
            return parse(lines, schema, None)
        except pa.ArrowInvalid as error:
            try:
                return parse(lines, schema, "UTC")
            except pa.ArrowInvalid:
                raise error from None

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
                text = error.problem if isinstance(error, RecordError) else str(error)
                reason = text.splitlines()[0]
                parts.append(Parsed(_none(schema), [(lines[0].rstrip(b"\r\n"), reason)]))
            else:
                half = len(lines) // 2
                pending += [lines[half:], lines[:half]]
    table = pa.Table.from_batches([part.rows for part in parts], schema).combine_chunks()
    rows = next(iter(table.to_batches()), _none(schema))
    return Parsed(rows, [line for part in parts for line in part.rejected])


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


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
