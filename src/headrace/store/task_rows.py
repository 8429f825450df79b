"""Rows of tasks and batches, for the SQL stores that share them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select, update

from headrace.model import Batch, BatchState, Counts, TaskId, TaskState
from headrace.sdk import Position
from headrace.store import rules
from headrace.store.floors import floors_of
from headrace.store.name_locks import hold
from headrace.store.removing import is_task, retired_epoch
from headrace.store.tables import batches, tasks
from headrace.store.times import micros, time_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from headrace.model import Lease


def ensure_task(db: Connection, task: TaskId) -> Row[Any]:
    """Return a task's row, locked; it is made when it is not there."""
    hold(db, "task", str(task))
    row = locked_task(db, task)
    if row is not None:
        return row
    floors = floors_of(db)
    db.execute(
        insert(tasks).values(
            connector=task.connector,
            number=task.number,
            epoch=max(db.execute(retired_epoch(task)).scalar() or 0, floors.epoch),
            position=Position().to_json(),
            last_batch=floors.batch,
            totals=Counts().to_json(),
            state=TaskState.UNASSIGNED.value,
        )
    )
    return db.execute(select(tasks).where(is_task(tasks, task))).one()


def locked_task(db: Connection, task: TaskId) -> Row[Any] | None:
    """Return a task's row, which nobody else changes until this transaction ends.

    SQLite, whose transactions that write are alone anyway, leaves the lock out.
    """
    query = select(tasks).where(is_task(tasks, task)).with_for_update()
    return db.execute(query).one_or_none()


def update_task(db: Connection, task: TaskId, **values: object) -> None:
    """Change columns of a task's row."""
    db.execute(update(tasks).where(is_task(tasks, task)).values(**values))


def renew_leases(
    db: Connection, leases: Collection[Lease], expires: datetime
) -> dict[TaskId, Lease]:
    """Extend leases, with as many statements for one as for hundreds; return those held."""
    if not leases:
        return {}
    # In one order, so that two that do this at once never wait for each other.
    wanted = [
        {"task": each.task.connector, "n": each.task.number, "by": each.owner, "e": each.epoch}
        for each in sorted(leases, key=lambda each: (each.task.connector, each.task.number))
    ]
    # Guarantee 3: of a lease that another has taken the epoch is another.
    held = (
        (tasks.c.connector == bindparam("task"))
        & (tasks.c.number == bindparam("n"))
        & (tasks.c.owner == bindparam("by"))
        & (tasks.c.epoch == bindparam("e"))
    )
    db.execute(update(tasks).where(held).values(expires_us=micros(expires)), wanted)
    query = select(tasks).where(tasks.c.owner.in_({each.owner for each in leases}))
    epochs = {(TaskId(row.connector, row.number), row.epoch) for row in db.execute(query)}
    return {
        each.task: replace(each, expires=expires)
        for each in leases
        if (each.task, each.epoch) in epochs
    }


def newest_batch(db: Connection, task: TaskId) -> Batch | None:
    """Return a task's newest batch."""
    query = select(batches).where(is_task(batches, task)).order_by(batches.c.id.desc()).limit(1)
    row = db.execute(query).one_or_none()
    return batch_of(row) if row is not None else None


def forget_batches(
    db: Connection, task: TaskId, newest: int, now: datetime, keep_since: datetime | None
) -> None:
    """Delete a task's old batches, as ``rules.forgotten`` says."""
    if not rules.forgets(newest):
        return
    old = select(batches.c.id, batches.c.begun_us).where(
        is_task(batches, task), batches.c.id <= newest - rules.HISTORY
    )
    begun = [(row.id, time_of(row.begun_us)) for row in db.execute(old.order_by(batches.c.id))]
    ids = [{"old": id_} for id_ in rules.forgotten(begun, newest, now, keep_since)]
    if ids:
        this = (is_task(batches, task), batches.c.id == bindparam("old"))
        db.execute(delete(batches).where(*this), ids)


def unfinished_of(db: Connection, task: TaskId) -> Batch | None:
    """Return a task's batch of which only the intent is stored."""
    newest = newest_batch(db, task)
    return newest if newest and newest.state is BatchState.BEGUN else None


def batch_of(row: Row[Any]) -> Batch:
    """Return the batch of a row."""
    finished = row.finished_us is not None
    return Batch(
        task=TaskId(row.connector, row.number),
        id=row.id,
        epoch=row.epoch,
        start=Position.from_json(row.start),
        end=Position.from_json(row.end),
        begun=time_of(row.begun_us),
        state=BatchState.FINISHED if finished else BatchState.BEGUN,
        counts=Counts.from_json(row.counts) if finished else Counts(),
        finished=time_of(row.finished_us) if finished else None,
        routing=row.routing,
    )
