"""The source of PostgreSQL: its tables and their changes, as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace_plugins.changes.connector import ChangeSource
from headrace_plugins.changes.settings import InvalidValues
from headrace_plugins.changes.source import ChangeTask
from headrace_plugins.connectors.postgres.examination import examine_log
from headrace_plugins.connectors.postgres.feed import PostgresFeed
from headrace_plugins.connectors.postgres.settings import PostgresSourceSettings
from headrace_plugins.databases.kinds import database_of
from headrace_plugins.databases.postgresql import Postgresql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk.config import Config
    from headrace.sdk.connector import Finding
    from headrace_plugins.changes.feed import Feed
    from headrace_plugins.changes.settings import ChangeSettings
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session


def feed_of(settings: PostgresSourceSettings, connector: str) -> PostgresFeed:
    """Return the log that settings lead to.

    Raises ConfigError: they lead to a database of another kind.
    """
    database = database_of(settings)
    if not isinstance(database, Postgresql):
        raise ConfigError(
            problem=f"The connector postgres follows PostgreSQL, not {database.kind}.",
            fix="Write postgresql://host/database, or use another connector.",
            field="connection.url",
        )
    slot = settings.slot(connector)
    return PostgresFeed(
        database=database,
        slot=slot,
        publication=settings.publication_name or slot,
        mode=settings.publication_autocreate_mode,
        name=settings.topic_prefix.rstrip(".") or connector,
        nulls=settings.invalid_values is InvalidValues.NULL,
    )


class PostgresTask(ChangeTask):
    """Follows the tables of a PostgreSQL database."""

    settings: PostgresSourceSettings

    @override
    def feed(self) -> PostgresFeed:
        return feed_of(self.settings, self.context.connector)


class PostgresSource(ChangeSource):
    """Follows the tables of a PostgreSQL database: what they hold, then each change of them.

    It reads all tables side by side without a lock, in parts that a restart goes on behind, and
    then the write-ahead log, by logical decoding with the plugin pgoutput. Records are changes
    in Debezium's envelope; the transform Unwrap makes rows of them. Each table is a stream of
    its own, whose columns may change while it is followed. Nothing is lost as long as the
    replication slot is kept, and nothing comes twice in a sink that upserts.

    The keys are those of Debezium's connector where they mean the same. ``headrace doctor``
    says what the database lacks.
    """

    aliases = ("io.debezium.connector.postgresql.PostgresConnector",)

    settings: PostgresSourceSettings

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[PostgresTask]:
        return PostgresTask

    @override
    @classmethod
    def feed(cls, settings: ChangeSettings, connector: str) -> PostgresFeed:
        assert isinstance(settings, PostgresSourceSettings)
        return feed_of(settings, connector)

    @override
    @classmethod
    def examine_log(
        cls, feed: Feed, session: Session, tables: Sequence[Table]
    ) -> Iterator[Finding]:
        assert isinstance(feed, PostgresFeed)
        return examine_log(feed, session, tables)
