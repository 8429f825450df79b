"""Leases, positions, batches, schemas and states of tasks, as rows of a database."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Row,
    Select,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from headrace.model import Batch, Counts, Endpoints, Lease, Stamp, TaskId, TaskState, TaskStatus
from headrace.sdk import Position, Schema
from headrace.sdk.sparktypes import schema_from_json, schema_to_json
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import Place, memory_database, open_database
from headrace.store.rows import (
    add_state,
    already_finished,
    batch_of,
    check_epoch,
    check_free,
    check_identity,
    check_none_unfinished,
    check_start,
    ensure_task,
    expect,
    forget,
    forget_batches,
    forgets,
    identity_of,
    is_task,
    locked_task,
    newest_batch,
    repeated_append,
    restarts_after,
    storable,
    unfinished_of,
    update_task,
)
from headrace.store.server_lease import Machine, lease_clock
from headrace.store.tables import (
    ENDPOINTS,
    batches,
    connectors,
    fact,
    ledger,
    micros,
    put_fact,
    schemas,
    tasks,
    time_of,
)


class Store:
    """Positions, batches, leases, schemas and states, in a SQLite file or in PostgreSQL.

    Thread-safe. Every write is durable on return: if an intent were lost in a power failure,
    its id would be used again, and a sink with a mark of the id would skip the data. Writes for
    a task pass the epoch of its lease and raise StaleEpochError if a newer one exists
    (Guarantee 3).
    """

    def __init__(self, place: Place | None = None, machine: Machine | None = None) -> None:
        """Open the database with its tables; by default a new one in memory."""
        self._engine = memory_database() if place is None else open_database(place)
        self._writer = in_mode(self._engine, Mode.WRITE)
        self.now = lease_clock(self._engine, machine)
        """Returns the time by which leases expire, aware; callers pass it to lease methods.

        It is the same for all processes that share the store, regardless of their clocks."""

    @property
    def database(self) -> Engine:
        return self._engine

    def close(self) -> None:
        """Close files and connections."""
        self._engine.dispose()

    def register(self, connector: str, uid: str | None = None) -> str:
        """Return the connector's uid; the first call stores ``uid`` or a new one.

        A connector that is deleted and created again gets a new uid, so that its marks in
        targets differ from those of the old connector.
        """
        with self._writer.begin() as db:
            lock_name(db, "connector", connector)
            query = select(connectors.c.uid).where(connectors.c.name == connector)
            known = db.execute(query).scalar_one_or_none()
            if known is not None:
                return str(known)
            uid = uid or uuid.uuid4().hex[:12]
            db.execute(insert(connectors).values(name=connector, uid=uid))
            return uid

    def remove(self, connector: str) -> None:
        """Delete a connector: its uid, tasks, positions, batches and schemas.

        Epochs are not reused, so that a worker that still runs one of the tasks is rejected,
        even if the connector is created again.
        """
        with self._writer.begin() as db:
            forget(db, connector)

    def lease(
        self,
        task: TaskId,
        owner: str,
        now: datetime,
        duration: timedelta,
        status: TaskStatus | None = None,
        *,
        identity: str | None = None,
    ) -> Lease:
        """Take the task's lease with the next epoch, and store ``status`` if set.

        With ``identity``, the uid of the connector, raises StaleEpochError if that connector
        was deleted. Raises StateError while another owner's lease has not expired.
        """
        with self._writer.begin() as db:
            _check_identity(db, task.connector, identity)
            row = ensure_task(db, task)
            if row.owner is not None:
                held = Lease(task, row.owner, row.epoch, time_of(row.expires_us))
                check_free(held, owner, now)
            lease = Lease(task, owner, row.epoch + 1, now + duration)
            restarts = restarts_after(TaskState(row.state), row.restarts, status)
            expires = micros(lease.expires)
            taken = {"owner": owner, "expires_us": expires, "restarts": restarts}
            update_task(db, task, epoch=lease.epoch, **taken, **_status_values(status, now))
            add_state(db, task, row, status, Stamp(now, owner))
            return lease

    def renew(
        self, leases: Collection[Lease], now: datetime, duration: timedelta
    ) -> Mapping[TaskId, Lease]:
        """Renew leases in one transaction; return those that were still held, renewed.

        Leases that were released, or taken by another owner, stay unchanged.
        """
        if not leases:
            return {}
        expires = now + duration
        # In a fixed order, to avoid deadlocks between concurrent renewals.
        held = [
            {"task": e.task.connector, "n": e.task.number, "by": e.owner, "e": e.epoch}
            for e in sorted(leases, key=lambda each: each.task)
        ]
        # Guarantee 3: a lease that was taken by another owner has another epoch.
        same = (
            (tasks.c.connector == bindparam("task"))
            & (tasks.c.number == bindparam("n"))
            & (tasks.c.owner == bindparam("by"))
            & (tasks.c.epoch == bindparam("e"))
        )
        query = select(tasks).where(tasks.c.owner.in_({each.owner for each in leases}))
        # The number of statements does not depend on the number of leases.
        with self._writer.begin() as db:
            db.execute(update(tasks).where(same).values(expires_us=micros(expires)), held)
            rows = db.execute(query).all()
        epochs = {(TaskId(row.connector, row.number), row.epoch) for row in rows}
        return {
            each.task: replace(each, expires=expires)
            for each in leases
            if (each.task, each.epoch) in epochs
        }

    def release(self, lease: Lease) -> None:
        """Release the lease; no effect if it is no longer held."""
        with self._writer.begin() as db:
            where = (is_task(tasks, lease.task), tasks.c.epoch == lease.epoch)
            db.execute(update(tasks).where(*where).values(owner=None, expires_us=None))

    def show(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """Store the state of a task that continues under its lease."""
        self._put(lease, status, now)

    def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """Store the final state of a task, and release its lease."""
        self._put(lease, status, now, owner=None, expires_us=None)

    def fence(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """Revoke the lease of a holder that does not stop, and store the task's state.

        Increments the epoch, so that later writes of the holder are rejected (Guarantee 3).
        """
        self._put(lease, status, now, owner=None, expires_us=None, epoch=lease.epoch + 1)

    def _put(self, lease: Lease, status: TaskStatus, now: datetime, **more: int | None) -> None:
        with self._writer.begin() as db:
            row = _check_epoch(db, lease.task, lease.epoch)
            update_task(db, lease.task, **more, **_status_values(status, now))
            add_state(db, lease.task, row, status, Stamp(now, lease.owner))

    def leases(self, connector: str | None = None) -> Sequence[Lease]:
        """Return the leases that were not released, including expired ones.

        Only those of ``connector``, if set.
        """
        query = select(tasks).where(tasks.c.owner.is_not(None))
        if connector is not None:
            query = query.where(tasks.c.connector == connector)
        with self._engine.connect() as db:
            rows = [(TaskId(row.connector, row.number), row) for row in db.execute(query)]
        return [
            Lease(task, row.owner, row.epoch, time_of(row.expires_us)) for task, row in rows
        ]

    def position(self, task: TaskId) -> Position:
        """Return the task's position; ``Position()`` if it has never moved."""
        with self._engine.connect() as db:
            text = db.execute(select(tasks.c.position).where(is_task(tasks, task))).scalar()
            return Position.from_json(text) if text else Position()

    def positions(self, connector: str) -> Mapping[TaskId, Position]:
        """Return the positions of a connector's tasks; without tasks that never ran."""
        query = select(tasks).where(tasks.c.connector == connector)
        with self._engine.connect() as db:
            return {
                TaskId(row.connector, row.number): Position.from_json(row.position)
                for row in db.execute(query)
            }

    def endpoints(self, connector: str) -> Endpoints | None:
        """Return the source and targets of a connector, or of a run; None if not stored."""
        with self._engine.connect() as db:
            kept = fact(db, ENDPOINTS.format(connector))
        return Endpoints.from_json(kept) if isinstance(kept, dict) else None

    def put_endpoints(self, connector: str, endpoints: Endpoints) -> None:
        """Store the source and targets of a connector, or of a run, until it is deleted."""
        with self._writer.begin() as db:
            lock_name(db, "connector", connector)
            put_fact(db, ENDPOINTS.format(connector), endpoints.to_json())

    def has_begun(self, connector: str) -> bool:
        """Return whether a task of a connector has a position or an unfinished batch."""
        query = select(tasks).where(tasks.c.connector == connector)
        with self._engine.connect() as db:
            return any(
                len(Position.from_json(row.position))
                or unfinished_of(db, TaskId(row.connector, row.number))
                for row in db.execute(query).all()
            )

    def set_position(self, task: TaskId, epoch: int, position: Position) -> None:
        """Set the position manually. Raises StateError while a batch is unfinished."""
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            check_none_unfinished(unfinished_of(db, task))
            update_task(db, task, position=position.to_json())

    def unfinished_batch(self, task: TaskId, epoch: int | None = None) -> Batch | None:
        """Return the unfinished batch, of which only the intent is stored.

        With ``epoch``, for callers that finish or abandon the batch, raises StaleEpochError if
        a newer epoch exists.
        """
        if epoch is None:
            with self._engine.connect() as db:
                return unfinished_of(db, task)
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            return unfinished_of(db, task)

    def begin_batch(
        self,
        task: TaskId,
        epoch: int,
        start: Position,
        end: Position,
        now: datetime,
        *,
        routing: str | None = None,
    ) -> Batch:
        """Store the intent of the next batch, with the next id.

        Raises StateError if a batch is unfinished or ``start`` is not the position.
        """
        with self._writer.begin() as db:
            row = _check_epoch(db, task, epoch)
            check_none_unfinished(unfinished_of(db, task))
            check_start(start, Position.from_json(row.position))
            batch = Batch(task, row.last_batch + 1, epoch, start, end, now, routing=routing)
            update_task(db, task, last_batch=batch.id)
            db.execute(
                insert(batches).values(
                    connector=task.connector,
                    number=task.number,
                    id=batch.id,
                    epoch=epoch,
                    start=start.to_json(),
                    end=end.to_json(),
                    begun_us=micros(now),
                    routing=routing,
                )
            )
            return batch

    def finish_batch(
        self,
        task: TaskId,
        epoch: int,
        batch_id: int,
        counts: Counts,
        now: datetime,
        *,
        keep_since: datetime | None = None,
    ) -> Batch:
        """Store the counts and move the position to the batch's end, in one transaction.

        Idempotent for the newest finished batch. Raises StateError for any other id than that
        of the unfinished batch. Deletes old batches, except those begun at ``keep_since`` or
        later, and one per hour of the last 30 days.
        """
        with self._writer.begin() as db:
            row = _check_epoch(db, task, epoch)
            last = newest_batch(db, task)
            if last and already_finished(last, batch_id):
                return last
            batch = expect(unfinished_of(db, task), batch_id).done(counts, now)
            this = (is_task(batches, task), batches.c.id == batch_id)
            change = {"counts": counts.to_json(), "finished_us": micros(now)}
            db.execute(update(batches).where(*this).values(change))
            totals = Counts.from_json(row.totals).plus(counts)
            update_task(db, task, position=batch.end.to_json(), totals=totals.to_json())
            if forgets(batch_id):
                forget_batches(db, task, batch_id, now, keep_since)
            return batch

    def abandon_batch(self, task: TaskId, epoch: int, batch_id: int) -> None:
        """Delete the intent of a batch whose data is certainly not in the target.

        The id is not reused. For captures, which cannot read a range again, and for batches
        whose first attempt has written nothing.
        """
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            expect(unfinished_of(db, task), batch_id)
            db.execute(delete(batches).where(is_task(batches, task), batches.c.id == batch_id))

    def batches(self, task: TaskId, limit: int = 100) -> Sequence[Batch]:
        """Return the newest batches, newest first."""
        query = select(batches).where(is_task(batches, task))
        with self._engine.connect() as db:
            rows = db.execute(query.order_by(batches.c.id.desc()).limit(limit))
            return [batch_of(row) for row in rows]

    def batch_at(self, task: TaskId, time: datetime) -> Batch | None:
        """Return the last batch before the first one that began after a time; None if none."""
        mine = is_task(batches, task)
        after = batches.c.begun_us > micros(time)
        later = select(func.min(batches.c.id)).where(mine, after).scalar_subquery()
        query = select(batches).where(mine, or_(later.is_(None), batches.c.id < later))
        with self._engine.connect() as db:
            row = db.execute(query.order_by(batches.c.id.desc()).limit(1)).one_or_none()
            return None if row is None else batch_of(row)

    def oldest_batch(self, task: TaskId) -> Batch | None:
        """Return the oldest stored batch."""
        query = select(batches).where(is_task(batches, task)).order_by(batches.c.id).limit(1)
        with self._engine.connect() as db:
            row = db.execute(query).one_or_none()
            return None if row is None else batch_of(row)

    def totals(self, task: TaskId) -> Counts:
        """Return the sum of the counts of all finished batches."""
        with self._engine.connect() as db:
            text = db.execute(select(tasks.c.totals).where(is_task(tasks, task))).scalar()
            return Counts.from_json(text) if text else Counts()

    def counts_since(self, task: TaskId, since: datetime) -> Counts:
        """Return the sum of the counts of the finished batches begun at ``since`` or later.

        The sum is exact as far back as ``finish_batch`` keeps batches.
        """
        within = (is_task(batches, task), batches.c.begun_us >= micros(since))
        query = select(batches.c.counts).where(*within, batches.c.counts.is_not(None))
        total = Counts()
        with self._engine.connect() as db:
            for text in db.execute(query).scalars():
                total = total.plus(Counts.from_json(text))
        return total

    def all_totals(self, connector: str | None = None) -> Mapping[TaskId, Counts]:
        """Return the totals of all tasks, or of those of one connector."""
        query = _tasks_of(connector, tasks.c.totals)
        with self._engine.connect() as db:
            return {
                TaskId(row.connector, row.number): Counts.from_json(row.totals)
                for row in db.execute(query)
            }

    def statuses(self, connector: str | None = None) -> Mapping[TaskId, TaskStatus]:
        """Return the states of all tasks, or of those of one connector."""
        columns = (tasks.c.state, tasks.c.trace, tasks.c.next_us, tasks.c.restarts)
        query = _tasks_of(connector, *columns)
        with self._engine.connect() as db:
            return {
                TaskId(row.connector, row.number): TaskStatus(
                    TaskState(row.state),
                    row.trace,
                    None if row.next_us is None else time_of(row.next_us),
                    row.restarts,
                )
                for row in db.execute(query)
            }

    def schema(self, connector: str, stream: str) -> Schema | None:
        """Return the newest schema stored for a stream."""
        with self._engine.connect() as db:
            row = _newest_schema(db, connector, stream)
            return schema_from_json(row.schema) if row else None

    def schemas(self, connector: str) -> Mapping[str, Sequence[Schema]]:
        """Return all schemas stored for a connector's streams, oldest first, by stream."""
        column = schemas.c
        found: dict[str, list[Schema]] = {}
        query = select(column.stream, column.schema).where(column.connector == connector)
        with self._engine.connect() as db:
            for row in db.execute(query.order_by(column.stream, column.version)):
                found.setdefault(row.stream, []).append(schema_from_json(row.schema))
        return found

    def put_schema(
        self, connector: str, stream: str, schema: Schema, *, identity: str | None = None
    ) -> int:
        """Store a schema and return its version, from 1.

        Storing the newest schema again returns its existing version. With ``identity``, raises
        StaleEpochError if the connector has another uid or does not exist.
        """
        text = schema_to_json(schema)
        with self._writer.begin() as db:
            _check_identity(db, connector, identity)
            lock_name(db, "schema", connector, stream)
            newest = _newest_schema(db, connector, stream)
            if newest is not None and newest.schema == text:
                return int(newest.version)
            version = int(newest.version) + 1 if newest is not None else 1
            row = {"connector": connector, "stream": stream, "version": version, "schema": text}
            db.execute(insert(schemas).values(row))
            return version

    def ledger_append(
        self,
        task: TaskId,
        epoch: int,
        items: Sequence[Mapping[str, str | int]],
        after: int | None = None,
    ) -> int:
        """Append to the task's ledger and return its new length.

        ``after`` is the expected length before, which makes retries idempotent: items that an
        earlier call has already appended are not added again. Raises StateError if the ledger
        neither has that length nor continues with the items.
        """
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            length = _ledger_length(db, task)
            if after is not None and after != length:
                there = _ledger_slice(db, task, after, length)
                return repeated_append(task, items, after, there)
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

    def ledger_slice(self, task: TaskId, start: int, end: int) -> list[dict[str, str | int]]:
        """Return ledger items in ``[start, end)``."""
        with self._engine.connect() as db:
            return _ledger_slice(db, task, start, end)

    def ledger_length(self, task: TaskId) -> int:
        """Return the length of the task's ledger."""
        with self._engine.connect() as db:
            return _ledger_length(db, task)


def _tasks_of(connector: str | None, *columns: Column[Any]) -> Select[Any]:
    named = (tasks.c.connector, tasks.c.number)
    query = select(*named, *columns).order_by(*named)
    return query if connector is None else query.where(tasks.c.connector == connector)


def _check_epoch(db: Connection, task: TaskId, epoch: int) -> Row[Any]:
    row = locked_task(db, task)
    # Guarantee 3: only the newest epoch may write; the row lock keeps it the newest until the
    # transaction ends.
    check_epoch(task, None if row is None else row.epoch, epoch)
    assert row is not None
    return row


def _check_identity(db: Connection, connector: str, identity: str | None) -> None:
    if identity is not None:
        # Guarantee 3: lock the row, so that the connector is not deleted before the commit.
        locked = identity_of(connector).with_for_update(read=True)
        known = db.execute(locked).scalar_one_or_none()
        check_identity(connector, known, identity)


def _status_values(status: TaskStatus | None, now: datetime) -> dict[str, object]:
    if status is None:
        return {}
    return {
        "state": status.state.value,
        "trace": storable(status.trace),
        "updated_us": micros(now),
        "next_us": None if status.next_try is None else micros(status.next_try),
    }


def _newest_schema(db: Connection, connector: str, stream: str) -> Row[Any] | None:
    where = (schemas.c.connector == connector, schemas.c.stream == stream)
    query = select(schemas).where(*where).order_by(schemas.c.version.desc()).limit(1)
    return db.execute(query).one_or_none()


def _ledger_slice(
    db: Connection, task: TaskId, start: int, end: int
) -> list[dict[str, str | int]]:
    within = (ledger.c.sequence >= start, ledger.c.sequence < end)
    query = select(ledger.c.item).where(is_task(ledger, task), *within)
    texts = db.execute(query.order_by(ledger.c.sequence)).scalars()
    return [json.loads(text) for text in texts]


def _ledger_length(db: Connection, task: TaskId) -> int:
    query = select(func.coalesce(func.max(ledger.c.sequence) + 1, 0))
    return int(db.execute(query.where(is_task(ledger, task))).scalar_one())
