"""DataFrames of records from files, in which malformed rows are rejected and not lost."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from headrace.sdk import Schema, Type
from headrace.sdk.location import Location
from headrace.sdk.sqltext import literal, quote, sql_type, sql_value
from headrace_plugins.connectors.file.listing import spark_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace_plugins.connectors.file.formats import Format
    from headrace_plugins.connectors.file.listing import Group, NumberedFile


PLUGIN = "file"
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
