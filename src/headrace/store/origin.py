"""Notices that a PostgreSQL database went on from a copy of itself.

A standby that is promoted may lack the newest transactions, and a restored backup does. The
numbers that they held may be in targets, so new ones must be larger (Guarantee 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from headrace.store.facts import fact, put_fact
from headrace.store.floors import raise_floors
from headrace.store.name_locks import hold
from headrace.store.restoring import set_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection
    from sqlalchemy.pool import ConnectionPoolEntry

log = structlog.get_logger(__name__)

_KEY = "headrace_origin"
_FACT = "origin"
_QUERY = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
       substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
       (SELECT oid FROM pg_database WHERE datname = current_database())::text,
       to_regclass('tasks')::oid::text
WHERE NOT pg_is_in_recovery()
"""
"""The cluster, its timeline, which is the next one after each promotion or recovery to a point
in time, the database, and the table, which is another one after a dump was loaded."""


class Origin:
    """Compares the database behind new connections with the one that the store was in."""

    def __init__(self) -> None:
        """Begin without knowing the database."""
        self._confirmed: list[object] | None = None

    def connected(self, connection: Any, record: ConnectionPoolEntry) -> None:
        """Look which database a new connection leads to."""
        import psycopg  # noqa: PLC0415 - it may not be installed

        try:
            record.info[_KEY] = _seen(connection.execute(_QUERY).fetchone())
        except psycopg.Error as error:
            # Not every service that speaks PostgreSQL's language lets everyone know.
            log.debug("the origin of the store is not known", why=str(error))
            record.info[_KEY] = None
        connection.rollback()

    def confirm(self, db: Connection) -> None:
        """Raise the floors, in a transaction that writes, if the database is another one."""
        if db.info.get(_KEY) == []:  # it led to a standby, which may be promoted by now
            db.info[_KEY] = _seen(db.exec_driver_sql(_QUERY).one_or_none())
        seen: list[object] | None = db.info.get(_KEY)
        if not seen or seen == self._confirmed:
            return
        hold(db, "origin")
        known = fact(db, _FACT)
        if known == seen:
            self._confirmed = seen
            return
        if isinstance(known, list):
            log.warning("the database of the store is another one", was=known, now=seen)
            if known[2:] == seen[2:]:
                # Perhaps nothing is missing: an intent is looked for in the targets.
                raise_floors(db)
            else:
                set_back(db)
        put_fact(db, _FACT, seen)


def _seen(row: Sequence[object] | None) -> list[object] | None:
    """Return what a row says; nothing of a standby, None where it is not all known."""
    if row is None:
        return []
    return None if None in row else list(row)
