"""Writes and reads files of packed rows on executors, without Spark.

Packed rows never enter the JVM. That saves a copy each way, and the JVM's memory: a few rows of
several megabytes would fill a buffer that is sized for thousands of rows.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.dataplane.records import ARROW_ERROR, Rejection
from headrace.evolution.apply_arrow import Moves, json_text, moved_rows
from headrace.evolution.apply_sql import PLUGIN, STAGE
from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import from_arrow, to_arrow
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.location import Location
from headrace.topics import RowRange, packed_row_schema

_ROWS = to_arrow(packed_row_schema())
_MOST_ROWS = 65_536
"""The most rows of a packed batch; larger batches are split to limit the readers' memory."""
_READ_AT_ONCE = 8
"""How many packed rows of a file are in memory at a time."""
_DESCRIBED_AT_ONCE = 1024
"""The same if their payload is not read."""

Unpacked: TypeAlias = tuple[str, pa.RecordBatch, Sequence[Rejection]]
"""A stream, some of its rows, and the rejections of records that could not be read as rows."""
PackedRead: TypeAlias = Callable[[Any], Iterator[Unpacked]]
"""Reads a part on an executor, oldest first."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file of packed rows.

    Args:
        read: How many records were read, including those that are not in the file.
        schemas: The streams of its rows with their schemas as read.
    """

    path: str
    size: int
    rows: int
    read: int
    written: int
    schemas: Sequence[tuple[str, Schema]]
    first: Rejection | None

    @property
    def rejected(self) -> int:
        return self.read - self.written


class _Schemas:
    """Caches the schemas of Arrow batches."""

    def __init__(self) -> None:
        self._known: dict[pa.Schema, Schema] = {}

    def of(self, arrow: pa.Schema) -> Schema:
        if arrow not in self._known:
            self._known[arrow] = from_arrow(arrow)
        return self._known[arrow]


def read_file(part: tuple[Location, RowRange]) -> Iterator[Unpacked]:
    """Yield the rows of a file in a range, in order."""
    file, within = part
    schemas: dict[int, pa.Schema] = {}
    columns = ["stream", "schema_id", "schema", "payload"]
    for rows in within.read(file, columns, _READ_AT_ONCE):
        for stream, schema_id, schema, payload in zip(*rows.columns, strict=True):
            number = schema_id.as_py()
            if number not in schemas:
                schemas[number] = pa.ipc.read_schema(schema.as_buffer())
            batch = pa.ipc.read_record_batch(payload.as_buffer(), schemas[number])
            yield stream.as_py(), batch, ()


def describe_file(part: tuple[Location, RowRange]) -> Iterator[tuple[str, pa.Schema, int]]:
    """Yield the stream, the schema and the number of rows of each packed row in a range."""
    file, within = part
    for batch in within.read(file, ["stream", "schema", "rows"], _DESCRIBED_AT_ONCE):
        for stream, schema, rows in zip(*batch.columns, strict=True):
            yield stream.as_py(), pa.ipc.read_schema(schema.as_buffer()), rows.as_py()


def write_file(
    batches: Iterable[Unpacked],
    table: Location,
    folder: str,
    part: int,
    moves: Moves,
) -> PackedFile:
    """Write one file of the folder; delete it if it has no rows."""
    path = f"{folder}/part-{part:05d}-{uuid.uuid4().hex}.parquet"
    read = written = rows = 0
    first: Rejection | None = None
    known = _Schemas()
    schemas: dict[tuple[str, Schema], None] = {}
    # The payload is opaque bytes: a dictionary or statistics would cost and not help.
    plain = {"use_dictionary": ["stream", "schema_id", "schema"], "write_statistics": False}
    with (
        (table / path).open_output() as file,
        pq.ParquetWriter(file, _ROWS, compression="lz4", **plain) as writer,
    ):
        for stream, batch, errors in batches:
            read += batch.num_rows + len(errors)
            bad = list(errors)
            if batch.num_rows:
                pair = stream, known.of(batch.schema)
                schemas[pair] = None
                good = [batch]
                if (move := moves.get(pair)) is not None:
                    good, refused = moved_rows(batch, move)
                    bad += _misfits(batch, refused[:1])
                for cut in _cut(good):
                    writer.write_batch(_packed_row(stream, cut, (part << 33) + rows))
                    written += cut.num_rows
                    rows += 1
            first = first or next(iter(bad), None)
        writer.close()
        size = file.tell()
    if not rows:
        (table / path).delete()
    return PackedFile(path, size, rows, read, written, list(schemas), first)


def _misfits(
    batch: pa.RecordBatch, refused: Iterable[tuple[int, RecordError]]
) -> list[Rejection]:
    return [
        {
            "stage": STAGE,
            "plugin": PLUGIN,
            "exception": "RecordError",
            "message": error.problem,
            "raw": json_text(batch.slice(at, 1).to_pylist()[0]),
        }
        for at, error in refused
    ]


REJECTED = f"stream STRING, error {ERROR_TYPE}, is_read BOOLEAN"
"""The columns of ``rejected_rows``; ``is_read``: whether the reader rejected the record."""


def rejected_rows(batches: Iterable[Unpacked], moves: Moves) -> Iterator[pa.RecordBatch]:
    """Yield the causes of rejected records, from their reader or from the moves."""
    known = _Schemas()
    for stream, batch, errors in batches:
        move = moves.get((stream, known.of(batch.schema)))
        misfits = [] if move is None else _misfits(batch, moved_rows(batch, move)[1])
        for found, is_read in ((errors, True), (misfits, False)):
            if found:
                columns = [
                    pa.array([stream] * len(found)),
                    pa.array(found, ARROW_ERROR),
                    pa.array([is_read] * len(found)),
                ]
                yield pa.RecordBatch.from_arrays(columns, ["stream", "error", "is_read"])


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _MOST_ROWS):
            yield batch.slice(start, _MOST_ROWS)


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
