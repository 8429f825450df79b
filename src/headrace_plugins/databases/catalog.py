"""The catalog of a database: table names, columns and tables."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, SinkError
from headrace.sdk.schema import COLUMN_TYPE, DECIMAL, PRIMARY_KEY, WHOLE_NUMBERS, scale_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The name of a table: its schema, empty if the database has none, and its name."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str, default_schema: str = "") -> TableName:
        """Parse a configured name ``table`` or ``schema.table``.

        A part with a dot must be in double quotes or backticks. Raises ConfigError for more
        than two parts or an unclosed quote.
        """
        parts: list[str] = []
        rest = text.strip()
        while rest:
            if rest[0] in '"`':
                body, closed, rest = rest[1:].partition(rest[0])
            else:
                body, dot, rest = rest.partition(".")
                closed, rest = "yes", dot + rest
            if not closed or not body or (rest and rest[0] != ".") or rest == ".":
                parts = []
                break
            parts.append(body)
            rest = rest[1:]
        if not 1 <= len(parts) <= 2:  # noqa: PLR2004 - a schema and a name
            raise ConfigError(
                problem=f"Invalid table name {text!r}.",
                fix='Write table or schema.table; quote a part with a dot as "a.b".',
            )
        schema = parts[0] if len(parts) > 1 else default_schema
        return cls(schema, parts[-1])

    @override
    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, or of a query's result.

    Args:
        name: The column's name.
        type: The database's type, such as `numeric(12,2)`.
        schema: The schema of the values that are read; optional if the column is nullable.
        has_default: Whether an INSERT may omit the column, as it has a default.
        generated: Whether the database computes the column, so it cannot be written.
    """

    name: str
    type: str
    schema: Schema
    has_default: bool = False
    generated: bool = False

    def annotated(self, kind: str) -> Schema:
        """Return the schema annotated with the column's type, for a sink of the same kind."""
        parameters = {**self.schema.parameters, COLUMN_TYPE: f"{kind} {self.type}"}
        return self.schema.replaced(parameters=parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as the catalog describes it.

    Args:
        key: The columns of the primary key.
        unique: The columns of each unique constraint or index that covers all rows, including
            the primary key.
        rows: The approximate number of rows; None if the catalog has no estimate.
        size_bytes: The approximate size of the rows.
        parents: The tables that the foreign keys refer to.
        untransactional: The storage engine without transactions; empty if the table supports
            transactions.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    rows: int | None = None
    size_bytes: int | None = None
    parents: tuple[TableName, ...] = ()
    untransactional: str = ""

    def column(self, name: str) -> Column | None:
        """Return the column with a name, or None."""
        return next((each for each in self.columns if each.name == name), None)

    def schema(self, kind: str, columns: Sequence[str] | None = None) -> Schema:
        """Return the schema of the rows, or of some columns."""
        return rows_schema(
            kind,
            [c for c in self.columns if columns is None or c.name in columns],
            self.key,
        )


def rows_schema(kind: str, columns: Sequence[Column], key: Sequence[str] = ()) -> Schema:
    """Return the schema of rows with these columns.

    Args:
        kind: The kind of database of the columns.
        columns: The columns.
        key: The names of the columns that identify a row.
    """
    names = {each.name for each in columns}
    parameters = {PRIMARY_KEY: json.dumps(list(key))} if key and names.issuperset(key) else {}
    fields = {each.name: each.annotated(kind) for each in columns}
    return Schema.struct(fields, parameters=parameters)


def parents_first(tables: Sequence[Table]) -> list[Table]:
    """Return tables sorted so that each comes after the tables that it refers to.

    Tables in a reference cycle keep their order.
    """
    left, done, order = list(tables), set[TableName](), list[Table]()
    names = {each.name for each in tables}
    while left:
        ready = [
            each
            for each in left
            if all(p in done or p not in names or p == each.name for p in each.parents)
        ] or left[:1]
        order += ready
        done |= {each.name for each in ready}
        left = [each for each in left if each.name not in done]
    return order


_ITEM = r"(?:-?\d+|'(?:[^'\\]|'')*'|[a-z_]\w*)"
_PART = re.compile(
    rf"""(?ix) \s+
    | (?! (?:default|generated|check|references|as|primary|unique|constraint)\b ) [a-z_][\w$]*
    | "(?:[^"]|"")*" | `[^`]*` | \. | \[\d*\]
    | \( \s* {_ITEM} (?: \s*,\s* {_ITEM} )* \s* \)"""
)
"""A word, a quoted name or complete literals: nothing that ends a column definition.

A type is parsed part by part, so a long invalid text is refused without backtracking.
Possessive quantifiers (`*+`) must not be used: Python before 3.11.5 then accepts an open quote.
"""


_NUMERIC = re.compile(
    r"(?i)(?:numeric|decimal|dec|number)\s*\(\s*(\d+)(?:\s*,\s*(-?\d+))?\s*\)"
)


def stated_type(schema: Schema) -> tuple[str, str]:
    """Return the kind of database and the column type with which a schema is annotated.

    Both are empty without an annotation or with an invalid type: a schema may come with a
    record, whose author must not be able to inject SQL.
    """
    kind, _, type_ = schema.parameters.get(COLUMN_TYPE, "").partition(" ")
    end = 0
    while end < len(type_):
        if (part := _PART.match(type_, end)) is None:
            return "", ""
        end = part.end()
    return kind, type_


def stated_scale(column: Column) -> int | None:
    """Return the decimal scale of a column's type.

    None if the type has none: the scale is unlimited, or it is a float or not a number.
    """
    if (stated := _NUMERIC.match(column.type)) is not None:
        return int(stated[2] or 0)
    schema = column.schema
    if schema.is_logical:
        return scale_of(schema.parameters) if schema.name == DECIMAL else None
    return 0 if schema.type in WHOLE_NUMBERS else None


def check_cases(kind: str, names: Iterable[str], title: str, fix: str) -> None:
    """Raise SinkError if names differ only in case, for a case-insensitive database.

    Args:
        kind: The kind of the names' objects, in the plural, for the error.
        names: The names; duplicates are allowed.
        title: The database or table that contains the names, for the error.
        fix: The fix in the error.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise SinkError(
                problem=f"The {kind} {other} and {name} differ in case only, but names in "
                f"{title} are case-insensitive.",
                fix=fix,
            )
