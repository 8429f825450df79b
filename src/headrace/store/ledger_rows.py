"""Rows of the ledgers of tasks, for the SQL stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select

from headrace.store import rules
from headrace.store.removing import is_task
from headrace.store.tables import ledger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from headrace.model import TaskId


def append_to_ledger(
    db: Connection,
    task: TaskId,
    items: Sequence[Mapping[str, str | int]],
    after: int | None,
) -> int:
    """Add items to a task's ledger and return its length, see Store."""
    length = ledger_length(db, task)
    if after is not None and after != length:
        return rules.repeated_append(task, items, after, ledger_slice(db, task, after, length))
    rows = [
        {
            "connector": task.connector,
            "number": task.number,
            "sequence": sequence,
            "item": json.dumps(dict(item)),
        }
        for sequence, item in enumerate(items, start=length)
    ]
    if rows:
        db.execute(insert(ledger), rows)
    return length + len(rows)


def ledger_slice(
    db: Connection, task: TaskId, start: int, end: int
) -> list[dict[str, str | int]]:
    """Return items of a task's ledger, in order."""
    within = (ledger.c.sequence >= start, ledger.c.sequence < end)
    query = select(ledger.c.item).where(is_task(ledger, task), *within)
    texts = db.execute(query.order_by(ledger.c.sequence)).scalars()
    return [json.loads(text) for text in texts]


def ledger_length(db: Connection, task: TaskId) -> int:
    """Return the length of a task's ledger."""
    query = select(func.coalesce(func.max(ledger.c.sequence) + 1, 0)).where(
        is_task(ledger, task)
    )
    return int(db.execute(query).scalar_one())
