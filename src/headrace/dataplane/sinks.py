"""Adapts batch and record sinks to frame sinks, and finds records that targets refuse."""

from __future__ import annotations

import json
import tempfile
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from headrace.dataplane.python_frames import map_in_arrow, records_of
from headrace.dataplane.records import with_texts
from headrace.sdk import (
    BatchSink,
    FrameSink,
    Mark,
    Record,
    RecordSink,
    Refusal,
    RejectedError,
    RetriableError,
    Schema,
    SinkBatch,
    SinkError,
    SinkTask,
    Type,
)
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.durability import Durability, durability, set_durability
from headrace.sdk.sink import RECORD_ID, ArrowWrite, Refused, Selective, StagedWrite, class_name
from headrace.sdk.sqltext import quote, selected
from headrace.sdk.struct_exprs import has_variant

log = structlog.get_logger(__name__)


class SinkFront(FrameSink):
    """Wraps another sink and has the class attributes of that sink."""

    def __init__(self, inner: FrameSink | BatchSink | RecordSink) -> None:
        self._inner = inner
        self.ordered = inner.ordered  # type: ignore[misc]  # the class attribute of this one sink
        self.takes_many_topics = inner.takes_many_topics  # type: ignore[misc]
        self.title = sink_title(inner)
        if isinstance(inner, FrameSink):
            self.counting = inner.counting  # type: ignore[misc]
            self.verifies = inner.verifies  # type: ignore[misc]

    @override
    def priority(self, topic: str) -> int:
        return self._inner.priority(topic)


def sink_title(sink: FrameSink | BatchSink | RecordSink) -> str:
    """Return the name of the sink's class, as used in dead letters."""
    return sink.title if isinstance(sink, SinkFront) else class_name(type(sink))


def put_records(sink: RecordSink, records: Sequence[Record]) -> dict[int, Exception]:
    """Put records, and return the errors of the records that the target refuses, by number.

    All other records are durable. Other errors of the sink are raised.
    """
    try:
        sink.put(records)
        sink.flush()
    except Exception as error:
        if not _is_refusal(sink, error):
            raise
        if isinstance(error, RejectedError):
            sink.flush()
            return _checked(error, len(records))
        if len(records) == 1:
            return {0: error}
    else:
        return {}
    half = len(records) // 2
    found = put_records(sink, records[:half])
    return found | {half + n: e for n, e in put_records(sink, records[half:]).items()}


class Spool:
    """Stores the rows of a Spark partition, which Spark provides once, to read them again.

    A file on the executor contains the rows while the context is open.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self._lengths: list[int] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory("-headrace")))
        self._path = folder / "rows.arrow"
        self._writer = self._open.enter_context(pa.ipc.new_file(self._path, self._schema))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def first(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self._writer.write_batch(batch)
            self._lengths.append(batch.num_rows)
            yield batch

    def finish(self) -> int:
        """Store the rows that ``first`` has not read yet; return how many rows there are."""
        for _ in self.first():
            pass
        self._writer.close()
        return sum(self._lengths)

    def rows(
        self, start: int, end: int, without: Mapping[int, object]
    ) -> Iterator[pa.RecordBatch]:
        """Yield a range of rows again, except those in ``without``."""
        holes = sorted(n for n in without if start <= n < end)
        with pa.memory_map(str(self._path)) as file, pa.ipc.open_file(file) as reader:
            at = 0
            for number, length in enumerate(self._lengths):
                low, high = max(start, at), min(end, at + length)
                if low < high:
                    batch = reader.get_batch(number)
                    cuts = [low - 1, *(n for n in holes if low <= n < high), high]
                    for before, after in pairwise(cuts):
                        if after - before > 1:
                            yield batch.slice(before + 1 - at, after - before - 1)
                at += length


_Rows = TypeVar("_Rows")
_Rows_co = TypeVar("_Rows_co", covariant=True)
_Done = TypeVar("_Done")


class KeptRows(Protocol[_Rows_co]):
    """Rows that can be read again, numbered from 0."""

    def first(self) -> _Rows_co:
        """Return all rows; called first."""

    def finish(self) -> int:
        """Return how many rows there are; called next."""

    def rows(self, start: int, end: int, without: Mapping[int, object]) -> _Rows_co:
        """Return the rows from ``start`` to before ``end``, except those in ``without``."""


class PartBisection(Generic[_Rows, _Done]):
    """Writes one part without the rows that the target refuses.

    Every attempt writes a separate part, and only the last one counts: the sink's transaction
    does not include the others.
    """

    def __init__(
        self,
        sink: SinkTask,
        spool: KeptRows[_Rows],
        write: Callable[[_Rows], _Done],
    ) -> None:
        """Write with ``write``, which gets the rows of an attempt and returns its message."""
        self._sink, self._spool, self._write = sink, spool, write
        self.refused: dict[int, Exception] = {}

    def run(self) -> _Done:
        """Return the message of the part; afterwards ``refused`` has the omitted rows."""
        done = self._attempt(self._spool.first())
        rows = self._spool.finish()
        while isinstance(done, Exception):
            if len(self.refused) == rows:
                raise done  # the sink rejects even a part without rows
            known = len(self.refused)
            self._halve(0, rows, done)
            if len(self.refused) == known:
                # Each half alone is accepted: the rows conflict, for example by equal keys.
                last = self._first_refused(rows)
                self.refused[last] = done
            done = self._part(0, rows)
        return done

    def _attempt(self, rows: _Rows) -> _Done | Exception:
        try:
            return self._write(rows)
        except Exception as error:
            if _is_refusal(self._sink, error):
                return error
            raise

    def _part(self, start: int, end: int) -> _Done | Exception:
        return self._attempt(self._spool.rows(start, end, self.refused))

    def _halve(self, start: int, end: int, error: Exception) -> None:
        """Find the refused rows in a range whose part was refused."""
        good = [n for n in range(start, end) if n not in self.refused]
        if isinstance(error, RejectedError):
            found = _checked(error, len(good))
            self.refused |= {good[n]: each for n, each in found.items()}
            return
        if len(good) == 1:
            self.refused[good[0]] = error
            return
        middle = good[len(good) // 2]
        for low, high in ((start, middle), (middle, end)):
            done = self._part(low, high)
            if isinstance(done, Exception):
                self._halve(low, high, done)

    def _first_refused(self, rows: int) -> int:
        """Return the first row that is refused together with the rows before it."""
        low, high = 0, rows
        while high - low > 1:
            middle = (low + high) // 2
            if isinstance(self._part(0, middle), Exception):
                high = middle
            else:
                low = middle
        return high - 1


def _is_refusal(sink: SinkTask, error: Exception) -> bool:
    """Return whether the error is a refusal of records, not an outage."""
    return not isinstance(error, RetriableError) and isinstance(
        error, (RejectedError, *sink.rejects)
    )


def _checked(error: RejectedError, count: int) -> dict[int, Exception]:
    if not error.rows or not all(0 <= row < count for row in error.rows):
        problem = f"A sink rejected the rows {sorted(error.rows)} of {count} records."
        raise SinkError(
            problem,
            fix="Number the rows of a RejectedError from 0, within the call's records.",
        ) from error
    return dict(error.rows)


_NUMBER = "__headrace_number"
_PARTITION_BITS = 33
"""How many lower bits of monotonically_increasing_id count the rows of a partition."""


class FrameGear(SinkFront):
    """Adapts a frame sink with ``rejects`` to one that verifies."""

    def __init__(self, sink: FrameSink) -> None:
        super().__init__(sink)
        self.verifies = True  # type: ignore[misc]
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._sink.committed(mark, topic)

    @override
    def known_schema(self, topic: str) -> Schema | None:
        return self._sink.known_schema(topic)

    @override
    def arrow_write(self, frame: DataFrame, batch: SinkBatch) -> ArrowWrite | None:
        return self._sink.arrow_write(frame, batch)

    @override
    def keyed_write(self, spark: SparkSession, batch: SinkBatch) -> ArrowWrite | None:
        return self._sink.keyed_write(spark, batch)

    @override
    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        return self._sink.refusals(frame, batch)

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        return self._sink.write_mark(spark, mark, topic)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        if RECORD_ID not in frame.columns:  # nothing is tolerated
            return self._sink.write(frame, batch)
        # Cached, since each attempt would recompute and recount the records.
        cached = frame.selectExpr("*", f"monotonically_increasing_id() AS {_NUMBER}").persist()
        try:
            rows = _FrameRows.of(cached)
            attempts = _Attempts(self._sink, batch)
            bisection = PartBisection(self._sink, rows, attempts.write)
            try:
                staged = bisection.run()
            except BaseException:
                attempts.abort()
                raise
            return _Staged(staged, rows.refused(bisection.refused))
        finally:
            cached.unpersist()


class _Attempts:
    """Writes parts of a batch and keeps only the last one."""

    def __init__(self, sink: FrameSink, batch: SinkBatch) -> None:
        self._sink, self._batch = sink, batch
        self._last: StagedWrite | None = None

    def write(self, frame: DataFrame) -> StagedWrite:
        self.abort()
        try:
            self._last = self._sink.write(frame, self._batch)
        except RejectedError as error:
            problem = "A frame sink raised RejectedError, but rows of a frame have no numbers."
            fix = "Raise an error that is in `rejects`."
            raise SinkError(problem, fix=fix) from error
        return self._last

    def abort(self) -> None:
        if self._last is not None:
            self._last.abort()
        self._last = None


@dataclass(frozen=True)
class _FrameRows:
    """The rows of a cached frame, numbered from 0."""

    frame: DataFrame
    partitions: Sequence[int]
    ends: Sequence[int]
    """For each of ``partitions``, the number of rows up to its end."""

    @classmethod
    def of(cls, frame: DataFrame) -> _FrameRows:
        number = f"shiftright({_NUMBER}, {_PARTITION_BITS}) AS p"
        rows = sorted(
            tuple(row) for row in frame.selectExpr(number).groupBy("p").count().collect()
        )
        return cls(frame, [p for p, _ in rows], list(accumulate(n for _, n in rows)))

    def first(self) -> DataFrame:
        return self._where("true")

    def finish(self) -> int:
        return self.ends[-1] if self.ends else 0

    def rows(self, start: int, end: int, without: Mapping[int, object]) -> DataFrame:
        if start >= end:
            return self._where("false")
        holes = [str(self._number(n)) for n in without if start <= n < end]
        rest = f" AND {_NUMBER} NOT IN ({', '.join(holes)})" if holes else ""
        low, high = self._number(start), self._number(end - 1)
        return self._where(f"{_NUMBER} BETWEEN {low} AND {high}{rest}")

    def refused(self, errors: Mapping[int, Exception]) -> list[Refused]:
        """Return the refused rows with the ids of their records."""
        if not errors:
            return []
        by_number = {self._number(n): error for n, error in errors.items()}
        which = f"{_NUMBER} IN ({', '.join(map(str, by_number))})"
        found = self.frame.where(which).select(_NUMBER, RECORD_ID).collect()
        return [Refused.by(record, by_number[number]) for number, record in found]

    def _where(self, condition: str) -> DataFrame:
        return self.frame.where(condition).drop(_NUMBER, RECORD_ID)

    def _number(self, row: int) -> int:
        place = bisect_right(self.ends, row)
        before = self.ends[place - 1] if place else 0
        return (self.partitions[place] << _PARTITION_BITS) + row - before


@dataclass(frozen=True)
class _Staged:
    """A staged write without the refused records."""

    write: StagedWrite
    found: Sequence[Refused]

    @property
    def rows(self) -> int:
        return self.write.rows

    def refused(self) -> Sequence[Refused]:
        return self.found

    def filtered(self) -> Mapping[str, int]:
        return self.write.filtered() if isinstance(self.write, Selective) else {}

    def commit(self, receipt: str) -> None:
        self.write.commit(receipt)

    def abort(self) -> None:
        self.write.abort()


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
    # A sink that verifies finds refused records itself.
    return FrameGear(sink) if sink.rejects and not sink.verifies else sink


@dataclass(frozen=True)
class _Put:
    """Records that the executors have put into a target; they cannot be undone."""

    rows: int
    found: Sequence[Refused]

    def refused(self) -> Sequence[Refused]:
        return self.found

    def commit(self, receipt: str) -> None:
        """Nothing is left to do: ``flush`` returned on the executors."""

    def abort(self) -> None:
        """Nothing can be undone: record sinks deliver at least once."""


@dataclass(frozen=True)
class _StagedParts(_Put):
    """The parts that the executors staged through a batch sink."""

    sink: BatchSink
    batch: SinkBatch
    messages: Sequence[dict[str, object]]

    @override
    def commit(self, receipt: str) -> None:
        self.sink.commit(self.messages, self.batch, receipt)

    @override
    def abort(self) -> None:
        self.sink.abort(self.messages, self.batch)


def _run_parts(
    frame: DataFrame, run: Any
) -> tuple[int, list[Refused], list[dict[str, object]]]:
    """Return the number of written rows, the refused records, and the parts' messages."""
    parts = map_in_arrow(frame, run, _MESSAGE).collect()
    refused = [Refused(*each) for part in parts for each in json.loads(part.refused)]
    messages = [json.loads(part.message) for part in parts]
    return sum(part.rows for part in parts), refused, messages


def _part_done(
    message: Mapping[str, object], rows: int, refused: Sequence[Refused] = ()
) -> pa.RecordBatch:
    columns = {
        "message": [json.dumps(dict(message))],
        "rows": [rows],
        "refused": [json.dumps([astuple(each) for each in refused])],
    }
    return pa.RecordBatch.from_pydict(columns)


class _BatchGear(SinkFront):
    takes_columns = True

    def __init__(self, sink: BatchSink) -> None:
        super().__init__(sink)
        self.verifies = bool(sink.rejects)  # type: ignore[misc]
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._sink.committed(mark, topic)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        columns, batch = batch.columns, replace(batch, columns={})
        frame = _sorted(with_texts(frame, batch.schema), ordered=self.ordered)
        tolerant = RECORD_ID in frame.columns
        schema = batch.schema
        if schema.type is not Type.STRUCT:
            schema = Schema.struct({"value": schema})
        part = _Part(self._sink, batch, to_arrow(schema), durability())
        values = ["value.*" if batch.schema.type is Type.STRUCT else "value"]
        if columns and not has_variant(batch.schema):
            values = [f"{sql} AS {quote(name)}" for name, sql in columns.items()]
        rows = selected(frame, [*values, *([f"{RECORD_ID} AS {_ID}"] if tolerant else [])])
        try:
            written, refused, messages = _run_parts(
                rows, part.bisected if tolerant else part.written
            )
        except Exception:
            try:
                self._sink.abort([], batch)
            except Exception:
                log.warning("cannot remove the staged parts of a failed batch", exc_info=True)
            raise
        return _StagedParts(written, refused, self._sink, batch, messages)


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
        yield _part_done(message, rows)

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
        yield _part_done(message, len(all_ids) - len(refused), refused)

    def _write(self, rows: Iterator[pa.RecordBatch]) -> Mapping[str, object]:
        set_durability(self.durability)  # an executor is a process of its own
        return self.sink.write(rows, self.batch, uuid.uuid4().hex)


class _RecordGear(SinkFront):
    def __init__(self, sink: RecordSink) -> None:
        super().__init__(sink)
        self.takes_many_topics = True  # type: ignore[misc]  # each record has its topic
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
            yield _part_done({}, rows - len(refused), refused)

        frame = with_texts(frame, batch.schema, batch.key_schema)
        frame = _sorted(frame, ordered=self.ordered)
        columns = [*_RECORD, RECORD_ID] if tolerant else _RECORD
        rows, refused, _ = _run_parts(frame.select(*columns), run)
        return _Put(rows, refused)


def _sorted(frame: DataFrame, *, ordered: bool) -> DataFrame:
    """Return the frame, as one partition in the records' order if the sink needs it."""
    return frame.repartition(1).sortWithinPartitions("position") if ordered else frame
