"""The worker: runs many tasks on a few threads."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from headrace.model import (
    SparkCrashedError,
    SparkUnavailableError,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import (
    DataLostError,
    HeadraceError,
    Lag,
    RetriableError,
    SourceError,
    StateError,
)
from headrace.sdk.errors import StaleEpochError, StorageUnavailableError
from headrace.sdk.storage import denied_error, storage_error
from headrace.store import Store, StoreUnavailableError
from headrace.worker.events import (
    Events,
    Measures,
    Outcome,
    Unmeasured,
    as_it_is,
    labelled,
    labels,
    trace_of,
)
from headrace.worker.leases import HeldElsewhereError, lost_tasks, renew_leases, take_lease
from headrace.worker.restarts import Restarts
from headrace.worker.stalls import Stalls
from headrace.worker.task import Step, Task, feeds
from headrace.worker.task_endings import TaskEndings
from headrace.worker.task_queue import TaskQueue, TaskSlot

log = structlog.get_logger(__name__)


_LOOK_SECONDS = 0.2  # how often the worker checks whether it was stopped
_HEART_SECONDS = 5.0  # how long to wait at the end for a running lease renewal


_OURS = (SparkUnavailableError, StoreUnavailableError, HeldElsewhereError)
"""The runtime's own parts are unavailable: a task retries these errors without a timeout."""
_WAIT_SECONDS = 0.5  # how soon a task that may not run beside others tries again


@dataclass(kw_only=True, eq=False)
class Worker:
    """Runs tasks until they end or the worker is stopped. A failing task affects no other.

    A task is ready when it is woken (its topic was appended to) or its poll interval
    has passed; up to ``threads`` tasks run at the same time.

    Args:
        owner: This worker's name, unique among living workers.
        lease: How long a lease lasts without renewal.
        once: Whether tasks end when they have processed the available data.
        serving: Whether the worker keeps running without tasks, as tasks may be added any time.
        patient: Whether to wait for a task that another owner holds; implied by ``serving``.
        places: The folders that tasks write to, used to find out which one is full.
        stop_timeout: How long a plugin may take to stop before it is abandoned and its task
            fenced; no timeout for a task that completed.
    """

    store: Store
    owner: str
    events: Events
    clock: Callable[[], datetime]
    threads: int = 4
    lease: timedelta = timedelta(seconds=30)
    once: bool = False
    serving: bool = False
    patient: bool = False
    restarts: Restarts = field(default_factory=Restarts)
    measures: Measures = field(default_factory=Unmeasured)
    redact: Callable[[Exception], Exception] = as_it_is
    stalls: Stalls = field(default_factory=Stalls)
    places: Sequence[Path] = ()
    stop_timeout: timedelta = timedelta(seconds=10)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _joined: threading.Event = field(default_factory=threading.Event)
    _threads: set[threading.Thread] = field(default_factory=set)
    _stop_by: float = 0.0  # in seconds of the monotonic clock

    def __post_init__(self) -> None:
        self._queue = TaskQueue(self.serving)
        self._endings = TaskEndings(
            store=self.store,
            events=self.events,
            clock=self.clock,
            stop_timeout=self.stop_timeout,
            on_end=lambda slot: self._queue.wake(lambda reader: feeds(slot.task, reader)),
        )
        self.stalls.report = lambda slot, error: self._show(
            slot, slot.retrying if error is None else trace_of(error)
        )
        self._numbers = itertools.count()

    def add(self, tasks: Iterable[Task], identity: str | None = None) -> None:
        """Add tasks of a connector. Earlier tasks with the same ids must have ended."""
        for task in tasks:
            self.events.state_changed(task.id, TaskState.UNASSIGNED, None)
            self._queue.put(TaskSlot(task, identity))

    def end(self, tasks: Mapping[TaskId, TaskState], grace: timedelta) -> None:
        """End tasks in the given states, and return when they have ended. Thread-safe.

        A running step may finish; it is cancelled after ``grace``. If it does not end within
        the same time again, it is abandoned: the task is fenced, so it can commit nothing
        more. Tasks that have already ended are removed, and keep their states.
        """
        asked = self._queue.ask_to_end(tasks)
        if not self._queue.wait_ended(asked, grace):
            for slot in asked:
                if slot.live and slot.running:
                    slot.cancel()
            self._queue.wait_ended(asked, grace)
        left = self._queue.take_out(asked)
        for state in set(tasks.values()):
            here = [slot for slot in left if tasks[slot.task.id] is state]
            self._endings.end_all(here, state)
        for slot in left:
            if slot.abandoned and slot.thread is not None:
                self._spawn()  # replaces the stuck thread, before that is no longer waited for
                self._threads.discard(slot.thread)

    def mark(self, task: TaskId, state: TaskState, identity: str) -> bool:
        """Store the state of a task that no worker runs; see ``TaskEndings.mark``."""
        return self._endings.mark(
            task,
            state,
            lambda: self.store.lease(
                task, self.owner, self.store.now(), self.lease, identity=identity
            ),
        )

    def lost(self, tasks: Iterable[TaskId]) -> set[TaskId]:
        """Return the tasks that the store shows as running although no worker runs them."""
        live = {slot.task.id for slot in self._queue if slot.live}
        return lost_tasks({*tasks} - live - self._endings.owed(), self.store, self.owner)

    def run(self) -> Outcome:
        """Run until every task has ended or ``stop`` was called; blocks."""
        heart = threading.Thread(target=self._beat, name="headrace-leases", daemon=True)
        heart.start()
        threading.Thread(target=self._watch, name="headrace-stalls", daemon=True).start()
        most = self.threads if self.serving else min(self.threads, len(list(self._queue)))
        for _ in range(max(1, most)):
            self._spawn()
        self._join()
        self._stopping.set()
        self._joined.set()
        heart.join(_HEART_SECONDS)
        # After a server stops, its tasks are still wanted: the next server runs them.
        left = TaskState.UNASSIGNED if self.serving else TaskState.STOPPED
        taken = self._queue.take_over()
        running = [slot for slot in taken if slot.state is TaskState.RUNNING]
        self._endings.end_all(running, left)
        for slot in taken:
            self._queue.give_back(slot)
        try:
            self._endings.catch_up()
        except StoreUnavailableError as error:
            log.warning("final states of tasks not stored", why=str(error))
        ended = list(self._queue)
        states = {slot.task.id: slot.state for slot in ended}
        errors = {e.task.id: e.error for e in ended if e.error is not None}
        return Outcome(states, errors)

    def _spawn(self) -> None:
        name = f"headrace-worker-{next(self._numbers)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _join(self) -> None:
        while alive := [thread for thread in list(self._threads) if thread.is_alive()]:
            alive[0].join(_LOOK_SECONDS)
            if self._stopping.is_set() and time.monotonic() > self._stop_by:
                return

    def lags(self) -> dict[TaskId, Lag | None]:
        """Return the lag of each running task, see Task. Thread-safe."""
        return {e.task.id: e.task.lag for e in self._queue if e.started and e.live}

    def wake(self, topic: str) -> None:
        """Make the tasks that read ``topic`` run soon, unless they wait for a retry.

        Thread-safe.
        """
        self._queue.wake(lambda reader: reader.reads == topic)

    def wake_task(self, task: TaskId) -> None:
        """Make a task run soon, as it has something to report. Thread-safe."""
        self._queue.wake(lambda woken: woken.id == task, again=True)

    def wake_all(self) -> None:
        """Make all tasks run soon, including those that wait for a retry. Thread-safe."""
        self._queue.wake(lambda _: True, again=True)

    def stop(self, grace: timedelta = timedelta(seconds=5)) -> None:
        """Stop after the running steps; cancel steps that take longer than ``grace``.

        Steps that do not end within the same time again are abandoned, as in ``end``.
        """
        self._stop_by = time.monotonic() + 2 * grace.total_seconds()
        self._stopping.set()
        self._queue.stop()
        timer = threading.Timer(grace.total_seconds(), self._cancel)
        timer.daemon = True
        timer.start()

    def _cancel(self) -> None:
        for slot in self._queue:
            if slot.running:
                slot.cancel()

    def _work(self) -> None:
        while (slot := self._queue.next()) is not None:
            try:
                with labelled(slot.task.id):
                    self._run(slot)
            except Exception as error:
                # An internal error: _run handles failures of the task itself. Keep the thread
                # alive for the other tasks.
                log.exception("internal error while running task", **labels(slot.task.id))
                self._lose(slot, error)
            if slot.abandoned:
                self._endings.stop_task(slot)
                return  # end has started another thread instead
            self._queue.give_back(slot)

    def _lose(self, slot: TaskSlot, error: Exception) -> None:
        if slot.abandoned:
            return
        try:
            self._fail(slot, error)
        except Exception as another:
            log.exception("failure of task could not be reported", **labels(slot.task.id))
            slot.error = self.redact(another)
            slot.state = TaskState.FAILED

    def _run(self, slot: TaskSlot) -> None:
        if slot.ending is not None:
            self._endings.end(slot, slot.ending)
            return
        finished = not self.serving and not any(e.live for e in self._queue.feeders(slot))
        began = time.monotonic()
        step: Step | None = None
        error: Exception | None = None
        try:
            if not slot.started:
                self._start(slot)
            step = slot.task.step()
        except Exception as raised:  # noqa: BLE001 - a plugin may raise anything; its task fails alone
            stalled, slot.stalled = slot.stalled, None
            error = stalled if stalled is not None and _cancelled(raised) else raised
            error = self._of_storage(slot, error)
            self._add_way_out(slot, error)
        if slot.abandoned:
            return  # the result of an abandoned step does not count
        if step is not None and step.waits:
            slot.due = time.monotonic() + _WAIT_SECONDS
            return
        if step is not None:
            slot.failures = 0
            if slot.retrying is not None:
                slot.retrying = None
                self._show(slot, None)
                log.info("task recovered", **labels(slot.task.id))
            self._stepped(slot, step, finished, timedelta(seconds=time.monotonic() - began))
        elif isinstance(error, RetriableError):
            self._retry(slot, error)
        elif error is not None:
            self._fail(slot, error)

    def _start(self, slot: TaskSlot) -> None:
        task = slot.task
        slot.began = time.monotonic()
        slot.lease = take_lease(
            task.id,
            self.store,
            self.owner,
            self.lease,
            slot.identity,
            waits=self.serving or self.patient,
            trace=slot.retrying,
        )
        if slot.state is not TaskState.RUNNING:  # otherwise this retries a failed start
            self._endings.set_state(slot, TaskState.RUNNING)
        task.start(slot.lease, once=self.once, bounded=not self._queue.feeders(slot))
        slot.started = True
        self.measures.started(task.id)

    def _stepped(self, slot: TaskSlot, step: Step, finished: bool, took: timedelta) -> None:  # noqa: FBT001 - private
        if step.batch is not None:
            self.events.batch_finished(step.batch, took if step.took is None else step.took)
            if step.commit is not None:
                self.measures.committed(slot.task.id, step.commit)
            slot.due = time.monotonic()
            return
        # In a server more data may always come.
        if not self.serving and finished and (step.ended or self._queue.feeders(slot)):
            feeders = self._queue.feeders(slot)
            failed = any(each.state is TaskState.FAILED for each in feeders)
            # If a feeding task failed, some input is missing, so this task is not complete.
            ended = TaskState.STOPPED if failed else TaskState.COMPLETED
            self._endings.end(slot, ended)
        else:
            self._queue.rest(slot, slot.task.poll_interval.total_seconds())

    def _retry(self, slot: TaskSlot, error: RetriableError) -> None:
        now = time.monotonic()
        if not slot.failures:
            slot.trying_since, slot.away_since, slot.away = now, None, 0.0
        slot.failures += 1
        if slot.away_since is not None:
            slot.away += now - slot.away_since
            slot.away_since = None
        backoff = slot.task.backoff
        if isinstance(error, _OURS):  # retry without a timeout, and never without a wait
            backoff = replace(backoff, timeout=None)
            slot.away_since = now
        trying_for = timedelta(seconds=now - slot.trying_since - slot.away)
        if backoff.expired(trying_for):
            self._fail(slot, error)
            return
        wait = backoff.wait(slot.failures, error.after, trying_for)
        if isinstance(error, SparkUnavailableError):
            # The task's parts belong to a session that has ended. The next start takes a new
            # epoch, so data staged under the old one is never committed.
            slot.started = False
            self._queue.rest(slot, wait.total_seconds())  # no wait if Spark is already back
        else:
            slot.due = now + wait.total_seconds()
        shown = self.redact(error)
        if slot.failures == 1 or not isinstance(error, SparkUnavailableError):
            self.events.retrying(slot.task.id, shown, wait)
        trace = f"{trace_of(shown)}\nThe task is retried until it succeeds."
        if slot.retrying != trace:
            slot.retrying = trace
            self._show(slot, trace)

    def _of_storage(self, slot: TaskSlot, error: Exception) -> Exception:
        """Return the storage error that caused ``error`` if there is one, else ``error``."""
        if isinstance(error, RetriableError) and not isinstance(error, StorageUnavailableError):
            return error
        found: HeadraceError | None = storage_error(error, self.places)
        if found is None and not isinstance(error, HeadraceError):  # these are already clear
            found = denied_error(error)
            if found is not None and slot.task.reads is None:
                found = SourceError(found.problem, fix=found.fix)
        if found is None or found is error:
            return error
        found.__cause__ = error
        return found

    def _add_way_out(self, slot: TaskSlot, error: Exception) -> None:
        """Add the way out of the unfinished batch to the error of a failed start, or a crash.

        A step does this itself for other errors.
        """
        ours = isinstance(error, DataLostError | SourceError | StateError)
        if not (isinstance(error, SparkCrashedError) or (ours and not slot.started)):
            return
        assert isinstance(error, HeadraceError)
        with suppress(HeadraceError):  # the store may be unavailable
            batch = self.store.unfinished_batch(slot.task.id)
            if batch is not None and batch.way_out not in error.fix:
                error.fix = f"{error.fix} {batch.way_out}".lstrip()

    def _show(self, slot: TaskSlot, trace: str | None) -> None:
        """Store why a running task is being retried; None if it runs without error."""
        if slot.lease is None:
            return
        try:
            self.store.show(slot.lease, TaskStatus(TaskState.RUNNING, trace), self.clock())
        except StoreUnavailableError:
            log.debug("state of task not stored", exc_info=True)  # the task still runs
        except StaleEpochError:
            log.warning("task was taken by another worker", **labels(slot.task.id))

    def _fail(self, slot: TaskSlot, error: Exception) -> None:
        stopping = self._stopping.is_set() or slot.ending is not None
        if stopping and _cancelled(error):
            return  # the batch stays unfinished and is retried at the next start
        slot.error = self.redact(error)
        ran = timedelta(seconds=slot.ran)
        slot.verdict = self.restarts.failed(slot.task.id, error, ran)
        self._endings.end(slot, TaskState.FAILED)

    def _watch(self) -> None:
        """Check for stalled Spark jobs, on a thread that may hang if Spark hangs."""
        while not self._stopping.wait(self.stalls.interval.total_seconds()):
            try:
                self.stalls.look(list(self._queue))
            except Exception:
                log.debug("cannot check the progress of Spark jobs", exc_info=True)

    def _beat(self) -> None:
        """Renew the leases well before they expire, and store the remaining final states.

        Until the last step has ended, which may be long after ``stop``.
        """
        errors = RepeatedErrors("cannot renew leases", "leases are renewed again")
        while not self._joined.wait(self.lease.total_seconds() / 3):
            with errors.logged():
                renew_leases(list(self._queue), self.store, self.lease)
                self._endings.catch_up()


def _cancelled(error: Exception) -> bool:
    return getattr(error, "code", "") == "task.cancelled"
