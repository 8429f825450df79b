"""Captures: tasks that run in plugin hosts, with their positions kept by the worker."""

from __future__ import annotations

import sys
import threading
from collections import deque
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from headrace.capture import error_from_json, refusal
from headrace.model import Backoff, Counts
from headrace.sdk import (
    HeadraceError,
    Mark,
    Position,
    RetriableError,
    SourceError,
    StaleEpochError,
)
from headrace.sdk.errors import StorageUnavailableError
from headrace.sdk.sparktypes import schema_from_json, schema_to_json
from headrace.sdk.storage import storage_error
from headrace.store import StoreUnavailableError
from headrace.worker.context import StoredLedger, StoredSchemas
from headrace.worker.loop import ToleranceGuard
from headrace.worker.task import Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from headrace.capture import CaptureSpec, HostSupervisor, Message
    from headrace.model import Batch, Lease, TaskId
    from headrace.sdk import Lag
    from headrace.store import Store

log = structlog.get_logger(__name__)


_PASSING = (StoreUnavailableError, StorageUnavailableError)
"""What a capture that is started again may find mended."""


class Targets(Protocol):
    """The topics that a capture appends to."""

    def settle(self, mark: Mark) -> tuple[Counts, list[str]] | None:
        """Decide a batch whose end is unknown; return its counts and topics, or None."""


@dataclass(frozen=True, kw_only=True)
class CaptureKeeping:
    """What a capture's task needs beside its plan.

    Args:
        store: Where intents, positions and counts are kept.
        hosts: The plugin hosts.
        targets: Settles batches in the topics.
        appended: Called with a topic's name after each append.
        clock: Gives the present, aware.
        told: Called with a task when its next step has something to tell.
    """

    store: Store
    hosts: HostSupervisor
    targets: Callable[[CaptureSpec], Targets]
    appended: Callable[[str], None]
    clock: Callable[[], datetime]
    told: Callable[[TaskId], None] = lambda _: None


class CaptureTask:
    """A capture as the worker sees it: a Task whose work is done elsewhere.

    Its host asks, over the pipe, for each batch to be begun and finished, and the thread
    that listens to the host does so in the store. ``step`` only tells what happened.
    """

    reads: str | None = None
    lag: Lag | None = None  # what was not polled yet is the source's own secret

    def __init__(
        self,
        task: TaskId,
        spec: CaptureSpec,
        keeping: CaptureKeeping,
        *,
        python: str = sys.executable,
        poll_interval: timedelta = timedelta(milliseconds=250),
        backoff: Backoff | None = None,
        guard: ToleranceGuard | None = None,
        grace: timedelta = timedelta(seconds=5),
        identity: str | None = None,
    ) -> None:
        """Describe the task.

        Args:
            task: Its id.
            spec: What the host is to run.
            keeping: The worker's side of it.
            python: The interpreter of its plugin's environment.
            poll_interval: How often ``step`` is called to see what happened, beside each time
                that the task tells of something.
            backoff: When to try again while the source's system is busy.
            guard: Stops the task when too many records are rejected.
            grace: How long ``stop`` waits for a poll to return.
            identity: Its connector's, if that may be removed while it runs.
        """
        self.id = task
        self.writes: str | None = spec.topic
        self.routes = False
        self.python = python
        self.poll_interval = poll_interval
        self.backoff = backoff or Backoff()
        self.guard = guard or ToleranceGuard()
        self._spec = spec
        self._keeping = keeping
        self._grace = grace
        self._identity = identity
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._begun: Batch | None = None
        self._name = ""
        self._attempt = 0
        self._finished: deque[Batch] = deque()
        self._retry: RetriableError | None = None
        self._stop_asked = False
        self._ended = threading.Event()
        self._waited: HeadraceError | None = None
        self._away = 0  # how often in a row
        self.failure: HeadraceError | None = None
        """Why the capture failed; None while it has not."""
        self.completed = False
        """Whether the capture came to its end."""
        self.idle = False
        """Whether the source's newest polls found nothing."""

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        self._lease = lease
        self._spec = replace(self._spec, once=once)
        self._keeping.hosts.attach(self)

    def step(self) -> Step:
        """Tell the next finished batch, or the end. Raises what made the capture fail."""
        with self._lock:
            if self._finished:
                batch = self._finished.popleft()
                return Step(batch, took=(batch.finished or batch.begun) - batch.begun)
            retry, self._retry = self._retry, None
        if isinstance(self.failure, _PASSING):
            self._start_again(self.failure)
        if self.failure is not None:
            raise self.failure
        if retry is not None:
            raise retry
        return Step(ended=self.completed)

    def _start_again(self, failure: RetriableError) -> None:
        """Launch the capture anew when the worker has waited for what is away, else let it.

        From where the store says it is: what was polled and not stored is polled again.
        """
        if self._waited is not failure:
            self._waited = failure
            self._away += 1
            failure.after = self.backoff.wait(self._away)
            raise failure
        self._keeping.hosts.detach(self, hung=False)
        with self._lock:
            self.failure = self._waited = None
            self._ended.clear()
        self._keeping.hosts.attach(self)

    def activity(self) -> None:
        """See Task: it runs no Spark jobs."""

    def cancel(self) -> None:
        self._stop_capture(discard=True)
        self.fail(StaleEpochError(f"Task {self.id} was cancelled."))

    def ask_to_stop(self) -> None:
        """Make the capture end soon; what it has polled is appended first."""
        self._stop_capture(discard=False)

    def stop(self) -> None:
        """See Task. Waits for the capture's poll, as long as the grace period."""
        if self._lease is None:
            return  # it was never started
        self.ask_to_stop()
        if not self._ended.wait(self._grace.total_seconds()):
            log.warning("capture did not stop in time", **self._labels)
        # From here on its host asks in vain: the name is no longer known.
        self._keeping.hosts.detach(self, hung=not self._ended.is_set())

    def launch(self) -> Message | None:
        """Settle what is unfinished; return what tells a host to start the capture.

        Called by the supervisor whenever there is a new host process and no old one.
        Returns None when there is nothing to start.
        """
        if self._stop_asked:
            self._ended.set()
        if self._ended.is_set():
            return None
        try:
            return self._launched()
        except Exception as error:  # noqa: BLE001 - the task fails with whatever it was
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
            "spec": self._spec.to_json(),
            "position": self._keeping.store.position(self.id).to_json(),
            "epoch": lease.epoch,
        }

    def _settle(self, lease: Lease) -> None:
        """Finish or give up the batch that was in progress when a host or worker died.

        A capture cannot read a range again: what its topics have is finished, and what
        they do not have is polled anew under another id.
        """
        store = self._keeping.store
        # Guarantee 3: a worker that has lost the task must not decide the new owner's batch.
        batch = store.unfinished_batch(self.id, lease.epoch)
        self._begun = None
        if batch is None:
            return
        mark = Mark(self._spec.application, batch.id, lease.epoch, batch.range)
        settled = self._keeping.targets(self._spec).settle(mark)
        if settled is None:
            store.abandon_batch(self.id, lease.epoch, batch.id)
            return
        self._finish(batch.id, *settled)

    def receive(self, message: Message) -> Message | None:
        """Take a message of the capture; return the answer if it was a call."""
        match message["type"]:
            case "call":
                return self._answer(message)
            case "idle":
                self.idle = True
            case "log":
                level = message["level"]
                told = {"logger": message["logger"], **self._labels}
                getattr(log, level, log.info)(message["text"], **told)
            case "stopped":
                self.completed = message["completed"]
                self._ended.set()
                self._keeping.told(self.id)
            case "failed":
                self.fail(_failure(message["error"]))
        return None

    def _answer(self, message: Message) -> Message:
        answer = {"type": "answer", "call": message["call"]}
        try:
            return {**answer, "value": self._called(message["what"], message)}
        except Exception as error:  # noqa: BLE001 - it is the host's to raise
            return refusal(message, error)

    def _called(self, what: str, told: Message) -> Any:
        match what:
            case "begin":
                counts = Counts.from_json(told["counts"])
                return self._begin(Position.from_json(told["end"]), counts)
            case "finish":
                counts = Counts.from_json(told["counts"])
                return self._finish(told["batch"], counts, told["topics"])
            case "retry":
                return self._wait(told)
            case "schema":
                schema = self._schemas.get(told["stream"])
                return None if schema is None else schema_to_json(schema)
            case "put_schema":
                return self._schemas.put(told["stream"], schema_from_json(told["schema"]))
        return self._ledger_called(what, told)

    def _ledger_called(self, what: str, told: Message) -> Any:
        ledger = StoredLedger(self._keeping.store, self._held)
        match what:
            case "ledger_append":
                return ledger.append(told["items"], told["after"])
            case "ledger_slice":
                return ledger.slice(told["start"], told["end"])
            case "ledger_length":
                return len(ledger)
        problem = f"Unknown request {what!r} from a plugin host."
        raise SourceError(problem)

    @property
    def _schemas(self) -> StoredSchemas:
        return StoredSchemas(self._keeping.store, self.id.connector, self._identity)

    def _begin(self, end: Position, counts: Counts) -> Message:
        self.idle = False
        store = self._keeping.store
        start = self._begun.end if self._begun is not None else store.position(self.id)
        now = self._keeping.clock()
        self.guard.check(store, self.id, now, counts)
        # Guarantee 2: the intent, with its id, is stored before data moves.
        self._begun = store.begin_batch(self.id, self._held.epoch, start, end, now)
        return {"batch": self._begun.id, "range": self._begun.range}

    def _finish(self, batch_id: int, counts: Counts, topics: list[str]) -> None:
        # Guarantee 1: the data is durable in the topics; only now the position moves.
        now = self._keeping.clock()
        done = self._keeping.store.finish_batch(
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
        self._keeping.told(self.id)
        for topic in topics:
            self._keeping.appended(topic)

    def _wait(self, told: Message) -> float:
        """Return for how many seconds a busy source is to be left alone."""
        error = error_from_json(told["error"])
        asked = error.after if isinstance(error, RetriableError) else None
        trying_for = timedelta(seconds=told["trying_seconds"])
        if self.backoff.expired(trying_for):
            problem = f"Gave up after {told['failures']} tries: {error}"
            raise SourceError(problem)
        wait = self.backoff.wait(told["failures"], asked, trying_for)
        with self._lock:
            self._retry = RetriableError(error.problem, after=wait, fix=error.fix)
        self._keeping.told(self.id)
        return wait.total_seconds()

    def _stop_capture(self, *, discard: bool) -> None:
        self._stop_asked = True
        message = {"type": "stop", "capture": self._name, "discard": discard}
        if not self._keeping.hosts.send(self, message):
            self._ended.set()  # no host, so nothing runs

    def fail(self, error: Exception) -> None:
        """Fail the task, unless it failed before. Any thread may call it."""
        if self.failure is None:
            known = error if isinstance(error, HeadraceError) else SourceError(str(error))
            self.failure = storage_error(error) or known
        self._ended.set()
        self._keeping.told(self.id)

    @property
    def _held(self) -> Lease:
        if self._lease is None:
            raise StaleEpochError
        return self._lease

    @property
    def _labels(self) -> dict[str, Any]:
        return {"connector": self.id.connector, "task": self.id.number}


def _failure(told: Message) -> HeadraceError:
    """Return why a host says that a capture failed."""
    if told["code"] == StoreUnavailableError.code:
        return StoreUnavailableError(told["problem"])  # which hosts do not know
    return error_from_json(told)
