"""Many streams in one table: each packed row contains one Arrow batch as IPC bytes.

Types stay exact, and a stream's schema may change from one row to the next. Executors write
and read the files without Spark: rows that never enter the JVM save a copy each way, and the
JVM's memory, since a few rows of several megabytes would fill a buffer sized for thousands.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.dead_letters import RejectedFrame
from headrace.dataplane.failures import not_tolerated
from headrace.dataplane.python_frames import map_in_arrow
from headrace.dataplane.records import (
    ARROW_ERROR,
    NO_ERROR,
    Rejection,
    declared,
    frame_schema,
    over_each,
    over_parts,
    rejection,
    with_texts,
    with_variants,
)
from headrace.dataplane.sink_part import SinkPart, StagedRows, check_balance
from headrace.dataplane.topic_sinks import TopicWriter
from headrace.evolution import Evolution
from headrace.evolution.apply_arrow import Moves, json_text, moved_rows
from headrace.evolution.apply_sql import PLUGIN, STAGE
from headrace.model import Batch, Counts
from headrace.sdk import (
    ArrowParts,
    ConfigError,
    Mark,
    RecordError,
    Schema,
    SourceError,
    StreamRows,
    Type,
)
from headrace.sdk.arrow import conform, from_arrow, to_arrow
from headrace.sdk.delta import AddedFile, discard_staged, staging_folder
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sparktypes import to_spark_json
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


_NOT_PACKED = ("key", "headers", "timestamp", "partition")
"""The parts of a record that packed rows do not have."""


@dataclass(frozen=True)
class PackedRows:
    """The rows of a range of many streams, ready for packing.

    Args:
        parts: The input of each file; plain values.
        read: Reads a part, on an executor.
        frames: Streams that Spark reads.
    """

    parts: Sequence[Any]
    read: PackedRead
    frames: Sequence[FramedRows] = ()

    def stage(
        self, spark: SparkSession, table: Location, mark: Mark, moves: Moves
    ) -> StagedPacked:
        """Write packed rows as Parquet files in the attempt's folder of ``table``. Runs a job.

        Converts rows of the schemas in ``moves``, and counts rows that cannot be converted.
        """
        read, folder = self.read, staging_folder(mark)

        def staged(part: tuple[int, Any]) -> PackedFile:
            return write_file(read(part[1]), table, folder, part[0], moves)

        files = over_each(spark, list(enumerate(self.parts)), staged)
        of_frames = [frame.stage(table, folder, moves) for frame in self.frames]
        bad_parts = [self.parts[n] for n, file in enumerate(files) if file.rejected]
        bad_frames = [
            frame
            for frame, own in zip(self.frames, of_frames, strict=True)
            if any(file.rejected for file in own)
        ]
        files += chain.from_iterable(of_frames)
        brought = [pair for file in files for pair in file.schemas]
        return StagedPacked(
            [AddedFile(file.path, file.size, file.rows) for file in files if file.rows],
            read=sum(file.read for file in files),
            written=sum(file.written for file in files),
            brought=brought,
            schemas=[
                (pair[0], moves[pair].target if pair in moves else pair[1]) for pair in brought
            ],
            rejecting=replace(self, parts=bad_parts, frames=bad_frames),
            first=next((file.first for file in files if file.first), None),
        )

    def rejected(self, spark: SparkSession, moves: Moves) -> DataFrame:
        """Return the causes of rejected records, see ``rejected_rows``."""
        read = self.read

        def of_part(part: Any) -> Iterator[pa.RecordBatch]:
            return rejected_rows(read(part), moves)

        found = over_parts(spark, self.parts, of_part, REJECTED)
        for frame in self.frames:
            found = found.union(frame.rejected(moves))
        return found


@dataclass(frozen=True)
class FramedRows:
    """The rows of one stream that Spark reads, ready for packing.

    Args:
        value: The schema of its rows.
        frame: Columns ``value`` and ``error``.
    """

    stream: str
    value: Schema
    frame: DataFrame

    def stage(self, table: Location, folder: str, moves: Moves) -> list[PackedFile]:
        """Write the rows, one file per partition that has rows. Runs a job."""
        unpacked = self._unpacked()

        def staged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            number = context.partitionId()
            file = write_file(unpacked(batches), table, folder, number, moves)
            yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(file)]})

        rows = map_in_arrow(self.frame, staged, "file BINARY").collect()
        return [pickle.loads(row["file"]) for row in rows]  # noqa: S301 - our executors made it

    def rejected(self, moves: Moves) -> DataFrame:
        """See ``PackedRows.rejected``."""
        unpacked = self._unpacked()

        def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return rejected_rows(unpacked(batches), moves)

        return map_in_arrow(self.frame, found, REJECTED)

    def _unpacked(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[Unpacked]]:
        stream, arrow = self.stream, to_arrow(self.value.replaced(optional=False))

        def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[Unpacked]:
            for batch in batches:
                errors = batch.column("error")
                values = batch.column("value").filter(errors.is_null())
                if values.null_count:
                    problem = (
                        f"A record of {stream} has no value, but a topic of many streams "
                        "stores only values."
                    )
                    raise SourceError(problem, fix="Filter out records without a value.")
                rows = pa.RecordBatch.from_struct_array(values)
                yield stream, _with_schema(rows, arrow), errors.drop_null().to_pylist()

        return unpacked


@dataclass(frozen=True)
class Packed(PackedRows):
    """The rows of a range of many streams whose schemas are known only from the rows.

    Args:
        describe: Yields ``(stream, schema, number of rows)`` of a part, cheaply if possible.
    """

    describe: Callable[[Any], Iterator[tuple[str, pa.Schema, int]]] = field(kw_only=True)

    def streams(
        self,
        spark: SparkSession,
        apart: Callable[[Schema, Schema], bool] = lambda _before, _after: False,
    ) -> list[Stream]:
        """Return the streams, each with a schema that fits all its rows. Runs a job.

        Args:
            spark: The session.
            apart: Whether rows of a schema and of the next one must not be combined. The
                stream is then returned in several parts, in the order of its rows.
        """
        found: dict[str, list[Stream]] = {}
        last: dict[str, Schema] = {}
        described = over_each(spark, list(enumerate(self.parts)), self._described)
        for name, schema, rows, part, run in chain.from_iterable(described):
            own = from_arrow(schema)
            spans = found.setdefault(name, [])
            if spans and not apart(last[name], own) and not apart(spans[-1].schema, own):
                spans[-1] = spans[-1].plus(own, rows, (part, run))
            else:
                span = Stream(name, own, rows, frozenset({(part, run)}), len(spans))
                spans.append(span)
            last[name] = own
        return [span for name in sorted(found) for span in found[name]]

    def rows(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """Return the rows of one stream as records with the stream's schema."""
        name, arrow, read, runs = stream.name, to_arrow(stream.schema), self.read, stream.runs

        def unpacked(part: tuple[int, Any]) -> Iterator[pa.RecordBatch]:
            mine = (batch for of, batch, _ in read(part[1]) if of == name)
            numbered = _Run()
            for batch in mine:
                if (part[0], numbered.of(batch.schema)) in runs:
                    yield conform(batch, arrow)

        types = T.StructType.fromJson(to_spark_json(stream.schema))
        frame = over_parts(spark, list(enumerate(self.parts)), unpacked, types)
        records = with_variants(frame.selectExpr("struct(*) AS value"), stream.schema)
        # Spark's struct of columns has lost the schema's name and key.
        return declared(records, "value", stream.schema)

    def _described(self, part: tuple[int, Any]) -> list[tuple[str, pa.Schema, int, int, int]]:
        totals: dict[tuple[str, pa.Schema, int], int] = {}
        runs: dict[str, _Run] = {}
        for name, schema, rows in self.describe(part[1]):
            place = name, schema, runs.setdefault(name, _Run()).of(schema)
            totals[place] = totals.get(place, 0) + rows
        return [
            (name, schema, rows, part[0], run) for (name, schema, run), rows in totals.items()
        ]


class _Run:
    """Numbers the runs of consecutive rows with the same schema in a part of a stream."""

    def __init__(self) -> None:
        self._number = -1
        self._schema: pa.Schema | None = None

    def of(self, schema: pa.Schema) -> int:
        if self._schema is None or not schema.equals(self._schema, check_metadata=True):
            self._number, self._schema = self._number + 1, schema
        return self._number


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream, or some of its rows.

    Args:
        schema: A schema that fits all rows.
        rows: How many rows there are.
        runs: Where the rows are: pairs of a part number and a run number in that part.
        number: The number of this part of the stream, from 0.
    """

    name: str
    schema: Schema
    rows: int
    runs: frozenset[tuple[int, int]]
    number: int = 0

    def plus(self, schema: Schema, rows: int, run: tuple[int, int]) -> Stream:
        merged = evolve(self.schema, schema)
        runs = self.runs | {run}
        return replace(self, schema=merged, rows=self.rows + rows, runs=runs)


@dataclass(frozen=True, slots=True)
class StagedPacked:
    """Staged files.

    Args:
        brought: Each stream with each schema that its rows had when they were read, in order,
            once per file.
        schemas: The same with the schemas that the rows have in the files.
        rejecting: The parts and frames with rejected records.
        first: The cause of the first rejection.
    """

    files: Sequence[AddedFile]
    read: int
    written: int
    brought: Sequence[tuple[str, Schema]]
    schemas: Sequence[tuple[str, Schema]]
    rejecting: PackedRows
    first: Rejection | None = None

    @property
    def rejected(self) -> int:
        """How many records could not be read, or do not fit their target schema."""
        return self.read - self.written


def packed_source(
    splits: Sequence[Any], read: Callable[[Any], Iterator[tuple[str, pa.RecordBatch]]]
) -> Packed:
    """Return the packed rows of a plugin's splits; describing a split reads it."""

    def describe(split: Any) -> Iterator[tuple[str, pa.Schema, int]]:
        return ((stream, batch.schema, batch.num_rows) for stream, batch in read(split))

    def whole(split: Any) -> Iterator[Unpacked]:
        return ((stream, batch, ()) for stream, batch in read(split))

    return Packed(splits, whole, describe=describe)


def packed_streams(streams: Sequence[StreamRows]) -> PackedRows:
    """Return the rows of streams whose schemas are known.

    Raises ConfigError: a stream's records have parts other than a struct value.
    """
    parts: list[_StreamPart] = []
    frames: list[FramedRows] = []
    for name, rows in ((each.stream, each.rows) for each in streams):
        if isinstance(rows, ArrowParts):
            _require_plain(name, rows.schema, ())
            arrow = to_arrow(rows.schema)
            parts += [_StreamPart(name, arrow, rows.plugin, rows.read, p) for p in rows.parts]
        else:
            value = frame_schema(rows).field("value")
            assert value is not None
            _require_plain(name, value.schema, rows.columns)
            error = "error" if "error" in rows.columns else f"{NO_ERROR} AS error"
            frame = with_texts(rows, value.schema).selectExpr("value", error)
            frames.append(FramedRows(name, value.schema, frame))
    return PackedRows(parts, _StreamPart.unpacked, frames)


@dataclass(frozen=True, slots=True)
class _StreamPart:
    """One of a stream's Arrow parts, with its reader."""

    stream: str
    schema: pa.Schema
    plugin: str
    read: Callable[[Any], Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]]
    part: Any

    def unpacked(self) -> Iterator[Unpacked]:
        for rows, bad in self.read(self.part):
            errors = [rejection(self.plugin, *each) for each in bad]
            yield self.stream, _with_schema(rows, self.schema), errors


def _with_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the full schema: batches that fit may lack its metadata."""
    return pa.RecordBatch.from_arrays(conform(rows, schema).columns, schema=schema)


def _require_plain(stream: str, value: Schema, columns: Sequence[str]) -> None:
    more = [name for name in _NOT_PACKED if name in columns]
    if value.type is not Type.STRUCT:
        more = ["values without fields", *more]
    if more:
        raise ConfigError(
            problem=f"The records of {stream} have {' and '.join(more)}, which a topic of many "
            "streams cannot store.",
            fix="Write the records directly to sinks, without a topic, or route each stream to "
            "a topic of its own with a transform.",
            field="topic",
        )


def packed_files(files: Sequence[Location], within: RowRange) -> Packed:
    """Return the packed rows of a range in Parquet files, in order, one part per file."""
    parts = [(file, within) for file in files]
    return Packed(parts, read_file, describe=describe_file)


_LETTER = [
    f"CAST(NULL AS {kind}) AS {name}"
    for name, kind in {
        "key": "STRING",
        "value": "STRING",
        "headers": "ARRAY<STRUCT<key: STRING, value: STRING, type: STRING>>",
        "partition": "INT",
        "position": "ARRAY<BIGINT>",
        "raw_key": "BINARY",
        "raw_value": "BINARY",
    }.items()
]
"""The parts of a dead letter that a packed row does not have."""


@dataclass(frozen=True)
class PackedCopy:
    """Copies one batch of packed rows unchanged into topics, without the JVM."""

    spark: SparkSession
    packed: PackedRows
    evolution: Evolution
    batch: Batch

    def stage(self, part: SinkPart) -> StagedRows:
        """Stage the rows for one topic, with the topic's schemas.

        The needed schema changes are known only after all rows have been read. Usually no row
        has to change, or the changes are those of the batch before: then one pass is enough.
        """
        topic, number, mark = part.sink, part.target.number, part.mark
        assert isinstance(topic, TopicWriter)
        table = topic.packed_table()
        moves = self.evolution.guessed_moves(number)
        with ExitStack() as undo:
            undo.callback(discard_staged, table, mark)
            done = self.packed.stage(self.spark, table, mark, moves)
            brought = done.brought
            needed = self.evolution.stream_moves(topic.stream_schema, number, brought)
            if needed != {pair: moves[pair] for pair in brought if pair in moves}:
                discard_staged(table, mark)
                done = self.packed.stage(self.spark, table, mark, needed)
            if done.rejected and part.letters.letters is None:
                # Guarantee 4: a record that cannot be delivered stops its task.
                raise not_tolerated(json.dumps(done.first))
            counts = Counts(done.read, done.written, rejected=done.rejected)
            check_balance(counts, self.batch)
            undo.pop_all()
        write = topic.staged(mark, done.files, schemas=done.schemas)
        rejected = partial(self._rejected, done.rejecting, needed)
        return StagedRows(write=write, counts=counts, rejected=rejected)

    def _rejected(self, rows: PackedRows, moves: Moves) -> RejectedFrame:
        begun = int(self.batch.begun.timestamp() * 1_000_000)
        frame = rows.rejected(self.spark, moves).selectExpr(
            "stream AS topic",
            f"timestamp_micros({begun}) AS timestamp",
            "error",
            "IF(is_read, error, NULL) AS chain_error",
            *_LETTER,
        )
        return RejectedFrame(frame, Schema.string(optional=True), None)
