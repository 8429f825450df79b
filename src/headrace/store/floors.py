"""Numbers below which a store that was set back gives none, as they may have been used."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select, update

from headrace.store.facts import fact, put_fact
from headrace.store.tables import retired_epochs, tasks

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_FACT = "floors"
_BATCHES = 2**32
"""How far numbers of batches jump at least, should the clock be behind them."""
_EPOCHS = 2**16
_EPOCHS_SINCE = 1_577_836_800
"""The epochs' own count of seconds begins in 2020, as they are numbers of 31 bits."""


@dataclass(frozen=True, slots=True)
class Floors:
    """What the tasks of a store begin after.

    Args:
        batch: The number of a task's batches.
        epoch: The epoch of a task's leases.
    """

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
