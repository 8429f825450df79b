"""A store that is an earlier state of itself: what it does not know of has happened.

Targets hold batches that are newer than all that a backup, or a standby that was promoted,
knows of. If their numbers were used again, a target would take a new batch for one that it
has, and its rows would be lost (Guarantee 1). So the tasks of such a store go on with numbers
that none has used, and what has moved since the backup is moved once more.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection, Engine, Table, delete, func, select, update

from headrace.store.connections import Mode, in_mode
from headrace.store.tables import batches, fact, put_fact, retired_epochs, tasks

log = structlog.get_logger(__name__)


_FACT = "floors"
_BATCHES = 2**32
"""How far numbers of batches jump at least, should the clock be behind them."""
_EPOCHS = 2**16
_EPOCHS_SINCE = 1_577_836_800
"""The epochs' own count of seconds begins in 2020, as they are numbers of 31 bits."""


@dataclass(frozen=True, slots=True)
class Floors:
    """What the tasks of a store begin after."""

    batch: int = 0
    epoch: int = 0


def floors_of(db: Connection) -> Floors:
    """Return what a new task begins after."""
    found = fact(db, _FACT)
    if not isinstance(found, dict):
        return Floors()
    batch, epoch = found.get("batch"), found.get("epoch")
    assert isinstance(batch, int)
    assert isinstance(epoch, int)
    return Floors(batch, epoch)


def raise_floors(db: Connection) -> None:
    """Let every task, also one that is made later, go on with numbers that none has used.

    They come from the clock, as a store may be set back to the same moment again; a clock that
    was put back too still gives numbers beyond all that the store knows of.
    """
    known, now = floors_of(db), time.time_ns()
    batch = max(_largest(db, tasks, "last_batch"), known.batch) + _BATCHES
    epochs = (_largest(db, each, "epoch") for each in (tasks, retired_epochs))
    epoch = max(*epochs, known.epoch) + _EPOCHS
    floors = Floors(
        max(batch, now // 1_000_000), max(epoch, now // 1_000_000_000 - _EPOCHS_SINCE)
    )
    put_fact(db, _FACT, {"batch": floors.batch, "epoch": floors.epoch})
    db.execute(update(tasks).values(last_batch=floors.batch, epoch=floors.epoch))
    db.execute(update(retired_epochs).values(epoch=floors.epoch))


def _largest(db: Connection, table: Table, column: str) -> int:
    return int(db.execute(select(func.max(table.c[column]))).scalar() or 0)


_COPY = "PRAGMA user_version=1"
"""A number in the file's head that SQLite leaves to its users: this is a backup."""


def mark_as_copy(copy: sqlite3.Connection) -> None:
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
