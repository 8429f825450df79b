"""The worker: many tasks on a few threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from headrace.model import TaskState, TaskStatus
from headrace.sdk import HeadraceError, RetriableError, StaleEpochError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from headrace.model import Batch, Lease, TaskId
    from headrace.store import Store
    from headrace.worker.task import Step, Task

log = structlog.get_logger(__name__)

_LIVE = {TaskState.UNASSIGNED, TaskState.RUNNING}


class Events(Protocol):
    """Learns what happens in a worker. Called from its threads; must not block."""

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Learn that a batch is durable."""

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        """Learn that a task changed its state; ``error`` says why it failed."""

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """Learn that a step failed for now and runs again after ``wait``."""


@dataclass(frozen=True)
class Outcome:
    """How the tasks of a run ended."""

    states: Mapping[TaskId, TaskState]
    errors: Mapping[TaskId, Exception]

    @property
    def failed(self) -> bool:
        """Return whether any task failed."""
        return bool(self.errors)


@dataclass
class _Entry:
    """A task with what the worker knows of it."""

    task: Task
    due: float = 0.0
    running: bool = False
    woken: bool = False
    state: TaskState = TaskState.UNASSIGNED
    lease: Lease | None = None
    failures: int = 0
    trying_since: float = 0.0
    error: Exception | None = None

    @property
    def live(self) -> bool:
        return self.state in _LIVE


@dataclass(kw_only=True)
class Worker:
    """Runs tasks until they end or it is stopped. One failing task fails alone.

    A task is ready when it is woken (its topic was appended to) or its poll interval
    has passed; ``threads`` of them run at the same time.

    Args:
        store: Where leases and status are kept.
        owner: This worker's name, unique among living workers.
        events: Who is told what happens.
        clock: Gives the present, aware.
        threads: How many steps run at the same time.
        lease: How long a lease lasts without renewal.
        once: Whether tasks stop at what is available.
    """

    store: Store
    owner: str
    events: Events
    clock: Callable[[], datetime]
    threads: int = 4
    lease: timedelta = timedelta(seconds=30)
    once: bool = False
    _entries: dict[TaskId, _Entry] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def add(self, tasks: Iterable[Task]) -> None:
        """Take on tasks; call it before ``run``."""
        for task in tasks:
            self._entries[task.id] = _Entry(task)
            self.events.state_changed(task.id, TaskState.UNASSIGNED, None)

    def run(self) -> Outcome:
        """Run until every task has ended or ``stop`` was called; blocks."""
        heart = threading.Thread(target=self._beat, name="headrace-leases", daemon=True)
        heart.start()
        count = max(1, min(self.threads, len(self._entries)))
        pool = [
            threading.Thread(target=self._work, name=f"headrace-worker-{n}", daemon=True)
            for n in range(count)
        ]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        self._stopping.set()
        heart.join()
        for entry in self._entries.values():
            if entry.state is TaskState.RUNNING:
                self._end(entry, TaskState.STOPPED)
        states = {task: entry.state for task, entry in self._entries.items()}
        errors = {task: e.error for task, e in self._entries.items() if e.error is not None}
        return Outcome(states, errors)

    def wake(self, topic: str) -> None:
        """Make the tasks that read ``topic`` run soon. Any thread may call it."""
        self._wake(lambda reader: reader.reads == topic)

    def _wake(self, which: Callable[[Task], bool]) -> None:
        with self._changed:
            for entry in self._entries.values():
                if which(entry.task):
                    entry.due = 0.0
                    entry.woken = True
            self._changed.notify_all()

    def stop(self, grace: timedelta = timedelta(seconds=5)) -> None:
        """Stop after the steps that are running; cancel those that take over ``grace``."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        timer = threading.Timer(grace.total_seconds(), self._cancel)
        timer.daemon = True
        timer.start()

    def _cancel(self) -> None:
        for entry in self._entries.values():
            if entry.running:
                entry.task.cancel()

    def _work(self) -> None:
        while (entry := self._next()) is not None:
            try:
                self._run(entry)
            finally:
                with self._changed:
                    entry.running = False
                    self._changed.notify_all()

    def _next(self) -> _Entry | None:
        """Return the task that has been ready longest, or None when all is over."""
        with self._changed:
            while not self._stopping.is_set():
                live = [entry for entry in self._entries.values() if entry.live]
                if not live:
                    return None
                waiting = [entry for entry in live if not entry.running]
                entry = min(waiting, key=lambda entry: entry.due, default=None)
                wait = entry.due - time.monotonic() if entry else None
                if entry is not None and wait is not None and wait <= 0:
                    entry.running, entry.woken = True, False
                    return entry
                self._changed.wait(wait)
            return None

    def _run(self, entry: _Entry) -> None:
        finished = self._feeders_ended(entry)
        began = time.monotonic()
        try:
            if entry.state is TaskState.UNASSIGNED:
                self._start(entry)
            step = entry.task.step()
        except RetriableError as error:
            self._retry(entry, error)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; its task fails alone
            self._fail(entry, error)
        else:
            entry.failures = 0
            self._stepped(entry, step, finished, timedelta(seconds=time.monotonic() - began))

    def _start(self, entry: _Entry) -> None:
        task = entry.task
        running = TaskStatus(TaskState.RUNNING)
        now = self.clock()
        entry.lease = self.store.lease(task.id, self.owner, now, self.lease, running)
        self._tell(entry, TaskState.RUNNING)
        task.start(entry.lease, once=self.once, bounded=not self._feeders(entry))

    def _stepped(self, entry: _Entry, step: Step, finished: bool, took: timedelta) -> None:  # noqa: FBT001 - private
        now = time.monotonic()
        if step.batch is not None:
            self.events.batch_finished(step.batch, took)
            entry.due = now
        elif finished and (step.ended or self._feeders(entry)):
            self._end(entry, TaskState.COMPLETED)
        else:
            with self._changed:
                entry.due = now if entry.woken else now + self._interval(entry)

    def _interval(self, entry: _Entry) -> float:
        return entry.task.poll_interval.total_seconds()

    def _retry(self, entry: _Entry, error: RetriableError) -> None:
        now = time.monotonic()
        if entry.failures == 0:
            entry.trying_since = now
        entry.failures += 1
        backoff = entry.task.backoff
        trying_for = timedelta(seconds=now - entry.trying_since)
        if backoff.expired(trying_for):
            self._fail(entry, error)
            return
        wait = backoff.wait(entry.failures, error.after, trying_for)
        entry.due = now + wait.total_seconds()
        self.events.retrying(entry.task.id, error, wait)

    def _fail(self, entry: _Entry, error: Exception) -> None:
        if self._stopping.is_set() and getattr(error, "code", "") == "task.cancelled":
            return  # the batch stays unfinished and runs again at the next start
        entry.error = error
        self._end(entry, TaskState.FAILED)

    def _end(self, entry: _Entry, state: TaskState) -> None:
        try:
            entry.task.stop()
        except Exception:
            log.warning("task did not stop cleanly", task=str(entry.task.id), exc_info=True)
        if entry.lease is not None:
            status = TaskStatus(
                state, trace=None if entry.error is None else _trace(entry.error)
            )
            try:
                self.store.end(entry.lease, status, self.clock())
            except StaleEpochError:
                log.warning("task was taken by another worker", task=str(entry.task.id))
        self._tell(entry, state)
        self._wake(lambda reader: _feeds(entry.task, reader))

    def _tell(self, entry: _Entry, state: TaskState) -> None:
        entry.state = state
        self.events.state_changed(entry.task.id, state, entry.error)

    def _feeders(self, entry: _Entry) -> list[_Entry]:
        """Return the tasks here that write what ``entry`` reads, or may do so."""
        return [e for e in self._entries.values() if _feeds(e.task, entry.task)]

    def _feeders_ended(self, entry: _Entry) -> bool:
        return not any(feeder.live for feeder in self._feeders(entry))

    def _beat(self) -> None:
        """Renew the leases well before they end."""
        while not self._stopping.wait(self.lease.total_seconds() / 3):
            for entry in self._entries.values():
                if entry.lease is None or not entry.live:
                    continue
                try:
                    entry.lease = self.store.renew(entry.lease, self.clock(), self.lease)
                except (StaleEpochError, StateError):
                    log.warning("lease lost", task=str(entry.task.id))
                    entry.task.cancel()


def _feeds(writer: Task, reader: Task) -> bool:
    """Return whether one task may write what the other reads."""
    if reader.reads is None or writer is reader:
        return False
    # Two tasks that route and read topics would wait for each other's end for ever.
    return writer.writes == reader.reads or (writer.routes and not reader.routes)


def _trace(error: Exception) -> str:
    return (
        str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    )
