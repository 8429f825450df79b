"""The tables that a sink's rules give a stream, for ``headrace mapping``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column of a table.

    Args:
        source: The record's field that it is made of, or the expression.
        name: In the table.
        type: In SQL; None for an expression whose type only Spark can tell.
    """

    source: str | None
    name: str
    type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedTable:
    """A table that the records of a stream go to.

    Args:
        rule: The number of the rule that says so, from 0; None where none matches.
        table: What the table is called.
        priority: The smaller are written first.
        key: The columns that identify a row, as far as that is known.
        columns: None where the schema of the stream is not known.
        missing: Fields that the rule names and the stream does not have.
    """

    rule: int | None
    table: str
    priority: int
    key: tuple[str, ...] = ()
    columns: tuple[MappedColumn, ...] | None = None
    missing: tuple[str, ...] = ()
