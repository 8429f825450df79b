"""Small batches of keyed rows in Arrow, without a Spark plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETED = "__headrace_deleted"
"""The column of staged rows that is true for tombstones, of which only the key is used."""


class NotKeyedError(Exception):
    """The records cannot be converted to keyed rows in Arrow; Spark must process them."""


@dataclass(frozen=True)
class KeyedRows:
    """Converts records to rows in Arrow, like a transform in SQL. Pickled to executors.

    Args:
        keys: The columns that identify a row.
        make: Returns one row per record, given a batch whose columns are the fields of the
            records' values; ``DELETED`` is the last column. Raises NotKeyedError.
    """

    keys: tuple[str, ...]
    make: Callable[[pa.RecordBatch], pa.RecordBatch]

    def last(self, records: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the last row of each key.

        Raises NotKeyedError: the records cannot be converted to rows, or a key is null or has
        a type that Arrow and Spark compare differently.
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
    """Return whether Arrow and Spark agree on equal keys; they differ for NaN and -0.0."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))
