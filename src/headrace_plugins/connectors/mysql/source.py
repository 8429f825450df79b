"""The source of MySQL and MariaDB: its tables and their changes, as they come."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.changes.connector import ChangeSource
from headrace_plugins.changes.settings import InvalidValues
from headrace_plugins.changes.source import ChangeTask
from headrace_plugins.connectors.mysql.binlog_settings import examine_binlog
from headrace_plugins.connectors.mysql.feed import MysqlFeed
from headrace_plugins.connectors.mysql.settings import MysqlSourceSettings
from headrace_plugins.databases.kinds import database_of
from headrace_plugins.databases.mysql import Mysql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk.config import Config
    from headrace_plugins.changes.feed import Feed
    from headrace_plugins.changes.settings import ChangeSettings
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session


def feed_of(settings: MysqlSourceSettings, connector: str) -> MysqlFeed:
    """Return the log that settings lead to.

    Raises ConfigError: they lead to a database of another kind.
    """
    database = database_of(settings)
    if not isinstance(database, Mysql):
        raise ConfigError(
            problem=f"The connector mysql follows MySQL and MariaDB, not {database.kind}.",
            fix="Write mysql://host/database, or use another connector.",
            field="connection.url",
        )
    return MysqlFeed(
        database=database,
        name=settings.topic_prefix.rstrip(".") or connector,
        server_id=settings.database_server_id,
        heartbeat=timedelta(milliseconds=settings.connect_keep_alive_interval_ms),
        nulls=settings.invalid_values is InvalidValues.NULL,
    )


class MysqlTask(ChangeTask):
    """Follows the tables of a database of MySQL or MariaDB."""

    settings: MysqlSourceSettings

    @override
    def feed(self) -> MysqlFeed:
        return feed_of(self.settings, self.context.connector)


class MysqlSource(ChangeSource):
    """Follows the tables of a MySQL or MariaDB database: what they hold, then each change.

    It reads all tables side by side without a lock, in parts that a restart goes on behind, and
    then the binary log, as a replica does. Records are changes in Debezium's envelope; the
    transform Unwrap makes rows of them. Each table is a stream of its own, whose columns may
    change while it is followed. A row that is changed while its table is read comes first as it
    is, and then its changes again, so a sink has to upsert; a table without a key should not be
    written meanwhile. Nothing is lost as long as the server keeps its binary logs.

    The keys are those of Debezium's connector where they mean the same. ``headrace doctor``
    says what the server lacks.
    """

    aliases = (
        "io.debezium.connector.mysql.MySqlConnector",
        "io.debezium.connector.mariadb.MariaDbConnector",
    )

    settings: MysqlSourceSettings

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[MysqlTask]:
        return MysqlTask

    @override
    @classmethod
    def feed(cls, settings: ChangeSettings, connector: str) -> MysqlFeed:
        assert isinstance(settings, MysqlSourceSettings)
        return feed_of(settings, connector)

    @override
    @classmethod
    def examine_log(
        cls, feed: Feed, session: Session, tables: Sequence[Table]
    ) -> Iterator[Finding]:
        yield from examine_binlog(session)
        for table in tables:
            if table.untransactional:
                yield Finding(
                    f"transactions of {table.name}",
                    Verdict.FAILED,
                    f"It is kept by {table.untransactional}.",
                    f"ALTER TABLE {feed.database.path(table.name)} ENGINE=InnoDB;",
                )
            elif not table.key:
                yield Finding(
                    f"a primary key of {table.name}",
                    Verdict.WARNING,
                    "It has none: its rows cannot be updated in a target.",
                    f"ALTER TABLE {feed.database.path(table.name)} ADD PRIMARY KEY (…);",
                )
