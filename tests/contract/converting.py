"""What the tests of converters share: a frame of values through a converter and back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.conversion import ConvertingReader, PartConverter, encoded
from headrace.dataplane.records import (
    RecordFrame,
    frame_schema,
    record_frame,
    with_texts,
    with_variants,
)
from headrace.dataplane.sources import SourceFrame
from headrace.plugins import Registry
from headrace.sdk import ConverterContext, Lag, Position, ReadLimit, Schema
from headrace.sdk.arrow import to_arrow, to_arrow_type
from headrace.sdk.converter import RecordPart
from headrace.sdk.sparktypes import to_spark_json


class Memory(dict[str, Schema]):
    """A SchemaMemory."""

    def put(self, stream: str, schema: Schema) -> None:
        self[stream] = schema


@dataclass
class Given:
    """A source that has one frame."""

    frame: Any

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return start

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        """Take it."""

    def read(self, spark, start, end) -> SourceFrame:
        return SourceFrame(self.frame)


def converter(
    name: str,
    props: Mapping[str, str] | None = None,
    *,
    part: RecordPart = RecordPart.VALUE,
    **offers: Any,
) -> PartConverter:
    plugin = Registry().converter(name)
    config = plugin.config_def().parse({**(props or {}), "converter.type": part.value})
    context = ConverterContext(part=part, topic="t", **offers)
    return PartConverter(part, name, plugin(config, context))


def frame_of(spark, schema: Schema, natives: Sequence[Any]):
    """A frame of one column, value."""
    row = Schema.struct({"value": schema.replaced(optional=True)})
    array = pa.array(natives, to_arrow_type(schema))
    table = pa.Table.from_arrays([array], schema=to_arrow(row))
    frame = spark.createDataFrame(table, T.StructType.fromJson(to_spark_json(row)))
    return with_variants(frame, schema.replaced(optional=True))


def raw_frame(spark, raws: Sequence[bytes | None], part: str = "value"):
    return spark.createDataFrame(pa.table({part: pa.array(raws, pa.binary())}))


def encode(spark, each: PartConverter, schema: Schema, natives: Sequence[Any]):
    """The frame of the encoded values, of bad ones too."""
    records = encoded_records(spark, each, schema, natives)
    return records.frame.selectExpr(*records.columns())


def encoded_records(
    spark, each: PartConverter, schema: Schema, natives: Sequence[Any]
) -> RecordFrame:
    """The records of the encoded values, with the error if there can be one."""
    return encoded(record_frame(frame_of(spark, schema, natives), "t"), [each])


def decode(spark, each: PartConverter, frame, folder: Path):
    reader = ConvertingReader(Given(frame), [each], folder)
    return reader.read(spark, Position(), Position()).frame


def values_of(frame, column: str = "value") -> list[Any]:
    """A column as Arrow's plain values; maps as lists of pairs, variants as texts."""
    if column in {"key", "value"}:
        frame = with_texts(frame, schema_of(frame, column))
    rows = frame.select(column).mapInArrow(_serialized, "batch binary").collect()
    batches = [pa.ipc.open_stream(bytes(row.batch)).read_next_batch() for row in rows]
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def _serialized(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Spark's own toArrow stumbles over nullability inside maps.
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})


def schema_of(frame, part: str = "value") -> Schema:
    field = frame_schema(frame).field(part)
    assert field is not None
    return field.schema
