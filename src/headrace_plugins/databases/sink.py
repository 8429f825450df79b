"""The connector class of the database sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, DeliveryGuarantee, HeadraceError, Schema, SinkConnector
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.jdbc import loads_drivers
from headrace.sdk.tables import MappedTable, TableRows
from headrace_plugins.databases.catalog import TableName, rows_schema
from headrace_plugins.databases.database import UNSEEN, database_of
from headrace_plugins.databases.parts import all_rows
from headrace_plugins.databases.sink_settings import NO_KEY, Mode, TableSinkSettings
from headrace_plugins.databases.sink_task import TableSinkTask
from headrace_plugins.table_mapping import TableRules
from headrace_plugins.window import with_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.sdk import Boundaries
    from headrace.sdk.config import Config
    from headrace_plugins.databases.database import Database, Session


class TableSink(SinkConnector):
    """Writes records to tables of a database, exactly once.

    Each batch is one transaction with the rows, the batch's mark and its receipt, so a retried
    batch changes nothing. Tables and new columns are created as needed. With error tolerance,
    records that violate a table's types or constraints are found one by one and dead-lettered.

    With `replace.window.column` the first write of an offline job's run also deletes the
    table's rows in the run's window, in one transaction.

    In modes with a key the last record of each key in a batch wins; deletions come first.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE

    settings: TableSinkSettings

    @classmethod
    def _settings(cls, config: Config) -> TableSinkSettings:
        settings = cls.settings_class().from_config(config)
        assert isinstance(settings, TableSinkSettings)
        return settings

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        settings = cls._settings(config)
        # Guarantee 2: a batch in doubt keeps its mark if the URL or the placeholders are
        # spelled differently; the mark also contains the table's name.
        fixed = settings.table_name_format.partition("${")[0]
        return f"{settings.address.marked} {fixed}"

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        return with_window(config, boundaries)

    @override
    @classmethod
    def repeatable(cls, config: Config) -> bool:
        settings = cls._settings(config)
        by_key = settings.insert_mode in {Mode.UPSERT, Mode.UPDATE}
        return by_key or bool(settings.replace_window_column)

    @override
    @classmethod
    def takes_overlaps(cls, config: Config) -> bool:
        # A retry would append to the rows of another run that has replaced the window.
        return not config.find_str("replace.window.column") and cls.repeatable(config)

    @override
    @classmethod
    def task(cls, config: Config) -> TableSinkTask:
        return TableSinkTask(config)

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        settings = cls._settings(config)
        database = database_of(settings)
        if database.by_spark and not loads_drivers():
            yield UNSEEN
            return
        try:
            session = database.session()
        except HeadraceError as error:
            yield Finding("a connection", Verdict.FAILED, error.problem, error.fix)
            return
        with session:
            yield Finding("a connection", Verdict.OK, database.address.title)
            yield from database.examine(session)
            yield _may_create(database, session)
            yield from _untransactional(database, session, settings)

    @override
    @classmethod
    def table_rows(
        cls, config: Config, topic: str, schema: Schema
    ) -> Sequence[TableRows] | None:
        settings = cls._settings(config)
        targets = TableRules.of(settings).targets(topic)
        names = None if len(targets) != 1 else targets[0].select(schema).whole(schema)
        if names is None:
            return None  # with filters or computed columns, lost rows cannot be detected
        database = database_of(settings)
        name = database.named(targets[0].name)
        with database.session() as session:
            table = database.table(session, name)
        if table is None:
            return []
        columns = [replace(c, name=names.get(c.name, c.name)) for c in table.columns]
        key = targets[0].key_fields or tuple(settings.keys) or table.key
        return [
            TableRows(
                stream=topic,
                title=f"{database.address.title} {name}",
                schema=rows_schema(database.kind, columns),
                key=tuple(names.get(each, each) for each in key),
                read=all_rows(database, table, settings.connections_max, names),
                replaces=settings.insert_mode is Mode.UPSERT,
                deletes=settings.delete_enabled,
            )
        ]

    @override
    @classmethod
    def check_tables(
        cls, config: Config, tables: Callable[[], Sequence[TableRows]]
    ) -> Iterable[ConfigError]:
        settings = cls._settings(config)
        if not settings.insert_mode.is_keyed or settings.keys:
            return
        database, rules = database_of(settings), TableRules.of(settings)
        if database.by_spark and not loads_drivers():
            return
        keyless = [
            (each.title, database.named(target.name))
            for each in tables()
            if not each.key
            for target in rules.targets(each.stream)
            if not target.key_fields
        ]
        if not keyless:
            return
        with database.session() as session:
            there = database.describe(session, [target for _, target in keyless])
        keyed = {name for name, table in there.items() if table.key}
        if titles := dict.fromkeys(title for title, to in keyless if to not in keyed):
            mode = settings.insert_mode.value
            yield ConfigError(
                problem=f"insert.mode {mode} requires a key, but there is no primary key in: "
                f"{', '.join(titles)}.",
                fix=NO_KEY,
                field="insert.mode",
            )

    @override
    @classmethod
    def table_rules(cls, config: Config) -> Sequence[str]:
        return TableRules.of(cls._settings(config)).titles

    @override
    @classmethod
    def mapped_tables(
        cls, config: Config, topic: str, schema: Schema | None
    ) -> Sequence[MappedTable]:
        return TableRules.of(cls._settings(config)).mapped(topic, schema)


def _untransactional(
    database: Database, session: Session, settings: TableSinkSettings
) -> Iterable[Finding]:
    """Yield a finding for each table without transactions, which cannot be written.

    A table whose name comes from a stream is only a warning, as it may not be a target.
    """
    session.rollback()
    text = settings.table_name_format
    targets = [] if "${" in text else [database.named(text)]
    names = {*targets, *database.tables(session)}
    for name, table in sorted(database.describe(session, sorted(names)).items()):
        try:
            database.require_transactions(table)
        except ConfigError as error:
            verdict = Verdict.FAILED if name in targets else Verdict.WARNING
            yield Finding("tables with transactions", verdict, error.problem, error.fix)


def _may_create(database: Database, session: Session) -> Finding:
    """Return whether the user may create tables, at least for staging and marks."""
    name = TableName(database.default_schema, "headrace_doctor")
    requirement = "right to create tables"
    try:
        session.rollback()
        session.execute(f"CREATE TABLE {database.path(name)} (one INTEGER)")
        session.execute(f"DROP TABLE {database.path(name)}")
        session.rollback()
    except HeadraceError as error:
        user = database.quote(database.address.user or "user")
        schema = database.quote(database.default_schema)
        return Finding(
            requirement,
            Verdict.FAILED,
            error.problem,
            f"GRANT CREATE ON SCHEMA {schema} TO {user};",
        )
    return Finding(requirement, Verdict.OK, database.default_schema)
