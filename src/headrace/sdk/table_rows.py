"""The rows that a table has now, on either side of a copy, for ``headrace verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.schema import Schema
    from headrace.sdk.sources import ArrowParts


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table that can be read whole, as it is at that moment.

    Args:
        stream: The stream whose rows it has, which is the topic of their records; not looked at
            for a source that has one stream only, nor for a sink.
        title: What a person calls it, such as `public.orders`.
        schema: Of its rows, a STRUCT; None where only the frame tells. A type that holds fewer
            digits of a second than six says so in `COLUMN_TYPE`: `mariadb datetime(0)`.
        key: The columns that identify a row; empty where nothing does.
        read: Returns the rows: a column for each field, or what executors read as Arrow. Called
            again where rows have moved while both sides were read.
        read_at_once: Reads them as they are at one moment, for a repair; None where ``read``
            does. That may read parts one after the other, and miss a row that moves between.
        keyed: Of a source: whether its records have the key as theirs, and not only in their
            schema.
        replaces: Of a target: whether a record replaces the row of its key, so that a repair
            may send it again.
        deletes: Of a target: whether a record without a value deletes the row of its key.
    """

    stream: str
    title: str
    schema: Schema | None
    key: tuple[str, ...]
    read: Callable[[SparkSession], DataFrame | ArrowParts]
    read_at_once: Callable[[SparkSession], DataFrame | ArrowParts] | None = None
    keyed: bool = False
    replaces: bool = False
    deletes: bool = False
