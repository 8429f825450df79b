"""What the connectors share that follow changes."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    DeliveryGuarantee,
    HeadraceError,
    RetriableError,
    SourceConnector,
)
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.table_rows import TableRows
from headrace_plugins.changes.settings import ChangeSettings
from headrace_plugins.databases.catalog import parents_first
from headrace_plugins.databases.parts import all_rows
from headrace_plugins.databases.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.sdk import Position
    from headrace.sdk.config import Config
    from headrace_plugins.changes.feed import Feed
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Database, Session


def selection_of(settings: ChangeSettings, database: Database) -> Selection:
    """Return which tables are followed."""
    return Selection(
        settings.table_include_list,
        settings.table_exclude_list,
        database.default_schema,
        settings.topic_prefix,
    )


def tables_of(settings: ChangeSettings, database: Database, session: Session) -> list[Table]:
    """Return the tables that are followed, parents before their children.

    Raises ConfigError: there are none, or one that is named is not there.
    """
    chosen = selection_of(settings, database).chosen(database.tables(session))
    found = parents_first(list(database.describe(session, chosen).values()))
    if not found:
        raise ConfigError(
            problem="The user may read no table that is chosen.",
            fix="Grant SELECT on them, or correct table.include.list.",
            field="table.include.list",
        )
    return found


def check_condition(text: str) -> None:
    """Raise ConfigError for a condition in SQL that could end what it is put into.

    Quotes and parentheses have to be closed, and a comment, another statement, or a text with
    escapes, whose end is not plain to see, is refused.
    """
    depth, rest = 0, re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", text)
    for sign in rest:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            break
    if depth or _UNSAFE.search(rest) or "\\" in text or not text.strip():
        raise ConfigError(
            problem=f"Invalid condition {text!r}.",
            fix="Write one condition in SQL, such as id > 5 AND status = 'open', without "
            "comments, semicolons and backslashes.",
            field="offsets",
        )


_UNSAFE = re.compile(r"""[;#$'"`]|--|/\*""")


class ChangeSource(SourceConnector):
    """Follows the changes of tables, after it has read what they hold."""

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    row_keys: ClassVar[tuple[str, ...]] = ("invalid.values",)

    settings: ChangeSettings

    @classmethod
    @abstractmethod
    def feed(cls, settings: ChangeSettings, connector: str) -> Feed:
        """Return the log that settings lead to; Raises ConfigError."""

    @classmethod
    @abstractmethod
    def examine_log(
        cls, feed: Feed, session: Session, tables: Sequence[Table]
    ) -> Iterator[Finding]:
        """Yield what following the log takes, see ``Connector.examine``."""

    @classmethod
    def _parsed(cls, config: Config) -> tuple[ChangeSettings, Feed]:
        settings = cls.settings_class().from_config(config)
        assert isinstance(settings, ChangeSettings)
        return settings, cls.feed(settings, config.originals.get("name", "connector"))

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        try:
            settings, feed = cls._parsed(config)
            with feed.database.session() as session:
                feed.require(session, tables_of(settings, feed.database, session))
        except RetriableError:
            return  # the task waits for a database that is away
        except ConfigError as error:
            yield error
        except HeadraceError as error:
            yield ConfigError(error.problem, fix=error.fix, field="connection.url")

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        settings, feed = cls._parsed(config)
        try:
            session = feed.database.session()
        except HeadraceError as error:
            yield Finding("a connection", Verdict.FAILED, error.problem, error.fix)
            return
        with session:
            yield Finding("a connection", Verdict.OK, feed.database.address.title)
            yield from feed.database.examine(session)
            try:
                tables = tables_of(settings, feed.database, session)
            except HeadraceError as error:
                yield Finding("tables to follow", Verdict.FAILED, error.problem, error.fix)
                return
            yield from cls.examine_log(feed, session, tables)

    @override
    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows]:
        settings, feed = cls._parsed(config)
        database, selection = feed.database, selection_of(settings, feed.database)
        with database.session() as session:
            return [
                TableRows(
                    stream=selection.stream(table.name),
                    title=str(table.name),
                    schema=table.schema(database.kind),
                    key=table.key,
                    read=all_rows(database, table, settings.snapshot_max_threads),
                    read_at_once=all_rows(database, table, 1),
                )
                for table in tables_of(settings, database, session)
            ]

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        _, feed = cls._parsed(config)
        for partition, offset in position.items():
            if set(partition) == set(feed.partition):
                feed.check_place(offset)
                continue
            names = set(partition)
            is_table = names == {"table"} and not set(offset) - _TABLE_OFFSET
            is_asked = names == {"table", "where"} and dict(offset) == {"round": 0}
            if is_asked:
                check_condition(partition["where"])
            if not isinstance(offset.get("round"), int) or not (is_table or is_asked):
                raise ConfigError(
                    problem=f"Invalid position {dict(partition)} -> {dict(offset)}.",
                    fix='Write {"table": "schema.name"} and {"round": 1} for a table that '
                    "counts as read, or reset the offsets to read all again.",
                    field="offsets",
                )


_TABLE_OFFSET = {"round", "after", "upto", "seen", "until"}
