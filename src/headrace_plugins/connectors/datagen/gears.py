"""The gears of the generator."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    CaptureSource,
    FrameSource,
    Record,
    Schema,
    Split,
    SplitSource,
    StreamSplitSource,
    Struct,
    Type,
)
from headrace.sdk.expressions import ERROR_TYPE
from headrace_plugins.connectors.datagen.arrays import make_rows
from headrace_plugins.connectors.datagen.expressions import chance_sql, value_sql
from headrace_plugins.connectors.datagen.generator import BATCH_ROWS, Generator
from headrace_plugins.connectors.datagen.pace import Rate
from headrace_plugins.connectors.datagen.plan import part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Position, TaskContext

_POLL_ROWS = 500
_POLL_SECONDS = 0.1
_ADDED = "added"


class FrameGenerator(Generator, FrameSource):
    """Makes rows in the JVM, from Spark's own range."""

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        first, last = self.bounds(start, end)
        count = self.options.partitions
        if count is None:
            count = min(
                spark.sparkContext.defaultParallelism, len(self.parts(first, last)) or 1
            )
        row = self.options.lane.sql("id")
        rows = spark.range(first, last, 1, count).selectExpr(f"{row} AS row")
        columns = [f"{value_sql(self.options.plan, 'row')} AS value"]
        if self.options.bad:
            columns.append(f"{self._error_sql()} AS error")
        return rows.selectExpr(*columns)

    def _error_sql(self) -> str:
        chance = chance_sql(self.options.plan, "row", "?")
        error = (
            "named_struct('stage', 'TASK_POLL', 'plugin', 'datagen', "
            "'exception', 'RecordError', "
            "'message', concat('Row ', row, ' was made bad on purpose.'), "
            "'raw', CAST(row AS STRING))"
        )
        return f"IF({chance} < {self.options.bad!r}D, {error}, CAST(NULL AS {ERROR_TYPE}))"


class SplitGenerator(Generator, SplitSource):
    """Makes rows in Python, as Arrow batches."""

    @override
    def schema(self) -> Schema:
        return self.options.plan.schema

    @override
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return _splits(self, start, end)

    @override
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self.batches(*_bounds(split))


class StreamGenerator(Generator, StreamSplitSource):
    """Makes rows of many streams: row r belongs to stream r modulo their number."""

    @override
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return _splits(self, start, end)

    @override
    def read(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        options = self.options
        after = replace(options.plan, schema=_with_column(options.plan.schema))
        change = options.change_after
        for numbers in self.numbers(*_bounds(split), BATCH_ROWS * options.streams):
            for stream in range(options.streams):
                mine = numbers[numbers % options.streams == stream]
                old = mine if change is None else mine[mine < change]
                new = mine[:0] if change is None else mine[mine >= change]
                for plan, rows in ((options.plan, old), (after, new)):
                    if len(rows):
                        yield f"{options.name}-{stream}", make_rows(plan, rows)


class CaptureGenerator(Generator, CaptureSource):
    """Makes rows as records, as Kafka Connect's sources do."""

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._row = self.row(context.position())
        self._pace = Rate(self.options.rate, self.options.clock)
        self._pace.grant(self._row, 0)
        self._stopped = threading.Event()

    @override
    def poll(self) -> Sequence[Record] | None:
        granted = self._pace.grant(self._row, min(self.left(self._row), _POLL_ROWS))
        if granted == 0:
            self._stopped.wait(_POLL_SECONDS)
            return None
        (rows,) = self.batches(self._row, self._row + granted, granted)
        first, self._row = self._row + 1, self._row + granted
        return [self._record(row, place) for place, row in enumerate(rows.to_pylist(), first)]

    @override
    def stop(self) -> None:
        if hasattr(self, "_stopped"):
            self._stopped.set()

    def _record(self, row: Mapping[str, Any], place: int) -> Record:
        schema = self.options.plan.schema
        values = {m.name: _plain(m.schema, row[m.name]) for m in schema.fields}
        return Record(
            topic="",
            value=Struct.of(schema, values),
            value_schema=schema,
            source_partition=self.partition,
            source_offset={"row": place},
        )


def _splits(generator: Generator, start: Position, end: Position) -> list[Split]:
    parts = generator.parts(*generator.bounds(start, end))
    return [Split({"start": a, "end": b}, rows=b - a) for a, b in parts]


def _bounds(split: Split) -> tuple[int, int]:
    return int(str(split.payload["start"])), int(str(split.payload["end"]))


def _with_column(schema: Schema) -> Schema:
    fields = {member.name: member.schema for member in schema.fields}
    return schema.with_fields({**fields, _ADDED: Schema.string(optional=True)})


def _plain(schema: Schema, value: Any) -> Any:
    """Give a value as records have it: Arrow gives maps as lists of pairs."""
    if value is None:
        return None
    match schema.type:
        case Type.MAP:
            return {key: _plain(part(schema.value_schema), item) for key, item in value}
        case Type.ARRAY:
            return [_plain(part(schema.value_schema), item) for item in value]
        case Type.STRUCT:
            return {m.name: _plain(m.schema, value[m.name]) for m in schema.fields}
        case _ if schema.is_logical and schema == Schema.timestamp(optional=schema.optional):
            return value.astimezone(UTC)
        case _:
            return value
