"""The store in a database: one SQLite file in WAL mode, or PostgreSQL."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from headrace.model import Batch, Counts, Lease, Stamp, TaskId, TaskState, TaskStatus
from headrace.sdk import Position
from headrace.sdk.sparktypes import schema_from_json, schema_to_json
from headrace.store import rules
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import memory_database, open_database
from headrace.store.lease_clock import lease_clock
from headrace.store.rows import (
    add_state,
    append_to_ledger,
    batch_of,
    ensure_task,
    forget,
    forget_batches,
    identity_of,
    is_task,
    ledger_length,
    ledger_slice,
    locked_task,
    newest_batch,
    renew_leases,
    unfinished_of,
    update_task,
)
from headrace.store.tables import (
    batches,
    connectors,
    micros,
    schemas,
    tasks,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Column, Engine, Row, Select

    from headrace.sdk import Schema
    from headrace.store.database import Place
    from headrace.store.lease_clock import Machine


class SqlStore:
    """A Store in a file, for one machine, or in PostgreSQL, for many.

    Commits wait for the disk: an intent lost in a power failure would let its id be used
    again, and a sink that holds the id would skip the data.
    """

    def __init__(self, place: Place | None = None, machine: Machine | None = None) -> None:
        """Open the database, one in memory by default, with its tables."""
        self._engine = memory_database() if place is None else open_database(place)
        self._writer = in_mode(self._engine, Mode.WRITE)
        self.now = lease_clock(self._engine, machine)

    @property
    def database(self) -> Engine:
        """The database, which other stores may share."""
        return self._engine

    def close(self) -> None:
        self._engine.dispose()

    def register(self, connector: str) -> str:
        with self._writer.begin() as db:
            lock_name(db, "connector", connector)
            query = select(connectors.c.uid).where(connectors.c.name == connector)
            known = db.execute(query).scalar_one_or_none()
            if known is not None:
                return str(known)
            uid = uuid.uuid4().hex[:12]
            db.execute(insert(connectors).values(name=connector, uid=uid))
            return uid

    def remove(self, connector: str) -> None:
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
        with self._writer.begin() as db:
            _check_identity(db, task.connector, identity)
            row = ensure_task(db, task)
            if row.owner is not None:
                held = Lease(task, row.owner, row.epoch, time_of(row.expires_us))
                rules.check_free(held, owner, now)
            lease = Lease(task, owner, row.epoch + 1, now + duration)
            restarts = rules.restarts_after(TaskState(row.state), row.restarts, status)
            expires = micros(lease.expires)
            taken = {"owner": owner, "expires_us": expires, "restarts": restarts}
            update_task(db, task, epoch=lease.epoch, **taken, **_status_values(status, now))
            add_state(db, task, row, status, Stamp(now, owner))
            return lease

    def renew(
        self, leases: Collection[Lease], now: datetime, duration: timedelta
    ) -> Mapping[TaskId, Lease]:
        with self._writer.begin() as db:
            return renew_leases(db, leases, now + duration)

    def release(self, lease: Lease) -> None:
        with self._writer.begin() as db:
            where = (is_task(tasks, lease.task), tasks.c.epoch == lease.epoch)
            db.execute(update(tasks).where(*where).values(owner=None, expires_us=None))

    def show(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        self._put(lease, status, now)

    def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        self._put(lease, status, now, owner=None, expires_us=None)

    def fence(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        self._put(lease, status, now, owner=None, expires_us=None, epoch=lease.epoch + 1)

    def _put(self, lease: Lease, status: TaskStatus, now: datetime, **more: int | None) -> None:
        with self._writer.begin() as db:
            row = _check_epoch(db, lease.task, lease.epoch)
            update_task(db, lease.task, **more, **_status_values(status, now))
            add_state(db, lease.task, row, status, Stamp(now, lease.owner))

    def leases(self, connector: str | None = None) -> Sequence[Lease]:
        query = select(tasks).where(tasks.c.owner.is_not(None))
        if connector is not None:
            query = query.where(tasks.c.connector == connector)
        with self._engine.connect() as db:
            rows = [(TaskId(row.connector, row.number), row) for row in db.execute(query)]
        return [
            Lease(task, row.owner, row.epoch, time_of(row.expires_us)) for task, row in rows
        ]

    def position(self, task: TaskId) -> Position:
        with self._engine.connect() as db:
            text = db.execute(select(tasks.c.position).where(is_task(tasks, task))).scalar()
            return Position.from_json(text) if text else Position()

    def positions(self, connector: str) -> Mapping[TaskId, Position]:
        query = select(tasks).where(tasks.c.connector == connector)
        with self._engine.connect() as db:
            return {
                TaskId(row.connector, row.number): Position.from_json(row.position)
                for row in db.execute(query)
            }

    def set_position(self, task: TaskId, epoch: int, position: Position) -> None:
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            rules.check_none_unfinished(unfinished_of(db, task))
            update_task(db, task, position=position.to_json())

    def unfinished_batch(self, task: TaskId, epoch: int | None = None) -> Batch | None:
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
        with self._writer.begin() as db:
            row = _check_epoch(db, task, epoch)
            rules.check_none_unfinished(unfinished_of(db, task))
            rules.check_start(start, Position.from_json(row.position))
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
        with self._writer.begin() as db:
            row = _check_epoch(db, task, epoch)
            last = newest_batch(db, task)
            if last and rules.already_finished(last, batch_id):
                return last
            batch = rules.expect(unfinished_of(db, task), batch_id).done(counts, now)
            this = (is_task(batches, task), batches.c.id == batch_id)
            change = {"counts": counts.to_json(), "finished_us": micros(now)}
            db.execute(update(batches).where(*this).values(change))
            totals = Counts.from_json(row.totals).plus(counts)
            update_task(db, task, position=batch.end.to_json(), totals=totals.to_json())
            forget_batches(db, task, batch_id, now, keep_since)
            return batch

    def abandon_batch(self, task: TaskId, epoch: int, batch_id: int) -> None:
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            rules.expect(unfinished_of(db, task), batch_id)
            db.execute(delete(batches).where(is_task(batches, task), batches.c.id == batch_id))

    def batches(self, task: TaskId, limit: int = 100) -> Sequence[Batch]:
        query = select(batches).where(is_task(batches, task))
        with self._engine.connect() as db:
            rows = db.execute(query.order_by(batches.c.id.desc()).limit(limit))
            return [batch_of(row) for row in rows]

    def batch_at(self, task: TaskId, time: datetime) -> Batch | None:
        mine = is_task(batches, task)
        after = batches.c.begun_us > micros(time)
        later = select(func.min(batches.c.id)).where(mine, after).scalar_subquery()
        query = select(batches).where(mine, or_(later.is_(None), batches.c.id < later))
        with self._engine.connect() as db:
            row = db.execute(query.order_by(batches.c.id.desc()).limit(1)).one_or_none()
            return None if row is None else batch_of(row)

    def oldest_batch(self, task: TaskId) -> Batch | None:
        query = select(batches).where(is_task(batches, task)).order_by(batches.c.id).limit(1)
        with self._engine.connect() as db:
            row = db.execute(query).one_or_none()
            return None if row is None else batch_of(row)

    def totals(self, task: TaskId) -> Counts:
        with self._engine.connect() as db:
            text = db.execute(select(tasks.c.totals).where(is_task(tasks, task))).scalar()
            return Counts.from_json(text) if text else Counts()

    def counts_since(self, task: TaskId, since: datetime) -> Counts:
        within = (is_task(batches, task), batches.c.begun_us >= micros(since))
        query = select(batches.c.counts).where(*within, batches.c.counts.is_not(None))
        total = Counts()
        with self._engine.connect() as db:
            for text in db.execute(query).scalars():
                total = total.plus(Counts.from_json(text))
        return total

    def all_totals(self, connector: str | None = None) -> Mapping[TaskId, Counts]:
        query = _tasks_of(connector, tasks.c.totals)
        with self._engine.connect() as db:
            return {
                TaskId(row.connector, row.number): Counts.from_json(row.totals)
                for row in db.execute(query)
            }

    def statuses(self, connector: str | None = None) -> Mapping[TaskId, TaskStatus]:
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
        with self._engine.connect() as db:
            row = _newest_schema(db, connector, stream)
            return schema_from_json(row.schema) if row else None

    def schemas(self, connector: str) -> Mapping[str, Sequence[Schema]]:
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
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            return append_to_ledger(db, task, items, after)

    def ledger_slice(self, task: TaskId, start: int, end: int) -> list[dict[str, str | int]]:
        with self._engine.connect() as db:
            return ledger_slice(db, task, start, end)

    def ledger_length(self, task: TaskId) -> int:
        with self._engine.connect() as db:
            return ledger_length(db, task)


def _tasks_of(connector: str | None, *columns: Column[Any]) -> Select[Any]:
    """Return a query of tasks in their order, of one connector if it is named."""
    named = (tasks.c.connector, tasks.c.number)
    query = select(*named, *columns).order_by(*named)
    return query if connector is None else query.where(tasks.c.connector == connector)


def _check_epoch(db: Connection, task: TaskId, epoch: int) -> Row[Any]:
    row = locked_task(db, task)
    # Guarantee 3: only the newest epoch may write, and none comes before this one is done.
    rules.check_epoch(task, None if row is None else row.epoch, epoch)
    assert row is not None
    return row


def _check_identity(db: Connection, connector: str, identity: str | None) -> None:
    if identity is not None:
        # Guarantee 3: locked, so that the connector is not removed before this is done.
        locked = identity_of(connector).with_for_update(read=True)
        known = db.execute(locked).scalar_one_or_none()
        rules.check_identity(connector, known, identity)


def _status_values(status: TaskStatus | None, now: datetime) -> dict[str, object]:
    if status is None:
        return {}
    return {
        "state": status.state.value,
        "trace": rules.storable(status.trace),
        "updated_us": micros(now),
        "next_us": None if status.next_try is None else micros(status.next_try),
    }


def _newest_schema(db: Connection, connector: str, stream: str) -> Row[Any] | None:
    where = (schemas.c.connector == connector, schemas.c.stream == stream)
    query = select(schemas).where(*where).order_by(schemas.c.version.desc()).limit(1)
    return db.execute(query).one_or_none()
