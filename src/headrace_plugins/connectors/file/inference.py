"""Infers the columns of text files from samples."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from contextlib import suppress
from functools import partial, reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.arrow import from_arrow, to_arrow_field
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import evolve
from headrace_plugins.arrow_json import (
    DEEPEST,
    EXACT,
    LARGE,
    TEXT,
    merged_type,
    read_objects,
    type_of,
    without_times,
)
from headrace_plugins.connectors.file.formats import BOM, unpacked
from headrace_plugins.connectors.file.json_lines import LONGEST_DOCUMENT, first_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.listing import FoundFile
    from headrace_plugins.connectors.file.record_ends import CsvQuoting


SAMPLE_BYTES = 4 * 1024 * 1024
"""Enough for 10,000 lines of 400 bytes; Arrow infers types from it in 20 ms."""


def read_sample(
    path: str, dialect: Dialect, *, rows: int, size_bytes: int = SAMPLE_BYTES
) -> bytes:
    """Return complete lines from the beginning of a file, decompressed by its extension.

    At most ``rows`` lines, including the header, and ``size_bytes`` before decoding: a longer
    first line is cut. Raises SourceError if the file cannot be read or decoded.
    """
    data, is_all = _beginning(path, dialect, size_bytes)
    if not is_all and (end := data.rfind(b"\n")) >= 0:
        data = data[: end + 1]
    return b"".join(islice(io.BytesIO(data), rows))


def _beginning(path: str, dialect: Dialect, size_bytes: int) -> tuple[bytes, bool]:
    """Return the beginning of a file in UTF-8, and whether it is the whole file."""
    try:
        with Location.of(path).open_input() as file:
            raw = bytes(unpacked(file, path).read(size_bytes))
    except OSError as error:
        raise SourceError(
            problem=f"{path} cannot be read: {error}", fix="Repair or delete the file."
        ) from error
    data = raw.removeprefix(BOM)
    if not dialect.is_utf8:
        try:
            # The last character may be incomplete.
            data = data.decode(dialect.encoding, errors="ignore").encode()
        except LookupError as error:
            raise SourceError(
                problem=f"{path} cannot be decoded: unknown encoding {dialect.encoding!r}.",
                fix="Set encoding to a name such as UTF-8 or ISO-8859-1.",
            ) from error
    return data, len(raw) < size_bytes


def read_document(path: str, dialect: Dialect, size_bytes: int = LONGEST_DOCUMENT) -> bytes:
    """Return the beginning of a document, decompressed by its extension."""
    return _beginning(path, dialect, size_bytes)[0]


_HEAD_BYTES = 64 * 1024
_LONGEST_HEADER = 16 * 1024 * 1024


def read_header(path: str, dialect: Dialect) -> tuple[list[str], bool]:
    """Return the names in the header of a CSV file, and whether rows follow it.

    Empty lines before the header are skipped. A blank file has neither header nor rows. Raises
    SourceError for a header without an end.
    """
    head, end, is_all = _head(path, dialect)
    if dialect.ends.is_open(head[:end]) or not (is_all or end < len(head)):
        raise SourceError(
            problem=f"The header of {path} has no end: a quote in it is not closed, or it is "
            f"longer than {_LONGEST_HEADER // 1024**2} MiB.",
            fix="Close the quote, set quote to another character, or set header to false.",
        )
    try:
        return header_names(head[:end], dialect), not is_all or bool(head[end:].strip())
    except UnicodeDecodeError as error:
        raise undecodable(path, dialect, error) from error


def first_width(path: str, dialect: Dialect) -> int:
    """Return how many values the first record of a CSV file has, if it is not too long."""
    head, end, _ = _head(path, dialect)
    if dialect.ends.is_open(head[:end]):
        return 0
    return int(_csv(dialect.ends.doubled(head[:end]), dialect).num_columns)


def _head(path: str, dialect: Dialect) -> tuple[bytes, int, bool]:
    """Return a file's beginning, the end of its first record, and whether it is complete."""
    head, end, is_all = b"", 0, False
    for size_bytes in (_HEAD_BYTES, _LONGEST_HEADER):
        if not is_all and end == len(head):
            head, is_all = _beginning(path, dialect, size_bytes)
            head = dialect.stand_ins.block(head.lstrip(b"\r\n"))
            end = dialect.ends.first_end(head)
    return head, end, is_all


def undecodable(path: str, dialect: Dialect, error: Exception) -> SourceError:
    """Return the error for a file whose columns cannot be inferred."""
    with Location.of(path).open_input() as file:
        is_wide = file.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
    fix = f"Declare a schema, repair the file, or set encoding if it is not {dialect.encoding}."
    return SourceError(
        problem=f"The columns of {path} cannot be inferred: {error}",
        fix="Set encoding to UTF-16." if is_wide else fix,
    )


def is_blank(file: FoundFile, dialect: Dialect) -> bool:
    """Return whether a text file contains only blanks; a large file counts as not blank."""
    if file.size_bytes > _HEAD_BYTES:
        return False
    return not read_sample(file.path, dialect, rows=_HEAD_BYTES).strip()


def header_names(line: bytes, dialect: Dialect) -> list[str]:
    """Return the names in a header, and Spark's default names for columns without one.

    Raises UnicodeDecodeError if the header is not in UTF-8.
    """
    text = dialect.stand_ins.text(dialect.ends.doubled(line).decode()).rstrip("\r\n")
    rows = csv.reader(
        io.StringIO(text, newline=""), delimiter=dialect.delimiter, quotechar=dialect.quote
    )
    names = next(iter(rows), [])
    return [name or f"_c{number}" for number, name in enumerate(names)]


VARIANT = pa.large_binary()
"""Stands for VARIANT, which Arrow does not have; inference never returns it otherwise."""
_EXACT_DIGITS = 16
_LONG = re.compile(rb"[0-9]{16}")
"""The digits of an integer that a float would round."""
# A truncated string extends to the end; else each quote in it would be tried as an opening one.
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?$)')
# Arrow reads these texts as numbers but Spark does not, or the number would lose digits.
_NO_NUMBER = r"^[+-]?0[0-9xX]|^\+|^(?i:[+-]?(?:nan|inf|infinity))$"


def infer_csv(sample: bytes, dialect: Dialect) -> pa.StructType:
    """Return the columns of CSV; records that do not fit the others are ignored.

    The sample has the stand-ins of the dialect. There are no columns if no record is valid.

    Integers with leading zeros, such as postcodes, remain strings. Raises ConfigError if two
    columns have the same name.
    """
    if not sample.strip():
        return pa.struct([])
    ends = dialect.ends
    # A sample may end inside a value with line breaks.
    if ends.is_open(sample):
        sample = sample[: ends.whole(sample)]
    has_records = len(sample) > (ends.first_end(sample) if dialect.header else 0)
    sample = ends.doubled(_valid(sample, ends, header=dialect.header))
    table = _csv(sample, dialect) if sample else None
    if table is None or (has_records and not table.num_rows):
        return pa.struct([])
    names = [
        dialect.stand_ins.text(name) if dialect.header and name else f"_c{number}"
        for number, name in enumerate(table.column_names)
    ]
    types = dict(zip(names, table.schema.types, strict=True))
    if len(types) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            problem=f"Two columns of the CSV files are called {twice!r}.",
            fix="Declare a schema, which names the columns by their order.",
            field="schema",
        )
    checked = _checked(types, names, table.column_names, sample, dialect)
    return pa.struct(list(checked.items()))


def infer_json(sample: bytes, dialect: Dialect, conflict: pa.DataType = TEXT) -> pa.StructType:
    """Return the fields of JSON objects, one per line, or in one document if multiline.

    Values that are not objects are ignored, and so is the rest of a document after an error.
    A field whose values have incompatible types gets the type ``conflict``. A string remains a
    string, even if it looks like a time, as JSON values have explicit types.
    """
    if not sample.strip():
        return pa.struct([])
    # Arrow converts integers beyond 64 bits to floats, and crashes if null comes first and if
    # a value is nested some ten thousand levels deep.
    is_safe = sample.lstrip().startswith(b"{") and not _LONG.search(sample)
    if not dialect.multiline and is_safe and not _is_deep(sample):
        # If a line is malformed, or a field has several types: parse each line.
        with suppress(pa.ArrowInvalid):
            if (table := read_objects(sample)) is not None:
                return without_times(pa.struct(list(table.schema)))
    texts = first_items(sample) if dialect.multiline else sample.splitlines()
    rows = (row for row in map(_json_line, texts) if isinstance(row, dict))
    types = (type_of(row, conflict, exact=True) for row in rows)
    return reduce(partial(merged_type, conflict=conflict), types, pa.struct([]))


def _is_deep(sample: bytes) -> bool:
    """Return whether a line is nested more deeply than types may be."""
    for line in sample.splitlines():
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            signs = np.frombuffer(_QUOTED.sub(b"", line), np.uint8)
            opened = (signs == ord("[")) | (signs == ord("{"))
            closed = (signs == ord("]")) | (signs == ord("}"))
            if (np.cumsum(opened, dtype=int) - np.cumsum(closed)).max(initial=0) > DEEPEST:
                return True
    return False


def to_schema(types: pa.StructType, conflict: pa.DataType = TEXT) -> Schema:
    """Return the schema of rows of these types, with all fields nullable.

    Objects without known fields get the type ``conflict``.
    """
    return from_arrow(pa.schema([_settled_field(field, conflict) for field in types]))


def grown(known: Schema, new: Schema) -> Schema:
    """Return ``known`` extended with the fields and wider types of ``new``.

    Types are widened if the SDK can; if there is no common type, the known type remains, and
    values that do not fit it are rejected individually.
    """
    fields = {field.name: field.schema for field in known.fields}
    for field in new.fields:
        before = fields.get(field.name)
        try:
            # A column never becomes a VARIANT later: the target could not follow.
            if before is not None and field.schema.name == Schema.variant().name:
                continue
            optional = field.schema.replaced(optional=True)
            fields[field.name] = optional if before is None else evolve(before, optional)
        except ConfigError:
            continue
    return known.with_fields(fields)


def _valid(sample: bytes, ends: CsvQuoting, *, header: bool) -> bytes:
    """Return a sample without the records that are not in UTF-8, which are rejected later."""
    try:
        sample.decode()
    except UnicodeDecodeError:
        records = ends.records(sample)
        names = [records.pop(0)] if header else []
        return b"".join([*names, *filter(_is_utf8, records)])
    return sample


def _is_utf8(record: bytes) -> bool:
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return True


def _csv(sample: bytes, dialect: Dialect, **converting: Any) -> pa.Table:
    read = pa_csv.ReadOptions(
        autogenerate_column_names=not dialect.header,
        block_size=len(sample) + 2,
        use_threads=False,
    )
    return dialect.table(sample, read, on_ragged=lambda _: "skip", **converting)


def _checked(
    types: dict[str, pa.DataType],
    names: Sequence[str],
    arrow_names: Sequence[str],
    sample: bytes,
    dialect: Dialect,
) -> dict[str, pa.DataType]:
    """Revert types inferred by Arrow that lose digits, and apply date and time patterns."""
    texts = dict.fromkeys(arrow_names, pa.string())
    numbers = [n for n, t in types.items() if pa.types.is_integer(t) or pa.types.is_floating(t)]
    if numbers:
        table = _csv(sample, dialect, column_types=texts).rename_columns(list(names))
        for name in numbers:
            odd = pc.match_substring_regex(table.column(name), _NO_NUMBER)
            if pc.any(odd).as_py():
                types[name] = pa.string()
            else:
                types[name] = _exact(table.column(name), types[name])
    if dialect.date_format or dialect.timestamp_format:
        table = _csv(sample, dialect, column_types=texts).rename_columns(list(names))
        for name, kind in types.items():
            if pa.types.is_string(kind) or pa.types.is_temporal(kind):
                types[name] = _of_pattern(table.column(name), kind, dialect)
    return types


def _of_pattern(texts: pa.ChunkedArray, guess: pa.DataType, dialect: Dialect) -> pa.DataType:
    """Return the type whose pattern all texts match; Arrow only infers ISO 8601."""
    filled = pc.if_else(pc.equal(texts, ""), None, texts)
    for kind in (pa.date32(), pa.timestamp("us")):
        if (pattern := dialect.pattern_of(kind)) is not None and filled.null_count < len(texts):
            try:
                pattern.read(filled, truncates=True)
            except pa.ArrowInvalid:
                continue
            return kind
    is_time = pa.types.is_temporal(guess)
    return TEXT if is_time and dialect.pattern_of(guess) is not None else guess


def _exact(texts: pa.ChunkedArray, guess: pa.DataType) -> pa.DataType:
    """Return a type for a column of numbers that does not round integers."""
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    digits = pc.max(pc.utf8_length(pc.if_else(whole, texts, ""))).as_py() or 0
    if digits < _EXACT_DIGITS:
        return guess
    if pc.all(whole).as_py():
        rounded = EXACT if pa.types.is_integer(guess) else LARGE
        return rounded if digits <= LARGE.precision else TEXT
    return TEXT


def _json_line(line: bytes | str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
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
    # A string accepts values of an unknown type.
    return pa.string()
