"""The tasks that a worker has: which is next, who waits for whose end, or for a new start."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import structlog

from headrace.model import (
    Lease,
    RestartPolicy,
    SchemaChangeError,
    TaskId,
    TaskState,
    ToleranceExceededError,
    TooManyRejectedError,
)
from headrace.sdk import (
    DataLostError,
    HeadraceError,
    RecordError,
    RetriableError,
    UnfitRecordError,
)
from headrace.sdk.errors import Category, StaleEpochError
from headrace.worker.events import labels, trace_of
from headrace.worker.task import Task, feeds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime


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


def traced(
    error: Exception | None, verdict: Verdict, now: datetime
) -> tuple[str | None, datetime | None]:
    """Return what is stored of a failure: why it came, and when the next try comes."""
    if error is None:
        return None, None
    if verdict.wait is None:
        return "\n".join(filter(None, [trace_of(error), verdict.text])), None
    later = now + verdict.wait
    text = f"{verdict.text} comes at {later:%Y-%m-%d %H:%M:%S %Z}."
    return f"{trace_of(error)}\n{text}", later


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
