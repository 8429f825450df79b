"""A backup that is put in the store's place: what it does not know of has happened.

Targets hold batches that are newer than all that the backup knows of. If their numbers were
used again, a target would take a new batch for one that it has, and its rows would be lost
(Guarantee 1). So the tasks of such a store go on with numbers that none has used, and what
has moved since the backup is moved once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from sqlalchemy import delete, select

from headrace.store.floors import raise_floors
from headrace.store.modes import Mode, in_mode
from headrace.store.tables import batches, tasks

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import Connection, Engine

_COPY = "PRAGMA user_version=1"
"""A number in the file's head that SQLite leaves to its users: this is a backup."""

log = structlog.get_logger(__name__)


def tell_copy(copy: sqlite3.Connection) -> None:
    """Say in a copy of a store that it is one."""
    copy.execute(_COPY)


def go_on_from_copy(engine: Engine) -> None:
    """Prepare a store for work if it is a backup that was put in place, once."""
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as db:
        if not _is_copy(db):
            return
    with in_mode(engine, Mode.WRITE).begin() as db:
        if not _is_copy(db):  # another process was first
            return
        set_back(db)
        db.exec_driver_sql("PRAGMA user_version=0")


def set_back(db: Connection) -> None:
    """Let the tasks of a store that was set back go on, whatever has happened since."""
    raise_floors(db)
    # An intent may be done long since, or not: its rows are among those moved once more.
    db.execute(delete(batches).where(batches.c.finished_us.is_(None)))
    names = db.execute(select(tasks.c.connector).distinct()).scalars()
    log.warning(
        "the store is an earlier state of itself: each source, topic and sink of these "
        "connectors repeats for itself what it has moved since",
        connectors=sorted(names),
    )


def _is_copy(db: Connection) -> bool:
    return bool(db.exec_driver_sql("PRAGMA user_version").scalar())
