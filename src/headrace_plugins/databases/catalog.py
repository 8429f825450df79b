"""What a database holds: names, columns and tables."""

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
    """The name of a table: its schema, empty where the database has none, and its own."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str, default_schema: str = "") -> TableName:
        """Return the name that a person wrote as ``table`` or ``schema.table``.

        A part may be in double quotes or backticks, for a name with a dot in it. Raises
        ConfigError: it has more than two parts, or an open quote.
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
                problem=f"Invalid name of a table {text!r}.",
                fix='Write table or schema.table, a part with a dot in it as "a.b".',
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
        name: Its name.
        type: The database's own text of its type, such as `numeric(12,2)`.
        schema: The schema of its values as they are read; optional if it may be null.
        has_default: Whether the database fills it in where an INSERT leaves it out.
        generated: Whether the database computes it, so that nothing else can write it.
    """

    name: str
    type: str
    schema: Schema
    has_default: bool = False
    generated: bool = False

    def annotated(self, kind: str) -> Schema:
        """Return the schema with the column's own type, for a sink of the same ``kind``."""
        parameters = {**self.schema.parameters, COLUMN_TYPE: f"{kind} {self.type}"}
        return self.schema.replaced(parameters=parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as the catalog describes it.

    Args:
        key: The columns of its primary key.
        unique: The columns of each unique constraint or index that covers all rows, the
            primary key's among them.
        rows: About how many rows it has; None where the catalog does not say.
        size_bytes: About how large they are.
        parents: The tables that its foreign keys refer to.
        untransactional: The engine that keeps its rows without transactions; empty where it
            has them.
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
        """Return the column of that name, or None."""
        return next((each for each in self.columns if each.name == name), None)

    def schema(self, kind: str, columns: Sequence[str] | None = None) -> Schema:
        """Return the schema of its rows, or of some of its columns."""
        return rows_schema(
            kind,
            [c for c in self.columns if columns is None or c.name in columns],
            self.key,
        )


def rows_schema(kind: str, columns: Sequence[Column], key: Sequence[str] = ()) -> Schema:
    """Return the schema of rows with these columns.

    Args:
        kind: The kind of database that they are of.
        columns: The columns.
        key: The names of those that identify a row.
    """
    names = {each.name for each in columns}
    parameters = {PRIMARY_KEY: json.dumps(list(key))} if key and names.issuperset(key) else {}
    fields = {each.name: each.annotated(kind) for each in columns}
    return Schema.struct(fields, parameters=parameters)


def parents_first(tables: Sequence[Table]) -> list[Table]:
    """Return tables in an order in which each comes after those that it refers to.

    Those that refer to each other in a circle keep their order.
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
"""A word, a quoted name or whole literals: nothing that ends a column's definition.

A type is read part by part, so a text that is long and wrong is refused at once. Patterns that
never go back (`*+`) are not for this: Python before 3.11.5 lets an open quote pass.
"""


_NUMERIC = re.compile(
    r"(?i)(?:numeric|decimal|dec|number)\s*\(\s*(\d+)(?:\s*,\s*(-?\d+))?\s*\)"
)


def stated_type(schema: Schema) -> tuple[str, str]:
    """Return the kind of database and the type of the column that a schema says it is of.

    Both are empty where it says none, or what is no type: a schema may come with a record, and
    whoever wrote that is not to write SQL.
    """
    kind, _, type_ = schema.parameters.get(COLUMN_TYPE, "").partition(" ")
    end = 0
    while end < len(type_):
        if (part := _PART.match(type_, end)) is None:
            return "", ""
        end = part.end()
    return kind, type_


def stated_scale(column: Column) -> int | None:
    """Return how many digits after the point a column keeps of a number.

    None where its type says none: it keeps all, or those of a float, or is no number.
    """
    if (stated := _NUMERIC.match(column.type)) is not None:
        return int(stated[2] or 0)
    schema = column.schema
    if schema.is_logical:
        return scale_of(schema.parameters) if schema.name == DECIMAL else None
    return 0 if schema.type in WHOLE_NUMBERS else None


def check_cases(kind: str, names: Iterable[str], title: str, fix: str) -> None:
    """Raise SinkError if names differ in case only, where a database takes them for one.

    Args:
        kind: What has the names, in the plural.
        names: The names; the same may come again.
        title: Where they are to be.
        fix: What to do.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise SinkError(
                problem=f"The {kind} {other} and {name} differ in case only, which {title} "
                "takes for one.",
                fix=fix,
            )
