"""How tasks end: plugins let go, states reported, and what failed started again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import structlog

from headrace.model import (
    Lease,
    RestartPolicy,
    SchemaChangeError,
    TaskId,
    TaskState,
    TaskStatus,
    ToleranceExceededError,
    TooManyRejectedError,
)
from headrace.plugins import aside, has_ended
from headrace.sdk import (
    DataLostError,
    HeadraceError,
    RecordError,
    RetriableError,
    StateError,
    UnfitRecordError,
)
from headrace.sdk.errors import Category, StaleEpochError
from headrace.store import Store, StoreDamagedError, StoreUnavailableError, TaskRemovedError
from headrace.worker.events import Events, labelled, labels, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    from headrace.worker.worker import TaskSlot


_SOON = 5.0
"""Seconds after which a start is tried again that was not even a try."""
Part: TypeAlias = TaskId | str
"""A task, or a connector by its name."""

_LASTING = (
    DataLostError,
    RecordError,
    SchemaChangeError,
    StaleEpochError,
    ToleranceExceededError,
    TooManyRejectedError,
    UnfitRecordError,
)
"""Failures that come back until somebody fixes the data or the definition."""


def is_lasting(error: Exception) -> bool:
    """Return whether something must be fixed before a new start makes sense."""
    ours = isinstance(error, HeadraceError) and error.category is not Category.RUN
    return ours or isinstance(error, _LASTING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done about a failure.

    Args:
        wait: The time until the next start; None when there is none.
        text: What is shown of it; empty where nothing is done unless asked for.
    """

    wait: timedelta | None = None
    text: str = ""


@dataclass
class _Failing:
    attempts: int = 0
    due: float | None = None


@dataclass
class Restarts:
    """Decides on failures, and remembers who waits for a new start. Any thread may call it.

    Times are those of a clock that only goes on, whatever happens to the time of day.

    Args:
        chance: Gives a number from 0 to below 1.
    """

    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    _policies: dict[Part, RestartPolicy] = field(default_factory=dict)
    _failing: dict[Part, _Failing] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, parts: Iterable[Part], policy: RestartPolicy) -> None:
        """Set what is done when one of these fails; nothing unless it is set."""
        with self._lock:
            self._policies.update(dict.fromkeys(parts, policy))

    def failed(self, part: Part, error: Exception, ran: timedelta = timedelta()) -> Verdict:
        """Take note of a failure; return what is done about it."""
        with self._lock:
            policy = self._policies.get(part, RestartPolicy())
            if not policy.enabled:
                return Verdict()
            if is_lasting(error):
                self._failing.pop(part, None)
                return Verdict(text="It is not restarted: this must be fixed first.")
            failing = self._failing.setdefault(part, _Failing())
            if ran >= policy.quiet:
                failing.attempts = 0
            failing.attempts += 1
            if policy.gives_up(failing.attempts):
                del self._failing[part]
                text = f"It stays failed after {policy.attempts} consecutive restarts."
                return Verdict(text=text)
            asked = error.after if isinstance(error, RetriableError) else None
            wait = max(policy.wait(failing.attempts, self.chance()), asked or timedelta())
            failing.due = self.clock() + wait.total_seconds()
            of = "" if policy.attempts is None else f" of {policy.attempts}"
            return Verdict(wait, f"Restart {failing.attempts}{of}")

    def due(self) -> list[Part]:
        """Return what is to be started again now, each once."""
        now = self.clock()
        with self._lock:
            found = [p for p, f in self._failing.items() if f.due is not None and f.due <= now]
            for part in found:
                self._failing[part].due = None
            return found

    def postpone(self, part: Part) -> None:
        """Let something be due again soon, as it could not be started."""
        with self._lock:
            failing = self._failing.get(part)
            if failing is not None:
                failing.due = self.clock() + _SOON

    def forget(self, parts: Iterable[Part]) -> None:
        """Count from the first again, and let nothing be due: somebody has seen to these."""
        with self._lock:
            for part in parts:
                self._failing.pop(part, None)

    def drop(self, parts: Iterable[Part]) -> None:
        """Forget these altogether: they are no more."""
        with self._lock:
            for part in parts:
                self._failing.pop(part, None)
                self._policies.pop(part, None)


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
