"""The log of a PostgreSQL database: its slot, its publication, and snapshots beside it."""

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
from headrace_plugins.changes.offset_fields import OffsetField, check_fields
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
from headrace_plugins.connectors.postgres.values import LogTexts, Unseen
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
"""Of which a page of the log is a multiple, whatever its size is."""
_PAGE_SECONDS = 1.0
"""How long the end of a page is not taken for the end of the log."""
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
"""The catalog is as of the snapshot, and what the function says is as of now."""
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
    """The log of a database, as a slot and a publication give it.

    Args:
        slot: The name of the slot.
        publication: The name of the publication.
        mode: Whether the publication is made here.
        name: What ``source`` calls the server.
        nulls: Whether values that no schema has anything for become null.
        failover: Whether the slot goes over to standbys, where the server knows that.
        warn_retained_bytes: How much of the log the slot may keep without a warning.
        max_retained_bytes: How much it may keep before it is dropped.
    """

    keeps_start: ClassVar[bool] = True  # the slot does

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
    def begin(self, session: Session, tables: Sequence[Table], *, anew: bool = False) -> Offset:
        place: str | None = None
        system = self._system(session)
        for plugin, is_here, status, confirmed, _ in session.rows(_SLOT, [self.slot]):
            self._check_slot(plugin, is_here)
            place = confirmed
            is_published = session.rows(_PUBLICATION, [self.publication])
            # Nothing was read by it, and nothing will be: its log has been removed, or begins
            # before the publication, and pgoutput reads no such log.
            if not (is_published or anew or self.slot.startswith(OWN_SLOT)):
                raise ConfigError(
                    problem=f"The slot {self.slot} is there, and the publication "
                    f"{self.publication} is not: what the slot has kept cannot be read by it.",
                    fix="Name the slot's own publication, another slot, or drop it if nobody "
                    "uses it: SELECT pg_drop_replication_slot("
                    f"{self.database.literal(self.slot)});",
                    field="publication.name",
                )
            if anew or status == "lost" or not is_published:
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
            # Where a slot is created, the server waits for them itself.
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
                problem=f"{title} has no replication slot {self.slot}: what was committed "
                f"after {lsn_text(int(place['lsn']))} is lost. A standby that was promoted "
                "has only the slots that were synchronized to it.",
                fix=f"{RESNAPSHOT} For the next failover see slot.failover.",
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
                f"{lsn_text(int(place['lsn']))}: the server was set back to a backup.",
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
        """Wait for those who write tables, since before these were published perhaps.

        What they have written is not in the log, nor yet in a snapshot.
        """
        by = time.monotonic() + _WRITERS_SECONDS
        for table in tables:
            writers = self.database.writers(session, table.name)
            while writers:
                if time.monotonic() > by:
                    raise RetriableError(
                        problem=f"A transaction is open that may have written {table.name} "
                        "before it was published; what it wrote would be in no log.",
                        fix="Commit it, or end its session.",
                    )
                session.rollback()
                time.sleep(_LOOK_SECONDS)
                writers &= self.database.writers(session, table.name)

    def _check_slot(self, plugin: str, is_here: bool) -> None:  # noqa: FBT001 - a column
        if plugin != "pgoutput" or not is_here:
            raise ConfigError(
                problem=f"The replication slot {self.slot} is of the plugin {plugin}"
                f"{'' if is_here else ', and of another database'}.",
                fix="Name another slot, or drop this one: SELECT pg_drop_replication_slot("
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
                    f" The slot {self.slot} cannot go on across the time without it: "
                    "what was committed meanwhile comes only by reading the tables again. "
                    f"SELECT pg_drop_replication_slot({self.database.literal(self.slot)}); "
                    f"{RESNAPSHOT}"
                )
            raise ConfigError(
                problem=f"The publication {self.publication} lacks tables that are followed. "
                + problem,
                fix=fix,
                field="publication.name",
            )

    def publication_obstacle(
        self, session: Session, tables: Sequence[Table]
    ) -> tuple[str, str] | None:
        """Return why the user may not give the publication what it lacks, and the fix."""
        statement = self.missing(session, tables)
        if statement is None:
            return None
        if self.mode is PublicationMode.DISABLED:
            return "publication.autocreate.mode leaves it to others.", f"{statement};"
        lacking = self.left_out(session, tables)
        names = [[each.schema for each in lacking], [each.name for each in lacking]]
        foreign = [str(TableName(*row)) for row in session.rows(_FOREIGN, names)]
        if foreign:
            return (
                f"The user does not own {', '.join(foreign)}, and so may not publish them.",
                f"Let the owner run: {statement};",
            )
        owns = session.rows(_OWNS_PUBLICATION, [self.publication])
        if owns == [(False,)]:
            return "The user does not own it.", f"Let its owner run: {statement};"
        if not owns and not session.value(_MAY_CREATE):
            database = self.database.quote(self.database.address.database)
            user = self.database.quote(self.database.address.user or "user")
            return (
                "The user may not make it.",
                f"GRANT CREATE ON DATABASE {database} TO {user};",
            )
        return None

    def _require_all_changes(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError where a publication, or a table in it, leaves something out."""
        self._require_keys(session, tables)
        if int(session.value("SELECT current_setting('server_version_num')")) >= _HAS_FILTERS:
            for row in session.rows(_FILTERED, [self.publication]):
                raise ConfigError(
                    problem=f"The publication {self.publication} has some columns or rows only "
                    f"of {TableName(*row)}.",
                    fix="Publish the table without a list of columns and without a filter.",
                    field="publication.name",
                )
        statement = self.incomplete(session, tables)
        if statement is not None:
            raise ConfigError(
                problem=f"The publication {self.publication} leaves changes out.",
                fix=f"{statement};",
                field="publication.name",
            )

    def incomplete(self, session: Session, tables: Sequence[Table]) -> str | None:
        """Return the statement that lets a publication have all changes; None if it has."""
        found = session.rows(_PUBLICATION, [self.publication])
        if not found:
            return None
        _, via_root, has_all = found[0]
        options = [] if has_all else ["publish = 'insert, update, delete, truncate'"]
        # Changes would come under the names of the parts, which nobody follows.
        if not via_root and session.rows(_PARTITIONED, _names(tables)):
            options.append("publish_via_partition_root = true")
        name = self.database.quote(self.publication)
        return f"ALTER PUBLICATION {name} SET ({', '.join(options)})" if options else None

    def missing(self, session: Session, tables: Sequence[Table]) -> str | None:
        """Return the statement that gives the publication what it lacks; None for nothing."""
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
            return found  # all of them are published at once, or none
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
                    problem=f"The user may not use the schema of {table}.",
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
                    problem=f"{TableName(*row)} is a foreign, a temporary or an unlogged "
                    "table: the log has nothing of it.",
                    fix=f"{logged}; if it is unlogged, or name it in table.exclude.list.",
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
        """See to it that the publication has the tables."""
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
        """Raise ConfigError for a table of whose deletions the log does not have the key."""
        for row in session.rows(_OTHER_INDEX, _names(tables)):
            raise self._unfollowable(
                row,
                "has an index as its replica identity that lacks columns of the primary key",
                identity="DEFAULT",
            )

    def require_followable(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError for a table that no publication may have, or better has not."""
        for _, error in (*self._unusable(session, tables), *self._unlogged(session, tables)):
            raise error
        # In a publication such a table refuses the UPDATEs and DELETEs of everyone.
        for row in session.rows(_IDENTITY, _names(tables)):
            raise self._unfollowable(
                row,
                "has no primary key, and nothing else tells its rows apart in the log",
                identity="FULL",
            )
        self._require_keys(session, tables)

    def _unfollowable(self, row: Sequence[Any], what: str, identity: str) -> ConfigError:
        """Return the error for a table, with the replica identity that it should have."""
        table = TableName(*row)
        alter = f"ALTER TABLE {self.database.path(table)} REPLICA IDENTITY {identity}"
        fix = f"{alter}; or leave it out by table.exclude.list."
        return ConfigError(problem=f"{table} {what}.", fix=fix, field="table.exclude.list")

    def _system(self, session: Session) -> str:
        [(system, is_standby)] = session.rows(_SERVER)
        require_primary(self.database.address.title, is_standby=is_standby)
        return str(system)

    @override
    def now(self, session: Session) -> Offset:
        # Up to the end of a page it may be flushed within a record. A commit that lies on both
        # sides of a place would be taken for one before it: its rest comes at once.
        by = time.monotonic() + _PAGE_SECONDS
        while True:
            place = _place(session, "pg_current_wal_flush_lsn")
            if place["lsn"] % _PAGE_BYTES or time.monotonic() > by:
                return place
            time.sleep(_PAGE_SECONDS / 20)

    @override
    def oldest(self, session: Session, tables: Sequence[Table]) -> Offset:
        return self.begin(session, tables)  # which is where the slot stands

    @override
    def since(self, session: Session, time: datetime) -> Offset:
        raise ConfigError(
            problem="PostgreSQL gives no changes again: a replication slot goes forward only, "
            "and the log behind it is removed.",
            fix="Read the tables as they are now: headrace connector tables resync NAME TABLE, "
            "with --where for some of their rows.",
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
            # The log has a transaction as soon as it is flushed, and snapshots a moment later,
            # or long after where it waits for a standby: no snapshot may be behind the log.
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
    """Return the schemas and the names of tables, as queries take them."""
    return [[t.name.schema for t in tables], [t.name.name for t in tables]]


def _place(session: Session, end: str) -> Offset:
    """Return a place in the log that one of PostgreSQL's functions gives."""
    query = f"SELECT l::text, pg_walfile_name(l) FROM {end}() l"  # noqa: S608 - our own
    [(text, segment)] = session.rows(query)
    return {"lsn": to_lsn(text), "timeline": timeline_of(segment)}
