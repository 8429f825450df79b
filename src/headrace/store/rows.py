"""Operations on rows within a given transaction, and the consistency rules of rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from headrace.model import (
    Batch,
    BatchState,
    Connector,
    ConnectorState,
    Counts,
    Lease,
    Retention,
    Stamp,
    TargetState,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import Position
from headrace.sdk.errors import StaleEpochError, StateError
from headrace.store.connections import lock_name
from headrace.store.errors import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    TaskNotFoundError,
    TaskRemovedError,
)
from headrace.store.tables import (
    ENDPOINTS,
    batches,
    connectors,
    events,
    fact,
    facts,
    ledger,
    micros,
    put_fact,
    retired_epochs,
    schemas,
    tasks,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection


log = structlog.get_logger(__name__)

T = TypeVar("T")

_SINCE_1970 = datetime(1970, 1, 1, tzinfo=UTC)
HISTORY = 1000
"""How many batches of a task are kept; the totals include the counts of deleted batches."""
HOURLY = timedelta(days=30)
"""How long the first batch of each hour is also kept, as a record of the task's position."""
_HOUR = timedelta(hours=1)


def forgotten(
    begun: Iterable[tuple[int, datetime]], newest: int, now: datetime, keep: datetime | None
) -> list[int]:
    """Return the ids of a task's batches that may be deleted.

    ``begun`` contains the ids and start times of batches, oldest first. Batches that began at
    ``keep`` or later are retained.
    """
    found: list[int] = []
    hour: int | None = None
    for id_, at in begun:
        before, hour = hour, (at - _SINCE_1970) // _HOUR
        is_retained = keep is not None and at >= keep
        is_first = hour != before and at >= now - HOURLY
        if not (is_retained or is_first or id_ > newest - HISTORY):
            found.append(id_)
    return found


def forgets(batch: int) -> bool:
    """Return whether to delete old batches after this batch; true for every 100th."""
    return batch % max(1, HISTORY // 10) == 0


def check_free(lease: Lease | None, owner: str, now: datetime) -> None:
    """Raise StateError if another owner still holds the lease."""
    if lease is None or lease.owner == owner or lease.expires <= now:
        return
    problem = f"Task {lease.task} is run by {lease.owner} until {lease.expires:%H:%M:%S %Z}."
    raise StateError(problem, fix="Stop that process, or wait until its lease has expired.")


def check_unchanged(name: str, there: object, seen: object) -> None:
    """Raise ConnectorChangedError if the stored value has changed since it was read."""
    if there != seen:
        problem = f"Connector {name} was changed concurrently."
        raise ConnectorChangedError(problem, fix="Check the connector, and try again.")


def storable(text: str | None) -> str | None:
    """Return a text without NUL characters, which PostgreSQL cannot store."""
    return None if text is None else text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def check_identity(name: str, known: str | None, identity: str | None) -> None:
    """Raise StaleEpochError if the connector was deleted, or deleted and created again."""
    if identity is not None and known != identity:
        problem = f"Connector {name} was removed."
        raise StaleEpochError(problem)


def restarts_after(state: TaskState, restarts: int, status: TaskStatus | None) -> int:
    """Return a task's restart count after it gets a lease and a status."""
    if status is None or state is not TaskState.FAILED:
        return restarts
    return restarts + (status.state is TaskState.RUNNING)


def check_idle(task: TaskId, owner: str | None) -> None:
    """Raise StateError if a worker runs the task."""
    if owner is not None:
        problem = f"Task {task} is run by {owner}."
        raise StateError(problem, fix="Stop its connector first.")


def check_none_unfinished(batch: Batch | None) -> None:
    """Raise StateError if there is an unfinished batch."""
    if batch is not None:
        problem = f"Batch {batch.id} of task {batch.task} is unfinished."
        fix = f"Start the task to finish the batch first. {batch.way_out}"
        raise StateError(problem, fix=fix)


def check_to_stop(connector: Connector) -> None:
    """Raise StateError if the connector's target is not STOPPED."""
    if connector.target is not TargetState.STOPPED:
        problem = f"Connector {connector.name} is not stopped."
        raise StateError(problem, fix="Stop it, and wait until it is stopped.")


def given_up(batch: Batch, before: str, after: str) -> dict[str, object]:
    """Return the event details of a batch that was given up; positions are JSON."""
    number = batch.task.number
    return {
        "action": "give-up",
        "batch": {
            "task": number,
            "id": batch.id,
            "start": batch.start.to_json(),
            "end": batch.end.to_json(),
        },
        "before": {number: before},
        "after": {number: after},
    }


def repeated_append(
    task: TaskId,
    items: Sequence[Mapping[str, str | int]],
    after: int,
    there: Sequence[Mapping[str, str | int]],
) -> int:
    """Return the length of a ledger after items that an earlier call has already added.

    The items belong after ``after`` entries; ``there`` are the entries that follow now. Raises
    StateError if they differ.
    """
    if items and [dict(item) for item in there[: len(items)]] == [dict(i) for i in items]:
        return after + len(items)
    problem = f"The ledger of task {task} does not have {after} entries any more."
    raise StateError(problem, fix="Read it again.")


def check_start(start: Position, position: Position) -> None:
    """Raise StateError if a batch does not begin where the last one ended."""
    if start != position:
        problem = f"A batch must begin at {position.to_json()}, not at {start.to_json()}."
        raise StateError(problem)


def already_finished(last: Batch, batch_id: int) -> bool:
    """Return whether ``batch_id`` is the newest batch and is already finished."""
    return last.id == batch_id and last.state is BatchState.FINISHED


def expect(batch: Batch | None, batch_id: int) -> Batch:
    """Return the unfinished batch, which must be ``batch_id``."""
    if batch is None or batch.id != batch_id:
        found = "none" if batch is None else str(batch.id)
        problem = f"Batch {batch_id} is not the unfinished batch (that is {found})."
        raise StateError(problem)
    return batch


def state_after(found: Connector, target: TargetState) -> ConnectorState:
    """Return the state of a connector after its target changes.

    A stopped or paused connector that should run becomes UNASSIGNED at once, before a worker
    handles it, so that clients that wait for its next stop do not see the old state.
    """
    at_rest = found.status.state in {ConnectorState.STOPPED, ConnectorState.PAUSED}
    runs = target is TargetState.RUNNING
    return ConnectorState.UNASSIGNED if runs and at_rest else found.status.state


def check_new(name: str, found: object | None) -> None:
    """Raise ConnectorExistsError if the connector exists."""
    if found is not None:
        problem = f"Connector {name} already exists."
        raise ConnectorExistsError(problem, fix="Choose another name, or change that one.")


def existing(name: str, found: T | None) -> T:
    """Return a connector. Raises ConnectorNotFoundError."""
    if found is None:
        fix = "List the connectors with `headrace connector list`."
        problem = f"There is no connector {name}."
        raise ConnectorNotFoundError(problem, fix=fix)
    return found


def check_tasks(name: str, asked: Collection[int], known: Collection[int]) -> None:
    """Raise TaskNotFoundError if a connector lacks one of the tasks."""
    missing = sorted(set(asked) - set(known))
    if missing:
        problem = f"Connector {name} has no task {missing[0]}."
        raise TaskNotFoundError(problem)


def check_epoch(task: TaskId, found: int | None, epoch: int) -> None:
    """Raise StaleEpochError if ``epoch`` is not the newest (Guarantee 3)."""
    if found is None:
        problem = f"Task {task} was removed with its connector."
        raise TaskRemovedError(problem)
    if found != epoch:
        problem = (
            f"Epoch {epoch} of task {task} is no longer valid: another worker has taken the "
            "task."
        )
        raise StaleEpochError(problem)


_FACT = "floors"
_BATCHES = 2**32
"""The minimum increase of batch ids, if the clock is behind them."""
_EPOCHS = 2**16
_EPOCHS_SINCE = 1_577_836_800
"""Epochs count seconds since 2020, because they are 31-bit numbers."""


@dataclass(frozen=True, slots=True)
class Floors:
    """Lower bounds for new batch ids and epochs of a store.

    A store can be in an earlier state: targets may hold batches that a restored backup or a
    promoted standby does not know. If their ids were used again, a target would skip a new
    batch as already written, and its rows would be lost (Guarantee 1). So the tasks of such a
    store continue with unused numbers, and data moved since the backup is moved again.
    """

    batch: int = 0
    epoch: int = 0


def floors_of(db: Connection) -> Floors:
    """Return the lower bounds for a new task."""
    found = fact(db, _FACT)
    if not isinstance(found, dict):
        return Floors()
    batch, epoch = found.get("batch"), found.get("epoch")
    assert isinstance(batch, int)
    assert isinstance(epoch, int)
    return Floors(batch, epoch)


def raise_floors(db: Connection) -> None:
    """Make all tasks, including future ones, continue with unused batch ids and epochs.

    The numbers are based on the clock, since a store may be restored to the same state twice.
    If the clock was set back too, they are still above all numbers in the store.
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


def set_back(db: Connection) -> None:
    """Prepare the tasks of a store that was restored to an earlier state."""
    raise_floors(db)
    # An unfinished batch may have been finished since; its rows are moved again in any case.
    db.execute(delete(batches).where(batches.c.finished_us.is_(None)))
    names = db.execute(select(tasks.c.connector).distinct()).scalars()
    log.warning(
        "the store was restored to an earlier state: each source, topic and sink of these "
        "connectors moves the data since then again",
        connectors=sorted(names),
    )


_AT_ONCE = 1000
"""The maximum number of names in a statement."""
_STATE = "state"


def add_event(
    db: Connection,
    part: TaskId | str,
    kind: str,
    stamp: Stamp,
    detail: Mapping[str, object],
) -> None:
    """Add an event of a task, or of a connector by its name."""
    # Readers see ids in order only if one transaction after the other assigns them.
    lock_name(db, "events")
    name, task = (part, None) if isinstance(part, str) else (part.connector, part.number)
    row = {"connector": name, "task": task, "kind": kind, "by": stamp.by}
    at, text = micros(stamp.at), json.dumps(dict(detail))
    db.execute(insert(events).values(**row, at_us=at, detail=text))


def add_state(
    db: Connection, task: TaskId, row: Row[Any], status: TaskStatus | None, stamp: Stamp
) -> None:
    """Add an event if the new status of a task differs from its row."""
    if status is None:
        return
    detail = {"state": status.state.value, "trace": storable(status.trace)}
    if (row.state, row.trace) != (detail["state"], detail["trace"]):
        add_event(db, task, _STATE, stamp, detail)


def prune_events(db: Connection, keep: Retention, now: datetime) -> int:
    """Delete old events, see ConnectorStore."""
    # Keep the newest event: readers continue from its id.
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
    """Delete a connector: its uid, tasks, positions, batches and schemas."""
    # Lock the row, so that a concurrent lease is stored before the tasks are read.
    db.execute(identity_of(connector).with_for_update())
    _retire(db, connector)
    _forget_rows(db, [connector])


def forget_runs(db: Connection, names: Iterable[str]) -> None:
    """Delete the task state of runs. Their names are never reused, so no epoch is kept."""
    wanted = list(names)
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        mine = connectors.c.name.in_(some)
        db.execute(select(connectors.c.uid).where(mine).with_for_update())
        _forget_rows(db, some)


def batch_left(db: Connection, name: str) -> Batch | None:
    """Return an unfinished batch of a run whose task lease was not released; None if none.

    A worker that has not noticed the loss of its lease may still write it.
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


def forget_batches(
    db: Connection, task: TaskId, newest: int, now: datetime, keep_since: datetime | None
) -> None:
    """Delete the old batches of a task, see ``forgotten``."""
    old = select(batches.c.id, batches.c.begun_us).where(
        is_task(batches, task), batches.c.id <= newest - HISTORY
    )
    begun = [(row.id, time_of(row.begun_us)) for row in db.execute(old.order_by(batches.c.id))]
    ids = [{"old": id_} for id_ in forgotten(begun, newest, now, keep_since)]
    if ids:
        this = (is_task(batches, task), batches.c.id == bindparam("old"))
        db.execute(delete(batches).where(*this), ids)


def identity_of(connector: str) -> Select[str]:
    """Return the query for a connector's uid."""
    return select(connectors.c.uid).where(connectors.c.name == connector)


def retired_epoch(task: TaskId) -> Select[tuple[int]]:
    """Return the query for the last epoch of a deleted task."""
    return select(retired_epochs.c.epoch).where(is_task(retired_epochs, task))


def _retire(db: Connection, connector: str) -> None:
    """Store the epochs of deleted tasks, from which tasks that are created again continue.

    A worker that has not noticed the deletion still holds the last epoch, and must be rejected
    for the new task too (Guarantee 3).
    """
    # In the same order as lease renewals, to avoid deadlocks.
    mine = select(tasks).where(tasks.c.connector == connector).order_by(tasks.c.number)
    query = mine.with_for_update()
    for row in db.execute(query).all():
        task = TaskId(row.connector, row.number)
        values = {"connector": task.connector, "number": task.number, "epoch": row.epoch}
        db.execute(delete(retired_epochs).where(is_task(retired_epochs, task)))
        db.execute(insert(retired_epochs).values(values))


def ensure_task(db: Connection, task: TaskId) -> Row[Any]:
    """Return a task's row, locked; create it if missing."""
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
    """Return a task's row, locked until this transaction ends.

    SQLite ignores the lock; its write transactions are exclusive anyway.
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
    """Return a task's unfinished batch, of which only the intent is stored."""
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
