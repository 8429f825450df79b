"""Writes streams of few changes in one job for all streams, without query plans.

A batch of changes of many tables has few changes per table. Applying the chain with Spark takes
a third of a second or more per stream, nearly all of it for planning. Here one worker reads a
stream, computes its rows, keeps the last row of each key and writes the rows to the sinks. The
general path in ``Flow``, which writes the same rows and counts, handles the other cases, such
as creating a table, a schema change or rejected records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.dataplane.chain import keyed_chain
from headrace.dataplane.records import over_each
from headrace.dataplane.sink_part import SinkPart, StagedRows, check_balance
from headrace.model import Batch, Counts, SchemaChangeError
from headrace.sdk import (
    ArrowParts,
    ConfigError,
    RecordError,
    RecordExpr,
    SinkBatch,
    ValueExpr,
)
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.keyed_rows import KeyedRows, NotKeyedError
from headrace.sdk.sink import ArrowWrite
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.dataplane.chain import Step
    from headrace.dataplane.dead_letters import RejectedFrame
    from headrace.evolution import Evolution
    from headrace.sdk import StreamRows

MOST_BYTES = 16 << 20
"""The size limit of a stream of few records: one worker loads all of them."""


@dataclass(frozen=True)
class _PartWrite:
    """How a stream is written to one sink."""

    part: SinkPart
    batch: SinkBatch
    write: ArrowWrite


@dataclass(frozen=True)
class FewStream:
    """A stream of few records, and how it is written.

    Args:
        stream: The stream as the source returned it.
        keyed: Converts the records to rows.
        writes: The write to each sink.
        left: The writes that are not yet staged; ``abort`` removes their data.
    """

    stream: StreamRows
    keyed: KeyedRows
    writes: Sequence[_PartWrite]
    left: list[_PartWrite]

    def abort(self) -> None:
        """Remove data that was written but not staged for a commit."""
        while self.left:
            self.left.pop().write.abort()


@dataclass(frozen=True)
class _Copy:
    """The result of a stream: its counts of records and rows, and the result of each write."""

    records: int
    rows: int = 0
    written: Sequence[str | None] = ()


@dataclass(frozen=True)
class _Work:
    """A worker's task for one stream. Pickled."""

    read: Callable[[Any], Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]]
    parts: Sequence[Any]
    schema: pa.Schema
    keyed: KeyedRows
    writes: Sequence[Callable[[int, Iterator[pa.RecordBatch]], str | None]]

    @classmethod
    def of(cls, few: FewStream) -> _Work:
        rows = few.stream.rows
        assert isinstance(rows, ArrowParts)
        writes = [each.write.write for each in few.writes]
        return cls(rows.read, rows.parts, to_arrow(rows.schema), few.keyed, writes)

    def run(self) -> _Copy | None:
        """Write the stream's rows to each sink; None if it needs the general path."""
        records: list[pa.RecordBatch] = []
        for part in self.parts:
            for batch, rejected in self.read(part):
                if rejected:
                    return None
                if batch.num_rows:
                    records.append(conform(batch, self.schema))
        if not records:
            return _Copy(0)
        try:
            rows = self.keyed.last(records)
            written = [write(0, iter([rows])) for write in self.writes]
        except (NotKeyedError, RecordError):
            return None
        return _Copy(sum(batch.num_rows for batch in records), rows.num_rows, written)


@dataclass(frozen=True)
class StagedFew:
    """A stream of few records that was written to each sink."""

    _planned: FewStream
    _copy: _Copy

    @property
    def stream(self) -> StreamRows:
        """The stream as the source returned it."""
        return self._planned.stream

    @property
    def counts(self) -> Counts:
        """The counts of its records, the same in each sink."""
        return Counts(read=self._copy.records, written=self._copy.records)

    @property
    def parts(self) -> Sequence[SinkPart]:
        """The sinks' parts."""
        return [each.part for each in self._planned.writes]

    def stage(self, part: SinkPart, batch: Batch) -> StagedRows:
        """Return the staged rows of one part; on an error, removes its data."""
        number, copy = self.parts.index(part), self._copy
        own = self._planned.writes[number]
        results = [each for each in copy.written[number : number + 1] if each is not None]
        with ExitStack() as undo:
            self._planned.left.remove(own)
            undo.callback(own.write.abort)
            write = own.write.staged(results)
            undo.callback(write.abort)
            # Check the rows that are there, not the number that the worker reported.
            check_balance(Counts(read=copy.rows, written=write.rows), batch)
            undo.pop_all()
        return StagedRows(
            write=write, counts=self.counts, rejected=_none_rejected, schema=own.batch.schema
        )


def keyed_rows(
    steps: Sequence[Step], stream: StreamRows
) -> tuple[KeyedRows, RecordExpr] | None:
    """Return the converter of a stream's few records to rows, and the shape of the rows.

    Returns None if the stream is too large, or if the chain needs Spark.
    """
    rows = stream.rows
    if not isinstance(rows, ArrowParts):
        return None
    if stream.size_bytes is None or stream.size_bytes > MOST_BYTES:
        return None
    keyed = keyed_chain(steps, rows)
    if keyed is None:
        return None
    value = ValueExpr.of("value", rows.schema)
    shape = RecordExpr(key=ValueExpr(None), value=value, topic=literal(stream.stream))
    return keyed, steps[0].apply(shape)


def plan_few(
    spark: SparkSession,
    stream: StreamRows,
    keyed: tuple[KeyedRows, RecordExpr],
    parts: Sequence[SinkPart],
    evolution: Evolution,
) -> FewStream | None:
    """Return the writes of a stream to all sinks; None if one of the sinks needs Spark."""
    made, shape = keyed
    writes: list[_PartWrite] = []
    planned = FewStream(stream, made, writes, left := list[_PartWrite]())
    with ExitStack() as undo:
        undo.callback(planned.abort)
        for part in parts:
            write = None
            # The general path finds the same errors and raises them.
            with suppress(ConfigError, SchemaChangeError):
                if evolution.fitted(shape, part.target) is shape:
                    batch = _batch(stream, shape, part, evolution)
                    if (found := part.sink.keyed_write(spark, batch)) is not None:
                        write = _PartWrite(part, batch, found)
            if write is None:
                return None
            writes.append(write)
            left.append(write)
        undo.pop_all()
    return planned


def _batch(
    stream: StreamRows, shape: RecordExpr, part: SinkPart, evolution: Evolution
) -> SinkBatch:
    value, key = shape.value.schema, shape.key.schema
    assert value is not None
    policy = evolution.policy(part.target.number)
    return SinkBatch(
        part.mark, part.target.topic, value, key, policy, continues=stream.continues
    )


def write_few(spark: SparkSession, streams: Sequence[FewStream]) -> list[StagedFew]:
    """Write all streams in one job.

    The result omits streams that need the general path; their data is removed.
    """
    copies = over_each(spark, [_Work.of(each) for each in streams], _Work.run)
    staged = []
    for stream, copy in zip(streams, copies, strict=True):
        if copy is None:
            stream.abort()
        else:
            staged.append(StagedFew(stream, copy))
    return staged


def _none_rejected() -> RejectedFrame:
    msg = "a stream with rejected records takes the general path"
    raise AssertionError(msg)
