"""Streams of few changes: made rows, and staged, by one job for all of them, without plans.

A batch of changes of many tables has few of each. To lay the chain over each by Spark takes a
third of a second and more, nearly all of it for plans; here one worker reads a stream, makes
its rows, keeps the last of each key, and hands them to the sinks. What a stream may need beyond
that, such as a table that has to be made, a schema that changes, or records that are rejected,
is left to the general way, which gives the same rows and counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
class FewStream:
    """A stream of few records, and how it is written to each sink.

    Args:
        stream: What the source gives.
        parts: The sinks' parts.
        keyed: Makes rows of the records.
        batches: What each sink is told of them.
        writes: What writes to each.
        left: The writes of which nothing else knows, by number: ``abort`` removes those.
    """

    stream: StreamRows
    parts: Sequence[SinkPart]
    keyed: KeyedRows
    batches: list[SinkBatch] = field(default_factory=list)
    writes: list[ArrowWrite] = field(default_factory=list)
    left: set[int] = field(default_factory=set)

    def add(self, batch: SinkBatch, write: ArrowWrite | None) -> None:
        """Know of the next part's write, if there is one."""
        if write is None:
            return
        self.left.add(len(self.writes))
        self.batches.append(batch)
        self.writes.append(write)

    def abort(self) -> None:
        """Remove what was written, and not staged for a commit."""
        while self.left:
            self.writes[self.left.pop()].abort()


@dataclass(frozen=True)
class _Copy:
    """What became of a stream: its records, its rows, and what each write says."""

    records: int
    rows: int = 0
    written: Sequence[str | None] = ()


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
        return self._planned.parts

    def stage(self, part: SinkPart, batch: Batch) -> StagedRows:
        """Return what one of the parts has to commit; nothing is left where that raises."""
        planned, copy = self._planned, self._copy
        number = planned.parts.index(part)
        written = copy.written[number] if copy.written else None
        with ExitStack() as undo:
            planned.left.discard(number)
            undo.callback(planned.writes[number].abort)
            write = planned.writes[number].staged([] if written is None else [written])
            undo.callback(write.abort)
            # What is there counts, and not what the worker says that it has written.
            check_balance(Counts(read=copy.rows, written=write.rows), batch)
            undo.pop_all()
        return StagedRows(
            write=write,
            counts=self.counts,
            rejected=_none_rejected,
            schema=planned.batches[number].schema,
        )


def keyed_rows(
    steps: Sequence[Step], stream: StreamRows
) -> tuple[KeyedRows, RecordExpr] | None:
    """Return what makes rows of a stream's few records, and their shape; None if nothing does.

    Only a chain of one step has that.
    """
    rows = stream.rows
    if len(steps) != 1 or not isinstance(rows, ArrowParts):
        return None
    if stream.size_bytes is None or stream.size_bytes > MOST_BYTES:
        return None
    [step] = steps
    keyed = None if step.predicate is not None else step.transform.keyed_rows(rows.schema)
    if keyed is None:
        return None
    value = ValueExpr.of("value", rows.schema)
    shape = RecordExpr(key=ValueExpr(None), value=value, topic=literal(stream.stream))
    return keyed, step.apply(shape)


def plan_few(
    spark: SparkSession,
    stream: StreamRows,
    keyed: tuple[KeyedRows, RecordExpr],
    parts: Sequence[SinkPart],
    evolution: Evolution,
) -> FewStream | None:
    """Return how a stream is written to all sinks; None if one of them needs Spark for it."""
    made, shape = keyed
    planned = FewStream(stream, parts, made)
    with ExitStack() as undo:
        undo.callback(planned.abort)
        for number, part in enumerate(parts, 1):
            # What is wrong is said where the general way finds it too.
            with suppress(ConfigError, SchemaChangeError):
                if evolution.fitted(shape, part.target) is shape:
                    batch = _batch(stream, shape, part, evolution)
                    planned.add(batch, part.sink.keyed_write(spark, batch))
            if len(planned.writes) < number:
                return None
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
    found = over_each(spark, [_work(each) for each in streams], _copied)
    for stream, copy in zip(streams, found, strict=True):
        if copy is None:
            stream.abort()
    pairs = zip(streams, found, strict=True)
    return [StagedFew(stream, copy) for stream, copy in pairs if copy is not None]


def _none_rejected() -> RejectedFrame:
    msg = "a stream with rejected records goes the general way"
    raise AssertionError(msg)


def _work(stream: FewStream) -> tuple[Any, ...]:
    rows = stream.stream.rows
    assert isinstance(rows, ArrowParts)
    writes = [write.write for write in stream.writes]
    return rows.read, list(rows.parts), to_arrow(rows.schema), stream.keyed, writes


def _copied(work: tuple[Any, ...]) -> _Copy | None:
    """Read a stream, make its rows, and write them to each sink; None if that cannot be."""
    read, parts, schema, keyed, writes = work
    records: list[pa.RecordBatch] = []
    for part in parts:
        for batch, rejected in read(part):
            if rejected:
                return None
            if batch.num_rows:
                records.append(conform(batch, schema))
    if not records:
        return _Copy(0)
    try:
        rows = keyed.last(records)
        written = [write(0, iter([rows])) for write in writes]
    except (NotKeyedError, RecordError):
        return None
    return _Copy(sum(batch.num_rows for batch in records), rows.num_rows, written)
