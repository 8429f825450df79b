"""The worker: many tasks on a few threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from headrace.model import TaskState, TaskStatus
from headrace.sdk import RetriableError, StaleEpochError, StateError
from headrace.store import StoreUnavailableError
from headrace.worker.entry import Entry
from headrace.worker.events import Events, Outcome
from headrace.worker.heart import renew_leases
from headrace.worker.labels import labelled, labels
from headrace.worker.listening import Measures, Unmeasured
from headrace.worker.restarts import Restarts
from headrace.worker.task import feeds
from headrace.worker.traces import as_it_is, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from headrace.model import Lease, TaskId
    from headrace.sdk import Lag
    from headrace.store import Store
    from headrace.worker.task import Step, Task

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.2  # how often it is looked whether threads have ended


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
        serving: Whether it goes on without a task, as one may be added at any time.
        restarts: Decides what is done about tasks that fail.
        measures: Who is told the figures that nobody else wants.
        cleaned: Takes secrets out of an error before it is told.
    """

    store: Store
    owner: str
    events: Events
    clock: Callable[[], datetime]
    threads: int = 4
    lease: timedelta = timedelta(seconds=30)
    once: bool = False
    serving: bool = False
    restarts: Restarts = field(default_factory=Restarts)
    measures: Measures = field(default_factory=Unmeasured)
    cleaned: Callable[[Exception], Exception] = as_it_is
    _entries: dict[TaskId, Entry] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _pool: list[threading.Thread] = field(default_factory=list)
    _stop_by: float = 0.0  # in seconds of the monotonic clock

    def add(self, tasks: Iterable[Task], identity: str | None = None) -> None:
        """Take on tasks of a connector. Those that it has already must have ended."""
        for task in tasks:
            self.events.state_changed(task.id, TaskState.UNASSIGNED, None)
            with self._changed:
                self._entries[task.id] = Entry(task, identity)
                self._changed.notify_all()

    def end(self, tasks: Mapping[TaskId, TaskState], grace: timedelta) -> None:
        """End tasks in the given states, and return when they have. Any thread may call it.

        A step that is running is finished, or cancelled when it takes over ``grace``. One
        that does not end then either, within the same time, is given up: its lease is taken
        away, so that it can commit nothing more. Tasks that have ended already are
        forgotten, their states left as they were.
        """
        with self._changed:
            asked = {task: self._entries[task] for task in tasks if task in self._entries}
            for task, entry in asked.items():
                entry.ending = tasks[task]
            self._changed.notify_all()
            left = self._insist(asked.values(), grace)
            for task, entry in asked.items():
                if self._entries.get(task) is entry:
                    del self._entries[task]
        for entry in left:
            self._end_now(entry, tasks[entry.task.id])

    def mark(self, task: TaskId, state: TaskState, identity: str) -> None:
        """Store the state of a task that nobody runs. One that has failed stays so."""
        found = self.store.statuses(task.connector).get(task)
        if found is None or found.state in {state, TaskState.FAILED}:
            return
        now = self.clock()
        try:
            lease = self.store.lease(task, self.owner, now, self.lease, identity=identity)
            self.store.end(lease, TaskStatus(state), now)
        except (StateError, StaleEpochError):
            log.warning("task is run by another worker", **labels(task))

    def _insist(self, entries: Collection[Entry], grace: timedelta) -> list[Entry]:
        """Wait until tasks have ended; return those that do not. The lock is held."""
        if self._wait_ended(entries, grace):
            return []
        for entry in entries:
            if entry.live:
                entry.task.cancel()
        self._wait_ended(entries, grace)
        left = [entry for entry in entries if entry.live]
        for entry in left:
            # One that does not run has waited for a thread: all are busy with others.
            entry.abandoned = entry.running
            entry.running = True
        return left

    def _end_now(self, entry: Entry, state: TaskState) -> None:
        if entry.abandoned:
            self._abandon(entry, state)
            self._spawn()  # in place of the thread that is stuck
        else:
            self._end(entry, state)

    def _wait_ended(self, entries: Collection[Entry], within: timedelta) -> bool:
        """Wait until tasks have ended, or all is over. The lock is held."""
        return self._changed.wait_for(
            lambda: (
                not any(entry.live or entry.running for entry in entries)
                or (self._stopping.is_set() and not any(entry.running for entry in entries))
            ),
            within.total_seconds(),
        )

    def _abandon(self, entry: Entry, state: TaskState) -> None:
        """Take the lease away from a step that does not end."""
        log.warning("task did not end in time and is given up", **labels(entry.task.id))
        # Guarantee 3: its epoch is used up, so whatever it still does is refused.
        self._told(entry, TaskStatus(state), self.store.fence)

    def run(self) -> Outcome:
        """Run until every task has ended or ``stop`` was called; blocks."""
        heart = threading.Thread(target=self._beat, name="headrace-leases", daemon=True)
        heart.start()
        most = self.threads if self.serving else min(self.threads, len(self._entries))
        for _ in range(max(1, most)):
            self._spawn()
        self._join()
        self._stopping.set()
        heart.join()
        # What a server ran is wanted still, by whoever comes next.
        left = TaskState.UNASSIGNED if self.serving else TaskState.STOPPED
        for entry in self._entries.values():
            if entry.abandoned:
                self._abandon(entry, left)
            elif entry.state is TaskState.RUNNING:
                self._end(entry, left)
        states = {task: entry.state for task, entry in self._entries.items()}
        errors = {task: e.error for task, e in self._entries.items() if e.error is not None}
        return Outcome(states, errors)

    def _spawn(self) -> None:
        name = f"headrace-worker-{len(self._pool)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._pool.append(thread)
        thread.start()

    def _join(self) -> None:
        """Wait until all threads have ended, but no longer than it was told to stop."""
        with self._changed:
            while any(thread.is_alive() for thread in self._pool):
                self._changed.wait(_LOOK_SECONDS)
                if self._stopping.is_set() and time.monotonic() > self._stop_by:
                    for entry in self._entries.values():
                        entry.abandoned = entry.running
                    return

    def lags(self) -> dict[TaskId, Lag | None]:
        """Return how far each running task is behind, see Task. Any thread may call it."""
        entries = [e for e in list(self._entries.values()) if e.started and e.live]
        return {entry.task.id: entry.task.lag for entry in entries}

    def wake(self, topic: str) -> None:
        """Make the tasks that read ``topic`` run soon. Any thread may call it."""
        self._wake(lambda reader: reader.reads == topic)

    def wake_task(self, task: TaskId) -> None:
        """Make a task run soon. Any thread may call it."""
        self._wake(lambda woken: woken.id == task)

    def _wake(self, which: Callable[[Task], bool]) -> None:
        with self._changed:
            for entry in self._entries.values():
                if which(entry.task):
                    entry.wake()
            self._changed.notify_all()

    def stop(self, grace: timedelta = timedelta(seconds=5)) -> None:
        """Stop after the steps that are running; cancel those that take over ``grace``.

        Those that do not end then either, within the same time, are given up as by ``end``.
        """
        self._stop_by = time.monotonic() + 2 * grace.total_seconds()
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        timer = threading.Timer(grace.total_seconds(), self._cancel)
        timer.daemon = True
        timer.start()

    def _cancel(self) -> None:
        for entry in list(self._entries.values()):
            if entry.running:
                entry.task.cancel()

    def _work(self) -> None:
        while (entry := self._next()) is not None:
            try:
                with labelled(entry.task.id):
                    self._run(entry)
            except Exception as error:
                # Not the task's own failure, which _run takes care of; others must run on.
                log.exception("task is lost", **labels(entry.task.id))
                entry.error = self.cleaned(error)
                entry.state = TaskState.FAILED
            finally:
                with self._changed:
                    entry.running = False
                    self._changed.notify_all()
            if entry.abandoned:
                return  # another thread works in its place

    def _next(self) -> Entry | None:
        """Return the task that has been ready longest, or None when all is over."""
        with self._changed:
            while not self._stopping.is_set():
                live = [entry for entry in self._entries.values() if entry.live]
                if not live and not self.serving:
                    return None
                waiting = [entry for entry in live if not entry.running]
                entry = min(waiting, key=lambda entry: entry.ready, default=None)
                wait = entry.ready - time.monotonic() if entry else None
                if entry is not None and wait is not None and wait <= 0:
                    entry.running, entry.woken = True, False
                    return entry
                self._changed.wait(wait)
            return None

    def _run(self, entry: Entry) -> None:
        if entry.ending is not None:
            self._end(entry, entry.ending)
            return
        finished = not self.serving and not any(e.live for e in self._feeders(entry))
        began = time.monotonic()
        step: Step | None = None
        error: Exception | None = None
        try:
            if not entry.started:
                self._start(entry)
            step = entry.task.step()
        except Exception as raised:  # noqa: BLE001 - a plugin may raise anything; its task fails alone
            error = raised
        if self._discarded(entry):
            return
        if step is not None:
            entry.failures = 0
            self._stepped(entry, step, finished, timedelta(seconds=time.monotonic() - began))
        elif isinstance(error, RetriableError):
            self._retry(entry, error)
        elif error is not None:
            self._fail(entry, error)

    def _discarded(self, entry: Entry) -> bool:
        """Return whether a task was given up meanwhile; then it only lets go of things."""
        with self._changed:
            if not entry.abandoned:
                return False
        self._let_go(entry)
        return True

    def _let_go(self, entry: Entry) -> None:
        with labelled(entry.task.id):
            try:
                entry.task.stop()
            except Exception:
                log.warning("task did not stop cleanly", exc_info=True)

    def _start(self, entry: Entry) -> None:
        task = entry.task
        entry.began = time.monotonic()
        entry.lease = self._leased(task.id, entry.identity)
        if entry.state is not TaskState.RUNNING:  # else its last start is tried again
            self._tell(entry, TaskState.RUNNING)
        task.start(entry.lease, once=self.once, bounded=not self._feeders(entry))
        entry.started = True
        self.measures.started(task.id, timedelta(seconds=time.monotonic() - entry.began))

    def _leased(self, task: TaskId, identity: str | None) -> Lease:
        """Take a task's lease; on a server, when whoever has it has let go of it."""
        running, now = TaskStatus(TaskState.RUNNING), self.clock()
        try:
            return self.store.lease(
                task, self.owner, now, self.lease, running, identity=identity
            )
        except StateError as error:
            if not self.serving:
                raise
            raise RetriableError(error.problem, after=self.lease / 10, fix=error.fix) from error

    def _stepped(self, entry: Entry, step: Step, finished: bool, took: timedelta) -> None:  # noqa: FBT001 - private
        now = time.monotonic()
        if step.batch is not None:
            self.events.batch_finished(step.batch, took if step.took is None else step.took)
            if step.commit is not None:
                self.measures.committed(entry.task.id, step.commit)
            entry.due = now
        elif self._is_over(entry, step, finished=finished):
            self._end(entry, TaskState.COMPLETED)
        else:
            pause = entry.task.poll_interval.total_seconds()
            with self._changed:
                entry.due = now if entry.woken else now + pause

    def _is_over(self, entry: Entry, step: Step, *, finished: bool) -> bool:
        """Return whether nothing more can come; to a server more can always be given."""
        return not self.serving and finished and (step.ended or bool(self._feeders(entry)))

    def _retry(self, entry: Entry, error: RetriableError) -> None:
        now = time.monotonic()
        entry.trying_since = entry.trying_since if entry.failures else now
        entry.failures += 1
        backoff = entry.task.backoff
        trying_for = timedelta(seconds=now - entry.trying_since)
        # Without its store a task cannot even be failed.
        if backoff.expired(trying_for) and not isinstance(error, StoreUnavailableError):
            self._fail(entry, error)
            return
        wait = backoff.wait(entry.failures, error.after, trying_for)
        entry.due = now + wait.total_seconds()
        self.events.retrying(entry.task.id, self.cleaned(error), wait)

    def _fail(self, entry: Entry, error: Exception) -> None:
        stopping = self._stopping.is_set() or entry.ending is not None
        if stopping and getattr(error, "code", "") == "task.cancelled":
            return  # the batch stays unfinished and runs again at the next start
        entry.error = self.cleaned(error)
        ran = timedelta(seconds=time.monotonic() - entry.began)
        entry.verdict = self.restarts.failed(entry.task.id, error, ran)
        self._end(entry, TaskState.FAILED)

    def _end(self, entry: Entry, state: TaskState) -> None:
        self._let_go(entry)
        trace, next_try = traced(entry.error, entry.verdict, self.clock())
        self._told(entry, TaskStatus(state, trace, next_try), self.store.end)

    def _told(
        self,
        entry: Entry,
        status: TaskStatus,
        store: Callable[[Lease, TaskStatus, datetime], None],
    ) -> None:
        """Store the state that a task ends in, and tell of it."""
        if entry.lease is not None:
            with labelled(entry.task.id):
                try:
                    store(entry.lease, status, self.clock())
                except StaleEpochError:
                    log.warning("task was taken by another worker")
                except StoreUnavailableError:
                    log.warning("end of task is not stored", exc_info=True)
        self._tell(entry, status.state)
        self._wake(lambda reader: feeds(entry.task, reader))

    def _tell(self, entry: Entry, state: TaskState) -> None:
        entry.state = state
        self.events.state_changed(entry.task.id, state, entry.error)

    def _feeders(self, entry: Entry) -> list[Entry]:
        """Return the tasks here that write what ``entry`` reads, while some are added."""
        return [e for e in list(self._entries.values()) if feeds(e.task, entry.task)]

    def _beat(self) -> None:
        """Renew the leases well before they end."""
        while not self._stopping.wait(self.lease.total_seconds() / 3):
            renew_leases(list(self._entries.values()), self.store, self.clock(), self.lease)
