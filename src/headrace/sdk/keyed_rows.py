"""Rows with keys as Arrow, for few of them, which need no plan of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETED = "__headrace_deleted"
"""The column of staged rows that is true for tombstones, of which only the key counts."""


class NotKeyedError(Exception):
    """Records are not what rows are made of in Arrow: they have to go another way."""


@dataclass(frozen=True)
class KeyedRows:
    """Makes rows of records in Arrow, as a transform does by SQL. It is pickled to executors.

    Args:
        keys: The columns that identify a row.
        make: Returns a row for each of some records, whose columns are the fields of their
            values, with ``DELETED`` as the last column. Raises NotKeyedError.
    """

    keys: tuple[str, ...]
    make: Callable[[pa.RecordBatch], pa.RecordBatch]

    def last(self, records: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the last row of each key.

        Raises NotKeyedError: records are no rows, or their key is null or of a type that
        Arrow does not compare as Spark does.
        """
        rows = pa.Table.from_batches([self.make(each) for each in records])
        for key in self.keys:
            column = rows.column(key)
            if column.null_count or not _is_comparable(column.type):
                raise NotKeyedError(key)
        names = [str(number) for number in range(len(self.keys))]
        keys = rows.select(self.keys).rename_columns(names)
        numbered = keys.append_column("row", pa.array(np.arange(rows.num_rows)))
        groups = numbered.group_by(names, use_threads=False)
        last = groups.aggregate([("row", "max")]).column("row_max").to_numpy()
        kept = rows if len(last) == rows.num_rows else rows.take(np.sort(last))
        return kept.combine_chunks().to_batches()[0]


def _is_comparable(kind: pa.DataType) -> bool:
    """Return whether equal keys are equal to Spark too; NaN and -0.0 have equals."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))
