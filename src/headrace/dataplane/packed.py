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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.dead_letters import RejectedFrame
from headrace.dataplane.delivery import SinkPart, StagedRows, check_balance
from headrace.dataplane.records import over_parts
from headrace.dataplane.topic_sinks import TopicWriter
from headrace.evolution import Evolution
from headrace.evolution.apply_arrow import MISFIT, Moves, misfit_rows, moved_rows
from headrace.evolution.apply_sql import PLUGIN, STAGE
from headrace.model import Batch, Counts, ToleranceExceededError
from headrace.sdk import Mark, Schema
from headrace.sdk.arrow import conform, from_arrow, to_arrow
from headrace.sdk.delta import AddedFile, discard_staged, staging_folder
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sparktypes import schema_from_json, schema_to_json, to_spark_json
from headrace.sdk.sqltext import literal
from headrace.topics import RowRange, packed_row_schema

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

    def streams(
        self,
        spark: SparkSession,
        apart: Callable[[Schema, Schema], bool] = lambda _before, _after: False,
    ) -> list[Stream]:
        """Return the streams, with a schema that all rows of each fit into. Runs a job.

        Args:
            spark: The session.
            apart: Says of a schema and the one after it that rows of both must not be taken
                together. The stream then comes several times, in the order of its rows.
        """
        parts, kind = list(enumerate(self.parts)), _STREAM
        found: dict[str, list[Stream]] = {}
        last: dict[str, Schema] = {}
        for name, schema, rows, part, run in over_parts(
            spark, parts, self._described, kind
        ).collect():
            own = from_arrow(pa.ipc.read_schema(pa.py_buffer(bytes(schema))))
            spans = found.setdefault(name, [])
            if spans and not apart(last[name], own) and not apart(spans[-1].schema, own):
                spans[-1] = spans[-1].plus(own, rows, (part, run))
            else:
                span = Stream(name, own, rows, frozenset({(part, run)}), len(spans))
                spans.append(span)
            last[name] = own
        return [span for name in sorted(found) for span in found[name]]

    def rows(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """Return the rows of one stream, each column as its schema says."""
        name, arrow, read, runs = stream.name, to_arrow(stream.schema), self.read, stream.runs

        def unpacked(part: tuple[int, Any]) -> Iterator[pa.RecordBatch]:
            mine = (batch for of, batch in read(part[1]) if of == name)
            numbered = _Run()
            for batch in mine:
                if (part[0], numbered.of(batch.schema)) in runs:
                    yield conform(batch, arrow)

        types = T.StructType.fromJson(to_spark_json(stream.schema))
        return over_parts(spark, list(enumerate(self.parts)), unpacked, types)

    def misfits(self, spark: SparkSession, moves: Moves) -> DataFrame:
        """Return the rows that the moves refuse, see ``misfit_rows``."""
        read = self.read

        def refused(part: Any) -> Iterator[pa.RecordBatch]:
            known = _Schemas()
            for stream, batch in read(part):
                move = moves.get((stream, known.of(batch.schema)))
                if move is not None:
                    yield misfit_rows(stream, batch, move)

        return over_parts(spark, self.parts, refused, MISFIT)

    def stage(
        self, spark: SparkSession, table: Location, mark: Mark, moves: Moves
    ) -> StagedPacked:
        """Write packed rows as Parquet files in the attempt's folder of ``table``. Runs a job.

        Rows of the schemas in ``moves`` are given others; those that cannot are counted.
        """
        read, parts, folder = self.read, dict(enumerate(self.parts)), staging_folder(mark)

        def staged(number: int) -> Iterator[pa.RecordBatch]:
            path = f"{folder}/part-{number:05d}-{uuid.uuid4().hex}.parquet"
            yield _write(read(parts[number]), table, path, number, moves)

        files = over_parts(spark, list(parts), staged, _FILE).collect()
        pairs = [pair for file in files for pair in json.loads(file.schemas)]
        brought = [(stream, schema_from_json(text)) for stream, text in pairs]
        return StagedPacked(
            [AddedFile(file.path, file.size, file.rows) for file in files if file.rows],
            read=sum(file.read for file in files),
            written=sum(file.written for file in files),
            brought=brought,
            schemas=[
                (pair[0], moves[pair].target if pair in moves else pair[1]) for pair in brought
            ],
            misfit=next((file.misfit for file in files if file.misfit), ""),
        )

    def _described(self, part: tuple[int, Any]) -> Iterator[pa.RecordBatch]:
        totals: dict[tuple[str, pa.Schema, int], int] = {}
        runs: dict[str, _Run] = {}
        for name, schema, rows in self.describe(part[1]):
            place = name, schema, runs.setdefault(name, _Run()).of(schema)
            totals[place] = totals.get(place, 0) + rows
        columns = {
            "stream": [name for name, _, _ in totals],
            "schema": [schema.serialize().to_pybytes() for _, schema, _ in totals],
            "rows": list(totals.values()),
            "part": [part[0]] * len(totals),
            "run": [run for _, _, run in totals],
        }
        yield pa.RecordBatch.from_pydict(columns, schema=_DESCRIBED)


class _Run:
    """Numbers the runs of rows with one schema in a part of a stream."""

    def __init__(self) -> None:
        self._number = -1
        self._schema: pa.Schema | None = None

    def of(self, schema: pa.Schema) -> int:
        if self._schema is None or not schema.equals(self._schema, check_metadata=True):
            self._number, self._schema = self._number + 1, schema
        return self._number


class _Schemas:
    """The schemas of Arrow batches, each read once."""

    def __init__(self) -> None:
        self._known: dict[pa.Schema, Schema] = {}

    def of(self, arrow: pa.Schema) -> Schema:
        if arrow not in self._known:
            self._known[arrow] = from_arrow(arrow)
        return self._known[arrow]


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream, or some of its rows.

    Args:
        schema: A schema that all the rows fit into.
        rows: How many there are.
        runs: Where they are: the numbers of a part, and of a run of one schema in it.
        number: Which of the stream's several this is.
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
        brought: Each stream with each schema that rows of it had, in their order, once for
            each file.
        schemas: The same with the schemas that the rows have in the files.
        misfit: Why the first of those was rejected that do not fit.
    """

    files: Sequence[AddedFile]
    read: int
    written: int
    brought: Sequence[tuple[str, Schema]]
    schemas: Sequence[tuple[str, Schema]]
    misfit: str = ""

    @property
    def rejected(self) -> int:
        """Return how many records do not fit the schemas that they were to be given."""
        return self.read - self.written


_STREAM = "stream string, schema binary, rows bigint, part bigint, run bigint"
_NUMBERS = [(name, pa.int64()) for name in ("rows", "part", "run")]
_DESCRIBED = pa.schema([("stream", pa.string()), ("schema", pa.binary()), *_NUMBERS])
_FILE = (
    "path string, size bigint, rows bigint, read bigint, written bigint, schemas string, "
    "misfit string"
)


def packed_source(
    splits: Sequence[Any], read: Callable[[Any], Iterator[tuple[str, pa.RecordBatch]]]
) -> Packed:
    """Return the splits of a plugin; describing them reads them."""

    def describe(split: Any) -> Iterator[tuple[str, pa.Schema, int]]:
        return ((stream, batch.schema, batch.num_rows) for stream, batch in read(split))

    return Packed(splits, read, describe)


def packed_files(files: Sequence[Location], within: RowRange) -> Packed:
    """Return the packed rows of a range in Parquet files, in order, a part each."""
    return Packed([(file, within) for file in files], _read_file, _describe_file)


def _read_file(part: tuple[Location, RowRange]) -> Iterator[tuple[str, pa.RecordBatch]]:
    file, within = part
    schemas: dict[int, pa.Schema] = {}
    columns = ["stream", "schema_id", "schema", "payload"]
    for rows in within.read(file, columns, _READ_AT_ONCE):
        for stream, schema_id, schema, payload in zip(*rows.columns, strict=True):
            number = schema_id.as_py()
            if number not in schemas:
                schemas[number] = pa.ipc.read_schema(schema.as_buffer())
            batch = pa.ipc.read_record_batch(payload.as_buffer(), schemas[number])
            yield stream.as_py(), batch


def _describe_file(part: tuple[Location, RowRange]) -> Iterator[tuple[str, pa.Schema, int]]:
    file, within = part
    for batch in within.read(file, ["stream", "schema", "rows"], _DESCRIBED_AT_ONCE):
        for stream, schema, rows in zip(*batch.columns, strict=True):
            yield stream.as_py(), pa.ipc.read_schema(schema.as_buffer()), rows.as_py()


def _write(
    batches: Iterable[tuple[str, pa.RecordBatch]],
    table: Location,
    path: str,
    part: int,
    moves: Moves,
) -> pa.RecordBatch:
    """Write one file; return its figures as the one row of a batch."""
    read = written = rows = 0
    misfit = ""
    known = _Schemas()
    schemas: dict[tuple[str, Schema], None] = {}
    # The payload is bytes already: a dictionary or statistics of it would only cost.
    plain = {"use_dictionary": ["stream", "schema_id", "schema"], "write_statistics": False}
    with (
        (table / path).open_output() as file,
        pq.ParquetWriter(file, _ROWS, compression="lz4", **plain) as writer,
    ):
        for stream, batch in batches:
            read += batch.num_rows
            pair = stream, known.of(batch.schema)
            schemas[pair] = None
            good = [batch]
            if (move := moves.get(pair)) is not None:
                good, bad = moved_rows(batch, move)
                misfit = misfit or (bad[0][1].problem if bad else "")
            for cut in _cut(good):
                writer.write_batch(_packed_row(stream, cut, (part << 33) + rows))
                written += cut.num_rows
                rows += 1
        writer.close()
        size = file.tell()
    figures = {"path": path, "size": size, "rows": rows, "misfit": misfit}
    pairs = [[stream, schema_to_json(schema)] for stream, schema in schemas]
    figures |= {"read": read, "written": written, "schemas": json.dumps(pairs)}
    names = [column.partition(" ")[0] for column in _FILE.split(", ")]
    return pa.RecordBatch.from_pylist([{name: figures[name] for name in names}])


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


_ERROR = "RecordError"
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
        "chain_error": ERROR_TYPE,
    }.items()
]
"""What a packed row has nothing for."""


@dataclass(frozen=True)
class PackedCopy:
    """One batch of packed rows, copied as they are into topics, without the JVM."""

    spark: SparkSession
    packed: Packed
    evolution: Evolution
    batch: Batch

    def stage(self, part: SinkPart) -> StagedRows:
        """Stage the rows for one topic, with the schemas that they are to have there.

        Which those are is known only once all rows have been seen. As a rule no row has to
        change, or all as in the batch before: then once is enough.
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
                # Guarantee 4: a record that goes nowhere stops its task.
                raise ToleranceExceededError(
                    stage=STAGE, plugin=PLUGIN, exception=_ERROR, message=done.misfit, record=""
                )
            counts = Counts(done.read, done.written, rejected=done.rejected)
            check_balance(counts, self.batch)
            undo.pop_all()
        write = topic.staged(mark, done.files, schemas=done.schemas)
        rejected = partial(self._rejected, needed)
        return StagedRows(write=write, counts=counts, rejected=rejected)

    def _rejected(self, moves: Moves) -> RejectedFrame:
        begun = int(self.batch.begun.timestamp() * 1_000_000)
        error = (
            f"named_struct('stage', {literal(STAGE)}, 'plugin', {literal(PLUGIN)}, "
            f"'exception', {literal(_ERROR)}, 'message', message, 'raw', raw) AS error"
        )
        frame: DataFrame = self.packed.misfits(self.spark, moves).selectExpr(
            "stream AS topic", f"timestamp_micros({begun}) AS timestamp", error, *_LETTER
        )
        return RejectedFrame(frame, Schema.string(optional=True), None)
