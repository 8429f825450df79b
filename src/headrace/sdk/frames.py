"""Small builders for the record frames that frame sources return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def rows(
    frame: DataFrame, *, timestamp: str | None = None, keys: Sequence[str] = ()
) -> DataFrame:
    """Turn a frame of plain rows into records, one a row.

    Args:
        frame: The rows; all columns become fields of the value.
        timestamp: Name of a TIMESTAMP column to copy into the record's timestamp.
        keys: Names of columns to copy into the record's key.
    """
    columns = ["struct(*) AS value"]
    if keys:
        pairs = ", ".join(f"{literal(name)}, {quote(name)}" for name in keys)
        columns.append(f"named_struct({pairs}) AS key")
    if timestamp:
        columns.append(f"CAST({quote(timestamp)} AS TIMESTAMP) AS timestamp")
    return frame.selectExpr(*columns)
