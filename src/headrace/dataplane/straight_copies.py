"""Copies of Arrow rows from a source to a sink that bypass the JVM."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.dataplane.failures import not_tolerated
from headrace.dataplane.records import over_each, rejection
from headrace.dataplane.sink_part import check_balance
from headrace.model import Batch, Counts
from headrace.sdk import ArrowParts, SinkBatch
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.location import Location
from headrace.sdk.sink import ArrowWrite, StagedWrite
from headrace.sdk.storage import naming

_Batches = Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]
_Read = Callable[[Any], _Batches]


@dataclass(frozen=True, slots=True)
class _PartCopy:
    """The result of one part: its row counts and the result of the write.

    Args:
        rows: How many rows were read and not rejected.
        written: The writer's result.
        first: The cause of the first rejection as JSON, if none is tolerated.
        kept: The file with the rejected records, if any.
    """

    rows: int
    written: str | None
    rejected: int = 0
    first: str | None = None
    kept: Location | None = None


@dataclass(frozen=True, slots=True)
class StraightCopy:
    """The result of a copy, which is staged.

    Args:
        write: The staged write of the good records.
        counts: How many records were read, written and rejected.
        rejected: What reads the rejected records: the kept files, or the parts again.
    """

    write: StagedWrite
    counts: Counts
    rejected: ArrowParts


def copy_straight(
    spark: SparkSession,
    arrow: ArrowParts,
    write: ArrowWrite,
    to: SinkBatch,
    batch: Batch,
    *,
    tolerant: bool,
    keep: Location | None,
) -> StraightCopy:
    """Stage the rows of all parts in a sink, bypassing the JVM.

    If both sides share a raw format, its bytes are copied unchanged, and the writers count the
    rows. Only the attempts at parts whose results arrive here count.

    Args:
        spark: Runs one job.
        arrow: The parts.
        write: The sink's write.
        to: The batch as the sink has it.
        batch: The batch.
        tolerant: Whether records may be rejected.
        keep: A folder for files of the rejected records; None to count them only.

    Raises ToleranceExceededError: a row is rejected, and no errors are tolerated.
    """
    with ExitStack() as failed:
        failed.callback(write.abort)
        shared = next((name for name in arrow.raw if name in write.raw), None)
        if shared is None:
            schema = to_arrow(to.schema)
            work = _arrow_copy(arrow, schema, write.write, tolerant=tolerant, keep=keep)
        else:
            work = _raw_copy(arrow.raw[shared], write.raw[shared])
        found = over_each(spark, list(enumerate(arrow.parts)), work)
        firsts = [part.first for part in found if part.first is not None]
        if firsts:
            raise not_tolerated(firsts[0])
        staged = write.staged([part.written for part in found if part.written is not None])
        failed.callback(staged.abort)
        rejected = sum(part.rejected for part in found)
        # Check the rows that are there; a source may know how many it has.
        read = sum(part.rows for part in found) + rejected if to.rows is None else to.rows
        counts = Counts(read, written=staged.rows, rejected=rejected)
        check_balance(counts, batch)
        failed.pop_all()
    if keep is None:
        faulty = [part for part, copy in zip(arrow.parts, found, strict=True) if copy.rejected]
        again = replace(arrow, parts=faulty, read=partial(_rejected_of, arrow.read))
        return StraightCopy(staged, counts, again)
    kept = [part.kept for part in found if part.kept is not None]
    return StraightCopy(staged, counts, replace(arrow, parts=kept, read=_kept_records))


def _rejected_of(read: _Read, part: Any) -> _Batches:
    for batch, rejected in read(part):
        if rejected:
            yield batch.slice(0, 0), rejected


_REJECTED = pa.schema([("record", pa.string()), ("reason", pa.string())])
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
"""Reasons repeat the path and much of the record."""


class _RejectedFile:
    """Writes the rejected records of a part to a file, if there are any. A context manager."""

    def __init__(self, folder: Location, part: int) -> None:
        # A retried part has another file, as an abandoned attempt may still write.
        self.file = folder / f"{part:05d}-{uuid.uuid4().hex}.arrow"
        self._opened = ExitStack()
        self._writer: pa.RecordBatchWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with naming(self.file):
            self._opened.close()

    def write(self, rejected: Sequence[tuple[str, str]]) -> None:
        with naming(self.file):
            if self._writer is None:
                self.file.parent.make_folder()
                to = self._opened.enter_context(self.file.open_output())
                self._writer = self._opened.enter_context(
                    pa.ipc.new_stream(to, _REJECTED, options=_COMPRESSED)
                )
            columns = [pa.array(column, pa.string()) for column in zip(*rejected, strict=True)]
            self._writer.write_batch(pa.record_batch(columns, schema=_REJECTED))


def _kept_records(file: Location) -> _Batches:
    no_rows = pa.RecordBatch.from_pydict({})
    with file.open_input() as source, pa.ipc.open_stream(source) as batches:
        for batch in batches:
            records, reasons = (column.to_pylist() for column in batch.columns)
            yield no_rows, list(zip(records, reasons, strict=True))


def _arrow_copy(
    arrow: ArrowParts,
    schema: pa.Schema,
    write: Callable[[int, Iterator[pa.RecordBatch]], str | None],
    *,
    tolerant: bool,
    keep: Location | None,
) -> Callable[[tuple[int, Any]], _PartCopy]:
    read, plugin = arrow.read, arrow.plugin

    def copied(part: tuple[int, Any]) -> _PartCopy:
        number, payload = part
        written, rejected = 0, 0
        first: str | None = None

        def rows(kept: _RejectedFile | None) -> Iterator[pa.RecordBatch]:
            nonlocal written, rejected, first
            for batch, bad in read(payload):
                rejected += len(bad)
                if bad and not tolerant:
                    first = json.dumps(rejection(plugin, *bad[0]))
                    return
                if bad and kept is not None:
                    kept.write(bad)
                written += batch.num_rows
                if batch.num_rows:
                    yield conform(batch, schema)

        with nullcontext() if keep is None else _RejectedFile(keep, number) as kept:
            result = write(number, rows(kept))
        file = kept.file if kept is not None and rejected else None
        return _PartCopy(written, result, rejected, first, file)

    return copied


def _raw_copy(
    read: Callable[[Any], Iterator[bytes]],
    write: Callable[[int, Iterator[bytes]], tuple[str | None, int]],
) -> Callable[[tuple[int, Any]], _PartCopy]:
    def copied(part: tuple[int, Any]) -> _PartCopy:
        number, payload = part
        result, rows = write(number, read(payload))
        return _PartCopy(rows, result)

    return copied
