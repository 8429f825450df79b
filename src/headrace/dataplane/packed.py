"""Many streams at once: each packed row holds one Arrow batch as IPC bytes.

Types stay exact, and a stream's schema may change from one row to the next. Packed rows
never enter the JVM: executors read and write their Parquet files in Python, which spares
a copy each way and the JVM's memory, where a few rows of megabytes would fill a buffer
made for thousands.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.topics import packed_row_schema
from headrace.sdk import (
    conform,
    evolve,
    from_arrow,
    schema_from_json,
    schema_to_json,
    to_arrow,
    to_spark_json,
)
from headrace.sdk.delta import AddedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.topics import RowRange
    from headrace.sdk import Schema

_ROWS = to_arrow(packed_row_schema())
_MOST_ROWS = 65_536
"""Rows of one packed batch: larger ones are cut, so that no reader needs much memory."""
_READ_AT_ONCE = 8
"""How many packed rows of a file are in memory at a time."""
_DESCRIBED_AT_ONCE = 1024
"""The same without what they pack."""


@dataclass(frozen=True)
class Packed:
    """The rows of a range of many streams, in parts; each is read on an executor.

    Args:
        parts: What each Spark partition reads; plain values.
        read: Yields ``(stream, rows)`` of a part, oldest first.
        describe: Yields ``(stream, schema, number of rows)`` of a part, cheaply if it can.
    """

    parts: Sequence[Any]
    read: Callable[[Any], Iterator[tuple[str, pa.RecordBatch]]]
    describe: Callable[[Any], Iterator[tuple[str, pa.Schema, int]]]

    def streams(self, spark: SparkSession) -> list[Stream]:
        """Return the streams, with a schema that all rows of each fit into. Runs a job."""
        found: dict[str, Stream] = {}
        for name, schema, rows in over_parts(
            spark, self.parts, self._described, _STREAM
        ).collect():
            known = found.get(name)
            own = from_arrow(pa.ipc.read_schema(pa.py_buffer(bytes(schema))))
            merged = evolve(known.schema, own) if known else own
            found[name] = Stream(name, merged, rows + (known.rows if known else 0))
        return sorted(found.values(), key=lambda stream: stream.name)

    def rows(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """Return the rows of one stream, each column as its schema says."""
        name, arrow, read = stream.name, to_arrow(stream.schema), self.read

        def unpacked(part: Any) -> Iterator[pa.RecordBatch]:
            return (conform(batch, arrow) for of, batch in read(part) if of == name)

        types = T.StructType.fromJson(to_spark_json(stream.schema))
        return over_parts(spark, self.parts, unpacked, types)

    def stage(self, spark: SparkSession, table: Path, folder: Path) -> StagedPacked:
        """Write packed rows as Parquet files in ``folder`` of ``table``. Runs a job."""
        read, parts = self.read, dict(enumerate(self.parts))
        (table / folder).mkdir(parents=True, exist_ok=True)

        def staged(number: int) -> Iterator[pa.RecordBatch]:
            path = folder / f"part-{number:05d}-{uuid.uuid4().hex}.parquet"
            yield _write(read(parts[number]), table, path, number)

        files = over_parts(spark, list(parts), staged, _FILE).collect()
        schemas = [pair for file in files for pair in json.loads(file.schemas)]
        return StagedPacked(
            [AddedFile(file.path, file.size, file.rows) for file in files if file.rows],
            read=sum(file.read for file in files),
            written=sum(file.written for file in files),
            schemas=[(stream, schema_from_json(text)) for stream, text in schemas],
        )

    def _described(self, part: Any) -> Iterator[pa.RecordBatch]:
        totals: dict[tuple[str, pa.Schema], int] = {}
        for name, schema, rows in self.describe(part):
            totals[name, schema] = totals.get((name, schema), 0) + rows
        columns = {
            "stream": [name for name, _ in totals],
            "schema": [schema.serialize().to_pybytes() for _, schema in totals],
            "rows": list(totals.values()),
        }
        yield pa.RecordBatch.from_pydict(columns, schema=_DESCRIBED)


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its name, a schema that all its rows fit into, and how many there are."""

    name: str
    schema: Schema
    rows: int


@dataclass(frozen=True, slots=True)
class StagedPacked:
    """Staged files.

    Args:
        files: The files.
        read: The records read from the source.
        written: The records written to the files.
        schemas: Each stream with each schema that rows of it have, once for each file.
    """

    files: Sequence[AddedFile]
    read: int
    written: int
    schemas: Sequence[tuple[str, Schema]] = ()


_STREAM = "stream string, schema binary, rows bigint"
_DESCRIBED = pa.schema([("stream", pa.string()), ("schema", pa.binary()), ("rows", pa.int64())])
_FILE = "path string, size bigint, rows bigint, read bigint, written bigint, schemas string"


def packed_source(
    splits: Sequence[Any], read: Callable[[Any], Iterator[tuple[str, pa.RecordBatch]]]
) -> Packed:
    """Return the splits of a plugin; describing them reads them."""

    def describe(split: Any) -> Iterator[tuple[str, pa.Schema, int]]:
        return ((stream, batch.schema, batch.num_rows) for stream, batch in read(split))

    return Packed(splits, read, describe)


def packed_files(paths: Sequence[str], within: RowRange) -> Packed:
    """Return the packed rows of a range in Parquet files, in order, a part each."""
    return Packed([(path, within) for path in paths], _read_file, _describe_file)


def _read_file(part: tuple[str, RowRange]) -> Iterator[tuple[str, pa.RecordBatch]]:
    path, within = part
    schemas: dict[int, pa.Schema] = {}
    columns = ["stream", "schema_id", "schema", "payload"]
    for rows in within.read(Path(path), columns, _READ_AT_ONCE):
        for stream, schema_id, schema, payload in zip(*rows.columns, strict=True):
            number = schema_id.as_py()
            if number not in schemas:
                schemas[number] = pa.ipc.read_schema(schema.as_buffer())
            batch = pa.ipc.read_record_batch(payload.as_buffer(), schemas[number])
            yield stream.as_py(), batch


def _describe_file(part: tuple[str, RowRange]) -> Iterator[tuple[str, pa.Schema, int]]:
    path, within = part
    for batch in within.read(Path(path), ["stream", "schema", "rows"], _DESCRIBED_AT_ONCE):
        for stream, schema, rows in zip(*batch.columns, strict=True):
            yield stream.as_py(), pa.ipc.read_schema(schema.as_buffer()), rows.as_py()


def _write(
    batches: Iterable[tuple[str, pa.RecordBatch]], table: Path, path: Path, part: int
) -> pa.RecordBatch:
    """Write one file; return its figures as the one row of a batch."""
    read = written = rows = 0
    schemas: dict[tuple[str, pa.Schema], None] = {}
    # The payload is bytes already: a dictionary or statistics of it would only cost.
    plain = {"use_dictionary": ["stream", "schema_id", "schema"], "write_statistics": False}
    with pq.ParquetWriter(table / path, _ROWS, compression="lz4", **plain) as writer:
        for stream, batch in batches:
            read += batch.num_rows
            schemas[stream, batch.schema] = None
            for start in range(0, batch.num_rows, _MOST_ROWS):
                cut = batch.slice(start, _MOST_ROWS)
                writer.write_batch(_packed_row(stream, cut, (part << 33) + rows))
                written += cut.num_rows
                rows += 1
    size = (table / path).stat().st_size
    figures = {"path": path.as_posix(), "size": size, "rows": rows}
    told = [[stream, schema_to_json(from_arrow(schema))] for stream, schema in schemas]
    figures |= {"read": read, "written": written, "schemas": json.dumps(told)}
    return pa.RecordBatch.from_pylist([figures])


def _packed_row(stream: str, batch: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    schema = batch.schema.serialize().to_pybytes()
    digest = hashlib.blake2b(schema, digest_size=8).digest()
    row = {
        "stream": stream,
        "schema_id": int.from_bytes(digest, "big", signed=True),
        "schema": schema,
        "rows": batch.num_rows,
        "payload": batch.serialize().to_pybytes(),
        "offset": offset,
    }
    return pa.RecordBatch.from_pylist([row], schema=_ROWS)


def over_parts(
    spark: SparkSession,
    parts: Sequence[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: T.StructType | str,
) -> DataFrame:
    """Return a frame whose partition n holds what ``work`` yields for part n."""
    if not parts:
        return spark.createDataFrame([], schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(parts[number])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, schema)
