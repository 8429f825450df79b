"""The rows that a table has now, on either side of a copy, for ``headrace verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.schema import Schema


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table that can be read whole, as it is at that moment.

    Args:
        stream: The stream whose rows it has, which is the topic of their records.
        title: What a person calls it, such as `public.orders`.
        schema: Of its rows, a STRUCT.
        key: The columns that identify a row; empty where nothing does.
        read: Returns the rows: a column for each field. Called again where rows have moved
            while both sides were read.
    """

    stream: str
    title: str
    schema: Schema
    key: tuple[str, ...]
    read: Callable[[SparkSession], DataFrame]
