"""Rows of events, for the SQL stores that share them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select

from headrace.model import Stamp
from headrace.store import rules
from headrace.store.name_locks import hold
from headrace.store.tables import events
from headrace.store.times import micros

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from headrace.model import Retention, TaskId, TaskStatus

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
    hold(db, "events")
    name, task = (part, None) if isinstance(part, str) else (part.connector, part.number)
    row = {"connector": name, "task": task, "kind": kind, "by": stamp.by}
    at, told = micros(stamp.at), json.dumps(dict(detail))
    db.execute(insert(events).values(**row, at_us=at, detail=told))


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
