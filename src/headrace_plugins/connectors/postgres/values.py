"""Converts texts of PostgreSQL's log to values, and filters changes that a snapshot has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Schema
from headrace.sdk.arrow import to_arrow_type
from headrace_plugins.databases.catalog import Column
from headrace_plugins.databases.text_rows import TextColumns, unhexed

if TYPE_CHECKING:
    from headrace_plugins.databases.database import Rejected

_ROW = Column(name="", type="bigint", schema=Schema.int64())


@dataclass(frozen=True)
class LogTexts:
    """Converts texts to values, like the bulk reader.

    Args:
        nulls: Whether a value that its schema cannot represent becomes null.
    """

    nulls: bool = False

    def __call__(
        self, columns: tuple[Column, ...], rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, Rejected]:
        """Return the changes with typed ``before`` and ``after``, and the rejected changes.

        In ``before``, an invalid value becomes null if the column is nullable.
        """
        reasons: list[tuple[str, str]] = []
        for name, nulls in (("before", True), ("after", self.nulls)):
            structs = rows.column(name)
            if structs.null_count == len(structs):
                values, left = pa.nulls(len(structs), _struct(columns)), None
            else:
                arrays, rejected, left = _values(columns, structs.flatten(), nulls=nulls)
                reasons += rejected
                missing = structs.is_null() if left is None else structs.is_null().take(left)
                kind = _struct(columns)
                # Times of day are parsed as Arrow's time type.
                fitted = [a.cast(field.type) for a, field in zip(arrays, kind, strict=True)]
                values = pa.StructArray.from_arrays(fitted, fields=list(kind), mask=missing)
            rows = rows if left is None else rows.take(left)
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows, reasons


def _struct(columns: tuple[Column, ...]) -> pa.StructType:
    return pa.struct([pa.field(c.name, to_arrow_type(c.schema)) for c in columns])


def _values(
    columns: tuple[Column, ...], arrays: list[pa.Array], *, nulls: bool
) -> tuple[list[pa.Array], Rejected, pa.Array | None]:
    """Return the values, the rejected rows with reasons, and the indexes of the kept rows."""
    texts = [_plain(array, column) for array, column in zip(arrays, columns, strict=True)]
    batch, rejected = TextColumns(columns, nulls, zone="+00").parse(texts)
    if not rejected:
        return batch.columns, (), None
    rows = pa.array([str(row) for row in range(len(texts[0]))])
    batch, rejected = TextColumns((*columns, _ROW), nulls, zone="+00").parse([*texts, rows])
    *values, left = batch.columns
    return values, rejected, left


def _plain(texts: pa.Array, column: Column) -> pa.Array:
    if column.type == "money":
        # The format of lc_monetary C, which the connection sets.
        return pc.replace_substring_regex(texts, r"[$,]", "")
    return unhexed(texts, column.schema)


@dataclass(frozen=True)
class Unseen:
    """Selects the changes of transactions that a snapshot does not see.

    Args:
        xmin: All transactions before this one had ended.
        xmax: This one and all later ones had not started.
        running: The transactions in between that had not ended.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Unseen:
        """Parse the text of ``pg_current_snapshot()``."""
        xmin, xmax, running = text.split(":")
        return cls(
            int(xmin), int(xmax), tuple(int(each) for each in running.split(",") if each)
        )

    def __call__(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return a mask of the changes to keep; None for all."""
        # The log has the lower 32 bits: of two ids, the later is less than 2**31 ahead.
        numbers = rows.column("txId").to_numpy()
        from_xmin = ((numbers - self.xmin + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        seen = from_xmin < self.xmax - self.xmin
        if self.running:
            seen &= ~np.isin(from_xmin, [each - self.xmin for each in self.running])
        return pa.array(~seen) if seen.any() else None
