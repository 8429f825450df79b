"""The base class of change source connectors."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk import (
    BoundaryKind,
    ConfigError,
    DeliveryGuarantee,
    HeadraceError,
    RetriableError,
    SourceConnector,
)
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.changes.database_log import LogWindow, followed_tables
from headrace_plugins.changes.log import OffsetField, check_fields
from headrace_plugins.changes.position import WHERE, check_table_offset, try_condition
from headrace_plugins.changes.replay import SINCE, check_replay
from headrace_plugins.changes.settings import ChangeSettings, SnapshotMode, paused_tables
from headrace_plugins.databases.cursors import Rows, dividing_key
from headrace_plugins.databases.parts import table_rows
from headrace_plugins.databases.selection import Selection
from headrace_plugins.window import filled_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from headrace.sdk import Boundaries, Position
    from headrace.sdk.config import Config
    from headrace.sdk.tables import TableRows
    from headrace_plugins.changes.database_log import DatabaseLog
    from headrace_plugins.changes.source import ChangeTask
    from headrace_plugins.databases.catalog import Table, TableName
    from headrace_plugins.databases.database import Session


class ChangeSource(SourceConnector):
    """Follows the changes of tables, after a snapshot of their rows."""

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    row_keys: ClassVar[tuple[str, ...]] = ("invalid.values",)
    boundary_kinds = frozenset({BoundaryKind.OFFSET})

    settings: ChangeSettings

    @override
    @classmethod
    def origin(cls, config: Config) -> str:
        settings = cls.settings_class().from_config(config)
        assert isinstance(settings, ChangeSettings)
        return settings.address.marked

    @override
    @classmethod
    @abstractmethod
    def task_class(cls, config: Config) -> type[ChangeTask]: ...

    @classmethod
    @abstractmethod
    def examine_log(
        cls, log: DatabaseLog, session: Session, tables: Sequence[Table]
    ) -> Iterator[Finding]:
        """Yield findings about the requirements of the log, see ``Connector.examine``."""

    @classmethod
    def _parsed(cls, config: Config) -> tuple[ChangeSettings, DatabaseLog]:
        settings = cls.settings_class().from_config(config)
        assert isinstance(settings, ChangeSettings)
        name = config.originals.get("name", "connector")
        return settings, cls.task_class(config).log_of(settings, name)

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        try:
            settings, log = cls._parsed(config)
            if settings.window is not None:
                _require_kind(settings.window.kind, cls.boundary_kinds)
                LogWindow(log, settings.window).check()
            with log.database.session() as session:
                tables = _tables(settings, log, session)
                if (paused := paused_tables(settings, log.database)) is not None:
                    paused.chosen(table.name for table in tables)
                if settings.snapshot_mode.follows:
                    log.require(session, tables)
        except RetriableError:
            return  # the task waits for an unavailable database
        except ConfigError as error:
            yield error
        except HeadraceError as error:
            yield ConfigError(error.problem, fix=error.fix, field="connection.url")

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        settings, log = cls._parsed(config)
        try:
            session = log.database.session()
        except HeadraceError as error:
            yield Finding("a connection", Verdict.FAILED, error.problem, error.fix)
            return
        with session:
            yield Finding("a connection", Verdict.OK, log.database.address.title)
            yield from log.database.examine(session)
            try:
                tables, passed = _tables_and_others(settings, log, session)
            except HeadraceError as error:
                yield Finding("tables to follow", Verdict.FAILED, error.problem, error.fix)
                return
            for name, obstacle in passed.items():
                yield Finding(
                    f"changes of {name} in the log",
                    Verdict.WARNING,
                    f"{obstacle.problem} The table is skipped.",
                    obstacle.fix,
                )
            if settings.snapshot_mode.follows:
                yield from cls.examine_log(log, session, tables)

    @override
    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows]:
        settings, log = cls._parsed(config)
        database, selection = log.database, Selection.of(settings, log.database)
        with database.session() as session:
            return [
                table_rows(
                    database,
                    table,
                    selection.stream(table.name),
                    settings.snapshot_max_threads,
                )
                for table in _tables(settings, log, session)
            ]

    @override
    @classmethod
    def is_ordered(cls, config: Config) -> bool:
        return True

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        return filled_in(config, boundaries, snapshot_mode=SnapshotMode.NO_DATA.value)

    @override
    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        # Without an upper bound the window has no end.
        return cls.fill_in_boundaries(config, boundaries)

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        settings, log = cls._parsed(config)
        for partition, offset in position.items():
            if set(partition) == set(log.partition):
                [name] = partition
                check_fields("log", partition, [OffsetField.text(name)], str(log.partition))
                if dict(partition) != dict(log.partition):
                    raise ConfigError(
                        problem=f"The connector does not follow the log {partition[name]!r}.",
                        fix=f"Set the offset of {dict(log.partition)}.",
                        field="offsets",
                    )
                log.check_place(offset)
            elif set(partition) == {SINCE}:
                check_replay(log, partition, offset)
            else:
                check_table_offset(log, partition, offset)
        begun = {p["table"]: o["after"] for p, o in position.items() if "after" in o}
        asked = [(p["table"], p[WHERE]) for p, _ in position.items() if WHERE in p]
        if begun or asked:
            with log.database.session() as session:
                tables = {str(t.name): t for t in _tables(settings, log, session)}
                _check_keys(log, tables, begun)
                for table, condition in asked:
                    if table in tables:  # rows of later tables are requested when they exist
                        try_condition(log.database, session, tables[table].name, condition)


def _require_kind(kind: BoundaryKind, kinds: Collection[BoundaryKind]) -> None:
    if kind not in kinds:
        raise ConfigError(
            problem=f"The log does not support bounds of kind {kind}.",
            fix=f"Use one of: {', '.join(sorted(kinds))}.",
            field="window.kind",
        )


def _tables(settings: ChangeSettings, log: DatabaseLog, session: Session) -> list[Table]:
    return _tables_and_others(settings, log, session)[0]


def _tables_and_others(
    settings: ChangeSettings, log: DatabaseLog, session: Session
) -> tuple[list[Table], Mapping[TableName, ConfigError]]:
    """Return the tables to read, and the reasons why others are skipped."""
    selection = Selection.of(settings, log.database)
    follows = settings.snapshot_mode.follows
    return followed_tables(log, selection, session, follows=follows)


def _check_keys(
    log: DatabaseLog, tables: Mapping[str, Table], begun: Mapping[str, Sequence[object]]
) -> None:
    """Raise ConfigError if the offset of a partially read table does not match its key."""
    for name in begun.keys() & tables.keys():
        after, key = begun[name], dividing_key(Rows.of(log.database, tables[name]))
        if len(after) != len(key):
            raise ConfigError(
                problem=f"Invalid position of the table {name}: after has {len(after)} values, "
                f"but its key is {list(key)}.",
                fix="Set one value for each column of the key, or reset the offsets.",
                field="offsets",
            )
