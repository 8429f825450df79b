"""Which tables of a database are read, and what their topics are called."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace_plugins.databases.catalog import TableName, parents_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Database, Session
    from headrace_plugins.databases.source_settings import TableSourceSettings


NO_TABLES = "The user may read no table that is chosen."
NO_TABLES_FIX = "Grant SELECT on them, or correct table.include.list."


@dataclass(frozen=True)
class Selection:
    """Chooses tables by name.

    Args:
        included: Names and patterns of those that are read; all if empty.
        excluded: The same for those that are not.
        default_schema: The schema of a pattern that names none.
        prefix: What topics begin with.
        field: The key that names those that are included.
    """

    included: Sequence[str]
    excluded: Sequence[str]
    default_schema: str
    prefix: str = ""
    field: str = "table.include.list"

    @classmethod
    def of(cls, settings: TableSourceSettings, database: Database) -> Selection:
        """Return which tables of a database the settings of a source choose."""
        prefix, schema = settings.topic_prefix, database.default_schema
        return cls(settings.included, settings.excluded, schema, prefix)

    def tables(self, database: Database, session: Session) -> list[Table]:
        """Return the tables that are read, parents before their children.

        Raises ConfigError as ``chosen`` does.
        """
        chosen = self.chosen(database.tables(session))
        return parents_first(list(database.describe(session, chosen).values()))

    def required_tables(self, database: Database, session: Session) -> list[Table]:
        """Return the tables that are read. Raises ConfigError where there is none, too."""
        if not (found := self.tables(database, session)):
            raise ConfigError(problem=NO_TABLES, fix=NO_TABLES_FIX, field="table.include.list")
        return found

    @property
    def is_fixed(self) -> bool:
        """Whether no table can come that would be read too."""
        return bool(self.included) and not any(_WILD.search(each) for each in self.included)

    def chosen(self, tables: Iterable[TableName]) -> list[TableName]:
        """Return those of a database's tables that are read, in their order.

        Raises ConfigError: a name without * or ? is of no table.
        """
        there = list(tables)
        missing = [
            each
            for each in self.included
            if not _WILD.search(each) and not any(self._is(each, table) for table in there)
        ]
        if missing:
            raise ConfigError(
                problem=f"There is no table {', '.join(missing)}, or the user may not read it.",
                fix=f"{_meant(missing[0], there)}Create it, put it back or grant SELECT on it, "
                f"or take it out of {self.field}.",
                field=self.field,
            )
        return [table for table in there if self.takes(table)]

    def names(self, table: TableName) -> bool:
        """Return whether a table is chosen by its own name, and not by a pattern only."""
        return any(not _WILD.search(each) and self._is(each, table) for each in self.included)

    def takes(self, table: TableName) -> bool:
        """Return whether a table is read, if there is one of that name; never one of ours."""
        if table.name.startswith("headrace_"):
            return False
        is_in = not self.included or any(self._is(each, table) for each in self.included)
        return is_in and not any(self._is(each, table) for each in self.excluded)

    def stream(self, table: TableName) -> str:
        """Return the topic of a table's records, with its schema if not the default.

        A part with a dot in it is in quotes: else a sink would take it for two.
        """
        parts = [table.name]
        if table.schema not in {self.default_schema, ""}:
            parts = [table.schema, table.name]
        own = ".".join(f'"{part}"' if "." in part else part for part in parts)
        return f"{self.prefix}{own}"

    def _is(self, pattern: str, table: TableName) -> bool:
        wanted = TableName.parse(pattern, self.default_schema)
        return _matches(wanted.schema, table.schema) and _matches(wanted.name, table.name)


_WILD = re.compile(r"[*?]")
_EXPRESSION = re.compile(r"[\\()|\[\]^$+]")
"""What names seldom have, and Debezium's lists often."""


def _meant(pattern: str, tables: Sequence[TableName]) -> str:
    """Return what somebody may have meant who has named no table, as a sentence."""
    if _EXPRESSION.search(pattern):
        return "Patterns have * and ?, as in sales.*, and are not regular expressions. "
    names = {table.name.lower(): str(table) for table in reversed(tables)}
    near = get_close_matches(pattern.lower().split(".")[-1], names, n=1)
    return f"Did you mean {names[near[0]]}? " if near else ""


def _matches(pattern: str, name: str) -> bool:
    escaped = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(name, escaped)
