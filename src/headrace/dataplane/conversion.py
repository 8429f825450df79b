"""Applies converters in a task's flow: decodes bytes to records and encodes records."""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name
from pyspark.sql.pandas.functions import arrow_udf

from headrace.dataplane.python_frames import map_in_arrow
from headrace.dataplane.records import (
    RecordFrame,
    declared,
    frame_schema,
    over_parts,
    with_variants,
)
from headrace.dataplane.sources import SourceFrame, SourceReader, TopicSource
from headrace.sdk import ConfigError, Converter, Position, Schema, ValueExpr
from headrace.sdk.arrow import conform, from_arrow, to_arrow, to_arrow_field, to_arrow_type
from headrace.sdk.converter import (
    ArrowCall,
    ArrowDecoder,
    Decoded,
    ExpressionDecoder,
    Fault,
    Group,
    HeaderConverter,
    RecordPart,
    is_raw,
)
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import from_spark_json, to_spark_json
from headrace.sdk.sqltext import literal, quote, sql_type
from headrace.sdk.transform import DATA_EXCEPTION

log = structlog.get_logger(__name__)


FAULT = Schema.struct(
    {"exception": Schema.string(optional=True), "message": Schema.string(optional=True)},
    optional=True,
)
"""The reason why a part could not be converted: the class of the error and its message."""

_PIECE = "path string, schema binary, rows bigint"
_FAULT_TYPE = to_arrow_type(FAULT)
_FAULT_SQL = sql_type(FAULT)


def fault_column(part: str) -> str:
    """Return the name of the column with the fault of a part."""
    return f"__fault_{part}"


def raw_column(part: str) -> str:
    """Return the name of the column with the bytes of a part."""
    return f"raw_{part}"


@dataclass(frozen=True)
class Decoding:
    """Decodes some parts of a frame.

    Args:
        decoders: The decoder of each part; the column ``raw_<part>`` has its bytes.
        known: The remembered schemas by part, if any.
        folder: A folder for this decoding only, on a file system that all executors share.
    """

    decoders: Mapping[str, ArrowDecoder]
    known: Mapping[str, Schema]
    folder: Path

    def run(self, spark: SparkSession, frame: DataFrame) -> tuple[DataFrame, dict[str, Schema]]:
        """Decode a frame. Runs one job.

        Returns:
            The frame with columns ``<part>`` and ``__fault_<part>`` for each part, and the
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
        """Merge the schemas, the most frequent first; rows with misfits become faults."""
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
    """Decodes the batches of a partition into files, on executors."""

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
    """Set the bytes of good values to null."""
    index = batch.schema.get_field_index(raw_column(part))
    raw = pc.if_else(faults.is_valid(), batch.column(index), pa.scalar(None, pa.binary()))
    return batch.set_column(index, batch.schema.field(index), raw)


def _divided(rest: pa.RecordBatch, decoded: Mapping[str, Decoded]) -> Iterator[pa.RecordBatch]:
    """Divide rows so that each piece has one schema per part."""
    pieces = [rest]
    for part, found in decoded.items():
        pieces = [more for piece in pieces for more in _with_part(piece, part, found)]
    for piece in pieces:
        yield piece.select([name for name in piece.schema.names if name != _ROW])


_ROW = "__row"


def _with_part(piece: pa.RecordBatch, part: str, decoded: Decoded) -> Iterator[pa.RecordBatch]:
    """Yield the piece's rows for each group of a part, then the rows without a group."""
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
    """Replace parts whose schema does not fit the others of the batch by faults."""
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


@dataclass(frozen=True)
class PartConverter:
    """The converter of one part.

    Args:
        name: The class name for errors.
    """

    part: RecordPart
    name: str
    converter: Converter


def encoded(records: RecordFrame, converters: Sequence[PartConverter]) -> RecordFrame:
    """Return the records with their parts encoded as bytes, after the chain."""
    for each in converters:
        records = _encoded(records, each)
    return records


def _encoded(records: RecordFrame, each: PartConverter) -> RecordFrame:
    shape = records.shape
    plain_column, made = f"__plain_{each.part}", f"__coded_{each.part}"
    plain = shape.headers
    if each.part is not RecordPart.HEADER:
        part = shape.key if each.part is RecordPart.KEY else shape.value
        if part.schema is None:
            return records
        plain = _untouched(records, part, each.part) or part.sql()
        converted = each.converter.encode(plain_column, made, part.schema)
    else:
        converted = _of_headers(each).encode_headers(plain_column, made)
    frame = records.frame.selectExpr("*", f"{plain} AS {plain_column}")
    if converted.made is not None:
        frame = frame.selectExpr("*", f"{converted.made} AS {made}")
    if converted.call is not None:
        frame = frame.withColumn(ArrowCall.called(made), _called(converted.call))
    for fault in converted.faults:
        shape = shape.failing(
            fault.condition,
            stage=each.part.stage,
            plugin=each.name,
            exception=fault.exception,
            message=fault.message,
        )
    if each.part is RecordPart.HEADER:
        return replace(records, frame=frame, shape=replace(shape, headers=converted.sql))
    # Spark checks whether a column is nullable, not whether it has nulls.
    coded = ValueExpr(converted.schema.replaced(optional=True), whole=converted.sql)
    is_key = each.part is RecordPart.KEY
    shape = replace(shape, key=coded) if is_key else replace(shape, value=coded)
    return replace(records, frame=frame, shape=shape)


def _untouched(records: RecordFrame, part: ValueExpr, name: str) -> str | None:
    """Return the column of an unchanged part; cheaper than building the struct again."""
    field = frame_schema(records.frame).field(name)
    return name if field and part == ValueExpr.of(name, field.schema) else None


def _of_headers(each: PartConverter) -> HeaderConverter:
    assert isinstance(each.converter, HeaderConverter)
    return each.converter


class ConvertingReader:
    """Decodes the key, the value or the headers of a source.

    The frame also has ``error``, ``raw_key`` and ``raw_value``: the bytes of parts that could
    not be read. Parts that already have a type are passed unchanged; this is logged once.
    """

    def __init__(
        self,
        source: SourceReader,
        converters: Sequence[PartConverter],
        folder: Path,
    ) -> None:
        """Decode the records of ``source``.

        Args:
            source: The reader of the topic.
            converters: At most one per part.
            folder: For temporary files, on a file system that all executors share.
        """
        self._source = source
        self._converters = converters
        self._folder = folder
        self._reads = 0
        self._tokens = _Tokens()
        self._said: set[RecordPart] = set()
        self.latest = source.latest
        self.acknowledge = source.acknowledge
        self.lag = source.lag
        self.ended = source.ended

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        data = self._source.read(spark, start, end)
        if data.frame is None:
            return data
        return replace(data, frame=self._converted(spark, data.frame))

    def explain(self, spark: SparkSession, start: Position, end: Position) -> None:
        if isinstance(self._source, TopicSource):
            self._source.explain(spark, start, end)

    def _converted(self, spark: SparkSession, frame: DataFrame) -> DataFrame:
        active = self._active(frame_schema(frame))
        headers = self._header_converter(frame)
        if not active and headers is None:
            return frame
        parts = {each.part.value for each in active}
        columns = [quote(name) for name in frame.columns if name not in parts]
        columns += [f"CAST({part} AS BINARY) AS {raw_column(part)}" for part in sorted(parts)]
        frame = frame.selectExpr(*columns)
        decoders = {each.part.value: (each, each.converter.decoder()) for each in active}
        arrow = {p: d for p, (_, d) in decoders.items() if isinstance(d, ArrowDecoder)}
        if arrow:
            frame = self._decoded(spark, frame, arrow)
        for part, (_, decoder) in decoders.items():
            if isinstance(decoder, ExpressionDecoder):
                tokens = self._tokens.of(frame, part, decoder.tokens(raw_column(part)))
                frame = _by_expression(frame, part, decoder, tokens)
        if headers is not None:
            frame = _with_headers(frame, headers)
        return self._finished(frame, [*active, *([headers] if headers else [])])

    def _header_converter(self, frame: DataFrame) -> PartConverter | None:
        if "headers" not in frame.columns:
            return None
        found = (each for each in self._converters if each.part is RecordPart.HEADER)
        return next(found, None)

    def _active(self, schema: Schema) -> list[PartConverter]:
        active = []
        for each in self._converters:
            field = schema.field(each.part.value)
            if field is None:
                continue
            if is_raw(field.schema):
                active.append(each)
            elif each.part not in self._said:
                self._said.add(each.part)
                log.info(
                    "converter not used: the topic already has a type for this part",
                    part=each.part.value,
                    type=field.schema.type.value,
                    converter=each.name,
                )
        return active

    def _decoded(
        self, spark: SparkSession, frame: DataFrame, decoders: dict[str, ArrowDecoder]
    ) -> DataFrame:
        known: dict[str, Schema] = {}
        for each in self._converters:
            decoder = decoders.get(each.part.value)
            memory = each.converter.context.schemas
            if decoder is None or memory is None or not decoder.remembers:
                continue
            stored = memory.get(each.converter.context.memory_name)
            decoder.start(stored)
            if stored is not None:
                known[each.part.value] = stored
        for part, decoder in decoders.items():
            tokens = self._tokens.of(frame, part, decoder.tokens(raw_column(part)))
            if tokens is not None:
                decoder.prepare(tokens)
        # A task runs one batch at a time, so the previous batch's files are not needed.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._reads += 1
        folder = self._folder / str(self._reads)
        decoding = Decoding(decoders, known, folder)
        decoded, schemas = decoding.run(spark, frame)
        self._remember(decoders, known, schemas)
        return decoded

    def _remember(
        self,
        decoders: dict[str, ArrowDecoder],
        known: dict[str, Schema],
        schemas: dict[str, Schema],
    ) -> None:
        for each in self._converters:
            part, context = each.part.value, each.converter.context
            if part not in decoders or not decoders[part].remembers or context.schemas is None:
                continue
            if part in schemas and schemas[part] != known.get(part):
                context.schemas.put(context.memory_name, schemas[part])

    def _finished(self, frame: DataFrame, active: Sequence[PartConverter]) -> DataFrame:
        hidden = {fault_column(each.part.value) for each in active}
        columns = [quote(name) for name in frame.columns if name not in hidden]
        cases = " ".join(_error_case(each, frame.columns) for each in active)
        return frame.selectExpr(*columns, f"CASE {cases} END AS error")


class _Tokens:
    """Finds the tokens that identify the schemas of each batch, in a job over its bytes.

    Nearly all batches of a topic have only the token of the previous batch. Searching for other
    tokens takes half the time of grouping all tokens.
    """

    def __init__(self) -> None:
        self._usual: dict[str, bytes] = {}

    def of(self, frame: DataFrame, part: str, sql: str | None) -> list[Any] | None:
        """Return the distinct tokens, and maybe the usual one; None if ``sql`` is None."""
        if sql is None:
            return None
        usual = self._usual.pop(part, None)
        others = "token IS NOT NULL" if usual is None else f"token <> X'{usual.hex()}'"
        found = frame.selectExpr(f"{sql} AS token").where(others).groupBy("token").count()
        rows = {bytes(t) if isinstance(t, bytearray) else t: n for t, n in found.collect()}
        most = max(rows, key=lambda token: rows[token], default=None)
        if usual is None and isinstance(most, bytes):
            self._usual[part] = most
        elif usual is not None and not rows:
            self._usual[part] = usual
        # If there were others, the next batch groups all tokens to find the usual one.
        return sorted(rows if usual is None else {usual, *rows})


def _by_expression(
    frame: DataFrame, part: str, decoder: ExpressionDecoder, tokens: Sequence[Any] | None
) -> DataFrame:
    raw, made = raw_column(part), f"__made_{part}"
    converted = decoder.decode(raw, made, tokens or [])
    if converted.made is not None:
        frame = frame.selectExpr("*", f"{converted.made} AS {made}")
    columns = [quote(name) for name in frame.columns if name != made]
    fault = _fault(converted.faults)
    frame = frame.selectExpr(
        *columns, f"{converted.sql} AS {part}", f"{fault} AS {fault_column(part)}"
    )
    return declared(frame, part, converted.schema.replaced(optional=True))


def _with_headers(frame: DataFrame, each: PartConverter) -> DataFrame:
    made = "__made_header"
    converted = _of_headers(each).decode_headers("headers", made)
    hidden = {"headers", made, ArrowCall.called(made)}
    if converted.made is not None:
        frame = frame.selectExpr("*", f"{converted.made} AS {made}")
    if (call := converted.call) is not None:
        frame = frame.withColumn(ArrowCall.called(made), _called(call))
    columns = [quote(name) for name in frame.columns if name not in hidden]
    fault = f"{_fault(converted.faults)} AS {fault_column(each.part)}"
    return frame.selectExpr(*columns, f"{converted.sql} AS headers", fault)


def _called(call: ArrowCall) -> Column:
    def apply(values: pa.Array) -> pa.Array:  # Spark requires exactly these type hints
        return call.function(values)

    # Spark's stubs require a function type, but Spark warns if one is passed.
    called: Column = cast("Any", arrow_udf)(apply, call.type)(F.expr(call.argument))
    return called


def _fault(faults: Sequence[Fault]) -> str:
    if not faults:
        return f"CAST(NULL AS {_FAULT_SQL})"
    cases = " ".join(
        f"WHEN {fault.condition} THEN named_struct('exception', {literal(fault.exception)}, "
        f"'message', {fault.message})"
        for fault in faults
    )
    return f"CAST(CASE {cases} END AS {_FAULT_SQL})"


def _error_case(each: PartConverter, columns: Sequence[str]) -> str:
    """Return the CASE branch of one part's error; the key comes first, as in Kafka Connect."""
    fault, raw = fault_column(each.part.value), raw_column(each.part.value)
    text = "CAST(NULL AS STRING)"
    if raw in columns:
        text = f"make_valid_utf8(CAST({raw} AS STRING))"
    error = (
        f"named_struct('stage', {literal(each.part.stage)}, 'plugin', {literal(each.name)}, "
        f"'exception', {fault}.exception, 'message', {fault}.message, 'raw', {text})"
    )
    return f"WHEN {fault} IS NOT NULL THEN CAST({error} AS {ERROR_TYPE})"
