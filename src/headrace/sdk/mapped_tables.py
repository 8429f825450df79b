"""The tables to which a sink's rules map a stream, for ``headrace mapping``."""

from __future__ import annotations

from dataclasses import dataclass


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
    """A table that the records of a stream go to.

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
