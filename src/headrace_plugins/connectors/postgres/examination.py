"""The findings of ``headrace doctor`` about following the changes of a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.connectors.postgres.replication import HAS_FAILOVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace_plugins.connectors.postgres.slot_log import SlotLog
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session

_ROLE = """
SELECT rolsuper OR rolreplication
  OR EXISTS (SELECT FROM pg_catalog.pg_roles r
    WHERE r.rolname = 'rds_replication' AND pg_has_role(current_user, r.oid, 'member')),
  current_user
FROM pg_catalog.pg_roles WHERE rolname = current_user"""
_FREE = """
SELECT current_setting('max_replication_slots')::int
    - (SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE slot_name <> %s),
  current_setting('max_wal_senders')::int
    - (SELECT count(*) FROM pg_catalog.pg_stat_replication)"""
_SLOT = """
SELECT active, wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
  pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, safe_wal_size,
  active_pid, application_name
FROM pg_catalog.pg_replication_slots
LEFT JOIN pg_catalog.pg_stat_activity ON pid = active_pid WHERE slot_name = %s"""
_STANDBYS = """
SELECT count(*), current_setting('server_version_num')::int,
  current_setting('synchronized_standby_slots', true),
  (SELECT pg_catalog.to_jsonb(o) ->> 'failover' FROM pg_catalog.pg_replication_slots o
   WHERE o.slot_name = %s)
FROM pg_catalog.pg_stat_replication r
LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
WHERE coalesce(s.slot_type, 'physical') = 'physical'"""
_OLD_TRANSACTION = """
SELECT extract(epoch FROM now() - began)::bigint, gid FROM (
  SELECT xact_start AS began, NULL AS gid FROM pg_catalog.pg_stat_activity
  WHERE backend_type = 'client backend' AND backend_xid IS NOT NULL
  UNION ALL SELECT prepared, gid FROM pg_catalog.pg_prepared_xacts) t
ORDER BY began LIMIT 1"""
_LONG_SECONDS = 300
_MUCH_BYTES = 1 << 30


def examine_log(log: SlotLog, session: Session, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield the requirements for following the log, each with the statement that fixes it."""
    standby = session.value("SELECT pg_is_in_recovery()")
    yield Finding.of(
        "a primary",
        "a standby" if standby else "yes",
        "List all servers in connection.url, with ?target_session_attrs=read-write.",
        met=not standby,
    )
    if standby:
        return
    level = session.value("SELECT current_setting('wal_level')")
    yield Finding.of(
        "wal_level = logical",
        level,
        "ALTER SYSTEM SET wal_level = logical; then restart the server.",
        met=level == "logical",
    )
    may, user = session.rows(_ROLE)[0]
    quoted = log.database.quote(user)
    yield Finding.of(
        "the right to replicate", user, f"ALTER ROLE {quoted} REPLICATION;", met=may
    )
    slots, senders = session.rows(_FREE, [log.slot])[0]
    for name, free in (("max_replication_slots", slots), ("max_wal_senders", senders)):
        yield Finding.of(
            f"free capacity of {name}",
            f"{free} free",
            f"ALTER SYSTEM SET {name} = 20; then restart the server.",
            met=free > 0,
        )
    yield from _tables(log, session, tables)
    yield from _publication(log, session, tables)
    yield from _slot(log, session)
    yield from _failover(log, session)
    [(oldest, gid)] = session.rows(_OLD_TRANSACTION) or [(None, None)]
    end = "End it"
    if gid is not None:
        gid = log.database.literal(gid)
        end = f"COMMIT PREPARED {gid}; or ROLLBACK PREPARED {gid}; in its database"
    yield Finding.of(
        "no long-running transaction",
        "none" if oldest is None else f"the oldest is open for {oldest} s",
        f"{end}: until then no slot can be created, and the server keeps its log.",
        met=oldest is None or oldest < _LONG_SECONDS,
        otherwise=Verdict.WARNING,
    )


def _tables(log: SlotLog, session: Session, tables: Sequence[Table]) -> Iterator[Finding]:
    fine = True
    for table in tables:
        try:
            log.require_followable(session, [table])
        except ConfigError as error:
            fine = False
            yield Finding(
                f"rows of {table.name} in the log", Verdict.FAILED, error.problem, error.fix
            )
        else:
            if not table.key:
                yield log.database.no_key(table)
    if fine:
        yield Finding("rows identified in the log", Verdict.OK, f"{len(tables)} tables")


def _publication(log: SlotLog, session: Session, tables: Sequence[Table]) -> Iterator[Finding]:
    requirement = f"the publication {log.publication}"
    options = log.incomplete(session, tables)
    if options is not None:
        yield Finding(requirement, Verdict.FAILED, "It omits changes.", f"{options};")
        return
    statement = log.missing(session, tables)
    if statement is None:
        yield Finding(requirement, Verdict.OK, "has all tables")
        return
    obstacle = log.publication_obstacle(session, tables)
    if obstacle is None:
        yield Finding(requirement, Verdict.OK, "is created at the start")
        return
    problem, fix = obstacle
    yield Finding(requirement, Verdict.FAILED, problem, fix)


def _slot(log: SlotLog, session: Session) -> Iterator[Finding]:
    requirement = f"the replication slot {log.slot}"
    found = session.rows(_SLOT, [log.slot])
    if not found:
        yield Finding(requirement, Verdict.OK, "is created at the start")
        return
    active, status, kept, behind, safe, pid, application = found[0]
    if status == "lost":
        yield Finding(
            requirement,
            Verdict.FAILED,
            "The server has removed the log that it needs.",
            "Reset the connector's offsets, which reads all tables again.",
        )
        return
    seen = f"{_size(behind)} behind, {_size(kept)} of the log retained"
    seen += ", in use" if active else ", not in use"
    if log.max_retained_bytes is not None:
        seen += f", dropped at {_size(log.max_retained_bytes)}"
    most = log.warn_retained_bytes if active else _MUCH_BYTES
    drop = f"SELECT pg_drop_replication_slot({log.database.literal(log.slot)});"
    yield Finding.of(
        requirement,
        seen,
        "Find out what blocks the sinks, before the disk is full."
        if active
        else f"Run the connector, or drop the slot before the disk is full: {drop}",
        met=most is None or (kept or 0) < most,
        otherwise=Verdict.WARNING,
    )
    if active:
        yield Finding(
            f"{requirement} for this connector alone",
            Verdict.WARNING,
            f"in use by PID {pid} of the application {application or 'of another user'}",
            "If that is another connector, set another slot.name for this one: with the same "
            "slot each would terminate the other's connection.",
        )
    limit = session.value("SELECT current_setting('max_slot_wal_keep_size')")
    yield Finding.of(
        "a limit of the log that slots retain",
        limit if safe is None else f"{limit}, {_size(safe)} left",
        "Without a limit, a connector that is stopped for a long time fills the server's disk: "
        "ALTER SYSTEM SET max_slot_wal_keep_size = '100GB'; SELECT pg_reload_conf();",
        met=limit != "-1",
        otherwise=Verdict.WARNING,
    )


def _failover(log: SlotLog, session: Session) -> Iterator[Finding]:
    """Yield whether the connector can continue on a standby, if there is one."""
    [(standbys, version, synchronized, failover)] = session.rows(_STANDBYS, [log.slot])
    if not standbys:
        return
    seen, fix = f"waits for the standbys of {synchronized}", ""
    if version < HAS_FAILOVER:
        seen = "This version does not synchronize slots to standbys."
        fix = "After a failover all tables are read again; PostgreSQL 17 synchronizes slots."
    elif not log.failover or failover == "false":
        seen = "The slot is not synchronized to standbys."
        fix = "Set slot.failover=true and run the connector."
    elif not synchronized:
        seen = "Targets may get changes that no standby has, and that a failover loses."
        fix = (
            "ALTER SYSTEM SET synchronized_standby_slots = 'the standbys'' physical slots'; "
            "SELECT pg_reload_conf();"
        )
    yield Finding.of(
        "a slot that survives a failover", seen, fix, met=not fix, otherwise=Verdict.WARNING
    )


def _size(size_bytes: int | None) -> str:
    size = float(size_bytes or 0)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:  # noqa: PLR2004 - the next unit is a thousand of this one
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
