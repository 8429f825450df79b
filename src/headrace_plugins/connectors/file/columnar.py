"""DataFrames of records of Parquet and Avro files, read by Spark, or Parquet by Arrow.

Malformed rows are rejected and not lost. Arrow reads what Spark cannot read, or not without
loss: columns of the null type, half floats, times of day, nanoseconds, INT96 that Spark did not
write, decimals of variable length, names that differ only in case, and files compressed with
Brotli or Hadoop's LZ4. Arrow also reads files that have columns in the names of their folders,
as it is faster. Each of its parts is some row groups of files.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sdk import ArrowParts, Schema, SourceError, Type
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.location import Location
from headrace.sdk.sqltext import literal, quote, sql_type, sql_value
from headrace_plugins.connectors.file.folder_columns import filled, names_of, optional
from headrace_plugins.connectors.file.formats import PLUGIN
from headrace_plugins.connectors.file.listing import has_colon, spark_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import IO

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from headrace_plugins.connectors.file.formats import Format
    from headrace_plugins.connectors.file.listing import Group, NumberedFile


_QUOTED_IN_URI = re.compile(
    r"[^A-Za-z0-9_\-!.~'()*;/:@&=+$,\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e"
    r"\u2030-\u205e\u2060-\u2fff\u3001-\U0010ffff]"
)
"""Beyond ASCII, Java encodes spaces, line separators and control characters."""
_FILES_A_BUCKET = 4


def group_records(
    spark: SparkSession, group: Group, target: Schema, *, fmt: Format
) -> DataFrame:
    """Return one record for each row of Parquet or Avro files with the same schema.

    Values have the ``target`` schema: columns that the files lack are null.
    """
    reader = spark.read.format(fmt.value)
    if group.avro is not None:
        reader = reader.option("avroSchema", group.avro)
    reader = reader.schema(_ddl(_readable(group, target)))
    frame = reader.load([spark_path(file.path) for file in group.files])
    value = f"named_struct({_pairs(group, target)}) AS value"
    return frame.selectExpr(value, f"{position_sql(group.files)} AS position")


def no_records(spark: SparkSession, schema: Schema) -> DataFrame:
    """Return a frame without records."""
    return spark.createDataFrame([], _ddl(Schema.struct({"value": schema})))


def _ddl(schema: Schema) -> str:
    """Return the columns as DDL for Spark's reader, all nullable."""
    kinds = {f.name: sql_type(f.schema, local="TIMESTAMP_NTZ") for f in schema.fields}
    return ", ".join(f"{quote(name)} {kind}" for name, kind in kinds.items())


def position_sql(files: Sequence[NumberedFile]) -> str:
    """Return SQL that orders records by their files' order in the ledger.

    The SQL is an array of the file's number, the offset of Spark's part of the file, and a row
    count within that part. It costs nothing if it is not selected. ``_metadata`` would: Spark
    reads all of it, with a number for each row, even if it is not selected in the end.
    """
    rest = "input_file_block_start(), monotonically_increasing_id()"
    return f"array({_by_file({file: file.number for file in files})}, {rest})"


def _by_file(numbers: Mapping[NumberedFile, int]) -> str:
    """Return SQL that gives the number of the file that a record is from."""
    files = list(numbers)
    if len({*numbers.values()}) == 1:
        return f"{numbers[files[0]]}L"
    # Spark searches a map linearly, so there are many small maps.
    empty = "'', 0L"
    buckets: list[list[str]] = [[] for _ in range(-(-len(files) // _FILES_A_BUCKET))]
    for file in files:
        uri = _uri(file.path)
        pair = f"{literal(uri)}, {numbers[file]}L"
        buckets[zlib.crc32(uri.encode()) % len(buckets)].append(pair)
    maps = ", ".join(f"map({', '.join(b) or empty})" for b in buckets)
    # Hadoop writes either file:/ or file:///.
    begin = len(Location.of(files[0].path).scheme) + 2
    uri_sql = f"ltrim('/', substring(input_file_name(), {begin}))"
    bucket = f"CAST(crc32(CAST({uri_sql} AS BINARY)) % {len(buckets)} AS INT)"
    return f"try_element_at(array({maps})[{bucket}], {uri_sql})"


def _uri(path: str) -> str:
    """Return a location as in Hadoop's URIs, after the first slashes.

    Java percent-encodes the characters that the pattern matches, and no others.
    """
    place = Location.of(path)
    return _QUOTED_IN_URI.sub(
        lambda found: "".join(f"%{byte:02X}" for byte in found.group(0).encode()),
        f"{place.authority}{place.path}".lstrip("/"),
    )


def _readable(group: Group, target: Schema) -> Schema:
    """Return the types to read with: the file's own, but the target's for nested columns."""
    found = group.schema
    fields = {}
    for field in found.fields:
        same = target.field(field.name)
        nested = field.schema.type in {Type.STRUCT, Type.ARRAY, Type.MAP}
        fields[field.name] = same.schema if same and nested else field.schema
    fields |= dict.fromkeys(group.millis, Schema.int32(optional=True))
    return found.with_fields({n: kind for n, kind in fields.items() if n not in group.absent})


def _pairs(group: Group, target: Schema) -> str:
    read, folders = _readable(group, target), _folder_values(group, target)
    pairs = []
    for field in target.fields:
        kind = sql_type(field.schema)
        have = read.field(field.name)
        if field.name in folders:
            sql = folders[field.name]
        elif have is None:
            sql = f"CAST(NULL AS {kind})"
        elif field.name in group.millis:
            sql = f"CAST(CAST({quote(field.name)} AS BIGINT) * 1000 AS {kind})"
        elif _kind(have.schema) == _kind(field.schema):
            sql = quote(field.name)
        else:
            sql = f"CAST({quote(field.name)} AS {kind})"
        pairs.append(f"{literal(field.name)}, {sql}")
    return ", ".join(pairs)


def _folder_values(group: Group, target: Schema) -> dict[str, str]:
    """Return SQL for the columns whose values are in the names of the files' folders."""
    if not group.folders:
        return {}
    names = {name for row in group.folders.values() for name in row.schema.names}
    fields = [field for field in target.fields if field.name in names]
    numbers: dict[NumberedFile, int] = {}
    rows: dict[tuple[str, ...], int] = {}
    for file in group.files:
        folders = group.folders.get(file.number)
        [row] = [{}] if folders is None else folders.to_pylist()
        texts = tuple(sql_value(f.schema, row.get(f.name)) for f in fields)
        numbers[file] = rows.setdefault(texts, len(rows))
    which = _by_file(numbers)
    columns = zip(fields, zip(*rows, strict=True), strict=True)
    return {field.name: f"array({', '.join(texts)})[{which}]" for field, texts in columns}


def _kind(schema: Schema) -> tuple[object, ...]:
    return schema.type, schema.name, schema.parameters


_PART_BYTES = 128 * 1024 * 1024
_PART_GROUPS = 256
_BATCH_ROWS = 64 * 1024
_MICRO = 1000
_ARROWS_CODECS = {"BROTLI", "UNKNOWN"}
"""Codecs that Spark does not support; Arrow reports Hadoop's LZ4 as unknown, but reads it."""
_LONG_DIGITS = 18
_VERSION, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"
_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of a file."""

    path: str
    numbers: list[int]
    folders: pa.RecordBatch | None = None
    """The values in the names of the file's folders, as a row."""


def parquet_parts(groups: Sequence[Group], schema: Schema, *, truncates: bool) -> ArrowParts:
    """Return the rows of Parquet files in the files' order.

    Rows with a time of more than microsecond precision are rejected, unless ``truncates``.
    """
    files = [(file, group.folders.get(file.number)) for group in groups for file in group.files]
    files.sort(key=lambda each: each[0].number)
    parts = [*_parts((file.path, folders) for file, folders in files)]
    return ArrowParts(schema, parts, ParquetReader(schema, truncates=truncates).read, PLUGIN)


def needs_arrow(file: pq.ParquetFile, path: str) -> bool:
    """Return whether Spark cannot read a file, or some column of it without loss.

    Raises SourceError for a file that Arrow cannot read either.
    """
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    codecs = _codecs(file.metadata)
    if "LZO" in codecs:
        problem = f"{path} is compressed with LZO, which neither Spark nor Arrow supports."
        raise SourceError(problem, fix="Write it with another compression, such as ZSTD.")
    if has_colon(path) or codecs & _ARROWS_CODECS or any(map(_is_variable_decimal, columns)):
        return True
    # Spark truncates the nanoseconds of INT96. It reads INT96 that Spark wrote correctly: that
    # has no nanoseconds, and old versions wrote days of the Julian calendar.
    if has_int96(file) and _OF_SPARK not in (file.metadata.metadata or {}):
        return True
    return _is_odd(pa.struct(list(columns_of(file))))


def may_use_arrow(file: pq.ParquetFile) -> bool:
    """Return whether Arrow reads the same times as Spark.

    Old versions of Spark wrote days of the Julian calendar, which Arrow does not convert.
    """
    facts = file.metadata.metadata or {}
    is_old = _LEGACY in facts or facts.get(_VERSION, b"3") < b"3"
    return not is_old and not has_int96(file)


def has_int96(file: pq.ParquetFile) -> bool:
    """Return whether a column is INT96: the times of Hive, Impala and old versions of Spark."""
    return "INT96" in _leaves(file)


def _leaves(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(number).physical_type for number in range(len(file.schema))]


def columns_of(file: pq.ParquetFile) -> pa.Schema:
    """Return a file's columns, with INT96 as instants, as all writers of INT96 intend.

    Arrow reads INT96 without a zone, as local times.
    """
    found = file.schema_arrow.remove_metadata()
    if not has_int96(file):
        return found
    rest = iter(_leaves(file))
    return pa.schema([field.with_type(_zoned(field.type, rest)) for field in found])


def _zoned(arrow: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return a type with the UTC zone for each leaf whose next physical type is INT96."""
    fields = [arrow.field(number) for number in range(arrow.num_fields)]
    if not fields:
        return pa.timestamp("us", "UTC") if next(leaves) == "INT96" else arrow
    fields = [field.with_type(_zoned(field.type, leaves)) for field in fields]
    if pa.types.is_struct(arrow):
        return pa.struct(fields)
    if pa.types.is_map(arrow):
        entries = fields[0].type
        return pa.map_(entries.field(0), entries.field(1))
    return pa.list_(fields[0])


def _codecs(metadata: pq.FileMetaData) -> set[str]:
    if not metadata.num_row_groups:
        return set()
    group = metadata.row_group(0)
    return {group.column(number).compression for number in range(group.num_columns)}


def _is_variable_decimal(column: pq.ColumnSchema) -> bool:
    """Return whether the column is a kind of decimal whose dictionaries Spark cannot read."""
    is_short = column.logical_type.type == "DECIMAL" and column.precision <= _LONG_DIGITS
    return bool(is_short and column.physical_type == "BYTE_ARRAY")


def _is_odd(arrow: pa.DataType) -> bool:
    fields = [arrow.field(number) for number in range(arrow.num_fields)]
    names = Counter(field.name.lower() for field in fields)
    if pa.types.is_struct(arrow) and len(names) < len(fields):
        return True
    if pa.types.is_timestamp(arrow):
        return bool(arrow.unit == "ns")
    odd = (pa.types.is_null, pa.types.is_float16, pa.types.is_time)
    return any(test(arrow) for test in odd) or any(_is_odd(field.type) for field in fields)


def _parts(
    files: Iterable[tuple[str, pa.RecordBatch | None]],
) -> Iterator[list[RowGroups]]:
    """Yield the row groups of each part."""
    part: list[RowGroups] = []
    size = count = 0
    for path, folders in files:
        with Location.of(path).open_input() as file:
            metadata = pq.read_metadata(file)
        for number in range(metadata.num_row_groups):
            own = metadata.row_group(number).total_byte_size
            if part and (size + own > _PART_BYTES or count == _PART_GROUPS):
                yield part
                part, size, count = [], 0, 0
            if not part or part[-1].path != path:
                part.append(RowGroups(path, [], folders))
            part[-1].numbers.append(number)
            size, count = size + own, count + 1
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Reads row groups on executors."""

    schema: Schema
    truncates: bool

    def read(
        self, part: Sequence[RowGroups]
    ) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        """Yield rows, and the rows that would lose precision, each with the reason."""
        for groups in part:
            yield from self._read(groups)

    def _read(self, part: RowGroups) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        target = to_arrow(optional(self.schema, names_of(part.folders)))
        try:
            with Location.of(part.path).open_input() as file:
                for batch, exact in _batches(file, part.numbers, target.names):
                    good, rejected = (batch, []) if self.truncates else _divided(batch, exact)
                    yield (
                        filled(conform(good, target), part.folders, self.schema),
                        [(raw, f"{reason}. {part.path}.") for raw, reason in rejected],
                    )
        except (OSError, pa.ArrowInvalid) as error:
            problem = f"{part.path} cannot be read: {error}"
            raise SourceError(problem, fix="Repair or delete the file.") from error


def _batches(
    file: IO[bytes], numbers: Sequence[int], wanted: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield rows, and the same rows with INT96 in full precision.

    Arrow's nanoseconds have no times before 1677 and after 2262: such INT96 values overflow.
    """
    source = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    names = source.schema_arrow.names
    # A dot would mean a field of a struct.
    columns = None if "." in "".join(names) else [n for n in names if n in wanted]
    batches = source.iter_batches(_BATCH_ROWS, row_groups=numbers, columns=columns)
    if not has_int96(source):
        yield from ((batch, batch) for batch in batches)
        return
    exact = pq.ParquetFile(file).iter_batches(_BATCH_ROWS, row_groups=numbers, columns=columns)
    yield from zip(batches, exact, strict=True)


def _divided(
    batch: pa.RecordBatch, exact: pa.RecordBatch
) -> tuple[pa.RecordBatch, list[tuple[str, str]]]:
    """Return the rows whose times fit microseconds, and the others with the reason."""
    bad = np.zeros(batch.num_rows, bool)
    for column, finer in zip(batch.columns, exact.columns, strict=True):
        if (lost := _lost(column, finer)) is not None:
            bad |= lost
    if not bad.any():
        return batch, []
    reason = "A time has nanoseconds; set timestamp.nanos to truncate to remove them"
    rows = exact.filter(pa.array(bad)).to_pylist()
    rejected = [(json.dumps(row, default=str), reason) for row in rows]
    return batch.filter(pa.array(~bad)), rejected


def _lost(values: pa.Array, exact: pa.Array) -> NDArray[np.bool_] | None:
    """Return which values have nanoseconds, at any depth; None if the type has none.

    Exact INT96 values may have overflowed, so they are compared with ``values``.
    """
    kind = exact.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        if kind.unit != "ns":
            return None
        count = np.asarray(pc.fill_null(exact.view(pa.int64()), 0))
        if values.type == kind:
            return np.asarray(count % _MICRO != 0)
        micros = np.asarray(pc.fill_null(values.view(pa.int64()), 0))
        return np.asarray(count != micros * _MICRO)
    if pa.types.is_struct(kind):
        pairs = [(values.field(n), exact.field(n)) for n in range(kind.num_fields)]
        found = [part for pair in pairs if (part := _lost(*pair)) is not None]
        if not found:
            return None
        return np.asarray(np.logical_or.reduce(found) & np.asarray(values.is_valid()))
    if not hasattr(kind, "value_field") or pa.types.is_map(kind):
        return None
    items = _lost(pc.list_flatten(values), pc.list_flatten(exact))
    if items is None:
        return None
    lost = np.zeros(len(values), bool)
    lost[np.asarray(pc.list_parent_indices(values))[items]] = True
    return lost
