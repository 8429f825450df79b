"""The formats of files: known by names, written for Spark and Arrow, and lines read as rows."""

from __future__ import annotations

import codecs
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
from headrace.sdk.sqltext import quote, sql_type
from headrace_plugins.connectors.file.csv_ends import CsvQuoting

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


_WIDE = frozenset(
    {
        "gb18030",
        "gbk",
        "gb2312",
        "big5",
        "big5hkscs",
        "cp950",
        "cp949",
        "euc_kr",
        "euc_jp",
        "shift_jis",
        "cp932",
    }
)
_NARROW = frozenset({"ascii", "latin-1", "iso8859-1", "koi8-r", "koi8-u"})
_CHARMAP = re.compile(r"cp125\d|cp437|cp85\d|cp86\d|iso8859-\d+|mac-.*")
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
    def quoting(self) -> CsvQuoting:
        """Return how values of CSV are quoted, where `by_arrow`."""
        return CsvQuoting(ord(self.delimiter), ord(self.quote))

    @property
    def by_arrow(self) -> bool:
        """Return whether Arrow reads CSV as these keys say, and not Spark alone does."""
        patterns = [each for each in (self.timestamp_format, self.date_format) if each]
        return (
            self.escape == self.quote
            and self._is_cuttable
            and all(_strptime(pattern) is not None for pattern in patterns)
        )

    @property
    def _is_cuttable(self) -> bool:
        """Return whether line ends and quotes are where their bytes are in an encoded text."""
        if not (self.delimiter + self.quote).isascii():
            return False
        if self.is_utf8:
            return True
        signs = f"\n\r{self.delimiter}{self.quote}"
        try:
            same = signs.encode(self.encoding) == signs.encode("ascii")
        except (LookupError, UnicodeError):
            return False
        name = codecs.lookup(self.encoding).name
        # A second byte of these is 0x30 or higher, and no other sign of ours.
        wide = name in _WIDE and not any("0" <= sign <= "9" or sign >= "@" for sign in signs)
        return same and (wide or name in _NARROW or bool(_CHARMAP.fullmatch(name)))

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

    def arrow_parse(self, *, breaks: bool, **more: Any) -> pa_csv.ParseOptions:
        """Return Arrow's options for dividing CSV into values, which may hold line breaks."""
        doubled = self.escape == self.quote
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote,
            double_quote=doubled,
            escape_char=False if doubled else self.escape,
            newlines_in_values=breaks,
            **more,
        )

    def arrow_convert(self, **more: Any) -> pa_csv.ConvertOptions:
        """Return Arrow's options for reading values."""
        return pa_csv.ConvertOptions(
            null_values=list({"", self.null_value}),
            strings_can_be_null=True,
            **{"quoted_strings_can_be_null": False, **more},
            timestamp_parsers=self.arrow_times(),
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
_ZONE = re.compile(r"In CSV column #(\d+): .*zone offset in ")
_BLANK = re.compile(r"In CSV column #(\d+): .*invalid value ''$")
_RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")
_MISFIT = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to .*?: (?=inv)|(?=Error))"
    r"(.*)"
)
_FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, RecordError)
_READ_AS_TEXT = (pa.types.is_temporal, pa.types.is_decimal, pa.types.is_binary)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A part of a block that is not a row.

    Args:
        line: The number of its first line in the block, from 0.
    """

    line: int
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a block, and the records that are none."""

    rows: pa.RecordBatch
    rejected: list[BadRecord] = field(default_factory=list)


def text_lines(block: bytes, dialect: Dialect) -> Parsed:
    """Return each line as a text, without its end."""
    if not dialect.is_utf8:
        block = block.decode(dialect.encoding, errors="replace").encode()
    return _salvaged(block, _texts, TEXT)


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Reads CSV as rows of a schema; ``names`` are the file's columns, in order.

    With ``quoting`` values in quotes may hold line breaks; without, each line is a record.
    """

    schema: Schema
    names: Sequence[str]
    dialect: Dialect
    quoting: CsvQuoting | None = None
    _zoned: set[str] = field(default_factory=set)
    """The columns whose last times named a zone: Arrow takes one kind or the other."""
    _blank: set[str] = field(default_factory=set)
    """The columns, but for texts, that have nothing in quotes: it is null there."""

    def read(self, block: bytes) -> Parsed:
        """Return the rows of whole records, none of which is a header."""
        split = _lines if self.quoting is None else self.quoting.records
        target = to_arrow(self.schema)
        return _salvaged(block, lambda records: self._parse(records, target), target, split)

    def _parse(self, records: bytes, target: pa.Schema) -> Parsed:
        if not records.strip(b"\r\n"):
            return Parsed(_none(target))
        tried: set[str] = set()
        while True:
            try:
                return Parsed(_batch(self._table(records, target), target, self.dialect))
            except pa.ArrowInvalid as error:
                if not self._learns(str(error), tried):
                    raise self._named(error) from None

    def _learns(self, error: str, tried: set[str]) -> bool:
        """Return whether what an error says of a column lets it be read another way."""
        zone, blank = _ZONE.match(error), _BLANK.match(error)
        if zone is not None and (name := self.names[int(zone[1])]) not in tried:
            tried.add(name)
            self._zoned.symmetric_difference_update({name})
            return True
        if blank is not None and (name := self.names[int(blank[1])]) not in self._blank:
            self._blank.add(name)
            return True
        return False

    def _table(self, records: bytes, target: pa.Schema) -> pa.Table:
        blank = [name for name in target.names if name in self._blank]
        others = [name for name in target.names if name not in self._blank]
        if not blank:
            return self._columns(records, target, others, blank=False)
        # Arrow takes nothing in quotes for null in all columns or in none, texts included.
        table = self._columns(records, target, blank, blank=True)
        if others:
            rest = self._columns(records, target, others, blank=False)
            for name in others:
                table = table.append_column(name, rest.column(name))
        return table.select(target.names)

    def _columns(
        self, records: bytes, target: pa.Schema, names: Sequence[str], *, blank: bool
    ) -> pa.Table:
        types = {name: self._type(target.field(name)) for name in names}
        return pa_csv.read_csv(
            io.BytesIO(records),
            pa_csv.ReadOptions(
                column_names=list(self.names), block_size=len(records) + 1, use_threads=False
            ),
            self.dialect.arrow_parse(breaks=self.quoting is not None),
            self.dialect.arrow_convert(
                column_types=types,
                include_columns=names,
                include_missing_columns=True,
                quoted_strings_can_be_null=blank,
            ),
        )

    def _named(self, error: pa.ArrowInvalid) -> pa.ArrowInvalid:
        """Return an error with the names of columns and types in place of Arrow's."""
        found = _MISFIT.match(str(error))
        if found is None:
            return error
        name = self.names[int(found[1])]
        column = self.schema.field(name)
        kind = "" if column is None else f" {sql_type(column.schema)}"
        return pa.ArrowInvalid(f"{quote(name)}{kind}: {found[2]}")

    def _type(self, column: pa.Field) -> pa.DataType:
        if pa.types.is_timestamp(column.type):
            return pa.timestamp("us", "UTC" if column.name in self._zoned else None)
        # Arrow reads dates in other patterns as times only.
        is_time = pa.types.is_date(column.type) and self.dialect.date_format
        return _NAIVE if is_time else column.type


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Reads JSON objects, one a line, as rows of a schema."""

    schema: Schema
    dialect: Dialect

    def read(self, block: bytes) -> Parsed:
        """Return the rows of whole lines."""
        target = to_arrow(self.schema)

        def either(lines: bytes) -> Parsed:
            # Times that name no zone, or else such that do: Arrow takes one kind at a time.
            try:
                return self._parse(lines, target, None)
            except pa.ArrowInvalid as error:
                try:
                    return self._parse(lines, target, "UTC")
                except pa.ArrowInvalid:
                    raise error from None

        return _salvaged(block, either, target)

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


def _lines(block: bytes) -> list[bytes]:
    return [line + b"\n" for line in block.removesuffix(b"\n").split(b"\n")]


def _salvaged(
    block: bytes,
    parse: Callable[[bytes], Parsed],
    schema: pa.Schema,
    split: Callable[[bytes], list[bytes]] = _lines,
) -> Parsed:
    """Parse a block; if it fails, halve it until the records at fault stand alone."""
    try:
        return parse(block)
    except _FAULTS:
        pending = [split(block)]
    parts: list[Parsed] = []
    line = 0
    while pending:
        records = pending.pop()
        part = b"".join(records)
        try:
            parts.append(parse(part))
        except _FAULTS as error:
            if len(records) > 1:
                half = len(records) // 2
                pending += [records[half:], records[:half]]
                continue
            bad = BadRecord(line, part.rstrip(b"\r\n"), _reason(error))
            parts.append(Parsed(_none(schema), [bad]))
        line += part.count(b"\n")
    table = pa.Table.from_batches([part.rows for part in parts], schema).combine_chunks()
    rows = next(iter(table.to_batches()), _none(schema))
    return Parsed(rows, [bad for part in parts for bad in part.rejected])


def _reason(error: Exception) -> str:
    """Return what is wrong with a record that was parsed alone, without Arrow's own words."""
    text = error.problem if isinstance(error, RecordError) else str(error).splitlines()[0]
    found = _RAGGED.search(text)
    return f"{found[2]} values instead of {found[1]}" if found else text


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
