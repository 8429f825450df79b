"""The tables of a connector: their rows, and how a sink's mapping rules fill them."""

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
    """A table that can be read completely, in its current state, for ``headrace verify``.

    Args:
        stream: The stream of the rows, which is the topic of their records; ignored for a
            source with a single stream and for a sink.
        title: The display name, such as `public.orders`.
        schema: The schema of the rows, a STRUCT; None if only the frame has it. A type with
            fewer than six fractional digits of a second must say so in `COLUMN_TYPE`:
            `mariadb datetime(0)`.
        key: The columns that identify a row; empty if there are none.
        read: Returns the rows: a frame with a column for each field, or Arrow parts that
            executors read. Called again if rows moved while both sides were read.
        read_at_once: Reads a consistent snapshot, for a repair; None if ``read`` does that.
            ``read`` may read parts one after the other, and miss a row that moves between them.
        keyed: For a source: whether its records have the key as the record key, not only in
            their schema.
        replaces: For a target: whether a record replaces the row with its key, so that a repair
            may send it again.
        deletes: For a target: whether a record without a value deletes the row with its key.
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


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column of a table.

    Args:
        source: The record field that it is filled from, or the expression.
        name: The column name in the table.
        type: The SQL type; None for an expression whose type only Spark can determine.
    """

    source: str | None
    name: str
    type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedTable:
    """A table that the records of a stream go to, for ``headrace mapping``.

    Args:
        rule: The number of the matching rule, from 0; None if no rule matches.
        table: The name of the table.
        priority: Tables with smaller numbers are written first.
        key: The columns that identify a row, if known.
        columns: The columns; None if the schema of the stream is unknown.
        missing: Fields that the rule names but the stream does not have.
    """

    rule: int | None
    table: str
    priority: int
    key: tuple[str, ...] = ()
    columns: tuple[MappedColumn, ...] | None = None
    missing: tuple[str, ...] = ()
