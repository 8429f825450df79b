"""Captures: tasks that run in plugin hosts; the worker stores their positions."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from headrace.capture import (
    CaptureSpec,
    HostSupervisor,
    Message,
    Targets,
    error_from_json,
    refusal,
)
from headrace.model import Backoff, Batch, Counts, Lease, TaskId
from headrace.sdk import HeadraceError, Lag, Mark, Position, RetriableError, SourceError
from headrace.sdk.errors import StaleEpochError, StorageUnavailableError
from headrace.sdk.sparktypes import schema_from_json, schema_to_json
from headrace.sdk.storage import storage_error
from headrace.store import Store, StoreUnavailableError
from headrace.worker.batch_loop import ToleranceGuard
from headrace.worker.context import StoredLedger, StoredSchemas
from headrace.worker.events import labels
from headrace.worker.task import Step

log = structlog.get_logger(__name__)


_PASSING = (StoreUnavailableError, StorageUnavailableError)
"""Errors that a restart of the capture may resolve."""


@dataclass(frozen=True, kw_only=True)
class CaptureKeeping:
    """What a capture's task needs in addition to its plan.

    Args:
        notify: Called with a task when its next step has something to report.
    """

    store: Store
    hosts: HostSupervisor
    targets: Callable[[CaptureSpec], Targets]
    appended: Callable[[str], None]
    clock: Callable[[], datetime]
    notify: Callable[[TaskId], None] = lambda _: None


@dataclass(eq=False)
class CaptureTask:
    """A capture as the worker sees it: a Task that runs in a plugin host.

    The host requests over the pipe that each batch is begun and finished, and the thread that
    listens to the host does so in the store. ``step`` only reports what happened.

    Args:
        spec: What the host runs.
        python: The interpreter of the plugin's environment.
        poll_interval: How often ``step`` is called, in addition to each notification by the
            task.
        grace: How long ``stop`` waits for a poll to return.
        identity: The uid of the connector, if it may be removed while the task runs.
    """

    id: TaskId
    spec: CaptureSpec
    keeping: CaptureKeeping
    _: KW_ONLY
    python: str = sys.executable
    poll_interval: timedelta = timedelta(milliseconds=250)
    backoff: Backoff = field(default_factory=Backoff)
    guard: ToleranceGuard = field(default_factory=ToleranceGuard)
    grace: timedelta = timedelta(seconds=5)
    identity: str | None = None
    reads: str | None = field(default=None, init=False)
    writes: str | None = field(init=False)
    routes: bool = field(default=False, init=False)
    lag: Lag | None = field(default=None, init=False)
    """Always None: how much data is left to poll is not known."""
    failure: HeadraceError | None = field(default=None, init=False)
    """Why the capture failed; None if it has not failed."""
    completed: bool = field(default=False, init=False)
    """Whether the capture has reached the end of its source."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _lease: Lease | None = field(default=None, init=False)
    _begun: Batch | None = field(default=None, init=False)
    _name: str = field(default="", init=False)
    _attempt: int = field(default=0, init=False)
    _finished: deque[Batch] = field(default_factory=deque, init=False)
    _retry: RetriableError | None = field(default=None, init=False)
    _stop_asked: bool = field(default=False, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _waited: HeadraceError | None = field(default=None, init=False)
    _away: int = field(default=0, init=False)
    """Consecutive failures because the storage or the store was unavailable."""

    def __post_init__(self) -> None:
        self.writes = self.spec.topic

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        self._lease = lease
        self.spec = replace(self.spec, once=once)
        self.keeping.hosts.attach(self)

    def step(self) -> Step:
        """Report the next finished batch, or the end. Raises the capture's failure."""
        with self._lock:
            if self._finished:
                batch = self._finished.popleft()
                return Step(batch, took=(batch.finished or batch.begun) - batch.begun)
            # A batch that is finished later is reported by the next step, also at the end.
            retry, self._retry = self._retry, None
            failure, completed = self.failure, self.completed
        if isinstance(failure, _PASSING):
            self._start_again(failure)
            failure = self.failure
        if failure is not None:
            raise failure
        if retry is not None:
            raise retry
        return Step(ended=completed)

    def _start_again(self, failure: RetriableError) -> None:
        """Restart the capture after a backoff, or raise the failure to let the worker wait.

        The capture continues from its position in the store: records that were polled and not
        stored are polled again.
        """
        if self._waited is not failure:
            self._waited = failure
            self._away += 1
            failure.after = self.backoff.wait(self._away)
            raise failure
        self.keeping.hosts.detach(self, hung=False)
        with self._lock:
            if self.failure is not failure:  # it was cancelled meanwhile
                return
            self.failure = self._waited = None
            self._ended.clear()
        self.keeping.hosts.attach(self)

    def activity(self) -> None:
        """See Task: a capture runs no Spark jobs."""

    def columns(self) -> None:
        """See Task: a capture moves no batches with Spark."""

    def cancel(self) -> None:
        self._stop_capture(discard=True)
        self.fail(StaleEpochError(f"Task {self.id} was cancelled."))

    def ask_to_stop(self) -> None:
        """Make the capture end soon; records that it has polled are appended first."""
        self._stop_capture(discard=False)

    def stop(self) -> None:
        """See Task. Waits up to the grace period for the capture's poll."""
        if self._lease is None:
            return  # never started
        self.ask_to_stop()
        if not self._ended.wait(self.grace.total_seconds()):
            log.warning("capture did not stop in time", **labels(self.id))
        # From now on requests of the host fail: the name is no longer known.
        self.keeping.hosts.detach(self, hung=not self._ended.is_set())

    def unreported(self) -> Sequence[Batch]:
        with self._lock:
            batches = list(self._finished)
            self._finished.clear()
        return batches

    def launch(self) -> Message | None:
        """Settle an unfinished batch; return the message that starts the capture in a host.

        Called by the supervisor whenever there is a new host process and no old one.
        Returns None if there is nothing to start.
        """
        if self._stop_asked:
            self._ended.set()
        if self._ended.is_set():
            return None
        try:
            return self._launched()
        except Exception as error:  # noqa: BLE001 - the task fails with any error
            self.fail(error)
            return None

    def _launched(self) -> Message:
        lease = self._held
        self._settle(lease)
        self._attempt += 1
        self._name = f"{self.id}/{lease.epoch}.{self._attempt}"
        return {
            "type": "start",
            "capture": self._name,
            "spec": self.spec.to_json(),
            "position": self.keeping.store.position(self.id).to_json(),
            "epoch": lease.epoch,
        }

    def _settle(self, lease: Lease) -> None:
        """Finish or abandon the batch that was in progress when a host or worker died.

        A capture cannot read a range again: a batch that its topics hold is finished, and other
        records are polled again in a batch with another id.
        """
        store = self.keeping.store
        # Guarantee 3: a worker that has lost the task must not settle the new owner's batch.
        batch = store.unfinished_batch(self.id, lease.epoch)
        self._begun = None
        if batch is None:
            return
        mark = Mark(self.spec.application, batch.id, lease.epoch, batch.range)
        settled = self.keeping.targets(self.spec).settle(mark)
        if settled is None:
            store.abandon_batch(self.id, lease.epoch, batch.id)
            return
        self._finish(batch.id, *settled)

    def receive(self, message: Message) -> Message | None:
        """Handle a message of the capture; return the answer if it was a call."""
        match message["type"]:
            case "call":
                return self._answer(message)
            case "log":
                level = message["level"]
                write = getattr(log, level, log.info)
                write(message["text"], logger=message["logger"], **labels(self.id))
            case "stopped":
                self.completed = message["completed"]
                self._ended.set()
                self.keeping.notify(self.id)
            case "failed":
                self.fail(_failure(message["error"]))
        return None

    def _answer(self, message: Message) -> Message:
        answer = {"type": "answer", "call": message["call"]}
        try:
            return {**answer, "value": self._called(message["what"], message)}
        except Exception as error:  # noqa: BLE001 - the host raises it
            return refusal(message, error)

    def _called(self, what: str, message: Message) -> Any:
        match what:
            case "begin":
                counts = Counts.from_json(message["counts"])
                return self._begin(Position.from_json(message["end"]), counts)
            case "finish":
                counts = Counts.from_json(message["counts"])
                return self._finish(message["batch"], counts, message["topics"])
            case "retry":
                return self._wait(message)
            case "schema":
                schema = self._schemas.get(message["stream"])
                return None if schema is None else schema_to_json(schema)
            case "put_schema":
                return self._schemas.put(message["stream"], schema_from_json(message["schema"]))
        return self._ledger_called(what, message)

    def _ledger_called(self, what: str, message: Message) -> Any:
        ledger = StoredLedger(self.keeping.store, self._held)
        match what:
            case "ledger_append":
                return ledger.append(message["items"], message["after"])
            case "ledger_slice":
                return ledger.slice(message["start"], message["end"])
            case "ledger_length":
                return len(ledger)
        problem = f"Unknown request {what!r} from a plugin host."
        raise SourceError(problem)

    @property
    def _schemas(self) -> StoredSchemas:
        return StoredSchemas(self.keeping.store, self.id.connector, self.identity)

    def _begin(self, end: Position, counts: Counts) -> Message:
        store = self.keeping.store
        start = self._begun.end if self._begun is not None else store.position(self.id)
        now = self.keeping.clock()
        self.guard.check(store, self.id, now, counts)
        # Guarantee 2: store the intent, with its id, before data moves.
        self._begun = store.begin_batch(self.id, self._held.epoch, start, end, now)
        return {"batch": self._begun.id, "range": self._begun.range}

    def _finish(self, batch_id: int, counts: Counts, topics: list[str]) -> None:
        # Guarantee 1: the data is durable in the topics; only now advance the position.
        now = self.keeping.clock()
        done = self.keeping.store.finish_batch(
            self.id,
            self._held.epoch,
            batch_id,
            counts,
            now,
            keep_since=self.guard.keep_since(now),
        )
        with self._lock:
            self._away = 0
            self._finished.append(done)
        self.keeping.notify(self.id)
        for topic in topics:
            self.keeping.appended(topic)

    def _wait(self, message: Message) -> float:
        """Return for how many seconds to wait before polling a busy source again."""
        error = error_from_json(message["error"])
        asked = error.after if isinstance(error, RetriableError) else None
        trying_for = timedelta(seconds=message["trying_seconds"])
        if self.backoff.expired(trying_for):
            problem = f"Gave up after {message['failures']} attempts: {error}"
            raise SourceError(problem)
        wait = self.backoff.wait(message["failures"], asked, trying_for)
        with self._lock:
            self._retry = RetriableError(error.problem, after=wait, fix=error.fix)
        self.keeping.notify(self.id)
        return wait.total_seconds()

    def _stop_capture(self, *, discard: bool) -> None:
        self._stop_asked = True
        message = {"type": "stop", "capture": self._name, "discard": discard}
        if not self.keeping.hosts.send(self, message):
            self._ended.set()  # no host, so nothing runs

    def fail(self, error: Exception) -> None:
        """Fail the task, unless it has already failed for good. Thread-safe."""
        known = error if isinstance(error, HeadraceError) else SourceError(str(error))
        with self._lock:
            if self.failure is None or isinstance(self.failure, _PASSING):
                self.failure = storage_error(error) or known
        self._ended.set()
        self.keeping.notify(self.id)

    @property
    def _held(self) -> Lease:
        if self._lease is None:
            raise StaleEpochError
        return self._lease


def _failure(message: Message) -> HeadraceError:
    if message["code"] == StoreUnavailableError.code:
        return StoreUnavailableError(message["problem"])  # hosts do not know this class
    return error_from_json(message)
