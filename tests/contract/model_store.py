"""What stores must do, in plain Python: the model that the real ones are compared with."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from headrace.model import (
    Batch,
    BatchState,
    Counts,
    Lease,
    Stamp,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import Position
from headrace.store.rows import (
    already_finished,
    check_epoch,
    check_free,
    check_identity,
    check_idle,
    check_none_unfinished,
    check_start,
    expect,
    forgets,
    forgotten,
    repeated_append,
    restarts_after,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import timedelta

    from headrace.sdk import Schema


_ALL = 10**9


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class _Task:
    """All that is kept for one task."""

    epoch: int = 0
    lease: Lease | None = None
    position: Position = field(default_factory=Position)
    batches: list[Batch] = field(default_factory=list)
    last_id: int = 0
    totals: Counts = field(default_factory=Counts)
    status: TaskStatus = field(default_factory=lambda: TaskStatus(TaskState.UNASSIGNED))
    ledger: list[dict[str, str | int]] = field(default_factory=list)


class MemoryStore:
    """A Store that forgets everything when the process ends."""

    def __init__(self, now: Callable[[], datetime] = _now) -> None:
        """Start empty; ``now`` is the clock of its leases, see Store."""
        self.now = now
        self.lock = threading.RLock()
        self.told: Callable[[TaskId, TaskStatus, Stamp], None] = lambda *_: None
        """Takes each new state of a task, for the store of connectors."""
        self._connectors: dict[str, str] = {}
        self._tasks: dict[TaskId, _Task] = {}
        self._retired: dict[TaskId, int] = {}
        self._schemas: dict[tuple[str, str], list[Schema]] = {}

    def register(self, connector: str) -> str:
        with self.lock:
            return self._connectors.setdefault(connector, uuid.uuid4().hex[:12])

    def remove(self, connector: str) -> None:
        with self.lock:
            self._connectors.pop(connector, None)
            for task in [task for task in self._tasks if task.connector == connector]:
                self._retired[task] = self._tasks.pop(task).epoch
            for key in [key for key in self._schemas if key[0] == connector]:
                del self._schemas[key]

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
        with self.lock:
            check_identity(task.connector, self._connectors.get(task.connector), identity)
            # Guarantee 3: whoever holds an epoch of a removed task is refused by a new one.
            row = self._tasks.setdefault(task, _Task(self._retired.get(task, 0)))
            check_free(row.lease, owner, now)
            row.epoch += 1
            was = row.status
            restarts = restarts_after(was.state, was.restarts, status)
            row.status = replace(status or was, restarts=restarts)
            self._tell(task, was, row.status, Stamp(now, owner))
            row.lease = Lease(task=task, owner=owner, epoch=row.epoch, expires=now + duration)
            return row.lease

    def renew(
        self, leases: Collection[Lease], now: datetime, duration: timedelta
    ) -> Mapping[TaskId, Lease]:
        renewed = {}
        with self.lock:
            for lease in leases:
                row = self._tasks.get(lease.task)
                held = row.lease if row else None
                if row and held and (held.owner, held.epoch) == (lease.owner, lease.epoch):
                    row.lease = replace(lease, expires=now + duration)
                    renewed[lease.task] = row.lease
        return renewed

    def release(self, lease: Lease) -> None:
        with self.lock:
            row = self._tasks.get(lease.task)
            if row and row.epoch == lease.epoch:
                row.lease = None

    def show(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        with self.lock:
            row = self._owned(lease.task, lease.epoch)
            was = row.status
            row.status = replace(status, restarts=was.restarts)
            self._tell(lease.task, was, row.status, Stamp(now, lease.owner))

    def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        with self.lock:
            row = self._owned(lease.task, lease.epoch)
            was = row.status
            row.status, row.lease = replace(status, restarts=was.restarts), None
            self._tell(lease.task, was, row.status, Stamp(now, lease.owner))

    def _tell(self, task: TaskId, was: TaskStatus, status: TaskStatus, stamp: Stamp) -> None:
        if (was.state, was.trace) != (status.state, status.trace):
            self.told(task, status, stamp)

    def fence(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        with self.lock:
            self.end(lease, status, now)
            self._tasks[lease.task].epoch += 1

    def leases(self, connector: str | None = None) -> Sequence[Lease]:
        with self.lock:
            leases = [row.lease for row in self._tasks.values() if row.lease is not None]
        return [each for each in leases if connector in {None, each.task.connector}]

    def position(self, task: TaskId) -> Position:
        with self.lock:
            return self._tasks[task].position if task in self._tasks else Position()

    def positions(self, connector: str) -> Mapping[TaskId, Position]:
        with self.lock:
            rows = self._tasks.items()
            return {t: row.position for t, row in rows if t.connector == connector}

    def set_positions(self, positions: Mapping[TaskId, Position]) -> None:
        """Set positions of tasks that nobody runs, for the store of connectors."""
        with self.lock:
            for task in positions:
                row = self._tasks.get(task)
                check_idle(task, row.lease.owner if row and row.lease else None)
                check_none_unfinished(self.unfinished_batch(task))
            for task, position in positions.items():
                row = self._tasks.setdefault(task, _Task(self._retired.get(task, 0)))
                row.position = position
                row.epoch += 1

    def give_up(self, task: TaskId, batch_id: int, *, skip: bool) -> Batch:
        """Forget the unfinished batch of a task that nobody runs, for the connectors' store."""
        with self.lock:
            batch = expect(self.unfinished_batch(task), batch_id)
            row = self._tasks[task]
            check_idle(task, row.lease.owner if row.lease else None)
            row.batches.pop()
            row.position = batch.end if skip else batch.start
            row.epoch += 1
            return batch

    def set_position(self, task: TaskId, epoch: int, position: Position) -> None:
        with self.lock:
            row = self._owned(task, epoch)
            check_none_unfinished(self.unfinished_batch(task))
            row.position = position

    def unfinished_batch(self, task: TaskId, epoch: int | None = None) -> Batch | None:
        with self.lock:
            if epoch is not None:
                self._owned(task, epoch)
            row = self._tasks.get(task)
            last = row.batches[-1] if row and row.batches else None
            return last if last and last.state is BatchState.BEGUN else None

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
        with self.lock:
            row = self._owned(task, epoch)
            check_none_unfinished(self.unfinished_batch(task))
            check_start(start, row.position)
            row.last_id += 1
            batch = Batch(
                task=task,
                id=row.last_id,
                epoch=epoch,
                start=start,
                end=end,
                begun=now,
                routing=routing,
            )
            row.batches.append(batch)
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
        with self.lock:
            row = self._owned(task, epoch)
            last = row.batches[-1] if row.batches else None
            if last and already_finished(last, batch_id):
                return last
            batch = expect(self.unfinished_batch(task), batch_id).done(counts, now)
            row.batches[-1] = batch
            row.position = batch.end
            row.totals = row.totals.plus(counts)
            if forgets(batch_id):
                begun = [(each.id, each.begun) for each in row.batches]
                old = set(forgotten(begun, batch_id, now, keep_since))
                row.batches = [each for each in row.batches if each.id not in old]
            return batch

    def abandon_batch(self, task: TaskId, epoch: int, batch_id: int) -> None:
        with self.lock:
            row = self._owned(task, epoch)
            expect(self.unfinished_batch(task), batch_id)
            row.batches.pop()

    def batches(self, task: TaskId, limit: int = 100) -> Sequence[Batch]:
        with self.lock:
            row = self._tasks.get(task)
            return list(reversed(row.batches))[:limit] if row else []

    def batch_at(self, task: TaskId, time: datetime) -> Batch | None:
        oldest_first = reversed(self.batches(task, _ALL))
        earlier = list(takewhile(lambda each: each.begun <= time, oldest_first))
        return earlier[-1] if earlier else None

    def oldest_batch(self, task: TaskId) -> Batch | None:
        return next(reversed(self.batches(task, _ALL)), None)

    def totals(self, task: TaskId) -> Counts:
        with self.lock:
            return self._tasks[task].totals if task in self._tasks else Counts()

    def counts_since(self, task: TaskId, since: datetime) -> Counts:
        total = Counts()
        with self.lock:
            for batch in self._tasks[task].batches if task in self._tasks else ():
                if batch.begun >= since:
                    total = total.plus(batch.counts)
        return total

    def all_totals(self, connector: str | None = None) -> Mapping[TaskId, Counts]:
        with self.lock:
            rows = self._tasks.items()
            return {t: row.totals for t, row in rows if connector in {None, t.connector}}

    def statuses(self, connector: str | None = None) -> Mapping[TaskId, TaskStatus]:
        with self.lock:
            rows = self._tasks.items()
            return {t: row.status for t, row in rows if connector in {None, t.connector}}

    def schema(self, connector: str, stream: str) -> Schema | None:
        with self.lock:
            versions = self._schemas.get((connector, stream))
            return versions[-1] if versions else None

    def schemas(self, connector: str) -> Mapping[str, Sequence[Schema]]:
        with self.lock:
            found = self._schemas.items()
            return {s: list(each) for (name, s), each in found if name == connector}

    def put_schema(
        self, connector: str, stream: str, schema: Schema, *, identity: str | None = None
    ) -> int:
        with self.lock:
            check_identity(connector, self._connectors.get(connector), identity)
            versions = self._schemas.setdefault((connector, stream), [])
            if not versions or versions[-1] != schema:
                versions.append(schema)
            return len(versions)

    def ledger_append(
        self,
        task: TaskId,
        epoch: int,
        items: Sequence[Mapping[str, str | int]],
        after: int | None = None,
    ) -> int:
        with self.lock:
            ledger = self._owned(task, epoch).ledger
            if after is not None and after != len(ledger):
                return repeated_append(task, items, after, ledger[after:])
            ledger.extend(dict(item) for item in items)
            return len(ledger)

    def ledger_slice(self, task: TaskId, start: int, end: int) -> list[dict[str, str | int]]:
        with self.lock:
            return list(self._tasks[task].ledger[start:end]) if task in self._tasks else []

    def ledger_length(self, task: TaskId) -> int:
        with self.lock:
            return len(self._tasks[task].ledger) if task in self._tasks else 0

    def close(self) -> None:
        """See Store."""

    def _owned(self, task: TaskId, epoch: int) -> _Task:
        row = self._tasks.get(task)
        # Guarantee 3: only the newest epoch may write.
        check_epoch(task, None if row is None else row.epoch, epoch)
        assert row is not None
        return row
