"""What columns files have: declared, in headers or schemas, or inferred from samples."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.arrow import from_arrow, to_arrow_field
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.avro_container import container_metadata
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.listing import Group, spark_path
from headrace_plugins.json_inference import (
    EXACT,
    LARGE,
    TEXT,
    merged_type,
    type_of,
    without_times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from headrace.sdk import SchemaMemory
    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.listing import FoundFile, NumberedFile


SAMPLE_BYTES = 4 * 1024 * 1024
"""Enough for 10,000 lines of 400 bytes; Arrow infers types from it in 20 ms."""
_CODECS = {".bz2": "bz2", ".gz": "gzip", ".lz4": "lz4", ".zst": "zstd"}
_BOM = b"\xef\xbb\xbf"


def read_sample(
    path: str, dialect: Dialect, *, rows: int, size_bytes: int = SAMPLE_BYTES
) -> bytes:
    """Return whole lines from the beginning of a file, decompressed as its name says.

    There are at most ``rows``, the header included, and ``size_bytes`` before decoding: a first
    line that is longer is cut. Raises SourceError if it cannot be read or decoded.
    """
    codec = _CODECS.get(PurePosixPath(path).suffix)
    try:
        with Location.of(path).open_input() as file:
            stream = file if codec is None else pa.CompressedInputStream(file, codec)
            raw = bytes(stream.read(size_bytes))
    except OSError as error:
        raise SourceError(
            problem=f"{path} cannot be read: {error}", fix="Repair or delete the file."
        ) from error
    data = raw.removeprefix(_BOM)
    if not dialect.is_utf8:
        try:
            # The last character may be cut in two.
            data = data.decode(dialect.encoding, errors="ignore").encode()
        except LookupError as error:
            raise SourceError(
                problem=f"{path} cannot be decoded: unknown encoding {dialect.encoding!r}.",
                fix="Set encoding to a name such as UTF-8 or ISO-8859-1.",
            ) from error
    if len(raw) == size_bytes and (end := data.rfind(b"\n")) >= 0:
        data = data[: end + 1]
    return b"".join(islice(io.BytesIO(data), rows))


_HEADER_BYTES = 64 * 1024
_TEXT = Schema.string(optional=True)


def read_header(path: str, dialect: Dialect) -> list[str]:
    """Return the names in the first line of a CSV file; none for an empty file."""
    return header_names(read_sample(path, dialect, rows=1, size_bytes=_HEADER_BYTES), dialect)


def header_names(line: bytes, dialect: Dialect) -> list[str]:
    """Return the names in a header; a column without one is called as Spark calls it."""
    doubled = dialect.escape == dialect.quote
    rows = csv.reader(
        [line.decode(errors="replace").rstrip("\r\n")],
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        doublequote=doubled,
        escapechar=None if doubled else dialect.escape,
    )
    names = next(iter(rows), [])
    return [name or f"_c{number}" for number, name in enumerate(names)]


def as_headed(header: Sequence[str], schema: Schema, *, renames: bool, path: str) -> Schema:
    """Return a file's columns in the file's order, matched with the schema's by name.

    A column that the schema does not have is a text. If it ``renames``, as a declared one may,
    it may give all columns other names, by their order. Raises SourceError if neither names nor
    order identify the columns.
    """
    known = [field.name for field in schema.fields]
    strangers = [name for name in header if name not in known]
    if renames and strangers and any(name not in header for name in known):
        pairs = zip(header, known, strict=False)
        moved = any(
            name != other and (name in known or other in header) for name, other in pairs
        )
        if moved or len(header) != len(known):
            raise SourceError(
                problem=f"The header of {path} is {', '.join(header)}; the declared columns "
                f"are {', '.join(known)}.",
                fix="Use the header's names in schema, or declare all columns in the order of "
                "the files.",
            )
        return schema
    found = {name: schema.field(name) for name in header}
    return Schema.struct(
        {name: field.schema if field else _TEXT for name, field in found.items()}
    )


VARIANT = pa.large_binary()
"""Stands for VARIANT, which Arrow does not know; no inferred type is it otherwise."""
# Arrow reads these as numbers and Spark does not, or a number would lose them.
_EXACT_DIGITS = 16
_LONG = re.compile(rb"[0-9]{16}")
"""What a whole number has that a float would round."""
_NO_NUMBER = r"^[+-]?0[0-9]|^\+|^(?i:[+-]?(?:nan|inf|infinity))$"


def infer_csv(sample: bytes, dialect: Dialect, *, breaks: bool = False) -> pa.StructType:
    """Return the columns of CSV; records that do not fit the others are left out.

    With ``breaks`` values in quotes may hold line breaks; without, each line is a record.

    Whole numbers with leading zeros, such as postcodes, stay texts. Raises ConfigError if two
    columns have the same name.
    """
    if not sample.strip():
        return pa.struct([])
    table = _csv(sample, dialect, dialect.arrow_convert(), breaks=breaks)
    names = [
        name if dialect.header and name else f"_c{number}"
        for number, name in enumerate(table.column_names)
    ]
    types = dict(zip(names, table.schema.types, strict=True))
    if len(types) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            problem=f"Two columns of the CSV files are called {twice!r}.",
            fix="Fix the header, or set header to false and declare a schema.",
            field="schema",
        )
    checked = _checked(types, names, table.column_names, sample, dialect, breaks=breaks)
    return pa.struct(list(checked.items()))


def infer_json(sample: bytes, dialect: Dialect, conflict: pa.DataType = TEXT) -> pa.StructType:
    """Return the fields of JSON objects, one a line, or in one document if multiline.

    Values of one field that share no shape give ``conflict``.

    A text stays a text, even if it looks like a time: JSON says what is what.
    """
    if not sample.strip():
        return pa.struct([])
    if not dialect.multiline and sample.lstrip().startswith(b"["):
        message = "it begins with an array; if it is one document, set multiline to true"
        raise ValueError(message)
    # Arrow makes floats of whole numbers beyond 64 bits, and crashes where null comes first.
    if not dialect.multiline and sample.lstrip().startswith(b"{") and not _LONG.search(sample):
        try:
            read = pa_json.ReadOptions(block_size=len(sample) + 1, use_threads=False)
            parse = pa_json.ParseOptions(newlines_in_values=False)
            table = pa_json.read_json(io.BytesIO(sample), read, parse)
            return without_times(pa.struct(list(table.schema)))
        except pa.ArrowInvalid:
            # A line is malformed, or a field has several types: look at each line.
            pass
    if dialect.multiline:
        document = json.loads(sample)
        rows = document if isinstance(document, list) else [document]
    else:
        rows = [row for row in map(_json_line, sample.splitlines()) if isinstance(row, dict)]
    types = (type_of(row, conflict, exact=True) for row in rows)
    merged = reduce(partial(merged_type, conflict=conflict), types, pa.struct([]))
    return merged if pa.types.is_struct(merged) else pa.struct([])


def to_schema(types: pa.StructType, conflict: pa.DataType = TEXT) -> Schema:
    """Return the schema of rows of these types; everything may be null.

    Objects of which no field is known are ``conflict``.
    """
    return from_arrow(pa.schema([_settled_field(field, conflict) for field in types]))


def grown(known: Schema, new: Schema) -> Schema:
    """Return ``known`` with what ``new`` adds.

    Types are widened where the SDK can; where there is no common type the known one stays,
    and values that do not fit it are rejected one by one.
    """
    fields = {field.name: field.schema for field in known.fields}
    for field in new.fields:
        before = fields.get(field.name)
        try:
            # A column does not become a VARIANT later: its target could not follow.
            if before is not None and field.schema.name == Schema.variant().name:
                continue
            optional = field.schema.replaced(optional=True)
            fields[field.name] = optional if before is None else evolve(before, optional)
        except ConfigError:
            continue
    return known.with_fields(fields)


def _csv(
    sample: bytes, dialect: Dialect, convert: pa_csv.ConvertOptions, *, breaks: bool
) -> pa.Table:
    read = pa_csv.ReadOptions(
        autogenerate_column_names=not dialect.header,
        block_size=len(sample) + 1,
        use_threads=False,
    )
    parse = dialect.arrow_parse(breaks=breaks, invalid_row_handler=lambda _: "skip")
    return pa_csv.read_csv(io.BytesIO(sample), read, parse, convert)


def _checked(
    types: dict[str, pa.DataType],
    names: Sequence[str],
    arrow_names: Sequence[str],
    sample: bytes,
    dialect: Dialect,
    *,
    breaks: bool,
) -> dict[str, pa.DataType]:
    """Take back guesses of Arrow's that lose something, and separate dates from times."""
    texts = dialect.arrow_convert(column_types=dict.fromkeys(arrow_names, pa.string()))
    numbers = [n for n, t in types.items() if pa.types.is_integer(t) or pa.types.is_floating(t)]
    if numbers:
        table = _csv(sample, dialect, texts, breaks=breaks).rename_columns(list(names))
        for name in numbers:
            odd = pc.match_substring_regex(table.column(name), _NO_NUMBER)
            if pc.any(odd).as_py():
                types[name] = pa.string()
            else:
                types[name] = _exact(table.column(name), types[name])
    if dialect.date_format:
        only_dates = dialect.arrow_convert()
        only_dates.timestamp_parsers = dialect.arrow_times()[-2:-1]
        found = _csv(sample, dialect, only_dates, breaks=breaks).schema.types
        for name, arrow in zip(names, found, strict=True):
            if pa.types.is_timestamp(arrow):
                types[name] = pa.date32()
    return types


def _exact(texts: pa.ChunkedArray, guess: pa.DataType) -> pa.DataType:
    """Return the type of a column of numbers that rounds no whole one."""
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    digits = pc.max(pc.utf8_length(pc.if_else(whole, texts, ""))).as_py() or 0
    if digits < _EXACT_DIGITS:
        return guess
    if pc.all(whole).as_py():
        rounded = EXACT if pa.types.is_integer(guess) else LARGE
        return rounded if digits <= LARGE.precision else TEXT
    return TEXT


def _json_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _settled_field(field: pa.Field, conflict: pa.DataType) -> pa.Field:
    kind = _settled(field.type, conflict)
    if kind.equals(VARIANT):
        return to_arrow_field(field.name, Schema.variant(optional=True))
    return pa.field(field.name, kind)


def _settled(arrow: pa.DataType, conflict: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return pa.struct([_settled_field(field, conflict) for field in arrow])
    if pa.types.is_struct(arrow):
        return conflict
    if pa.types.is_list(arrow):
        return pa.list_(_settled_field(arrow.value_field, conflict))
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", "UTC")
    if arrow in (EXACT, LARGE):
        return pa.int64() if arrow == EXACT else arrow
    exact = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_date)
    if arrow.equals(VARIANT) or any(test(arrow) for test in exact):
        return arrow
    # What is unknown is a text that takes anything.
    return pa.string()


_HEAD_BYTES = 1024 * 1024


def writer_schema(path: str) -> str:
    """Return the schema of an Avro file as its JSON text. Raises SourceError if it is none."""
    with Location.of(path).open_input() as file:
        head = file.read(_HEAD_BYTES)
    try:
        return container_metadata(head)["avro.schema"].decode()
    except (ValueError, KeyError) as error:
        problem = f"{path} is not an Avro file."
        raise SourceError(problem=problem, fix="Repair or delete the file.") from error


_SAMPLED_FILES = 5
_LEAST_SAMPLE_BYTES = 16 * 1024
_Key = TypeVar("_Key", bound="Hashable")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Finds the schema of the rows, and remembers it."""

    format: Format
    dialect: Dialect
    declared: Schema | None
    """None to infer it."""
    stream: str
    """Under which name the inferred schema is stored."""
    memory: SchemaMemory
    sample_rows: int
    conflict: pa.DataType = TEXT
    """What a field of JSON becomes whose values share no shape."""

    def groups(
        self, spark: SparkSession, files: Sequence[NumberedFile]
    ) -> tuple[Schema, list[Group]]:
        """Return the schema of the rows, and the files by how each is to be read.

        No job runs; files are looked at from their beginning, or their footer. Raises
        SourceError for one that cannot be read, or has other columns than were declared.
        """
        match self.format:
            case Format.CSV:
                return self._csv(files)
            case Format.JSON:
                size = max(_LEAST_SAMPLE_BYTES, SAMPLE_BYTES // len(files))
                schema = self._settle(
                    lambda: self._inferred([file.file for file in files], size),
                    first=lambda: self._sampled(files),
                )
                return schema, [Group(schema, tuple(files))]
            case Format.PARQUET:
                parts = _by(lambda file: _parquet_schema(file.path), files)
                return self._typed([Group(_parquet(arrow), some) for arrow, some in parts])
            case _:
                parts = _by(lambda file: writer_schema(file.path), files)
                reader = spark.read.format("avro")
                found = (
                    (reader.load(spark_path(some[0].path)).schema.json(), some)
                    for _, some in parts
                )
                return self._typed(
                    [
                        Group(_nullable(from_spark_json(json.loads(s))), some)
                        for s, some in found
                    ]
                )

    def known(self) -> Schema:
        """Return what is known without looking at files."""
        return self.declared or self.memory.get(self.stream) or Schema.struct({})

    def _settle(self, new: Callable[[], Schema], *, first: Callable[[], Schema]) -> Schema:
        """Return what is declared or stored, and grow and store it."""
        if self.declared is not None:
            return self.declared
        known = self.memory.get(self.stream)
        schema = first() if known is None else grown(known, new())
        if not schema.fields:
            raise SourceError(
                problem=f"No column can be found in the files of {self.stream}.",
                fix="Declare a schema.",
            )
        if schema != known:
            self.memory.put(self.stream, schema)
        return schema

    def _typed(self, groups: list[Group]) -> tuple[Schema, list[Group]]:
        """Settle on a schema for files that hold theirs."""

        def merged() -> Schema:
            schema = groups[0].schema
            for group in groups[1:]:
                schema = grown(schema, group.schema)
            return schema

        return self._settle(merged, first=merged), groups

    def _csv(self, files: Sequence[NumberedFile]) -> tuple[Schema, list[Group]]:
        if not self.dialect.header:
            schema = self._settle(lambda: Schema.struct({}), first=lambda: self._sampled(files))
            return schema, [Group(schema, tuple(files))]
        parts = _by(lambda file: tuple(read_header(file.path, self.dialect)), files)
        parts = [(header, some) for header, some in parts if header]

        def new() -> Schema:
            known = self.memory.get(self.stream) or Schema.struct({})
            added = [s[0] for header, s in parts if any(known.field(n) is None for n in header)]
            schema = self._sampled(added)
            return Schema.struct(
                {f.name: f.schema for f in schema.fields if known.field(f.name) is None}
            )

        schema = self._settle(new, first=lambda: self._sampled(files))
        renames = self.declared is not None
        return schema, [
            Group(as_headed(header, schema, renames=renames, path=some[0].path), some)
            for header, some in parts
        ]

    def _sampled(self, files: Sequence[NumberedFile]) -> Schema:
        """Infer from some of the files, from the first to the last."""
        step = max(1, -(-len(files) // _SAMPLED_FILES))
        return self._inferred([file.file for file in files[::step]], SAMPLE_BYTES)

    def _inferred(self, files: Sequence[FoundFile], size_bytes: int) -> Schema:
        types = pa.struct([])
        conflict = TEXT if self.format is Format.CSV else self.conflict
        by_arrow = self.dialect.why_spark() is None
        infer = (
            partial(infer_csv, breaks=by_arrow or self.dialect.multiline)
            if self.format is Format.CSV
            else partial(infer_json, conflict=conflict)
        )
        for file in files:
            # A document is understood as a whole or not at all.
            size = file.size_bytes + 1 if self.dialect.multiline else size_bytes
            rows = file.size_bytes + 1 if self.dialect.multiline else self.sample_rows + 1
            sample = read_sample(file.path, self.dialect, rows=rows, size_bytes=size)
            if self.format is Format.CSV and by_arrow:
                quoting = self.dialect.quoting
                # A sample may end within a value that has line breaks.
                if quoting.is_open(sample):
                    sample = sample[: quoting.whole(sample)]
            try:
                found = infer(sample, self.dialect)
                types = merged_type(types, found, conflict)
            except (pa.ArrowInvalid, ValueError) as error:
                raise SourceError(
                    problem=f"The columns of {file.path} cannot be inferred: {error}",
                    fix=f"Declare a schema, repair the file, or set encoding if it is not "
                    f"{self.dialect.encoding}.",
                ) from error
            if not _is_named(found):
                raise SourceError(
                    problem=f"{file.path} has a field without a name.",
                    fix="Name the field, or set format to text to move its lines as they are.",
                )
        return to_schema(types, conflict)


def _is_named(kind: pa.DataType) -> bool:
    """Return whether all fields of structs have names, at any depth."""
    fields = [kind.field(number) for number in range(kind.num_fields)]  # lists have one too
    if pa.types.is_struct(kind) and not all(field.name for field in fields):
        return False
    return all(_is_named(field.type) for field in fields)


def _by(
    key: Callable[[FoundFile], _Key], files: Iterable[NumberedFile]
) -> list[tuple[_Key, tuple[NumberedFile, ...]]]:
    groups: dict[_Key, list[NumberedFile]] = {}
    for file in files:
        groups.setdefault(key(file.file), []).append(file)
    return [(value, tuple(some)) for value, some in groups.items()]


def _parquet_schema(path: str) -> pa.Schema:
    try:
        with Location.of(path).open_input() as file:
            return pq.read_schema(file).remove_metadata()
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(
            problem=f"{path} is not a Parquet file: {error}", fix="Repair or delete the file."
        ) from error


def _parquet(arrow: pa.Schema) -> Schema:
    for field in arrow:
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            raise ConfigError(
                problem=f"The column {field.name} counts nanoseconds, which Spark cannot read.",
                fix="Write it in microseconds (pandas: coerce_timestamps='us').",
                field=field.name,
            )
    return _nullable(from_arrow(arrow))


def _nullable(schema: Schema) -> Schema:
    """Spark reads every column of a file as one that may be null."""
    return schema.with_fields({f.name: f.schema.replaced(optional=True) for f in schema.fields})
