"""The log of a PostgreSQL database: its slot, its publication, and its snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    DataLostError,
    HeadraceError,
    RetriableError,
    Schema,
)
from headrace_plugins.changes.database_log import RESNAPSHOT, DatabaseLog, Snapshot
from headrace_plugins.changes.log import OffsetField, check_fields
from headrace_plugins.connectors.postgres.pgoutput import LogTexts, Unseen
from headrace_plugins.connectors.postgres.replication import (
    HAS_FAILOVER,
    ReplicationConnection,
    check_confirmed,
    check_system,
    lsn_text,
    require_primary,
    timeline_of,
    to_lsn,
)
from headrace_plugins.connectors.postgres.settings import OWN_SLOT, PublicationMode
from headrace_plugins.connectors.postgres.wal import WalReader
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.postgresql import Postgresql, begin_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from headrace_plugins.changes.log import LogReader, Offset
    from headrace_plugins.changes.parts import Keeps, Typed
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session

_SLOT = """
SELECT plugin, database = current_database(), wal_status, confirmed_flush_lsn::text,
  pg_catalog.to_jsonb(s) ->> 'invalidation_reason'
FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s"""
_CREATE = "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput')"
_CREATE_FAILOVER = """
SELECT lsn::text
FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput', failover => true)"""
_SERVER = """
SELECT system_identifier::text, pg_is_in_recovery() FROM pg_catalog.pg_control_system()"""
_IDENTITY = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND (c.relreplident = 'n' OR (c.relreplident = 'd' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_index i
    WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate)))"""
_OTHER_INDEX = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisreplident
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND c.relreplident = 'i'
  AND NOT (k.indkey::int2[])[0:k.indnkeyatts - 1] OPERATOR(pg_catalog.<@) i.indkey::int2[]"""
_PUBLICATION = """
SELECT puballtables, pubviaroot, pubinsert AND pubupdate AND pubdelete AND pubtruncate
FROM pg_catalog.pg_publication WHERE pubname = %s"""
_PARTITIONED = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND c.relkind = 'p'"""
_PLACE = (
    OffsetField.integer("lsn", 0, required=True),
    OffsetField.text("system"),
    OffsetField.integer("timeline", 1, (1 << 32) - 1),
    OffsetField.mark("initial"),
)
_PAGE_BYTES = 1024
"""The size of a page of the log is a multiple of this."""
_PAGE_SECONDS = 1.0
"""The end of a page is not accepted as the end of the log for this long."""
_LOOK_SECONDS, _WRITERS_SECONDS = 0.1, 2.0
_COMMITTED = """
SELECT x::text FROM pg_snapshot_xip(pg_current_snapshot()) x
WHERE pg_xact_status(x) = 'committed'"""
_RUNNING = "SELECT x::text FROM pg_snapshot_xip(pg_current_snapshot()) x"
_REWRITTEN = """
SELECT EXISTS (SELECT FROM (
    SELECT %s::regclass::oid AS oid
    UNION SELECT relid::oid FROM pg_partition_tree(%s::regclass)) t
  LEFT JOIN pg_catalog.pg_class c ON c.oid = t.oid
  WHERE c.oid IS NULL OR (c.relkind = 'r'
    AND c.relfilenode <> pg_catalog.pg_relation_filenode(c.oid)))"""
"""The catalog is read as of the snapshot; the function returns the current value."""
_HAS_FILTERS = 150_000
_FILTERED = """
SELECT p.schemaname, p.tablename FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
WHERE p.pubname = %s AND (p.rowfilter IS NOT NULL OR pg_catalog.cardinality(p.attnames) < (
  SELECT count(*) FROM pg_catalog.pg_attribute a
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''))"""
_UNLOGGED = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND (c.relkind = 'f' OR c.relpersistence <> 'p')"""
_UNUSABLE = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND NOT has_schema_privilege(n.oid, 'USAGE')"""
_FOREIGN = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND NOT pg_has_role(c.relowner, 'USAGE')"""
_OWNS_PUBLICATION = """
SELECT pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication WHERE pubname = %s"""
_MAY_CREATE = "SELECT has_database_privilege(current_user, current_database(), 'CREATE')"


@dataclass(frozen=True)
class SlotLog(DatabaseLog):
    """The log of a database, read by a slot and a publication.

    Args:
        slot: The name of the slot.
        publication: The name of the publication.
        mode: Whether the connector creates the publication.
        name: The server's name in ``source``.
        nulls: Whether values that the schema cannot represent become null.
        failover: Whether to synchronize the slot to standbys, if the server supports that.
        warn_retained_bytes: The size of the retained log from which on a warning is logged.
        max_retained_bytes: The size of the retained log above which the slot is dropped.
    """

    keeps_start: ClassVar[bool] = True  # by the slot

    database: Postgresql
    slot: str
    publication: str
    mode: PublicationMode
    name: str
    nulls: bool = False
    failover: bool = True
    warn_retained_bytes: int | None = None
    max_retained_bytes: int | None = None

    @property
    @override
    def partition(self) -> Mapping[str, str]:
        return {"slot": self.slot}

    @override
    def order(self, place: Offset) -> tuple[int, ...]:
        return (int(place["lsn"]),)

    @override
    def check_place(self, place: Offset) -> None:
        example = '{"lsn": number}, such as one that was stored before'
        check_fields("place in the log of PostgreSQL", place, _PLACE, example)

    @override
    def between_bytes(self, start: Offset, end: Offset) -> int | None:
        return max(0, int(end["lsn"]) - int(start["lsn"]))

    # --- the slot and the publication -----------------------------------------------

    @override
    def begin(
        self, session: Session, tables: Sequence[Table], *, restart: bool = False
    ) -> Offset:
        place: str | None = None
        system = self._system(session)
        for plugin, is_here, status, confirmed, _ in session.rows(_SLOT, [self.slot]):
            self._check_slot(plugin, is_here)
            place = confirmed
            is_published = session.rows(_PUBLICATION, [self.publication])
            # The slot was never read and cannot be: its log was removed, or starts before the
            # publication was created, which pgoutput cannot read.
            if not (is_published or restart or self.slot.startswith(OWN_SLOT)):
                raise ConfigError(
                    problem=f"The slot {self.slot} exists, but not the publication "
                    f"{self.publication}: the changes that the slot retains cannot be read "
                    "without it.",
                    fix="Name the slot's own publication, or another slot, or drop the slot if "
                    "nobody uses it: SELECT pg_drop_replication_slot("
                    f"{self.database.literal(self.slot)});",
                    field="publication.name",
                )
            if restart or status == "lost" or not is_published:
                self.require(session, tables)
                session.rows("SELECT pg_catalog.pg_drop_replication_slot(%s)", [self.slot])
                session.commit()
                place = None
        self._publish(session, tables)
        session.commit()
        if place is None:
            number = int(session.value("SELECT current_setting('server_version_num')"))
            has_failover = self.failover and number >= HAS_FAILOVER
            place = session.value(_CREATE_FAILOVER if has_failover else _CREATE, [self.slot])
            session.commit()
        else:
            # When a slot is created, the server itself waits for the writers.
            self._await_writers(session, tables)
        return {**self.now(session), "lsn": to_lsn(str(place)), "system": system}

    @override
    def check(self, session: Session, tables: Sequence[Table], place: Offset) -> None:
        title = self.database.address.title
        check_system(title, place, self._system(session))
        self.check_seen(session, place)
        found = session.rows(_SLOT, [self.slot])
        if not found:
            raise DataLostError(
                problem=f"{title} has no replication slot {self.slot}: the changes "
                f"after {lsn_text(int(place['lsn']))} are lost. A promoted standby "
                "has only the slots that were synchronized to it.",
                fix=f"{RESNAPSHOT} To prevent this in later failovers, see slot.failover.",
            )
        plugin, is_here, status, confirmed, reason = found[0]
        self._check_slot(plugin, is_here)
        if status == "lost":
            raise DataLostError(
                problem=f"{title} has removed the log that the slot {self.slot} needs: "
                f"{reason or 'it was longer than max_slot_wal_keep_size'}.",
                fix=RESNAPSHOT,
            )
        check_confirmed(title, self.slot, confirmed, int(place["lsn"]))
        if int(self.now(session)["lsn"]) < int(place["lsn"]):
            raise DataLostError(
                problem=f"The log of {title} ends before the stored position "
                f"{lsn_text(int(place['lsn']))}: the server was restored from a backup.",
                fix=RESNAPSHOT,
            )
        self._publish(session, tables)

    @override
    def check_seen(self, session: Session, upto: Offset) -> None:
        now = _place(session, "pg_current_wal_flush_lsn")
        if upto.get("timeline") not in {None, now["timeline"]}:
            connection = ReplicationConnection(self.database, self.slot, self.publication)
            with closing(connection):
                connection.check(upto)

    def _await_writers(self, session: Session, tables: Sequence[Table]) -> None:
        """Wait for transactions that may have written to tables before they were published.

        Such writes are not in the log's stream, and not yet in a snapshot.
        """
        by = time.monotonic() + _WRITERS_SECONDS
        for table in tables:
            writers = self.database.writers(session, table.name)
            while writers:
                if time.monotonic() > by:
                    raise RetriableError(
                        problem=f"An open transaction may have written to {table.name} before "
                        "the table was published; these changes would not be in the log.",
                        fix="Commit the transaction, or end its session.",
                    )
                session.rollback()
                time.sleep(_LOOK_SECONDS)
                writers &= self.database.writers(session, table.name)

    def _check_slot(self, plugin: str, is_here: bool) -> None:  # noqa: FBT001 - a column
        if plugin != "pgoutput" or not is_here:
            raise ConfigError(
                problem=f"The replication slot {self.slot} uses the plugin {plugin}"
                f"{'' if is_here else ', and is of another database'}.",
                fix="Set another slot, or drop this one: SELECT pg_drop_replication_slot("
                f"{self.database.literal(self.slot)});",
                field="slot.name",
            )

    @override
    def require(self, session: Session, tables: Sequence[Table]) -> None:
        level = session.value("SELECT current_setting('wal_level')")
        if level != "logical":
            raise ConfigError(
                problem=f"wal_level is {level}.",
                fix="ALTER SYSTEM SET wal_level = logical; then restart the server.",
                field="connection.url",
            )
        self._require_all_changes(session, tables)
        statement = self.missing(session, tables)
        if statement is None:
            return
        self.require_followable(session, tables)
        obstacle = self.publication_obstacle(session, tables)
        if obstacle is not None:
            problem, fix = obstacle
            if not session.rows(_PUBLICATION, [self.publication]) and session.rows(
                _SLOT, [self.slot]
            ):
                fix += (
                    f" The slot {self.slot} cannot read the time without the publication: "
                    "changes of that time are copied only by reading the tables again. "
                    f"SELECT pg_drop_replication_slot({self.database.literal(self.slot)}); "
                    f"{RESNAPSHOT}"
                )
            raise ConfigError(
                problem=f"The publication {self.publication} lacks followed tables. " + problem,
                fix=fix,
                field="publication.name",
            )

    def publication_obstacle(
        self, session: Session, tables: Sequence[Table]
    ) -> tuple[str, str] | None:
        """Return why the user may not add the missing tables, and the fix; None if allowed."""
        statement = self.missing(session, tables)
        if statement is None:
            return None
        if self.mode is PublicationMode.DISABLED:
            return "publication.autocreate.mode is disabled.", f"{statement};"
        lacking = self.left_out(session, tables)
        names = [[each.schema for each in lacking], [each.name for each in lacking]]
        foreign = [str(TableName(*row)) for row in session.rows(_FOREIGN, names)]
        if foreign:
            return (
                f"The user does not own {', '.join(foreign)}, and may not publish them.",
                f"Let the owner run: {statement};",
            )
        owns = session.rows(_OWNS_PUBLICATION, [self.publication])
        if owns == [(False,)]:
            return (
                "The user does not own the publication.",
                f"Let its owner run: {statement};",
            )
        if not owns and not session.value(_MAY_CREATE):
            database = self.database.quote(self.database.address.database)
            user = self.database.quote(self.database.address.user or "user")
            return (
                "The user may not create the publication.",
                f"GRANT CREATE ON DATABASE {database} TO {user};",
            )
        return None

    def _require_all_changes(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError if the publication, or a table in it, omits changes or values."""
        self._require_keys(session, tables)
        if int(session.value("SELECT current_setting('server_version_num')")) >= _HAS_FILTERS:
            for row in session.rows(_FILTERED, [self.publication]):
                raise ConfigError(
                    problem=f"The publication {self.publication} contains only some columns or "
                    f"rows of {TableName(*row)}.",
                    fix="Publish the table without a column list and without a row filter.",
                    field="publication.name",
                )
        statement = self.incomplete(session, tables)
        if statement is not None:
            raise ConfigError(
                problem=f"The publication {self.publication} omits changes.",
                fix=f"{statement};",
                field="publication.name",
            )

    def incomplete(self, session: Session, tables: Sequence[Table]) -> str | None:
        """Return the statement that makes the publication complete; None if it is."""
        found = session.rows(_PUBLICATION, [self.publication])
        if not found:
            return None
        _, via_root, has_all = found[0]
        options = [] if has_all else ["publish = 'insert, update, delete, truncate'"]
        # Else changes have the names of the partitions, which are not followed.
        if not via_root and session.rows(_PARTITIONED, _names(tables)):
            options.append("publish_via_partition_root = true")
        name = self.database.quote(self.publication)
        return f"ALTER PUBLICATION {name} SET ({', '.join(options)})" if options else None

    def missing(self, session: Session, tables: Sequence[Table]) -> str | None:
        """Return the statement that creates or completes the publication; None if complete."""
        name = self.database.quote(self.publication)
        found = session.rows(_PUBLICATION, [self.publication])
        wanted = self.left_out(session, tables)
        listed = ", ".join(self.database.path(each) for each in wanted)
        if not found:
            what = f"TABLE {listed}"
            if self.mode is PublicationMode.ALL_TABLES:
                what = "ALL TABLES"
            options = "publish_via_partition_root = true"
            return f"CREATE PUBLICATION {name} FOR {what} WITH ({options})"
        return f"ALTER PUBLICATION {name} ADD TABLE {listed}" if wanted else None

    @override
    def obstacles(
        self, session: Session, tables: Sequence[Table]
    ) -> Mapping[TableName, ConfigError]:
        found = dict(self._unlogged(session, tables)) | dict(self._unusable(session, tables))
        if not session.rows(_PUBLICATION, [self.publication]):
            return found  # all tables are published together, or none
        lacking = set(self.left_out(session, tables)) - found.keys()
        for table in [each for each in tables if each.name in lacking]:
            try:
                self.require_followable(session, [table])
            except ConfigError as error:
                found[table.name] = error
                continue
            obstacle = self.publication_obstacle(session, [table])
            if obstacle is not None:
                problem, fix = obstacle
                found[table.name] = ConfigError(
                    problem=f"The publication {self.publication} lacks {table.name}. {problem}",
                    fix=fix,
                    field="publication.name",
                )
        return found

    def _unusable(
        self, session: Session, tables: Sequence[Table]
    ) -> Iterator[tuple[TableName, ConfigError]]:
        user = self.database.quote(self.database.address.user or "user")
        for schema, name in session.rows(_UNUSABLE, _names(tables)):
            table = TableName(schema, name)
            yield (
                table,
                ConfigError(
                    problem=f"The user lacks USAGE on the schema of {table}.",
                    fix=f"GRANT USAGE ON SCHEMA {self.database.quote(schema)} TO {user};",
                    field="connection.user",
                ),
            )

    def _unlogged(
        self, session: Session, tables: Sequence[Table]
    ) -> Iterator[tuple[TableName, ConfigError]]:
        for row in session.rows(_UNLOGGED, _names(tables)):
            logged = f"ALTER TABLE {self.database.path(TableName(*row))} SET LOGGED"
            yield (
                TableName(*row),
                ConfigError(
                    problem=f"{TableName(*row)} is a foreign, temporary or unlogged table: its "
                    "changes are not in the log.",
                    fix=f"{logged}; if it is unlogged, or exclude it by table.exclude.list.",
                    field="table.exclude.list",
                ),
            )

    @override
    def left_out(self, session: Session, tables: Sequence[Table]) -> Sequence[TableName]:
        query = (
            "SELECT schemaname, tablename FROM pg_catalog.pg_publication_tables "
            "WHERE pubname = %s"
        )
        published = {TableName(*row) for row in session.rows(query, [self.publication])}
        return [each.name for each in tables if each.name not in published]

    def _publish(self, session: Session, tables: Sequence[Table]) -> None:
        """Create the publication, or add missing tables to it."""
        self.require(session, tables)
        statement = self.missing(session, tables)
        if statement is None:
            return
        session.commit()
        try:
            session.execute(statement)
        except ConfigError as error:
            raise ConfigError(
                problem=error.problem,
                fix=f"Let a superuser run: {statement};",
                field="publication.autocreate.mode",
            ) from error
        session.commit()

    def _require_keys(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError for a table whose logged deletions lack the primary key."""
        for row in session.rows(_OTHER_INDEX, _names(tables)):
            raise self._unfollowable(
                row,
                "has an index as its replica identity that lacks columns of the primary key",
                identity="DEFAULT",
            )

    def require_followable(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError for a table that cannot or should not be published."""
        for _, error in (*self._unusable(session, tables), *self._unlogged(session, tables)):
            raise error
        # Once such a table is published, all UPDATEs and DELETEs of it fail.
        for row in session.rows(_IDENTITY, _names(tables)):
            raise self._unfollowable(
                row,
                "has neither a primary key nor a replica identity for its rows in the log",
                identity="FULL",
            )
        self._require_keys(session, tables)

    def _unfollowable(self, row: Sequence[Any], what: str, identity: str) -> ConfigError:
        """Return the error for a table, with the replica identity to set."""
        table = TableName(*row)
        alter = f"ALTER TABLE {self.database.path(table)} REPLICA IDENTITY {identity}"
        fix = f"{alter}; or exclude the table by table.exclude.list."
        return ConfigError(problem=f"{table} {what}.", fix=fix, field="table.exclude.list")

    def _system(self, session: Session) -> str:
        [(system, is_standby)] = session.rows(_SERVER)
        require_primary(self.database.address.title, is_standby=is_standby)
        return str(system)

    @override
    def now(self, session: Session) -> Offset:
        # At the end of a page, the flushed log may end inside a record. A commit that spans
        # this place would count as before it, so wait: the rest of the record follows at once.
        by = time.monotonic() + _PAGE_SECONDS
        while True:
            place = _place(session, "pg_current_wal_flush_lsn")
            if place["lsn"] % _PAGE_BYTES or time.monotonic() > by:
                return place
            time.sleep(_PAGE_SECONDS / 20)

    @override
    def oldest(self, session: Session, tables: Sequence[Table]) -> Offset:
        return self.begin(session, tables)  # the slot's position

    @override
    def since(self, session: Session, time: datetime) -> Offset:
        raise ConfigError(
            problem="PostgreSQL cannot repeat changes: a replication slot only moves forward, "
            "and the log before it is removed.",
            fix="Read the current rows: headrace connector tables resync NAME TABLE, with "
            "--where for some of the rows.",
            field="offsets",
        )

    @override
    def reader(
        self, follows: Callable[[TableName], bool], *, is_second: bool = False
    ) -> Callable[[], LogReader]:
        return partial(
            WalReader,
            self.database,
            self.slot,
            self.publication,
            follows,
            failover=self.failover,
        )

    # --- snapshots ------------------------------------------------------------------

    @override
    @contextmanager
    def snapshot(self, place: Offset) -> Iterator[Snapshot]:
        with self.database.session() as session, self.database.session() as looking:
            # A transaction is in the log once it is flushed, but visible to snapshots a moment
            # later, or much later if it waits for a standby: a snapshot must not lag the log.
            late = {x for (x,) in looking.rows(_COMMITTED)}
            while late:
                looking.rollback()
                time.sleep(_LOOK_SECONDS / 10)
                late &= {x for (x,) in looking.rows(_RUNNING)}
            looking.rollback()
            begin_snapshot(session.connection)
            [(name, seen)] = session.rows(
                "SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()::text"
            )
            upto = _place(looking, "pg_current_wal_insert_lsn")
            looking.close()
            details = {"txId": None, "lsn": upto["lsn"]}

            def has_lost(table: TableName) -> bool:
                try:
                    return bool(session.value(_REWRITTEN, [self.database.path(table)] * 2))
                except HeadraceError:
                    return True

            now = time.time_ns() // 1000
            yield Snapshot(name, seen, upto, now, details, has_lost)

    @override
    def keeps(self, seen: Any) -> Keeps | None:
        return None if seen is None else Unseen.of(seen)

    @property
    @override
    def typed(self) -> Typed:
        return LogTexts(self.nulls)

    @override
    def facts(self, table: TableName) -> Mapping[str, str]:
        return {
            "version": "1.0",
            "connector": "postgresql",
            "name": self.name,
            "db": self.database.address.database,
            "schema": table.schema,
            "table": table.name,
        }

    @property
    @override
    def details(self) -> Mapping[str, Schema]:
        return {"txId": Schema.int64(), "lsn": Schema.int64()}


def _names(tables: Sequence[Table]) -> list[list[str]]:
    """Return the schemas and the names of tables, as query parameters."""
    return [[t.name.schema for t in tables], [t.name.name for t in tables]]


def _place(session: Session, end: str) -> Offset:
    """Return the place in the log that a function of PostgreSQL returns."""
    query = f"SELECT l::text, pg_walfile_name(l) FROM {end}() l"  # noqa: S608 - our own
    [(text, segment)] = session.rows(query)
    return {"lsn": to_lsn(text), "timeline": timeline_of(segment)}
