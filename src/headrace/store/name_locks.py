"""Locks of names, for rows that do not exist yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy import Connection


def hold(db: Connection, *names: str) -> None:
    """Keep other transactions from going on beyond their own ``hold`` of these names.

    For rows that do not exist yet, and so cannot be locked. In SQLite a transaction that
    writes keeps all others away as it is.
    """
    if db.dialect.name == "postgresql":
        key = func.hashtextextended("\n".join(names), 0)
        db.execute(select(func.pg_advisory_xact_lock(key)))
