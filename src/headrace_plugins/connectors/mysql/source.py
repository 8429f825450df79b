"""The MySQL and MariaDB source: a snapshot of the tables, then their changes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import BoundaryKind
from headrace.sdk.config import ConfigType, NullOr, Range, setting
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.changes.connector import ChangeSource
from headrace_plugins.changes.settings import ChangeSettings
from headrace_plugins.changes.source import ChangeTask
from headrace_plugins.connectors.mysql.binary_log import BinaryLog, FollowedMysql
from headrace_plugins.connectors.mysql.binlog_settings import examine_binlog, examine_cascades
from headrace_plugins.databases.database import database_of_kind
from headrace_plugins.databases.mysql import Mysql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk.config import Config
    from headrace_plugins.changes.database_log import DatabaseLog
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session


_MOST_IDS = (1 << 32) - 1


class MysqlSourceSettings(ChangeSettings, group="Log"):
    """Settings of the MySQL and MariaDB source."""

    database_server_id: int | None = setting(
        "The server id of the reader, which no replica of the server may use. If null, a large "
        "random number.",
        default=None,
        type=ConfigType.LONG,
        validator=NullOr(Range(at_least=1, at_most=_MOST_IDS)),
    )
    connect_keep_alive_interval_ms: int = setting(
        "The interval of the server's heartbeats while there are no events.",
        default=1000,
        type=ConfigType.LONG,
        validator=Range(at_least=100),
    )


class MysqlTask(ChangeTask):
    """Follows the tables of a database of MySQL or MariaDB."""

    settings: MysqlSourceSettings

    @override
    @classmethod
    def log_of(cls, settings: ChangeSettings, connector: str) -> BinaryLog:
        assert isinstance(settings, MysqlSourceSettings)
        return BinaryLog(
            database=FollowedMysql(database_of_kind(settings, Mysql, "mysql").address),
            name=settings.topic_prefix.rstrip(".") or connector,
            server_id=settings.database_server_id,
            heartbeat=timedelta(milliseconds=settings.connect_keep_alive_interval_ms),
            nulls=settings.nulls,
        )


class MysqlSource(ChangeSource):
    """Follows the tables of a MySQL or MariaDB database: a snapshot, then each change.

    It reads all tables in parallel without a lock, in parts that a restart does not repeat, and
    then the binary log, as a replica does. Records are changes in Debezium's envelope; the
    transform Unwrap turns them into rows. Each table is a stream of its own, whose columns may
    change while it is followed. A row that is changed during the snapshot is first read in its
    current state, followed by its changes again, so a sink has to upsert; a table without a key
    should not be written to meanwhile. Nothing is lost as long as the server keeps its binary
    logs.

    Settings have the names of Debezium's connector if they mean the same. ``headrace doctor``
    reports what the server lacks.
    """

    aliases = (
        "io.debezium.connector.mysql.MySqlConnector",
        "io.debezium.connector.mariadb.MariaDbConnector",
    )
    boundary_kinds = frozenset({BoundaryKind.TIME, BoundaryKind.OFFSET})

    settings: MysqlSourceSettings

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[MysqlTask]:
        return MysqlTask

    @override
    @classmethod
    def examine_log(
        cls, log: DatabaseLog, session: Session, tables: Sequence[Table]
    ) -> Iterator[Finding]:
        yield from examine_binlog(session)
        yield from examine_cascades(session, tables)
        for table in tables:
            if table.untransactional:
                yield Finding(
                    f"transactions of {table.name}",
                    Verdict.FAILED,
                    f"The engine {table.untransactional} does not support transactions.",
                    f"ALTER TABLE {log.database.path(table.name)} ENGINE=InnoDB;",
                )
            elif not table.key:
                yield log.database.no_key(table)
