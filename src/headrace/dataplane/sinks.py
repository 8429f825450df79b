"""Runs the batch and record gears of a sink as frame sinks."""

from __future__ import annotations

import json
import uuid
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog
from typing_extensions import override

from headrace.dataplane.bisecting import PartBisection, Spool, put_records
from headrace.dataplane.framebisecting import FrameGear
from headrace.dataplane.nulllists import map_in_arrow
from headrace.dataplane.recordrows import records_of
from headrace.dataplane.sinkfront import SinkFront
from headrace.dataplane.variants import with_texts
from headrace.sdk import BatchSink, RecordSink, Schema, SinkBatch, Type
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.durability import durability, set_durability
from headrace.sdk.sink import RECORD_ID, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import FrameSink, Mark, StagedWrite
    from headrace.sdk.durability import Durability

log = structlog.get_logger(__name__)

_MESSAGE = "message string, rows bigint, refused string"
_ID = "__headrace_record"
_RECORD = ("key", "value", "headers", "timestamp", "topic", "partition")
_PUT_ROWS = 1000
"""How many records one ``put`` of a record sink gets."""


def as_frame_sink(sink: FrameSink | BatchSink | RecordSink) -> FrameSink:
    """Return the sink as a frame sink, whatever its gear."""
    if isinstance(sink, BatchSink):
        return _BatchGear(sink)
    if isinstance(sink, RecordSink):
        return _RecordGear(sink)
    # One that verifies finds out by itself what its target refuses.
    return FrameGear(sink) if sink.rejects and not sink.verifies else sink


@dataclass(frozen=True)
class _Told:
    """What the executors say of their partitions."""

    rows: int
    messages: Sequence[dict[str, object]]
    refusals: Sequence[Refused]

    @classmethod
    def by(cls, frame: DataFrame, run: Any) -> _Told:
        parts = map_in_arrow(frame, run, _MESSAGE).collect()
        refused = [Refused(*each) for part in parts for each in json.loads(part.refused)]
        messages = [json.loads(part.message) for part in parts]
        return cls(sum(part.rows for part in parts), messages, refused)

    @staticmethod
    def message(
        message: Mapping[str, object], rows: int, refused: Sequence[Refused] = ()
    ) -> pa.RecordBatch:
        columns = {
            "message": [json.dumps(dict(message))],
            "rows": [rows],
            "refused": [json.dumps([astuple(each) for each in refused])],
        }
        return pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True)
class _Put:
    """What the executors have put into a target."""

    told: _Told

    @property
    def rows(self) -> int:
        return self.told.rows

    def refused(self) -> Sequence[Refused]:
        return self.told.refusals


@dataclass(frozen=True)
class _StagedParts(_Put):
    """What the executors staged through a batch sink."""

    sink: BatchSink
    batch: SinkBatch

    def commit(self, receipt: str) -> None:
        self.sink.commit(self.told.messages, self.batch, receipt)

    def abort(self) -> None:
        self.sink.abort(self.told.messages, self.batch)


class _Delivered(_Put):
    """Records that a record sink has already delivered."""

    def commit(self, receipt: str) -> None:
        """Nothing is left to do: ``flush`` returned on the executors."""

    def abort(self) -> None:
        """Records that were put cannot be taken back: the gear delivers at least once."""


class _BatchGear(SinkFront):
    def __init__(self, sink: BatchSink) -> None:
        super().__init__(sink)
        self.verifies = bool(sink.rejects)  # type: ignore[misc]
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._sink.committed(mark, topic)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        frame = _sorted(with_texts(frame, batch.schema), ordered=self.ordered)
        tolerant = RECORD_ID in frame.columns
        schema = to_arrow(_rows_schema(batch.schema))
        part = _Part(self._sink, batch, schema, durability())
        value = "value.*" if batch.schema.type is Type.STRUCT else "value"
        rows = frame.selectExpr(value, *([f"{RECORD_ID} AS {_ID}"] if tolerant else []))
        try:
            told = _Told.by(rows, part.bisected if tolerant else part.written)
        except Exception:
            self._clear(batch)
            raise
        return _StagedParts(told, self._sink, batch)

    def _clear(self, batch: SinkBatch) -> None:
        """Let the sink remove the parts of a job that failed; what failed it is told."""
        try:
            self._sink.abort([], batch)
        except Exception:
            log.warning("staged parts of a failed batch are not removed", exc_info=True)


@dataclass(frozen=True)
class _Part:
    """The work of one Spark partition for a batch sink."""

    sink: BatchSink
    batch: SinkBatch
    schema: pa.Schema
    durability: Durability

    def written(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for part in batches:
                rows += part.num_rows
                yield conform(part, self.schema)

        message = self._write(counted())
        yield _Told.message(message, rows)

    def bisected(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids: list[pa.Array] = []

        def without_ids() -> Iterator[pa.RecordBatch]:
            for part in batches:
                ids.append(part.column(part.num_columns - 1))
                yield conform(part.select(list(range(part.num_columns - 1))), self.schema)

        with Spool(without_ids(), self.schema) as spool:
            bisection = PartBisection(self.sink, spool, self._write)
            message = bisection.run()
        all_ids = pa.chunked_array(ids, pa.int64())
        refused = [
            Refused.by(all_ids[row].as_py(), error)
            for row, error in sorted(bisection.refused.items())
        ]
        yield _Told.message(message, len(all_ids) - len(refused), refused)

    def _write(self, rows: Iterator[pa.RecordBatch]) -> Mapping[str, object]:
        set_durability(self.durability)  # an executor is a process of its own
        return self.sink.write(rows, self.batch, uuid.uuid4().hex)


class _RecordGear(SinkFront):
    def __init__(self, sink: RecordSink) -> None:
        super().__init__(sink)
        self.takes_many_topics = True  # type: ignore[misc]  # each record tells its own
        self.verifies = bool(sink.rejects)  # type: ignore[misc]
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        sink, tolerant = self._sink, RECORD_ID in frame.columns

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows, refused = 0, []
            for part in batches:
                for start in range(0, part.num_rows, _PUT_ROWS):
                    some = part.slice(start, _PUT_ROWS)
                    records = records_of(some, batch.schema, batch.key_schema)
                    rows += len(records)
                    if not tolerant:
                        sink.put(records)
                        continue
                    for row, error in put_records(sink, records).items():
                        refused.append(Refused.by(some.column(RECORD_ID)[row].as_py(), error))
            sink.flush()
            yield _Told.message({}, rows - len(refused), refused)

        frame = with_texts(frame, batch.schema, batch.key_schema)
        frame = _sorted(frame, ordered=self.ordered)
        return _Delivered(
            _Told.by(frame.select(*_RECORD, *([RECORD_ID] if tolerant else [])), run)
        )


def _sorted(frame: DataFrame, *, ordered: bool) -> DataFrame:
    """Return the frame as one partition in the records' order, for a sink that needs it."""
    return frame.repartition(1).sortWithinPartitions("position") if ordered else frame


def _rows_schema(schema: Schema) -> Schema:
    return schema if schema.type is Type.STRUCT else Schema.struct({"value": schema})
