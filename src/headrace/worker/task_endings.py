"""How tasks end: their plugins let go, their states are stored and reported."""

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
from headrace.worker.task_queue import traced

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
    """Ends tasks. Any thread may call it.

    Args:
        on_end: Called with each task that has ended.
    """

    store: Store
    events: Events
    clock: Callable[[], datetime]
    stop_timeout: timedelta = timedelta(seconds=10)
    on_end: Callable[[TaskSlot], None] = lambda _: None
    _owed: dict[TaskId, _End] = field(default_factory=dict)
    """Ends that the store did not take."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set_state(self, slot: TaskSlot, state: TaskState) -> None:
        slot.state = state
        self.events.state_changed(slot.task.id, state, slot.error)

    def end(self, slot: TaskSlot, state: TaskState) -> None:
        """Let a task's plugins let go, and store the state that it ends in.

        One that hangs is left behind after a while, and its lease taken away; but what has
        come to its own end may take its time.
        """
        patient = state is TaskState.COMPLETED
        self._end(slot, state, self._stop_task(slot), None if patient else self._by())

    def end_all(self, slots: Collection[TaskSlot], state: TaskState) -> None:
        """End tasks whose plugins let go all at once, those that were given up as well."""
        left = [slot for slot in slots if not slot.abandoned]
        stops = [(slot, self._stop_task(slot)) for slot in left]
        by = self._by()
        ends = [partial(self._end, slot, state, stop, by) for slot, stop in stops]
        ends += [partial(self.give_up, slot, state) for slot in slots if slot.abandoned]
        for end in ends:
            try:
                end()
            except Exception:
                log.exception("end of task is lost")  # and not those of others

    def _by(self) -> float:
        return time.monotonic() + self.stop_timeout.total_seconds()

    def _end(
        self, slot: TaskSlot, state: TaskState, stop: Future[None], by: float | None
    ) -> None:
        gone = has_ended(stop, by)
        if not gone:
            log.warning("task did not stop in time", **labels(slot.task.id))
        if slot.abandoned:
            return  # whoever has given it up has told of it too
        trace, next_try = traced(slot.error, slot.verdict, self.clock())
        self._store_and_report(slot, TaskStatus(state, trace, next_try), fenced=not gone)

    def give_up(self, slot: TaskSlot, state: TaskState) -> None:
        """Take the lease away from a step that does not end."""
        log.warning("task did not end in time and is abandoned", **labels(slot.task.id))
        self._store_and_report(slot, TaskStatus(state), fenced=True)

    def stop_task(self, slot: TaskSlot) -> None:
        """Let the plugins of a task let go, unless they were asked to before."""
        if not slot.stopping:
            has_ended(self._stop_task(slot))

    def mark(self, task: TaskId, state: TaskState, lease: Callable[[], Lease]) -> bool:
        """Store the state of a task that nobody runs. One that has failed stays so.

        Return whether it has that state now: who died may hold its lease for a while.
        """
        never_ran = TaskStatus(TaskState.UNASSIGNED)
        found = self.store.statuses(task.connector).get(task, never_ran)
        if found.state in {state, TaskState.FAILED}:
            return True
        try:
            self.store.end(lease(), TaskStatus(state), self.clock())
        except (StateError, StaleEpochError):
            log.warning("task is run by another worker", **labels(task))
            return False
        return True

    def catch_up(self) -> None:
        """Store what could not be stored before. Raises what is wrong with the store."""
        for task, end in self._all_owed().items():
            try:
                end.store_in(self.store)
            except StaleEpochError:
                log.info("task was restarted before its end was stored", **labels(task))
            except (StoreUnavailableError, StoreDamagedError):
                raise
            except Exception:
                log.exception("end of task is still not stored", **labels(task))
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
        if slot.lease is not None:
            # Guarantee 3: the epoch of one that hangs is used up, so whatever it still does
            # is refused.
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
            # Whatever the reason: else the store would call it running for ever.
            away = isinstance(error, StoreUnavailableError)
            log.warning("end of task is not stored for now", why=str(error), exc_info=not away)
            with self._lock:
                self._owed[end.lease.task] = end
