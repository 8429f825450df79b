"""The tables to read: their settings, their selection and the names of their topics."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace.sdk.config import Importance, Range, setting
from headrace_plugins.databases.address import ConnectionSettings
from headrace_plugins.databases.catalog import TableName, parents_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Database, Session


class InvalidValues(Enum):
    """The handling of a value that its schema cannot represent."""

    REJECT = "reject"
    NULL = "null"


class TableSourceSettings(ConnectionSettings, group="Tables"):
    """The tables to read, and how to read them."""

    table_include_list: tuple[str, ...] = setting(
        "The tables to read, as table or schema.table. * matches any characters, ? matches "
        'one; quote a part with a dot, as in "a.b". All tables that the user may read if '
        "empty.",
        default=(),
        importance=Importance.HIGH,
    )
    table_exclude_list: tuple[str, ...] = setting(
        "The tables to exclude from those of table.include.list, in the same format.",
        default=(),
        importance=Importance.HIGH,
    )
    topic_prefix: str = setting(
        "Prefix of topic names, followed directly by the table name: `crm.` results in "
        "`crm.customers`, and `crm` in `crmcustomers`. The table's schema is included only if "
        "it is not the default schema, as in `crm.sales.orders`. Debezium's topic names always "
        "have a dot and the schema, or MySQL's database.",
        default="",
    )
    invalid_values: InvalidValues = setting(
        "Handling of a value that its type in Headrace cannot represent, such as an infinite "
        "date or the day 0000-00-00: reject makes the row a bad record, null replaces the "
        "value with null if the column is nullable.",
        default=InvalidValues.REJECT,
        group="Reading",
    )
    split_rows: int = setting(
        "Approximate number of rows per query when a table is read by parallel queries.",
        default=500_000,
        validator=Range(at_least=1000),
        group="Reading",
    )

    @property
    def nulls(self) -> bool:
        """Whether values that their schema cannot represent become null if nullable."""
        return self.invalid_values is InvalidValues.NULL

    @property
    def included(self) -> tuple[str, ...]:
        """The tables to read."""
        return self.table_include_list

    @property
    def excluded(self) -> tuple[str, ...]:
        """The tables to exclude."""
        return self.table_exclude_list


NO_TABLES = "There are no selected tables that the user may read."
NO_TABLES_FIX = "Grant SELECT on the tables, or correct table.include.list."


@dataclass(frozen=True)
class Selection:
    """Selects tables by name.

    Args:
        included: Names and patterns of the tables to read; all tables if empty.
        excluded: Names and patterns of the tables not to read.
        default_schema: The schema of a pattern without a schema.
        prefix: The prefix of the topics.
        field: The key of the included tables, for errors.
        schema_alias: Another name of the default schema, in lower case.
    """

    included: Sequence[str]
    excluded: Sequence[str]
    default_schema: str
    prefix: str = ""
    field: str = "table.include.list"
    schema_alias: str = ""

    @classmethod
    def of(cls, settings: TableSourceSettings, database: Database) -> Selection:
        """Return the table selection of a source's settings."""
        return cls(
            settings.included,
            settings.excluded,
            database.default_schema,
            settings.topic_prefix,
            schema_alias=database.schema_alias,
        )

    def tables(self, database: Database, session: Session) -> list[Table]:
        """Return the selected tables, parents before their children.

        Raises ConfigError as ``chosen`` does.
        """
        chosen = self.chosen(database.tables(session))
        return parents_first(list(database.describe(session, chosen).values()))

    def required_tables(self, database: Database, session: Session) -> list[Table]:
        """Return the selected tables. Raises ConfigError also if there is none."""
        if not (found := self.tables(database, session)):
            raise ConfigError(problem=NO_TABLES, fix=NO_TABLES_FIX, field="table.include.list")
        return found

    @property
    def is_fixed(self) -> bool:
        """Whether the selection has no patterns, so new tables cannot match."""
        return bool(self.included) and not any(_WILD.search(each) for each in self.included)

    def chosen(self, tables: Iterable[TableName]) -> list[TableName]:
        """Return the selected ones of a database's tables, in their order.

        Raises ConfigError if a name without * or ? does not exist.
        """
        there = list(tables)
        missing = [
            each
            for each in self.included
            if not _WILD.search(each) and not any(self._is(each, table) for table in there)
        ]
        if missing:
            raise ConfigError(
                problem=f"No such table, or no permission to read it: {', '.join(missing)}.",
                fix=f"{_meant(missing[0], there)}Create or restore it, grant SELECT on it, or "
                f"correct {self.field}.",
                field=self.field,
            )
        return [table for table in there if self.takes(table)]

    def names(self, table: TableName) -> bool:
        """Return whether a table is selected by its exact name, not only by a pattern."""
        return any(not _WILD.search(each) and self._is(each, table) for each in self.included)

    def takes(self, table: TableName) -> bool:
        """Return whether a table name is selected; never for the sink's own tables."""
        if table.name.startswith("headrace_"):
            return False
        is_in = not self.included or any(self._is(each, table) for each in self.included)
        return is_in and not any(self._is(each, table) for each in self.excluded)

    def stream(self, table: TableName) -> str:
        """Return the topic of a table, with the schema unless it is the default.

        A part with a dot is quoted, or a sink would split it.
        """
        parts = [table.name]
        if table.schema not in {self.default_schema, ""}:
            parts = [table.schema, table.name]
        own = ".".join(f'"{part}"' if "." in part else part for part in parts)
        return f"{self.prefix}{own}"

    def _is(self, pattern: str, table: TableName) -> bool:
        wanted = TableName.parse(pattern, self.default_schema)
        is_in = _matches(wanted.schema, table.schema) or (
            table.schema == self.default_schema
            and _matches(wanted.schema.lower(), self.schema_alias)
        )
        return is_in and _matches(wanted.name, table.name)


_WILD = re.compile(r"[*?]")
_EXPRESSION = re.compile(r"[\\()|\[\]^$+]")
"""Characters that are rare in names but common in Debezium's lists of regular expressions."""


def _meant(pattern: str, tables: Sequence[TableName]) -> str:
    """Return a hint for a pattern that matches no table, as a sentence."""
    if _EXPRESSION.search(pattern):
        return "Patterns use * and ?, as in sales.*, and are not regular expressions. "
    names = {table.name.lower(): str(table) for table in reversed(tables)}
    near = get_close_matches(pattern.lower().split(".")[-1], names, n=1)
    return f"Did you mean {names[near[0]]}? " if near else ""


def _matches(pattern: str, name: str) -> bool:
    escaped = pattern.replace("[", "[[]")
    return fnmatch.fnmatchcase(name, escaped)
