"""The tasks that a worker has: which one is next, and who waits for whose end."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from headrace.model import Lease, TaskId, TaskState
from headrace.worker.events import labels
from headrace.worker.restarts import Verdict
from headrace.worker.task import Task, feeds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import timedelta

    from headrace.sdk import RetriableError

log = structlog.get_logger(__name__)


_LIVE = {TaskState.UNASSIGNED, TaskState.RUNNING}


@dataclass(eq=False)
class TaskSlot:
    """A task with what the worker knows of it."""

    task: Task
    identity: str | None = None
    """Its connector's, if that may be removed while the task runs."""
    due: float = 0.0
    running: bool = False
    """Whether somebody sees to it just now; nobody else does then."""
    thread: threading.Thread | None = None
    """What runs its step."""
    woken: bool = False
    recalled: bool = False
    """Whether it was woken although it may wait to be tried again."""
    started: bool = False
    ending: TaskState | None = None
    state: TaskState = TaskState.UNASSIGNED
    lease: Lease | None = None
    failures: int = 0
    trying_since: float = 0.0
    away_since: float | None = None
    """When the runtime's own part went away (store, Spark) that its last failure names."""
    away: float = 0.0
    """For how many of the seconds since ``trying_since`` such a part was away."""
    retrying: str | None = None
    """What is shown while it is tried again: the newest error."""
    error: Exception | None = None
    began: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    abandoned: bool = False
    """Whether its step did not end in time; the thread that runs it is given up with it."""
    stalled: RetriableError | None = None
    """Why its step is cancelled, where that is for lack of progress."""
    stopping: bool = False
    """Whether its task was asked to stop."""

    @property
    def live(self) -> bool:
        return self.state in _LIVE

    @property
    def ready(self) -> float:
        """When it is to run, in seconds of the monotonic clock."""
        return self.due if self.ending is None else 0.0

    @property
    def ran(self) -> float:
        """For how many seconds it has run, without those in which it was tried again."""
        until = self.trying_since if self.failures else time.monotonic()
        return max(0.0, until - self.began)

    def wake(self, *, again: bool = False) -> None:
        """Make it ready, also once more if it runs just now.

        Behind all that have been ready before: who is woken often is not to starve others.
        New data does not help one that has failed: it waits on, unless it is to try ``again``.
        """
        if again or not self.failures:
            self.due = min(self.due, time.monotonic())
        self.woken = True
        self.recalled = self.recalled or again

    def cancel(self) -> None:
        """Make a running step end soon. It is up to others if that cannot be done."""
        try:
            self.task.cancel()
        except Exception:
            log.warning("task cannot be cancelled", **labels(self.task.id), exc_info=True)


@dataclass
class TaskQueue:
    """Gives each task to one thread at a time. Any thread may call it.

    No plugin, host or store is ever called while its lock is held: they may call back, and
    they may hang.

    Args:
        serving: Whether it goes on without a task, as one may be put in at any time.
    """

    serving: bool = False
    _all: dict[TaskId, TaskSlot] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False

    def __iter__(self) -> Iterator[TaskSlot]:
        with self._changed:
            return iter(list(self._all.values()))

    def put(self, slot: TaskSlot) -> None:
        """Take a task on, in place of one of its id that has ended."""
        with self._changed:
            self._all[slot.task.id] = slot
            self._changed.notify_all()

    def next(self) -> TaskSlot | None:
        """Wait for the task that has been ready longest; None when all is over.

        Whoever gets one must ``give_back`` it.
        """
        with self._changed:
            while not self._stopping:
                live = [slot for slot in self._all.values() if slot.live]
                if not live and not self.serving:
                    return None
                waiting = [slot for slot in live if not slot.running]
                slot = min(waiting, key=lambda slot: slot.ready, default=None)
                wait = slot.ready - time.monotonic() if slot else None
                if slot is not None and wait is not None and wait <= 0:
                    slot.running, slot.woken, slot.recalled = True, False, False
                    slot.thread = threading.current_thread()
                    return slot
                self._changed.wait(wait)
            return None

    def give_back(self, slot: TaskSlot) -> None:
        """Tell that nobody sees to a task any more."""
        with self._changed:
            slot.running = False
            self._changed.notify_all()

    def rest(self, slot: TaskSlot, seconds: float) -> None:
        """Let a task be due after a while; at once if it was woken while it ran."""
        with self._changed:
            woken = slot.recalled if slot.failures else slot.woken
            slot.due = time.monotonic() + (0.0 if woken else seconds)

    def wake(self, which: Callable[[Task], bool], *, again: bool = False) -> None:
        """Make tasks run soon; those that wait to be tried again only if ``again``."""
        with self._changed:
            for slot in self._all.values():
                if which(slot.task):
                    slot.wake(again=again)
            self._changed.notify_all()

    def feeders(self, slot: TaskSlot) -> list[TaskSlot]:
        return [each for each in self if feeds(each.task, slot.task)]

    def ask_to_end(self, tasks: Mapping[TaskId, TaskState]) -> list[TaskSlot]:
        """Let tasks end in the given states before they run again; return those that are."""
        with self._changed:
            asked = [self._all[task] for task in tasks if task in self._all]
            for slot in asked:
                slot.ending = tasks[slot.task.id]
            self._changed.notify_all()
            return asked

    def wait_ended(self, slots: Collection[TaskSlot], within: timedelta) -> bool:
        """Wait until tasks have ended, or nobody will end them; return whether they have."""

        def ended() -> bool:
            return not any(each.live or _is_busy(each) for each in slots)

        def over() -> bool:
            return ended() or (self._stopping and not any(map(_is_busy, slots)))

        with self._changed:
            self._changed.wait_for(over, within.total_seconds())
            return ended()

    def take_out(self, slots: Collection[TaskSlot]) -> list[TaskSlot]:
        """Forget tasks; return those that have not ended, which are the caller's to end."""
        with self._changed:
            for slot in slots:
                if self._all.get(slot.task.id) is slot:
                    del self._all[slot.task.id]
            return self._claimed(slots)

    def take_over(self) -> list[TaskSlot]:
        """Return the tasks that have not ended, which are the caller's to end."""
        with self._changed:
            return self._claimed(self._all.values())

    def _claimed(self, slots: Collection[TaskSlot]) -> list[TaskSlot]:
        left = [
            each
            for each in slots
            # What a server has stopped as it ends is wanted still, and so counts as live.
            if each.live and not each.abandoned and (each.running or not each.stopping)
        ]
        for slot in left:
            # One that does not run was idle, or has waited for a thread while all were busy.
            slot.abandoned = slot.running
            slot.running = True
        return left

    def stop(self) -> None:
        """Give no task to anybody any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()


def _is_busy(slot: TaskSlot) -> bool:
    return slot.running and not slot.abandoned
