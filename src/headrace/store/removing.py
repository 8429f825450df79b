"""What is left of a connector in a database when it is forgotten: epochs that were used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from headrace.model import TaskId
from headrace.store.tables import batches, connectors, ledger, retired_epochs, schemas, tasks

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, Select


def is_task(table: FromClause, task: TaskId) -> ColumnElement[bool]:
    """Return the condition of a task's rows."""
    return (table.c.connector == task.connector) & (table.c.number == task.number)


def forget(db: Connection, connector: str) -> None:
    """Forget a connector: its identity, tasks, positions, batches and schemas."""
    # Whoever takes a lease of it meanwhile is done before its tasks are looked for.
    db.execute(identity_of(connector).with_for_update())
    _retire(db, connector)
    for table in (tasks, batches, schemas, ledger):
        db.execute(delete(table).where(table.c.connector == connector))
    db.execute(delete(connectors).where(connectors.c.name == connector))


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
