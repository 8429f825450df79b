"""Rows of files as other readers give them, in plain values that can be compared."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import fastavro._read_py as fastavro  # its compiled twin has no codecs that can be added
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Rows = list[Any]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def plain(values: pa.Array) -> Rows:
    """Return values of Arrow; times are counted in microseconds, and dates in days."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays([pa.array([], values.type), *values.chunks])
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(values.storage)
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary_decode())
    if pa.types.is_struct(kind):
        fields = [plain(field) for field in values.flatten()]
        names = [field.name for field in kind]
        rows = zip(*fields, strict=True) if fields else [()] * len(values)
        made = [dict(zip(names, row, strict=True)) for row in rows]
        return _where_valid(values, made)
    if pa.types.is_map(kind):
        return [None if v is None else dict(v) for v in _lists(values, _pairs(values))]
    if pa.types.is_fixed_size_list(kind):
        return plain(values.cast(pa.list_(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(values, plain(values.values))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _numbers(values)
    return [comparable(value) for value in values.to_pylist()]


def _where_valid(values: pa.Array, made: Rows) -> Rows:
    return [
        v if ok else None for v, ok in zip(made, values.is_valid().to_pylist(), strict=True)
    ]


def _pairs(values: pa.MapArray) -> Rows:
    return list(zip(plain(values.keys), plain(values.items), strict=True))


def _lists(values: pa.Array, items: Rows) -> Rows:
    ends = values.offsets.to_pylist()
    made = [items[start:end] for start, end in pairwise(ends)]
    return _where_valid(values, made)


def _numbers(values: pa.Array) -> Rows:
    kind = values.type
    if pa.types.is_date(kind):
        return list(values.cast(pa.date32()).cast(pa.int32()).to_pylist())
    micros = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")
    return list(pc.cast(values, micros, safe=False).cast(pa.int64()).to_pylist())


def comparable(value: Any) -> Any:
    """Return a value of Python's in the form of ``plain``."""
    match value:
        case dict():
            return {key: comparable(item) for key, item in value.items()}
        case list() | tuple():
            return [comparable(item) for item in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else str(value).replace("inf", "Infinity")
        case dt.date() | dt.time():
            return _count(value)
        case uuid.UUID():
            return str(value)
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return value


def _count(time: dt.date | dt.time) -> int:
    if isinstance(time, dt.time):
        time = dt.datetime.combine(_EPOCH, time, dt.UTC)
    if not isinstance(time, dt.datetime):
        return time.toordinal() - _EPOCH.toordinal()
    aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


def same(ours: Any, theirs: Any) -> bool:
    """Return whether values are the same, as far as both can say what they are.

    A text may be the JSON of another value, sixteen bytes a UUID, and a union of Avro's a
    struct with a member for each of its types.
    """
    if isinstance(ours, dict) and ours and all(str(name).startswith("member") for name in ours):
        found = [value for value in ours.values() if value is not None]
        return same(found[0] if found else None, theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = {*ours, *theirs}
        return all(same(ours.get(name), theirs.get(name)) for name in names)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, str) and not isinstance(theirs, str) and theirs is not None:
        try:
            return bool(comparable(json.loads(ours)) == theirs)
        except ValueError:
            return False
    if isinstance(ours, bytes) and isinstance(theirs, str):
        return ours.hex() == theirs.replace("-", "")
    return bool(ours == theirs)


def by_pyarrow(path: Path) -> Rows:
    """Return the rows of a Parquet file."""
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        return _rows(file.read())


def by_duckdb(path: Path) -> Rows:
    """Return the rows of a Parquet file."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        name = str(path).replace("'", "''")
        found = connection.sql(f"SELECT * FROM read_parquet('{name}')")  # noqa: S608
        return _rows(found.to_arrow_table())


def _rows(table: pa.Table) -> Rows:
    columns = [plain(column) for column in table.columns]
    rows = zip(*columns, strict=True) if columns else ()
    return [dict(zip(table.column_names, row, strict=True)) for row in rows]


def by_fastavro(path: Path) -> Rows:
    """Return the records of an Avro file."""
    with path.open("rb") as file:
        return [comparable(record) for record in fastavro.reader(file)]


def _snappy(decoder: Any) -> io.BytesIO:
    """Return the next block of an Avro file that Snappy compressed; a checksum follows it."""
    length = fastavro.read_long(decoder)
    data = decoder.read_fixed(length - 4)
    decoder.read_fixed(4)
    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return io.BytesIO(pa.Codec("snappy").decompress(data, size, asbytes=True))


fastavro.BLOCK_READERS["snappy"] = _snappy


def by_csv(path: Path, delimiter: str) -> tuple[list[str], Rows, int]:
    """Return the header, the rows of its length, and how many others there are."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode()
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header, *found = [row for row in rows if row] or [[]]
    good = [row for row in found if len(row) == len(header)]
    return header, good, len(found) - len(good)


def by_json(path: Path) -> tuple[Rows, int]:
    """Return the objects that are lines, and how many other lines there are."""
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    rows = []
    for line in lines:
        try:
            row = json.loads(line.removeprefix(b"\xef\xbb\xbf").decode())
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(comparable(row))
    return rows, len(lines) - len(rows)
