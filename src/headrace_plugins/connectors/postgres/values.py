"""The texts of PostgreSQL's log as values, and which changes a snapshot has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Schema
from headrace_plugins.databases.catalog import Column
from headrace_plugins.databases.csv_rows import unhexed
from headrace_plugins.databases.text_columns import TextColumns

if TYPE_CHECKING:
    from headrace_plugins.databases.database import Rejected

_ROW = Column(name="", type="bigint", schema=Schema.int64())


@dataclass(frozen=True)
class LogTexts:
    """Makes values of texts, as the bulk reader does.

    Args:
        nulls: Whether a value that its schema has nothing for becomes null.
    """

    nulls: bool = False

    def __call__(
        self,
        columns: tuple[Column, ...],
        arrays: list[pa.Array],
        nulls: bool = False,  # noqa: FBT001, FBT002 - see Typed
    ) -> tuple[list[pa.Array], Rejected, pa.Array | None]:
        """Return the values, the rows that are none with the reasons, and which are left."""
        nulls = nulls or self.nulls
        texts = [_plain(array, column) for array, column in zip(arrays, columns, strict=True)]
        batch, rejected = TextColumns(columns, nulls, zone="+00").parse(texts)
        if not rejected:
            return batch.columns, (), None
        rows = pa.array([str(row) for row in range(len(texts[0]))])
        parser = TextColumns((*columns, _ROW), nulls, zone="+00")
        batch, rejected = parser.parse([*texts, rows])
        *values, left = batch.columns
        return values, rejected, left


def _plain(texts: pa.Array, column: Column) -> pa.Array:
    if column.type == "money":
        # As it is written with lc_monetary C, which the connection sets.
        return pc.replace_substring_regex(texts, r"[$,]", "")
    return unhexed(texts, column.schema)


@dataclass(frozen=True)
class Unseen:
    """Keeps the changes of transactions that a snapshot does not see.

    Args:
        xmin: All transactions before this one had ended.
        xmax: This one and all behind it had not begun.
        running: Those between that had not ended.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Unseen:
        """Read what ``pg_current_snapshot()`` says."""
        xmin, xmax, running = text.split(":")
        return cls(
            int(xmin), int(xmax), tuple(int(each) for each in running.split(",") if each)
        )

    def __call__(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return which changes are kept; None for all."""
        # The log has the lower 32 bits, in which later is what is less than half a round ahead.
        numbers = rows.column("txId").to_numpy()
        from_xmin = ((numbers - self.xmin + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        seen = from_xmin < self.xmax - self.xmin
        if self.running:
            seen &= ~np.isin(from_xmin, [each - self.xmin for each in self.running])
        return pa.array(~seen) if seen.any() else None
