"""Parquet files that executors write in Python, one for each part of a batch."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.sdk.location import Location

_SAMPLED_ROWS = 10_000
_GROUP_BYTES = 128 * 1024 * 1024
"""How much goes into one row group, as it is in memory."""


def write_part(
    folder: Location, compression: str, number: int, rows: Iterator[pa.RecordBatch]
) -> None:
    """Write the rows of a part as one file of the folder, or none where there are none.

    A part that is written again replaces its file; what a killed attempt leaves is hidden.
    """
    first = next(rows, None)
    if first is None:
        return
    folder.make_folder()
    name = f"part-{number:05d}.{compression}.parquet"
    draft = folder / f".{name}.{uuid.uuid4().hex}.draft"
    with (
        draft.open_output() as file,
        pq.ParquetWriter(
            file, first.schema, compression=compression, use_dictionary=_repeating(first)
        ) as writer,
    ):
        group, size = [first], first.nbytes
        for batch in rows:
            if size + batch.nbytes > _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group, size = [], 0
            group.append(batch)
            size += batch.nbytes
        writer.write_table(pa.Table.from_batches(group))
    draft.move_to(folder / name)


def _repeating(rows: pa.RecordBatch) -> list[str] | bool:
    """Return the columns whose values repeat: a dictionary of others costs time and room."""
    some = rows.slice(0, _SAMPLED_ROWS)
    if any(pa.types.is_nested(each) for each in rows.schema.types):
        return True  # columns within others have names of their own
    half = some.num_rows / 2
    names = zip(some.schema.names, some.columns, strict=True)
    return [name for name, values in names if pc.count_distinct(values).as_py() <= half]
