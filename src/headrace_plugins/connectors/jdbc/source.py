"""The database source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
from headrace.sdk.jdbc import loads_drivers
from headrace_plugins.connectors.jdbc.reader import (
    QueryTask,
    TableReader,
    TablesTask,
)
from headrace_plugins.connectors.jdbc.settings import JdbcSourceSettings, Mode
from headrace_plugins.databases.database import UNSEEN
from headrace_plugins.databases.parts import table_rows
from headrace_plugins.databases.selection import NO_TABLES, NO_TABLES_FIX
from headrace_plugins.window import WINDOW_KEYS, filled_in, followed, require_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.sdk import Boundaries, Position
    from headrace.sdk.config import Config
    from headrace.sdk.tables import TableRows


class JdbcSource(SourceConnector):
    """Reads the tables of a database, or the rows of a query.

    In mode ``bulk`` it reads them completely, once or at an interval; in the other modes it
    reads new or changed rows by an increasing number or time. Several connections read a table
    in parallel, on PostgreSQL all of them from one snapshot. PostgreSQL, MySQL, MariaDB and
    SQLite are read without JDBC; any other database with the JDBC driver that the
    configuration names. Each table is a stream of its own, with its types and its primary key.

    The settings, the modes and the offsets are those of Kafka Connect's JDBC source. Deleted
    rows are not detected, and of several changes to a row between two polls only the last is:
    for these use change data capture.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    aliases = (
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "io.aiven.connect.jdbc.JdbcSourceConnector",
    )
    row_keys = (
        *("query", "mode", "invalid.values"),
        *("incrementing.column.name", "timestamp.column.name"),
        *("incrementing.initial", "timestamp.initial", "db.timezone"),
        *WINDOW_KEYS,
    )
    boundary_kinds = frozenset({BoundaryKind.TIME, BoundaryKind.VALUE})

    settings: JdbcSourceSettings

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        reader = TableReader(JdbcSourceSettings.from_config(config))
        if reader.database.by_spark and not loads_drivers():
            return  # the task checks it
        try:
            if reader.settings.query is not None:
                reader.cursor(reader.query_rows())
            else:
                for table in reader.tables().values():
                    reader.cursor(reader.rows_of(table))
        except RetriableError:
            return  # the task waits for an unavailable database
        except ConfigError as error:
            yield error
        except HeadraceError as error:
            field = "query" if reader.settings.query else "connection.url"
            yield ConfigError(error.problem, fix=error.fix, field=field)
        finally:
            reader.close()

    @override
    @classmethod
    def origin(cls, config: Config) -> str:
        return JdbcSourceSettings.from_config(config).address.marked

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[TablesTask | QueryTask]:
        return QueryTask if config.find_str("query") else TablesTask

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        reader = TableReader(JdbcSourceSettings.from_config(config))
        if reader.database.by_spark and not loads_drivers():
            yield UNSEEN
            return
        try:
            session = reader.session()
        except HeadraceError as error:
            yield Finding("a connection", Verdict.FAILED, error.problem, error.fix)
            return
        try:
            yield Finding("a connection", Verdict.OK, reader.database.address.title)
            yield from reader.database.examine(session)
            if reader.settings.mode is Mode.INCREMENTING and not reader.database.knows_writers:
                yield _LATE_NUMBERS
            if reader.settings.query is None:
                yield from _tables_found(reader)
            else:
                yield _looked_at(reader, "the query")
        finally:
            reader.close()

    @override
    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows] | None:
        settings = JdbcSourceSettings.from_config(config)
        if settings.query is not None:
            return None
        reader = TableReader(settings)
        try:
            return [
                table_rows(
                    reader.database,
                    table,
                    reader.selection.stream(table.name),
                    settings.connections_max,
                )
                for table in reader.tables().values()
            ]
        finally:
            reader.close()

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        settings, column = JdbcSourceSettings.from_config(config), None
        growing = [*settings.timestamp_column_name, settings.incrementing_column_name]
        named = [name for name in growing if name]
        if settings.window_column or len(named) == 1:
            column = settings.window_column or named[0]
        require_column(boundaries.kind, column)
        return filled_in(
            config,
            boundaries,
            *("incrementing.column.name", "timestamp.column.name", "bulk.interval.ms"),
            mode=Mode.BULK.value,
            window_column=column,
        )

    @override
    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        settings, kind = JdbcSourceSettings.from_config(config), boundaries.kind
        times, number = settings.timestamp_column_name, settings.incrementing_column_name
        # With both columns, batches end at times, so the number does not tell what was read.
        column = times[0] if times else number
        fits = kind is (BoundaryKind.TIME if times else BoundaryKind.VALUE)
        if column is None or not fits or settings.window_column not in {None, column}:
            raise ConfigError(
                problem="In real time a database is followed by the column of its mode, which "
                "must be the column of the window.",
                fix="For windows of times, set mode to timestamp, and timestamp.column.name to "
                "the window's column; for numbers, incrementing and incrementing.column.name.",
                field="mode",
            )
        initials = ("timestamp.initial", "incrementing.initial")
        return followed(filled_in(config, boundaries, *initials, window_column=column))

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        bulk = Mode(config["mode"]) is Mode.BULK
        for partition, offset in position.items():
            known = {"round", "after", "upto", "at"} if bulk else {"timestamp", "incrementing"}
            is_one = set(partition) <= {"table", "query"} and set(offset) <= known
            if not (is_one and offset and all(map(_is_part, offset, offset.values()))):
                example = '{"round": 1}' if bulk else '{"incrementing": 1000}'
                raise ConfigError(
                    problem=f"Invalid position {dict(partition)} -> {dict(offset)}.",
                    fix=f'Set {{"table": "schema.name"}} and {example}, or reset the offsets '
                    "to read all rows again.",
                    field="offsets",
                )


def _is_part(name: str, value: object) -> bool:
    """Return whether a part of an offset has a valid value."""
    if name in {"after", "upto"}:
        return isinstance(value, list) and all(_is_short(each) for each in value)
    if name in {"round", "at"}:
        return isinstance(value, int)
    if name == "incrementing":
        return _NUMBER.fullmatch(str(value)) is not None
    return _is_short(value)


def _is_short(value: object) -> bool:
    return isinstance(value, int | float | str) and len(str(value)) <= _LONGEST_VALUE


_NUMBER = re.compile(r"-?[0-9]{1,100}(\.[0-9]{1,100})?")
_LONGEST_VALUE = 65_536

_LATE_NUMBERS = Finding(
    "rows that are committed late",
    Verdict.WARNING,
    "In mode incrementing a row is lost if it is committed after a row with a larger number "
    "was read, and this database does not show which transactions may still add such rows.",
    "Use mode timestamp+incrementing with timestamp.delay.interval.ms, or run "
    "`headrace verify --repair` from time to time.",
)


def _tables_found(reader: TableReader) -> Iterable[Finding]:
    try:
        tables = reader.tables()
    except HeadraceError as error:
        yield Finding("tables to read", Verdict.FAILED, error.problem, error.fix)
        return
    if not tables:
        yield Finding(
            "tables to read",
            Verdict.FAILED,
            NO_TABLES,
            NO_TABLES_FIX,
        )
    for name, table in tables.items():
        finding = _looked_at(reader, name)
        if finding.verdict is Verdict.OK and not table.key:
            yield Finding(
                f"a primary key of {name}",
                Verdict.WARNING,
                "The table has none: verify cannot match its rows, and a target cannot update "
                "them.",
                f"ALTER TABLE {reader.database.path(table.name)} ADD PRIMARY KEY (…);",
            )
        yield finding


def _looked_at(reader: TableReader, name: str) -> Finding:
    try:
        table = reader.tables().get(name)
        rows = reader.query_rows() if table is None else reader.rows_of(table)
        reader.cursor(rows)
    except HeadraceError as error:
        return Finding(f"rows of {name}", Verdict.FAILED, error.problem, error.fix)
    count = "" if rows.count is None else f", about {rows.count:,} rows"
    return Finding(f"rows of {name}", Verdict.OK, f"{len(rows.columns)} columns{count}")
