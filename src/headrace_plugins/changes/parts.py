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
        [tuple[Column, ...], list[pa.Array], bool],
        tuple[list[pa.Array], Rejected, pa.Array | None],
    ]
    """Makes values of the columns' schemas of what the log has, and says which are none: their
    texts with the reasons, and the numbers of the rows that are left; None for all. If it is
    told so, those that are none are null."""
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
        before, after = rows.column("before"), rows.column("after")
        # A value before that is none rejects nothing: the change would stay undone.
        befores = self._values(columns, before, nulls=True)[0]
        afters, rejected, left = self._values(columns, after, nulls=False)
        before = _struct(columns, befores, before)
        if left is not None:
            rows, before, after = (each.take(left) for each in (rows, before, after))
        after = _struct(columns, afters, after)
        details = {name: rows.column(name) for name in self.envelope.details}
        op, ts_us = rows.column("op"), rows.column("ts_us")
        return self.envelope.records(op, before, after, ts_us, details), rejected

    def _values(
        self, columns: tuple[Column, ...], texts: pa.Array, *, nulls: bool
    ) -> tuple[list[pa.Array], Rejected, pa.Array | None]:
        if texts.null_count == len(texts):
            return [], (), None
        return self.typed(columns, texts.flatten(), nulls)


def _struct(
    columns: tuple[Column, ...], values: list[pa.Array], texts: pa.Array
) -> pa.StructArray:
    """Return values as rows, which are null where the texts are."""
    fields = [pa.field(each.name, to_arrow_type(each.schema)) for each in columns]
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.struct(fields))
    # Times of day are parsed as Arrow's own.
    fitted = [each.cast(field.type) for each, field in zip(values, fields, strict=True)]
    return pa.StructArray.from_arrays(fitted, fields=fields, mask=texts.is_null())


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
