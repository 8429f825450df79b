"""Runs the batch and record gears of a sink as frame sinks."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from headrace.dataplane.recordrows import records_of
from headrace.dataplane.variants import with_texts
from headrace.sdk import (
    BatchSink,
    FrameSink,
    RecordSink,
    Schema,
    SinkBatch,
    Type,
    conform,
    to_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import Mark, StagedWrite

_MESSAGE = "message string, rows bigint"
_RECORD = ("key", "value", "headers", "timestamp", "topic", "partition")
_PUT_ROWS = 1000
"""How many records one ``put`` of a record sink gets."""


class SinkFront(FrameSink):
    """Stands before another sink, and says of itself what the class of that one says."""

    def __init__(self, inner: FrameSink | BatchSink | RecordSink) -> None:
        """Stand before ``inner``."""
        self.ordered = inner.ordered  # type: ignore[misc]  # the class attribute of this one sink
        self.takes_many_topics = inner.takes_many_topics  # type: ignore[misc]
        if isinstance(inner, FrameSink):
            self.counting = inner.counting  # type: ignore[misc]


def as_frame_sink(sink: FrameSink | BatchSink | RecordSink) -> FrameSink:
    """Return the sink as a frame sink, whatever its gear."""
    if isinstance(sink, BatchSink):
        return _BatchGear(sink)
    if isinstance(sink, RecordSink):
        return _RecordGear(sink)
    return sink


@dataclass(frozen=True)
class _StagedParts:
    """What the executors staged through a batch sink."""

    sink: BatchSink
    batch: SinkBatch
    messages: Sequence[dict[str, object]]
    rows: int

    def commit(self, receipt: str) -> None:
        self.sink.commit(self.messages, self.batch, receipt)

    def abort(self) -> None:
        self.sink.abort(self.messages, self.batch)


@dataclass(frozen=True)
class _Delivered:
    """Records that a record sink has already delivered."""

    rows: int

    def commit(self, receipt: str) -> None:
        """Nothing is left to do: ``flush`` returned on the executors."""

    def abort(self) -> None:
        """Records that were put cannot be taken back: the gear delivers at least once."""


class _BatchGear(SinkFront):
    def __init__(self, sink: BatchSink) -> None:
        super().__init__(sink)
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._sink.committed(mark, topic)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        sink, schema = self._sink, _rows_schema(batch.schema)
        arrow = to_arrow(schema)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = 0

            def counted() -> Iterator[pa.RecordBatch]:
                nonlocal rows
                for part in batches:
                    rows += part.num_rows
                    yield conform(part, arrow)

            message = sink.write(counted(), batch, uuid.uuid4().hex)
            yield _message(dict(message), rows)

        frame = _sorted(with_texts(frame, batch.schema), ordered=self.ordered)
        parts = _collect(_values(frame, batch.schema), run)
        return _StagedParts(sink, batch, [m for m, _ in parts], sum(rows for _, rows in parts))


class _RecordGear(SinkFront):
    def __init__(self, sink: RecordSink) -> None:
        super().__init__(sink)
        self.takes_many_topics = True  # type: ignore[misc]  # each record tells its own
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        sink = self._sink

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = 0
            for part in batches:
                for start in range(0, part.num_rows, _PUT_ROWS):
                    some = part.slice(start, _PUT_ROWS)
                    records = records_of(some, batch.schema, batch.key_schema)
                    sink.put(records)
                    rows += len(records)
            sink.flush()
            yield _message({}, rows)

        frame = with_texts(frame, batch.schema)
        columns = _sorted(frame, ordered=self.ordered).select(*_RECORD)
        return _Delivered(sum(rows for _, rows in _collect(columns, run)))


def _sorted(frame: DataFrame, *, ordered: bool) -> DataFrame:
    """Return the frame as one partition in the records' order, for a sink that needs it."""
    return frame.repartition(1).sortWithinPartitions("position") if ordered else frame


def _rows_schema(schema: Schema) -> Schema:
    return schema if schema.type is Type.STRUCT else Schema.struct({"value": schema})


def _values(frame: DataFrame, schema: Schema) -> DataFrame:
    return frame.select("value.*") if schema.type is Type.STRUCT else frame.select("value")


def _message(message: dict[str, object], rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"message": [json.dumps(message)], "rows": [rows]})


def _collect(frame: DataFrame, run: Any) -> list[tuple[dict[str, object], int]]:
    return [
        (json.loads(text), rows) for text, rows in frame.mapInArrow(run, _MESSAGE).collect()
    ]
