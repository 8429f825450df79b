"""Streams of few changes: made rows, and staged, by one job for all of them, without plans.

A batch of changes of many tables has few of each. To lay the chain over each by Spark takes a
third of a second and more, nearly all of it for plans; here one worker reads a stream, makes
its rows, keeps the last of each key, and hands them to the sinks. What a stream may need beyond
that, such as a table that has to be made, a schema that changes, or records that are rejected,
is left to the general way, which gives the same rows and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.dataplane.chain import keyed_chain
from headrace.dataplane.delivery import SinkPart, StagedRows, check_balance
from headrace.dataplane.records import over_each
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
"""Of more than these a stream is not few: a worker holds them all."""


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
        stream: What the source gives.
        keyed: Makes rows of the records.
        writes: To each sink.
        left: Those of which nothing else knows: ``abort`` removes what they have written.
    """

    stream: StreamRows
    keyed: KeyedRows
    writes: Sequence[_PartWrite]
    left: list[_PartWrite]

    def abort(self) -> None:
        """Remove what was written, and not staged for a commit."""
        while self.left:
            self.left.pop().write.abort()


@dataclass(frozen=True)
class _Copy:
    """What became of a stream: its records, its rows, and what each write says."""

    records: int
    rows: int = 0
    written: Sequence[str | None] = ()


@dataclass(frozen=True)
class _Work:
    """What a worker does with a stream. It is pickled."""

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
        """Read, make rows, and write them to each sink; None if that cannot be."""
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
    """A stream of few records that is written to each sink."""

    _planned: FewStream
    _copy: _Copy

    @property
    def stream(self) -> StreamRows:
        """What the source gives."""
        return self._planned.stream

    @property
    def counts(self) -> Counts:
        """What becomes of its records in each sink."""
        return Counts(read=self._copy.records, written=self._copy.records)

    @property
    def parts(self) -> Sequence[SinkPart]:
        """The sinks' parts."""
        return [each.part for each in self._planned.writes]

    def stage(self, part: SinkPart, batch: Batch) -> StagedRows:
        """Return what one of the parts has to commit; nothing is left where that raises."""
        number, copy = self.parts.index(part), self._copy
        own = self._planned.writes[number]
        results = [each for each in copy.written[number : number + 1] if each is not None]
        with ExitStack() as undo:
            self._planned.left.remove(own)
            undo.callback(own.write.abort)
            write = own.write.staged(results)
            undo.callback(write.abort)
            # What is there counts, and not what the worker says that it has written.
            check_balance(Counts(read=copy.rows, written=write.rows), batch)
            undo.pop_all()
        return StagedRows(
            write=write, counts=self.counts, rejected=_none_rejected, schema=own.batch.schema
        )


def keyed_rows(
    steps: Sequence[Step], stream: StreamRows
) -> tuple[KeyedRows, RecordExpr] | None:
    """Return what makes rows of a stream's few records, and their shape; None for nothing."""
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
    """Return how a stream is written to all sinks; None if one of them needs Spark for it."""
    made, shape = keyed
    writes: list[_PartWrite] = []
    planned = FewStream(stream, made, writes, left := list[_PartWrite]())
    with ExitStack() as undo:
        undo.callback(planned.abort)
        for part in parts:
            write = None
            # What is wrong is said where the general way finds it too.
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
    """Write all streams by one job.

    Those that have to go the general way are not among what is returned, and leave nothing.
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
    msg = "a stream with rejected records goes the general way"
    raise AssertionError(msg)
