"""Rows of the tables, read and written in a transaction that is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    delete,
    func,
    insert,
    select,
    update,
)

from headrace.model import (
    Batch,
    BatchState,
    Counts,
    Retention,
    Stamp,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import Position
from headrace.store import rules
from headrace.store.connections import lock_name
from headrace.store.set_back import floors_of
from headrace.store.tables import (
    ENDPOINTS,
    batches,
    connectors,
    events,
    facts,
    ledger,
    micros,
    retired_epochs,
    schemas,
    tasks,
    time_of,
)

_AT_ONCE = 1000
"""How many names a statement has."""
_STATE = "state"


def add_event(
    db: Connection,
    part: TaskId | str,
    kind: str,
    stamp: Stamp,
    detail: Mapping[str, object],
) -> None:
    """Tell what happened to a task, or to a connector by its name."""
    # Ids are seen in their order only if they are given one transaction after the other.
    lock_name(db, "events")
    name, task = (part, None) if isinstance(part, str) else (part.connector, part.number)
    row = {"connector": name, "task": task, "kind": kind, "by": stamp.by}
    at, text = micros(stamp.at), json.dumps(dict(detail))
    db.execute(insert(events).values(**row, at_us=at, detail=text))


def add_state(
    db: Connection, task: TaskId, row: Row[Any], status: TaskStatus | None, stamp: Stamp
) -> None:
    """Tell that a task has come to a state that its row does not show."""
    if status is None:
        return
    detail = {"state": status.state.value, "trace": rules.storable(status.trace)}
    if (row.state, row.trace) != (detail["state"], detail["trace"]):
        add_event(db, task, _STATE, stamp, detail)


def prune_events(db: Connection, keep: Retention, now: datetime) -> int:
    """Forget old events, see ConnectorStore."""
    # Whoever reads on from the newest must find its id.
    newest = select(func.max(events.c.id)).scalar_subquery()
    states = events.c.kind == _STATE
    age = micros(now - keep.states_age)
    part = (events.c.connector, func.coalesce(events.c.task, -1))
    place = func.row_number().over(partition_by=part, order_by=events.c.id.desc())
    ranked = select(events.c.id, place.label("place")).where(states).subquery()
    many = select(ranked.c.id).where(ranked.c.place > keep.states_count)
    changes = micros(now - max(keep.changes_age, keep.states_age))
    gone = 0
    for old in (
        states & ((events.c.at_us < age) | events.c.id.in_(many)),
        ~states & (events.c.at_us < changes),
    ):
        gone += db.execute(delete(events).where(events.c.id != newest, old)).rowcount
    return gone


def is_task(table: FromClause, task: TaskId) -> ColumnElement[bool]:
    """Return the condition of a task's rows."""
    return (table.c.connector == task.connector) & (table.c.number == task.number)


def forget(db: Connection, connector: str) -> None:
    """Forget a connector: its identity, tasks, positions, batches and schemas."""
    # Whoever takes a lease of it meanwhile is done before its tasks are looked for.
    db.execute(identity_of(connector).with_for_update())
    _retire(db, connector)
    _forget_rows(db, [connector])


def forget_runs(db: Connection, names: Iterable[str]) -> None:
    """Forget what the tasks of runs keep. Their names never come again, so no epoch stays."""
    wanted = list(names)
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        mine = connectors.c.name.in_(some)
        db.execute(select(connectors.c.uid).where(mine).with_for_update())
        _forget_rows(db, some)


def batch_left(db: Connection, name: str) -> Batch | None:
    """Return an unfinished batch of a run that its worker has neither ended nor given up.

    Who has not heard yet that it lost the lease may still write it.
    """
    held = select(tasks).where(tasks.c.connector == name, tasks.c.owner.is_not(None))
    for row in db.execute(held.order_by(tasks.c.number).with_for_update()).all():
        if (batch := unfinished_of(db, TaskId(name, row.number))) is not None:
            return batch
    return None


def _forget_rows(db: Connection, names: Sequence[str]) -> None:
    for table in (tasks, batches, schemas, ledger):
        db.execute(delete(table).where(table.c.connector.in_(names)))
    db.execute(delete(connectors).where(connectors.c.name.in_(names)))
    endpoints = [ENDPOINTS.format(name) for name in names]
    db.execute(delete(facts).where(facts.c.name.in_(endpoints)))


def identity_of(connector: str) -> Select[str]:
    """Return the query of a connector's identity."""
    return select(connectors.c.uid).where(connectors.c.name == connector)


def retired_epoch(task: TaskId) -> Select[tuple[int]]:
    """Return the query of the last epoch of a task that was removed."""
    return select(retired_epochs.c.epoch).where(is_task(retired_epochs, task))


def _retire(db: Connection, connector: str) -> None:
    """Keep the epochs of tasks that go: one that is made again goes on from there.

    A worker that has not heard of the removal still holds the last one, and must be refused
    by the new task too (Guarantee 3).
    """
    # In the order in which leases are renewed, so that the two never wait for each other.
    mine = select(tasks).where(tasks.c.connector == connector).order_by(tasks.c.number)
    query = mine.with_for_update()
    for row in db.execute(query).all():
        task = TaskId(row.connector, row.number)
        values = {"connector": task.connector, "number": task.number, "epoch": row.epoch}
        db.execute(delete(retired_epochs).where(is_task(retired_epochs, task)))
        db.execute(insert(retired_epochs).values(values))


def ensure_task(db: Connection, task: TaskId) -> Row[Any]:
    """Return a task's row, locked; it is made when it is not there."""
    lock_name(db, "task", str(task))
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


def newest_batch(db: Connection, task: TaskId) -> Batch | None:
    """Return a task's newest batch."""
    query = select(batches).where(is_task(batches, task)).order_by(batches.c.id.desc()).limit(1)
    row = db.execute(query).one_or_none()
    return batch_of(row) if row is not None else None


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
