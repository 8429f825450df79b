"""The PostgreSQL source: a snapshot of the tables, then their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace_plugins.changes.connector import ChangeSource
from headrace_plugins.changes.source import ChangeTask
from headrace_plugins.connectors.postgres.examination import examine_log
from headrace_plugins.connectors.postgres.replication import FollowedPostgresql
from headrace_plugins.connectors.postgres.settings import (
    PostgresSourceSettings,
    PublicationMode,
)
from headrace_plugins.connectors.postgres.slot_log import SlotLog
from headrace_plugins.connectors.postgres.slot_monitor import SlotMonitor
from headrace_plugins.databases.database import database_of_kind
from headrace_plugins.databases.postgresql import Postgresql

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.sdk import Boundaries, Lag, TaskContext
    from headrace.sdk.config import Config
    from headrace.sdk.connector import Finding
    from headrace_plugins.changes.database_log import DatabaseLog
    from headrace_plugins.changes.settings import ChangeSettings
    from headrace_plugins.changes.spool import Entry
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session


class PostgresTask(ChangeTask):
    """Follows the tables of a PostgreSQL database."""

    settings: PostgresSourceSettings

    @override
    @classmethod
    def log_of(cls, settings: ChangeSettings, connector: str) -> SlotLog:
        assert isinstance(settings, PostgresSourceSettings)
        slot = settings.slot(connector)
        database = database_of_kind(settings, Postgresql, "postgres")
        return SlotLog(
            database=FollowedPostgresql(database.address),
            slot=slot,
            publication=settings.publication_name or slot,
            mode=settings.publication_autocreate_mode,
            name=settings.topic_prefix.rstrip(".") or connector,
            nulls=settings.nulls,
            failover=settings.slot_failover,
            warn_retained_bytes=settings.slot_warn_retained_bytes,
            max_retained_bytes=settings.slot_max_retained_bytes,
        )

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        assert isinstance(self._log, SlotLog)
        self._monitor: SlotMonitor | None = None
        if self.settings.snapshot_mode.follows:
            self._monitor = SlotMonitor(self._log, self._read_ahead)

    @override
    def stop(self) -> None:
        if (monitor := getattr(self, "_monitor", None)) is not None:
            monitor.stop()
        super().stop()

    def _read_ahead(self) -> tuple[Sequence[Entry], int] | None:
        process = self._process
        entries, place = ([], {}) if process is None else process.read_ahead()
        return (entries, int(place["lsn"])) if place else None

    @override
    def measured_lag(self) -> Lag | None:
        return None if self._monitor is None else self._monitor.lag

    @override
    def _raise_error(self) -> None:
        if self._monitor is not None:
            self._monitor.raise_error()


class PostgresSource(ChangeSource):
    """Follows the tables of a PostgreSQL database: a snapshot, then each change.

    It reads all tables in parallel without a lock, in parts that a restart does not repeat, and
    then the write-ahead log, by logical decoding with the plugin pgoutput. Records are changes
    in Debezium's envelope; the transform Unwrap turns them into rows. Each table is a stream of
    its own, whose columns may change while it is followed. Nothing is lost as long as the
    replication slot exists, and a sink that upserts has no duplicates.

    Settings have the names of Debezium's connector if they mean the same. ``headrace doctor``
    reports what the database lacks.
    """

    aliases = ("io.debezium.connector.postgresql.PostgresConnector",)

    settings: PostgresSourceSettings

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[PostgresTask]:
        return PostgresTask

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        if not config.get_str("slot.name"):
            raise ConfigError(
                problem="The changes between bounds stay in the log only while a slot retains "
                "them, also between runs.",
                fix="Set slot.name to one slot for all runs.",
                field="slot.name",
            )
        return super().fill_in_boundaries(config, boundaries)

    @override
    @classmethod
    def left_behind(cls, config: Config) -> Iterable[str]:
        settings, log = cls._parsed(config)
        assert isinstance(log, SlotLog)
        if settings.snapshot_mode.follows:
            title, slot = log.database.address.title, log.database.literal(log.slot)
            yield (
                f"The replication slot {log.slot} remains on {title}, which retains its log "
                f"for it: SELECT pg_drop_replication_slot({slot});"
            )
            if log.mode is not PublicationMode.DISABLED:
                yield (
                    f"The publication {log.publication} remains on {title}; if nobody else "
                    f"uses it: DROP PUBLICATION {log.database.quote(log.publication)};"
                )

    @override
    @classmethod
    def examine_log(
        cls, log: DatabaseLog, session: Session, tables: Sequence[Table]
    ) -> Iterator[Finding]:
        assert isinstance(log, SlotLog)
        return examine_log(log, session, tables)
