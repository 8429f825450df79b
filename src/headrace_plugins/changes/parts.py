"""What executors read of a batch of changes: runs of the log, and rows of a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from typing_extensions import override

from headrace.sdk.arrow import to_arrow_type

if TYPE_CHECKING:
    from headrace_plugins.changes.envelope import Envelope
    from headrace_plugins.changes.spool import SpooledRun
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected
    from headrace_plugins.databases.parts import Part

    Typed: TypeAlias = Callable[
        [tuple[Column, ...], list[pa.Array]], tuple[list[pa.Array], Rejected, pa.Array | None]
    ]
    """Makes values of the columns' schemas of what the log has, and says which are none: their
    texts with the reasons, and the numbers of the rows that are left; None for all."""
    Keeps: TypeAlias = Callable[[pa.RecordBatch], pa.Array | None]
    """Says which changes are kept, of a run's rows; None for all."""


class ChangePart(ABC):
    """What one Spark partition reads. It is pickled."""

    @abstractmethod
    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        """Yield records, and rows of the log that none stands for."""


@dataclass(frozen=True)
class LogPart(ChangePart):
    """Runs of the log, all of one table.

    Args:
        typed: Makes values of what the log has.
        keeps: Passes over what a snapshot of the table has already; None where it has nothing.
    """

    runs: tuple[SpooledRun, ...]
    envelope: Envelope
    typed: Typed
    keeps: Keeps | None = None

    @override
    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        for run in self.runs:
            for rows in run.read():
                kept = rows
                if self.keeps is not None:
                    mask = self.keeps(rows)
                    kept = rows if mask is None else rows.filter(mask)
                if kept.num_rows:
                    yield self._records(run, kept)

    def _records(
        self, run: SpooledRun, rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, Rejected]:
        columns = run.shape.columns
        both = [rows.column("before"), rows.column("after")]
        there = [each for each in both if each.null_count < len(each)]
        arrays = [array for each in there for array in each.flatten()]
        values, rejected, left = self.typed(columns * len(there), arrays)
        if left is not None:
            rows = rows.take(left)
        fields = [pa.field(c.name, to_arrow_type(c.schema)) for c in columns]
        made = []
        for struct, was in zip(
            (rows.column("before"), rows.column("after")), both, strict=True
        ):
            if was.null_count == len(was):
                made.append(pa.nulls(len(struct), pa.struct(fields)))
                continue
            own, values = values[: len(columns)], values[len(columns) :]
            made.append(pa.StructArray.from_arrays(own, fields=fields, mask=struct.is_null()))
        details = {name: rows.column(name) for name in self.envelope.details}
        before, after = made
        op, ts_us = rows.column("op"), rows.column("ts_us")
        return self.envelope.records(op, before, after, ts_us, details), rejected


@dataclass(frozen=True)
class SnapshotPart(ChangePart):
    """Rows of a table, as they are at one time.

    Args:
        part: Reads them.
        ts_us: The time, in microseconds since 1970.
        details: What ``source`` says of each, see ``Envelope``.
    """

    part: Part
    envelope: Envelope
    ts_us: int
    details: Mapping[str, int | str | None]

    @override
    def read(self) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        for rows, rejected in self.part.read():
            yield self.envelope.read_rows(rows, self.ts_us, self.details), rejected
