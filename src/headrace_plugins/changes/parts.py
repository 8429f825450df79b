"""The parts of a batch that executors read: runs of the log, and rows of a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from typing_extensions import override

if TYPE_CHECKING:
    from headrace_plugins.changes.envelope import Envelope
    from headrace_plugins.changes.log import Shape
    from headrace_plugins.changes.spool import SpooledRun
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected
    from headrace_plugins.databases.parts import Part

    Typed: TypeAlias = Callable[
        [tuple[Column, ...], pa.RecordBatch], tuple[pa.RecordBatch, Rejected]
    ]
    """Converts ``before`` and ``after`` of a run's rows to the columns' schemas; also returns
    the rejected rows with the reasons."""
    Keeps: TypeAlias = Callable[[pa.RecordBatch], pa.Array | None]
    """Returns the mask of the changes to keep in a run's rows; None for all."""

_JOINED_BYTES = 4 << 20
"""The size up to which small runs are joined."""
_PART_ROWS = 50_000
"""The minimum number of changes in a Spark partition before another one is used."""


class ChangePart(ABC):
    """The part of a batch that one Spark partition reads. Pickled."""

    @property
    def size_bytes(self) -> int | None:
        """The approximate size of the rows; None if unknown."""
        return None

    @abstractmethod
    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        """Yield records, and rejected rows."""


@dataclass(frozen=True)
class LogPart(ChangePart):
    """Runs of the log, all of one table.

    Args:
        typed: Converts the log's values to typed values.
        keeps: Skips changes that the table's snapshot contains; None to skip none.
    """

    runs: tuple[SpooledRun, ...]
    envelope: Envelope
    typed: Typed
    keeps: Keeps | None = None

    @property
    @override
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)

    @override
    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        for shape, rows in self._rows():
            mask = None if self.keeps is None else self.keeps(rows)
            kept = rows if mask is None else rows.filter(mask)
            if kept.num_rows:
                yield self._records(shape, kept)

    def _rows(self) -> Iterator[tuple[Shape, pa.RecordBatch]]:
        """Yield the rows of the runs; small runs are joined."""
        shape, small, size = self.runs[0].shape, list[pa.RecordBatch](), 0
        for run in self.runs:
            if small and (run.shape != shape or size + run.size_bytes > _JOINED_BYTES):
                yield shape, _joined(small)
                small, size = [], 0
            shape, size = run.shape, size + run.size_bytes
            small += run.read()
        if small:
            yield shape, _joined(small)

    def _records(self, shape: Shape, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejected]:
        rows, rejected = self.typed(shape.columns, rows)
        details = {name: rows.column(name) for name in self.envelope.details}
        op, ts_us = rows.column("op"), rows.column("ts_us")
        before, after = rows.column("before"), rows.column("after")
        return self.envelope.records(op, before, after, ts_us, details), rejected


@dataclass(frozen=True)
class SnapshotPart(ChangePart):
    """Rows of a table from a snapshot.

    Args:
        part: Reads the rows.
        ts_us: The time of the snapshot, in microseconds since 1970.
        details: The ``source`` fields of the rows, see ``Envelope``.
    """

    part: Part
    envelope: Envelope
    ts_us: int
    details: Mapping[str, int | str | None]

    @override
    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        largest = None
        for rows, rejected in self.part.read():
            records = self.envelope.read_rows(rows, self.ts_us, self.details, largest)
            if largest is None or records.num_rows > largest.num_rows:
                largest = records
            yield records, rejected


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def grouped(runs: Sequence[SpooledRun], count: int) -> list[tuple[SpooledRun, ...]]:
    """Divide runs, in order, into groups with similar numbers of rows."""
    total = sum(run.rows for run in runs)
    size = max(_PART_ROWS, -(-total // count))
    groups: list[list[SpooledRun]] = [[]]
    rows = 0
    for run in runs:
        if rows >= size and len(groups) < count:
            groups.append([])
            rows = 0
        groups[-1].append(run)
        rows += run.rows
    return [tuple(group) for group in groups]
