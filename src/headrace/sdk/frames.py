"""Small builders for the record frames that frame sources return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.sqltext import literal, quote
from headrace.sdk.transform import ERROR_TYPE

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


def checked_rows(frame: DataFrame, *, corrupt: str, plugin: str, message: str) -> DataFrame:
    """Turn rows into records and reject those whose column ``corrupt`` is not null.

    Args:
        frame: The rows and, beside them, the raw text of each that was not readable.
        corrupt: Name of the column with the raw text.
        plugin: Name of the plugin that read them.
        message: What is wrong with a rejected row.
    """
    fields = [name for name in frame.columns if name != corrupt]
    pairs = ", ".join(f"{literal(name)}, {quote(name)}" for name in fields)
    raw = quote(corrupt)
    error = (
        f"named_struct('stage', 'TASK_POLL', 'plugin', {literal(plugin)}, "
        f"'exception', 'RecordError', 'message', {literal(message)}, 'raw', {raw})"
    )
    return frame.selectExpr(
        f"named_struct({pairs}) AS value",
        f"IF({raw} IS NULL, CAST(NULL AS {ERROR_TYPE}), {error}) AS error",
    )
