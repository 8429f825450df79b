"""The task queue of a worker: which task runs next, and how each ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from headrace.model import (
    Lease,
    TaskId,
    TaskState,
)
from headrace.sdk import (
    RetriableError,
)
from headrace.worker.events import labels
from headrace.worker.task import Task, feeds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


from headrace.worker.restarts import Verdict

log = structlog.get_logger(__name__)


_LIVE = {TaskState.UNASSIGNED, TaskState.RUNNING}


@dataclass(eq=False)
class TaskSlot:
    """A task and its runtime state in the worker."""

    task: Task
    identity: str | None = None
    """The uid of the connector, if it may be removed while the task runs."""
    due: float = 0.0
    running: bool = False
    """Whether a thread currently owns the slot; no other thread handles it then."""
    thread: threading.Thread | None = None
    """The thread that runs the task's step."""
    step: int = 0
    """The number of the step that runs, or ran last."""
    woken: bool = False
    recalled: bool = False
    """Whether the task was woken even if it waits for a retry."""
    started: bool = False
    ending: TaskState | None = None
    state: TaskState = TaskState.UNASSIGNED
    lease: Lease | None = None
    failures: int = 0
    trying_since: float = 0.0
    away_since: float | None = None
    """Since when a part of the runtime (store, Spark) is unavailable, by the last failure."""
    away: float = 0.0
    """For how many of the seconds since ``trying_since`` such a part was unavailable."""
    retrying: str | None = None
    """The trace shown while the task is retried: the newest error."""
    error: Exception | None = None
    began: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    abandoned: bool = False
    """Whether the step did not end in time; its thread is abandoned too."""
    stalled: RetriableError | None = None
    """Why the step is cancelled, if it was cancelled for lack of progress."""
    stopping: bool = False
    """Whether the task was asked to stop."""
    reported: bool = False
    """Whether its end was stored and reported."""

    @property
    def live(self) -> bool:
        return self.state in _LIVE

    @property
    def ended(self) -> bool:
        """Whether the task needs no more steps; one that is wanted again stays UNASSIGNED."""
        return self.reported or not self.live

    @property
    def ready(self) -> float:
        """When the task should run, in seconds of the monotonic clock."""
        return self.due if self.ending is None else 0.0

    @property
    def ran(self) -> float:
        """For how many seconds the task has run, without the time spent retrying."""
        until = self.trying_since if self.failures else time.monotonic()
        return max(0.0, until - self.began)

    def wake(self, *, again: bool = False) -> None:
        """Make the task ready, for one more step if it is running now.

        The task queues behind all tasks that are already ready, so that frequent wakes do not
        starve others. New data does not end the backoff of a failed task; ``again`` does.
        """
        if again or not self.failures:
            self.due = min(self.due, time.monotonic())
        self.woken = True
        self.recalled = self.recalled or again

    def cancel(self) -> None:
        """Make a running step end soon. A failure to cancel is only logged."""
        try:
            self.task.cancel()
        except Exception:
            log.warning("cannot cancel task", **labels(self.task.id), exc_info=True)


@dataclass
class TaskQueue:
    """Assigns each task to one thread at a time. Thread-safe.

    The queue never calls a plugin, host or store while it holds its lock: they may call back
    or hang.

    Args:
        serving: Whether the queue stays open without tasks, as tasks may be added at any time.
    """

    serving: bool = False
    _all: dict[TaskId, TaskSlot] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False

    def __iter__(self) -> Iterator[TaskSlot]:
        with self._changed:
            return iter(list(self._all.values()))

    def put(self, slot: TaskSlot) -> None:
        """Add a task. It replaces an ended task with the same id."""
        with self._changed:
            self._all[slot.task.id] = slot
            self._changed.notify_all()

    def next(self) -> TaskSlot | None:
        """Wait for the task that has been ready longest; return None when the queue has ended.

        The caller must ``give_back`` the task.
        """
        with self._changed:
            while not self._stopping:
                live = [slot for slot in self._all.values() if not slot.ended]
                if not live and not self.serving:
                    return None
                waiting = [slot for slot in live if not slot.running]
                slot = min(waiting, key=lambda slot: slot.ready, default=None)
                wait = slot.ready - time.monotonic() if slot else None
                if slot is not None and wait is not None and wait <= 0:
                    slot.running, slot.woken, slot.recalled = True, False, False
                    slot.thread = threading.current_thread()
                    slot.step += 1
                    return slot
                self._changed.wait(wait)
            return None

    def give_back(self, slot: TaskSlot) -> None:
        """Release a task that ``next`` returned."""
        with self._changed:
            slot.running = False
            self._changed.notify_all()

    def rest(self, slot: TaskSlot, seconds: float) -> None:
        """Make a task due after some seconds, or at once if it was woken while it ran."""
        with self._changed:
            woken = slot.recalled if slot.failures else slot.woken
            slot.due = time.monotonic() + (0.0 if woken else seconds)

    def wake(self, which: Callable[[Task], bool], *, again: bool = False) -> None:
        """Make tasks run soon; tasks that wait for a retry only if ``again``."""
        with self._changed:
            for slot in self._all.values():
                if which(slot.task):
                    slot.wake(again=again)
            self._changed.notify_all()

    def feeders(self, slot: TaskSlot) -> list[TaskSlot]:
        return [each for each in self if feeds(each.task, slot.task)]

    def ask_to_end(self, tasks: Mapping[TaskId, TaskState]) -> list[TaskSlot]:
        """Request that tasks end in the given states before they run again.

        Return the slots of the tasks that are in the queue.
        """
        with self._changed:
            asked = [self._all[task] for task in tasks if task in self._all]
            for slot in asked:
                slot.ending = tasks[slot.task.id]
            self._changed.notify_all()
            return asked

    def wait_ended(self, slots: Collection[TaskSlot], within: timedelta) -> bool:
        """Wait until tasks have ended or no thread will end them; return whether they have."""

        def ended() -> bool:
            return all(each.ended and not _is_busy(each) for each in slots)

        def over() -> bool:
            return ended() or (self._stopping and not any(map(_is_busy, slots)))

        with self._changed:
            self._changed.wait_for(over, within.total_seconds())
            return ended()

    def take_out(self, slots: Collection[TaskSlot]) -> list[TaskSlot]:
        """Remove tasks; return those that have not ended, which the caller must end."""
        with self._changed:
            for slot in slots:
                if self._all.get(slot.task.id) is slot:
                    del self._all[slot.task.id]
            return self._claimed(slots)

    def take_over(self) -> list[TaskSlot]:
        """Return the tasks that have not ended, which the caller must end."""
        with self._changed:
            return self._claimed(self._all.values())

    def _claimed(self, slots: Collection[TaskSlot]) -> list[TaskSlot]:
        left = [
            each
            for each in slots
            # A task that a stopping server has stopped is still wanted, so it counts as live.
            if each.live and not each.abandoned and (each.running or not each.stopping)
        ]
        for slot in left:
            # A slot that is not running was idle, or was waiting for a free thread.
            slot.abandoned = slot.running
            slot.running = True
        return left

    def stop(self) -> None:
        """Stop assigning tasks."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()


def _is_busy(slot: TaskSlot) -> bool:
    return slot.running and not slot.abandoned
