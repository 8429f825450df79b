"""The embedded store: one SQLite file in WAL mode."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, insert, select, update

from headrace.model import Batch, BatchState, Counts, Lease, TaskId, TaskState, TaskStatus
from headrace.sdk import Position, schema_from_json, schema_to_json
from headrace.sdk.errors import StaleEpochError
from headrace.store import rules
from headrace.store.sqlite_file import open_sqlite
from headrace.store.tables import batches, connectors, ledger, metadata, schemas, tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import ColumnElement, Row, Table

    from headrace.sdk import Schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SqliteStore:
    """A Store in one file, for one machine.

    Commits wait for the disk (``synchronous=FULL``): an intent lost in a power failure
    would let its id be used again, and a sink that holds the id would skip the data.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, and make it when it is not there."""
        self._engine = open_sqlite(path)
        self._writer = self._engine.execution_options(writes=True)
        metadata.create_all(self._writer)

    def close(self) -> None:
        """See Store."""
        self._engine.dispose()

    def register(self, connector: str) -> str:
        """See Store."""
        with self._writer.begin() as db:
            query = select(connectors.c.uid).where(connectors.c.name == connector)
            known = db.execute(query).scalar_one_or_none()
            if known is not None:
                return str(known)
            uid = uuid.uuid4().hex[:12]
            db.execute(insert(connectors).values(name=connector, uid=uid))
            return uid

    def remove(self, connector: str) -> None:
        """See Store."""
        with self._writer.begin() as db:
            for table in (tasks, batches, schemas, ledger):
                db.execute(delete(table).where(table.c.connector == connector))
            db.execute(delete(connectors).where(connectors.c.name == connector))

    def lease(
        self,
        task: TaskId,
        owner: str,
        now: datetime,
        duration: timedelta,
        status: TaskStatus | None = None,
    ) -> Lease:
        """See Store."""
        with self._writer.begin() as db:
            row = _ensure_task(db, task)
            if row.owner is not None:
                held = Lease(task, row.owner, row.epoch, _time(row.expires_us))
                rules.check_free(held, owner, now)
            lease = Lease(task, owner, row.epoch + 1, now + duration)
            taken = {"owner": owner, "expires_us": _micros(lease.expires)}
            _update_task(db, task, epoch=lease.epoch, **taken, **_status_values(status, now))
            return lease

    def renew(self, lease: Lease, now: datetime, duration: timedelta) -> Lease:
        """See Store."""
        with self._writer.begin() as db:
            _check_epoch(db, lease.task, lease.epoch)
            expires = now + duration
            _update_task(db, lease.task, expires_us=_micros(expires), owner=lease.owner)
            return Lease(lease.task, lease.owner, lease.epoch, expires)

    def release(self, lease: Lease) -> None:
        """See Store."""
        with self._writer.begin() as db:
            where = (_is(tasks, lease.task), tasks.c.epoch == lease.epoch)
            db.execute(update(tasks).where(*where).values(owner=None, expires_us=None))

    def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """See Store."""
        with self._writer.begin() as db:
            _check_epoch(db, lease.task, lease.epoch)
            free = {"owner": None, "expires_us": None}
            _update_task(db, lease.task, **free, **_status_values(status, now))

    def leases(self) -> Sequence[Lease]:
        """See Store."""
        with self._engine.connect() as db:
            return [
                Lease(
                    TaskId(row.connector, row.number),
                    row.owner,
                    row.epoch,
                    _time(row.expires_us),
                )
                for row in db.execute(select(tasks).where(tasks.c.owner.is_not(None)))
            ]

    def position(self, task: TaskId) -> Position:
        """See Store."""
        with self._engine.connect() as db:
            text = db.execute(select(tasks.c.position).where(_is(tasks, task))).scalar()
            return Position.from_json(text) if text else Position()

    def set_position(self, task: TaskId, epoch: int, position: Position) -> None:
        """See Store."""
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            rules.check_none_unfinished(_unfinished(db, task))
            _update_task(db, task, position=position.to_json())

    def unfinished_batch(self, task: TaskId) -> Batch | None:
        """See Store."""
        with self._engine.connect() as db:
            return _unfinished(db, task)

    def begin_batch(
        self, task: TaskId, epoch: int, start: Position, end: Position, now: datetime
    ) -> Batch:
        """See Store."""
        with self._writer.begin() as db:
            row = _check_epoch(db, task, epoch)
            rules.check_none_unfinished(_unfinished(db, task))
            rules.check_start(start, Position.from_json(row.position))
            batch = Batch(task, row.last_batch + 1, epoch, start, end, now)
            _update_task(db, task, last_batch=batch.id)
            db.execute(
                insert(batches).values(
                    connector=task.connector,
                    number=task.number,
                    id=batch.id,
                    epoch=epoch,
                    start=start.to_json(),
                    end=end.to_json(),
                    begun_us=_micros(now),
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
        """See Store."""
        with self._writer.begin() as db:
            row = _check_epoch(db, task, epoch)
            last = _newest(db, task)
            if last and rules.already_finished(last, batch_id):
                return last
            batch = rules.expect(_unfinished(db, task), batch_id).done(counts, now)
            this = (_is(batches, task), batches.c.id == batch_id)
            change = {"counts": counts.to_json(), "finished_us": _micros(now)}
            db.execute(update(batches).where(*this).values(change))
            totals = Counts.from_json(row.totals).plus(counts)
            _update_task(db, task, position=batch.end.to_json(), totals=totals.to_json())
            old = [_is(batches, task), batches.c.id <= batch_id - rules.HISTORY]
            if keep_since is not None:
                old.append(batches.c.begun_us < _micros(keep_since))
            db.execute(delete(batches).where(*old))
            return batch

    def abandon_batch(self, task: TaskId, epoch: int, batch_id: int) -> None:
        """See Store."""
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            rules.expect(_unfinished(db, task), batch_id)
            db.execute(delete(batches).where(_is(batches, task), batches.c.id == batch_id))

    def batches(self, task: TaskId, limit: int = 100) -> Sequence[Batch]:
        """See Store."""
        query = select(batches).where(_is(batches, task))
        with self._engine.connect() as db:
            rows = db.execute(query.order_by(batches.c.id.desc()).limit(limit))
            return [_batch(row) for row in rows]

    def totals(self, task: TaskId) -> Counts:
        """See Store."""
        with self._engine.connect() as db:
            text = db.execute(select(tasks.c.totals).where(_is(tasks, task))).scalar()
            return Counts.from_json(text) if text else Counts()

    def counts_since(self, task: TaskId, since: datetime) -> Counts:
        """See Store."""
        within = (_is(batches, task), batches.c.begun_us >= _micros(since))
        query = select(batches.c.counts).where(*within, batches.c.counts.is_not(None))
        total = Counts()
        with self._engine.connect() as db:
            for text in db.execute(query).scalars():
                total = total.plus(Counts.from_json(text))
        return total

    def statuses(self, connector: str) -> Mapping[TaskId, TaskStatus]:
        """See Store."""
        query = select(tasks).where(tasks.c.connector == connector).order_by(tasks.c.number)
        with self._engine.connect() as db:
            return {
                TaskId(row.connector, row.number): TaskStatus(TaskState(row.state), row.trace)
                for row in db.execute(query)
            }

    def schema(self, connector: str, stream: str) -> Schema | None:
        """See Store."""
        with self._engine.connect() as db:
            row = _newest_schema(db, connector, stream)
            return schema_from_json(row.schema) if row else None

    def put_schema(self, connector: str, stream: str, schema: Schema) -> int:
        """See Store."""
        text = schema_to_json(schema)
        with self._writer.begin() as db:
            newest = _newest_schema(db, connector, stream)
            if newest is not None and newest.schema == text:
                return int(newest.version)
            version = int(newest.version) + 1 if newest is not None else 1
            row = {"connector": connector, "stream": stream, "version": version, "schema": text}
            db.execute(insert(schemas).values(row))
            return version

    def ledger_append(
        self, task: TaskId, epoch: int, items: Sequence[Mapping[str, str | int]]
    ) -> int:
        """See Store."""
        with self._writer.begin() as db:
            _check_epoch(db, task, epoch)
            length = _ledger_length(db, task)
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
        """See Store."""
        within = (ledger.c.sequence >= start, ledger.c.sequence < end)
        query = select(ledger.c.item).where(_is(ledger, task), *within)
        with self._engine.connect() as db:
            texts = db.execute(query.order_by(ledger.c.sequence)).scalars()
            return [json.loads(text) for text in texts]

    def ledger_length(self, task: TaskId) -> int:
        """See Store."""
        with self._engine.connect() as db:
            return _ledger_length(db, task)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _is(table: Table, task: TaskId) -> ColumnElement[bool]:
    return (table.c.connector == task.connector) & (table.c.number == task.number)


def _ensure_task(db: Connection, task: TaskId) -> Row[Any]:
    row = db.execute(select(tasks).where(_is(tasks, task))).one_or_none()
    if row is not None:
        return row
    db.execute(
        insert(tasks).values(
            connector=task.connector,
            number=task.number,
            epoch=0,
            position=Position().to_json(),
            last_batch=0,
            totals=Counts().to_json(),
            state=TaskState.UNASSIGNED.value,
        )
    )
    return db.execute(select(tasks).where(_is(tasks, task))).one()


def _check_epoch(db: Connection, task: TaskId, epoch: int) -> Row[Any]:
    row = db.execute(select(tasks).where(_is(tasks, task))).one_or_none()
    # Guarantee 3: only the newest epoch may write; the write lock is already held.
    if row is None or row.epoch != epoch:
        raise StaleEpochError(rules.stale(task, epoch))
    return row


def _status_values(status: TaskStatus | None, now: datetime) -> dict[str, object]:
    if status is None:
        return {}
    return {"state": status.state.value, "trace": status.trace, "updated_us": _micros(now)}


def _update_task(db: Connection, task: TaskId, **values: object) -> None:
    db.execute(update(tasks).where(_is(tasks, task)).values(**values))


def _newest(db: Connection, task: TaskId) -> Batch | None:
    query = select(batches).where(_is(batches, task)).order_by(batches.c.id.desc()).limit(1)
    row = db.execute(query).one_or_none()
    return _batch(row) if row is not None else None


def _unfinished(db: Connection, task: TaskId) -> Batch | None:
    newest = _newest(db, task)
    return newest if newest and newest.state is BatchState.BEGUN else None


def _newest_schema(db: Connection, connector: str, stream: str) -> Row[Any] | None:
    where = (schemas.c.connector == connector, schemas.c.stream == stream)
    query = select(schemas).where(*where).order_by(schemas.c.version.desc()).limit(1)
    return db.execute(query).one_or_none()


def _ledger_length(db: Connection, task: TaskId) -> int:
    query = select(func.coalesce(func.max(ledger.c.sequence) + 1, 0)).where(_is(ledger, task))
    return int(db.execute(query).scalar_one())


def _batch(row: Row[Any]) -> Batch:
    finished = row.finished_us is not None
    return Batch(
        task=TaskId(row.connector, row.number),
        id=row.id,
        epoch=row.epoch,
        start=Position.from_json(row.start),
        end=Position.from_json(row.end),
        begun=_time(row.begun_us),
        state=BatchState.FINISHED if finished else BatchState.BEGUN,
        counts=Counts.from_json(row.counts) if finished else Counts(),
        finished=_time(row.finished_us) if finished else None,
    )
