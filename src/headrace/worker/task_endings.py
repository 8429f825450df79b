"""Ends tasks: stops their plugins, then stores and reports their final states."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import structlog

from headrace.model import Lease, TaskId, TaskState, TaskStatus
from headrace.plugins import aside, has_ended
from headrace.sdk import StateError
from headrace.sdk.errors import StaleEpochError
from headrace.store import Store, StoreDamagedError, StoreUnavailableError, TaskRemovedError
from headrace.worker.events import Events, labelled, labels
from headrace.worker.restarts import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    from headrace.worker.task_queue import TaskSlot

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _End:
    lease: Lease
    status: TaskStatus
    at: datetime
    fenced: bool

    def store_in(self, store: Store) -> None:
        write = store.fence if self.fenced else store.end
        write(self.lease, self.status, self.at)


@dataclass(kw_only=True)
class TaskEndings:
    """Ends tasks. Thread-safe.

    Args:
        on_end: Called with each task that has ended.
    """

    store: Store
    events: Events
    clock: Callable[[], datetime]
    stop_timeout: timedelta = timedelta(seconds=10)
    on_end: Callable[[TaskSlot], None] = lambda _: None
    _owed: dict[TaskId, _End] = field(default_factory=dict)
    """Final states that could not be stored yet."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set_state(self, slot: TaskSlot, state: TaskState) -> None:
        slot.state = state
        self.events.state_changed(slot.task.id, state, slot.error)

    def end(self, slot: TaskSlot, state: TaskState) -> None:
        """Stop a task's plugins and store its final state.

        A plugin that hangs is abandoned after ``stop_timeout`` and the task is fenced. A task
        that completed has no timeout.
        """
        patient = state is TaskState.COMPLETED
        self._end(slot, state, self._stop_task(slot), None if patient else self._by())

    def end_all(self, slots: Collection[TaskSlot], state: TaskState) -> None:
        """End tasks, including abandoned ones, stopping their plugins in parallel."""
        left = [slot for slot in slots if not slot.abandoned]
        stops = [(slot, self._stop_task(slot)) for slot in left]
        by = self._by()
        ends = [partial(self._end, slot, state, stop, by) for slot, stop in stops]
        ends += [partial(self.give_up, slot, state) for slot in slots if slot.abandoned]
        for end in ends:
            try:
                end()
            except Exception:
                log.exception("final state of task is lost")  # the other tasks still end

    def _by(self) -> float:
        return time.monotonic() + self.stop_timeout.total_seconds()

    def _end(
        self, slot: TaskSlot, state: TaskState, stop: Future[None], by: float | None
    ) -> None:
        gone = has_ended(stop, by)
        if not gone:
            log.warning("task did not stop in time", **labels(slot.task.id))
        try:
            for batch in slot.task.unreported():
                self.events.batch_finished(batch, (batch.finished or batch.begun) - batch.begun)
        except Exception:
            log.exception("last batches of task could not be reported", **labels(slot.task.id))
        trace, next_try = traced(slot.error, slot.verdict, self.clock())
        self._store_and_report(slot, TaskStatus(state, trace, next_try), fenced=not gone)

    def give_up(self, slot: TaskSlot, state: TaskState) -> None:
        """Fence a task whose step does not end."""
        log.warning("task did not end in time and is abandoned", **labels(slot.task.id))
        self._store_and_report(slot, TaskStatus(state), fenced=True)

    def stop_task(self, slot: TaskSlot) -> None:
        """Stop the plugins of a task, unless that was already requested."""
        if not slot.stopping:
            has_ended(self._stop_task(slot))

    def mark(self, task: TaskId, state: TaskState, lease: Callable[[], Lease]) -> bool:
        """Store the state of a task that no worker runs. A failed task stays failed.

        Return False if another worker still holds the lease, which a dead worker may do until
        it expires.
        """
        never_ran = TaskStatus(TaskState.UNASSIGNED)
        found = self.store.statuses(task.connector).get(task, never_ran)
        if found.state in {state, TaskState.FAILED}:
            return True
        try:
            self.store.end(lease(), TaskStatus(state), self.clock())
        except (StateError, StaleEpochError):
            log.warning("task lease is held by another worker", **labels(task))
            return False
        return True

    def catch_up(self) -> None:
        """Store the final states that could not be stored before.

        Raises StoreUnavailableError or StoreDamagedError.
        """
        for task, end in self._all_owed().items():
            try:
                end.store_in(self.store)
            except StaleEpochError:
                log.info("task was restarted before its final state was stored", **labels(task))
            except (StoreUnavailableError, StoreDamagedError):
                raise
            except Exception:
                log.exception("final state of task is still not stored", **labels(task))
                continue
            with self._lock:
                if self._owed.get(task) is end:
                    del self._owed[task]

    def owed(self) -> set[TaskId]:
        return set(self._all_owed())

    def _all_owed(self) -> dict[TaskId, _End]:
        with self._lock:
            return dict(self._owed)

    def _stop_task(self, slot: TaskSlot) -> Future[None]:
        slot.stopping = True
        task = slot.task

        def stop() -> None:
            try:
                task.stop()
            except Exception:
                log.warning("task did not stop cleanly", exc_info=True)

        with labelled(task.id):
            return aside(f"headrace-stop-{task.id}", stop)

    def _store_and_report(self, slot: TaskSlot, status: TaskStatus, *, fenced: bool) -> None:
        with self._lock:
            if slot.reported:  # while it was given up, or its step ended after that
                return
            slot.reported = True
        if slot.lease is not None:
            # Guarantee 3: fencing uses up the epoch of a task that hangs, so its later writes
            # are rejected.
            end = _End(slot.lease, status, self.clock(), fenced)
            with labelled(slot.task.id):
                self._store(end)
        self.set_state(slot, status.state)
        self.on_end(slot)

    def _store(self, end: _End) -> None:
        try:
            end.store_in(self.store)
        except TaskRemovedError:
            log.debug("task was removed with its connector")
        except StaleEpochError:
            log.warning("task was taken by another worker")
        except Exception as error:
            # Retry after any error: otherwise the store would show the task as running forever.
            away = isinstance(error, StoreUnavailableError)
            log.warning("final state of task not stored", why=str(error), exc_info=not away)
            with self._lock:
                self._owed[end.lease.task] = end
