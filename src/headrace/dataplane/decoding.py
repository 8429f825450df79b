"""Decodes columns of bytes with Arrow functions, each value once.

Which schemas a batch has is known only when it was decoded, and Spark must know before it
plans. So a first job decodes, into Arrow files of one schema each; the driver merges the
schemas; and the frame that it returns reads the files, which costs next to nothing.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.nulllists import map_in_arrow
from headrace.dataplane.packed import over_parts
from headrace.dataplane.variants import with_variants
from headrace.sdk import ConfigError, Schema
from headrace.sdk.arrow import conform, from_arrow, to_arrow, to_arrow_field
from headrace.sdk.sparktypes import from_spark_json, to_spark_json
from headrace.sdk.transform import DATA_EXCEPTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.converter import ArrowDecoder, Decoded, Group

FAULT = Schema.struct(
    {"exception": Schema.string(optional=True), "message": Schema.string(optional=True)},
    optional=True,
)
"""Why a part could not be converted: the class of the error and its message."""

_PIECE = "path string, schema binary, rows bigint"
_FAULT_TYPE = pa.struct([("exception", pa.string()), ("message", pa.string())])


def fault_column(part: str) -> str:
    """Return the name of the column with a part's fault."""
    return f"__fault_{part}"


def raw_column(part: str) -> str:
    """Return the name of the column with the bytes of a part."""
    return f"raw_{part}"


@dataclass(frozen=True)
class Decoding:
    """Decodes some of a frame's parts.

    Args:
        decoders: By part; the column ``raw_<part>`` has its bytes.
        known: The schema that is remembered for a part, if one is.
        folder: A folder of its own, on a file system that all executors share.
    """

    decoders: Mapping[str, ArrowDecoder]
    known: Mapping[str, Schema]
    folder: Path

    def run(self, spark: SparkSession, frame: DataFrame) -> tuple[DataFrame, dict[str, Schema]]:
        """Decode a frame. Runs one job.

        Returns:
            The frame with a column ``<part>`` and ``__fault_<part>`` for each part, and the
            schemas of the parts.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        work = _Work(self.decoders, str(self.folder))
        pieces = [
            _Piece(path, pa.ipc.read_schema(pa.py_buffer(bytes(schema))), rows)
            for path, schema, rows in map_in_arrow(frame, work, _PIECE).collect()
        ]
        merges = {part: self._merge(part, pieces) for part in self.decoders}
        schemas = {part: merge.schema for part, merge in merges.items()}
        rest = from_spark_json(frame.schema.jsonValue())
        fields = {f.name: f.schema for f in rest.fields}
        for part, schema in schemas.items():
            fields |= {part: schema, fault_column(part): FAULT}
        decoded = self._read(spark, pieces, Schema.struct(fields), merges)
        return with_variants(decoded, **schemas), schemas

    def _merge(self, part: str, pieces: Sequence[_Piece]) -> _Merge:
        """Merge the schemas, those of most rows first; the misfits become faults."""
        rows: dict[Schema, int] = defaultdict(int)
        for piece in pieces:
            if (schema := piece.schema_of(part)) is not None:
                rows[schema] += piece.rows
        merged = self.known.get(part)
        misfits: dict[Schema, str] = {}
        for schema in sorted(rows, key=lambda one: (-rows[one], repr(one))):
            try:
                merged = self.decoders[part].merged(merged, schema) if merged else schema
            except ConfigError as error:
                misfits[schema] = str(error.problem)
        merged = merged or Schema.string()
        return _Merge(merged.replaced(optional=True), misfits)

    def _read(
        self,
        spark: SparkSession,
        pieces: Sequence[_Piece],
        schema: Schema,
        merges: Mapping[str, _Merge],
    ) -> DataFrame:
        arrow = to_arrow(schema)
        parts = [
            (
                piece.path,
                {
                    part: merge.misfits[own]
                    for part, merge in merges.items()
                    if (own := piece.schema_of(part)) in merge.misfits and own is not None
                },
            )
            for piece in pieces
        ]
        decoders = dict(self.decoders)

        def read(part: tuple[str, Mapping[str, str]]) -> Iterator[pa.RecordBatch]:
            path, misfits = part
            with pa.OSFile(path) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    known = _faulted(batch, misfits) if misfits else batch
                    for name, decoder in decoders.items():
                        known = _fitted(known, name, decoder, arrow.field(name).type)
                    yield conform(known, arrow)

        types = T.StructType.fromJson(to_spark_json(schema))
        return over_parts(spark, parts, read, types)


@dataclass(frozen=True)
class _Merge:
    schema: Schema
    misfits: Mapping[Schema, str]


@dataclass(frozen=True)
class _Piece:
    path: str
    arrow: pa.Schema
    rows: int

    def schema_of(self, part: str) -> Schema | None:
        index = self.arrow.get_field_index(part)
        return None if index < 0 else from_arrow(self.arrow.field(index))


@dataclass(frozen=True)
class _Work:
    """What runs on executors: decodes the batches of a partition into files."""

    decoders: Mapping[str, ArrowDecoder]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files: dict[pa.Schema, tuple[str, Any, Any]] = {}
        rows: dict[pa.Schema, int] = defaultdict(int)
        try:
            for batch in batches:
                for piece in self._pieces(batch):
                    if piece.schema not in files:
                        files[piece.schema] = self._file(piece.schema)
                    files[piece.schema][2].write_batch(piece)
                    rows[piece.schema] += piece.num_rows
        finally:
            for _, sink, writer in files.values():
                writer.close()
                sink.close()
        for schema, (path, _, _) in files.items():
            yield pa.RecordBatch.from_pydict(
                {
                    "path": [path],
                    "schema": [schema.serialize().to_pybytes()],
                    "rows": [rows[schema]],
                }
            )

    def _file(self, schema: pa.Schema) -> tuple[str, Any, Any]:
        path = str(Path(self.folder) / f"{uuid.uuid4().hex}.arrow")
        sink = pa.OSFile(path, "wb")
        return path, sink, pa.ipc.new_stream(sink, schema)

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        decoded = {
            part: decoder.decode(batch.column(raw_column(part)))
            for part, decoder in self.decoders.items()
        }
        rest = batch
        for part, found in decoded.items():
            faults = _faults(found, batch.num_rows)
            rest = rest.append_column(pa.field(fault_column(part), _FAULT_TYPE), faults)
            rest = _without_raw(rest, part, faults)
        yield from _divided(rest, decoded)


def _without_raw(batch: pa.RecordBatch, part: str, faults: pa.Array) -> pa.RecordBatch:
    """Keep the bytes of bad values only."""
    index = batch.schema.get_field_index(raw_column(part))
    raw = pc.if_else(faults.is_valid(), batch.column(index), pa.scalar(None, pa.binary()))
    return batch.set_column(index, batch.schema.field(index), raw)


def _divided(rest: pa.RecordBatch, decoded: Mapping[str, Decoded]) -> Iterator[pa.RecordBatch]:
    """Divide rows so that each piece has one schema for each part."""
    pieces: list[tuple[pa.RecordBatch, Mapping[str, Decoded]]] = [(rest, decoded)]
    for part in decoded:
        pieces = [
            (divided, {})
            for piece, _ in pieces
            for divided in _with_part(piece, part, decoded[part])
        ]
    for piece, _ in pieces:
        names = [name for name in piece.schema.names if name != _ROW]
        yield piece.select(names)


_ROW = "__row"


def _with_part(piece: pa.RecordBatch, part: str, decoded: Decoded) -> Iterator[pa.RecordBatch]:
    """Yield the piece's rows for each group of a part, and those without any."""
    rows = piece.num_rows
    whole = next((group for group in decoded.groups if _is_whole(group, rows)), None)
    if whole is not None and _ROW not in piece.schema.names:
        yield _joined(piece, part, whole.schema, whole.values)
        return
    if _ROW not in piece.schema.names:
        rows = pa.array(range(piece.num_rows), pa.int64())
        piece = piece.append_column(pa.field(_ROW, pa.int64()), rows)
    numbers = piece.column(_ROW)
    left = piece
    for group in decoded.groups:
        taken = group.rows if group.rows is not None else range(len(group.values))
        values = pa.array(taken, pa.int64())
        places = pc.index_in(numbers, value_set=values)
        mine = piece.filter(places.is_valid())
        if mine.num_rows:
            yield _joined(mine, part, group.schema, group.values.take(places.drop_null()))
        absent = pc.is_in(left.column(_ROW), value_set=values)
        left = left.filter(pc.invert(absent))
    if left.num_rows:
        yield left


def _is_whole(group: Group, rows: int) -> bool:
    if group.rows is None:
        return True
    return len(group.rows) == rows and list(group.rows) == list(range(rows))


def _joined(
    piece: pa.RecordBatch, part: str, schema: Schema, values: pa.Array
) -> pa.RecordBatch:
    return piece.append_column(to_arrow_field(part, schema.replaced(optional=True)), values)


def _faults(decoded: Decoded, rows: int) -> pa.Array:
    if not decoded.faults:
        return pa.nulls(rows, _FAULT_TYPE)
    found: list[dict[str, str] | None] = [None] * rows
    for row, (exception, message) in decoded.faults.items():
        found[row] = {"exception": exception, "message": message}
    return pa.array(found, _FAULT_TYPE)


def _fitted(
    batch: pa.RecordBatch, part: str, decoder: ArrowDecoder, target: pa.DataType
) -> pa.RecordBatch:
    index = batch.schema.get_field_index(part)
    if index < 0 or batch.column(index).type.equals(target):
        return batch
    return batch.set_column(index, part, decoder.fitted(batch.column(index), target))


def _faulted(batch: pa.RecordBatch, misfits: Mapping[str, str]) -> pa.RecordBatch:
    """Make faults of parts whose schema does not go with the others of the batch."""
    for part, problem in misfits.items():
        text = f"The schema does not fit the other records of its topic: {problem}"
        fault = {"exception": DATA_EXCEPTION, "message": text}
        valid = batch.column(part).is_valid().to_pylist()
        faults = [fault if here else None for here in valid]
        index = batch.schema.get_field_index(fault_column(part))
        batch = batch.set_column(
            index, batch.schema.field(index), pa.array(faults, _FAULT_TYPE)
        )
        batch = batch.drop_columns([part])
    return batch
