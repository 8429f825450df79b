"""Takes due runs of jobs and executes them, up to a limit at a time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from headrace.model import (
    Counts,
    Run,
    RunPolicy,
    RunState,
    SparkCrashedError,
    SparkUnavailableError,
    TooManyRejectedError,
    cause_of,
)
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.errors import StaleEpochError
from headrace.store import JobNotFoundError, StoreUnavailableError
from headrace.worker.events import as_it_is, trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.store import JobStore, NewAlert

log = structlog.get_logger(__name__)

_LOOK = 20
"""How many waiting runs of a job are considered: some may have to wait for others."""
_DEATHS = 3
"""How often the worker of a run, or its Spark, may die, in addition to the run's retries."""
_BEAT_SECONDS = 1.0
_STORE_WAIT = 1.0
"""Seconds between two attempts to store how a run has ended."""
_FINAL = (ConfigError, ConfigErrors, SparkCrashedError, TooManyRejectedError)
"""Errors that are not retried, since a retry would fail again."""


_COUNTS_SECONDS = 5.0
"""How often the record counts of a running run are stored."""
_CODE = re.compile(r"\[[a-z_]+\.[a-z_.]+\]")
"""Matches the error code in an error's text."""


class Execution(Protocol):
    """One attempt of a run."""

    @property
    def version(self) -> int:
        """The version of the job's document that the run was opened with; 0 if not opened."""

    def run(self) -> None:
        """Move the data of the run; blocks. Raises the error if the run fails."""

    def stop(self) -> None:
        """Make ``run`` return or raise soon. Thread-safe."""

    def counts(self) -> Counts:
        """Return the record counts of the run over all its attempts."""

    def wake(self) -> None:
        """Retry at once whatever waits for a retry. Thread-safe."""

    def trouble(self) -> str | None:
        """Return the error that the run is currently retrying; None if it makes progress."""

    def is_wanted(self) -> bool:
        """Return whether the job still wants this run unchanged. Called about once a second."""


@dataclass(frozen=True)
class _End:
    """Why an attempt ends early, and the resulting state of its run.

    Args:
        state: The run's resulting state; None to treat the end like a failure.
    """

    why: str
    state: RunState | None = None


@dataclass(eq=False)
class _Active:
    run: Run
    execution: Execution
    policy: RunPolicy
    ends: _End | None = None
    lost: bool = False
    troubled: float | None = None
    """Since when the run makes no progress."""
    stored_at: float = field(default_factory=time.monotonic)
    """When the counts were last stored."""


@dataclass(kw_only=True)
class RunWorker:
    """Takes due runs, executes each on its own thread, and stores how they end.

    If the worker of a run dies, another worker takes the run and resumes it.

    Args:
        owner: The name of this process, unique among living workers.
        is_dead: Returns whether an owner is known to have ended.
        clock: Returns the time of day.
        lease_clock: Returns the time by which leases expire, see ``Store.now``.
        policy: Returns the run policy of a job.
        open: Creates the execution of a run that was taken.
        application: Returns Spark's application id.
        slots: How many runs execute at a time, not counting real-time runs.
        redact: Removes secrets from an error.
        alerts: Builds the alerts for a run as it will have ended, and for the cause.
        only: The only job whose runs are taken, until none is left; None for all jobs, without
            end.
    """

    store: JobStore
    owner: str
    is_dead: Callable[[str], bool]
    clock: Callable[[], datetime]
    lease_clock: Callable[[], datetime]
    policy: Callable[[str], RunPolicy]
    open: Callable[[Run], Execution]
    application: Callable[[], str | None] = lambda: None
    slots: int = 4
    lease: timedelta = timedelta(seconds=30)
    interval: timedelta = timedelta(seconds=1)
    redact: Callable[[Exception], Exception] = as_it_is
    alerts: Callable[[Run, str], Sequence[NewAlert]] = lambda _run, _cause: ()
    patience: timedelta = timedelta(minutes=5)
    """How long a run may retry before it alerts, then once an hour."""
    only: str | None = None
    stuck: bool = field(default=False, init=False)
    """Whether runs of the job ``only`` are left that cannot begin."""
    _active: dict[int, _Active] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _woken: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _threads: set[threading.Thread] = field(default_factory=set)

    def run(self) -> None:
        """Take and execute runs until ``stop`` is called; blocks until all have ended."""
        heart = threading.Thread(target=self._beat, name="headrace-runs-leases", daemon=True)
        heart.start()
        errors = RepeatedErrors("cannot check for due runs", "due runs are checked again")
        while not self._stopping:
            with errors.logged():
                self.look()
                if self.only is not None and self._is_over(self.only):
                    self.stuck = self.store.is_busy(self.only)
                    self._stopping = True
                    break
            self._woken.wait(self.interval.total_seconds())
            self._woken.clear()
        for thread in list(self._threads):
            thread.join()
        heart.join()

    def wake(self) -> None:
        """Check for due runs soon. Thread-safe."""
        self._woken.set()

    def wake_all(self) -> None:
        """Check for due runs soon and retry active runs at once, since Spark is back."""
        for each in self._all():
            each.execution.wake()
        self.wake()

    def stop(self) -> None:
        """Take no more runs and stop the active ones; another worker or start resumes them."""
        self._stopping = True
        for each in self._all():
            self._end(each, _SHUT_DOWN)
        self._woken.set()

    def look(self) -> None:
        """Take due runs, up to the number of free slots."""
        free = self.slots - sum(not active.run.is_live for active in self._all())
        now = self.clock()
        waiting = self.store.waiting(
            now, self.lease_clock(), self._is_gone, _LOOK, job=self.only
        )
        for seen in waiting:
            if self._stopping:
                return
            if seen.id in self._active or (free <= 0 and not seen.is_live):
                continue  # its own run whose lease has expired may end by itself
            policy = self.policy(seen.job)
            side_by_side = policy.parallel if seen.backfill else policy.side_by_side
            taken = self.store.take(
                seen,
                self.owner,
                now,
                self.lease_clock() + self.lease,
                side_by_side,
                in_order=policy.depends_on_past,
            )
            if taken is not None:
                free -= not taken.is_live
                self._begin(taken, policy)

    def _is_over(self, job: str) -> bool:
        """Return whether no run of a job is active or will begin."""
        return not self._all() and not self.store.is_coming(job, self.clock())

    def _is_gone(self, owner: str) -> bool:
        return owner != self.owner and self.is_dead(owner)

    def _begin(self, run: Run, policy: RunPolicy) -> None:
        thread = threading.Thread(
            target=self._attempt, args=(run, policy), name=f"headrace-run-{run.id}", daemon=True
        )
        active = _Active(run, _Unopened(run), policy)
        with self._lock:
            self._active[run.id] = active
            self._threads.add(thread)
        if self._stopping:  # stop may have been called before the run was registered
            self._end(active, _SHUT_DOWN)
        thread.start()

    def _attempt(self, run: Run, policy: RunPolicy) -> None:
        active = self._active[run.id]
        error: Exception | None = None
        try:
            if run.stop_asked:
                active.ends = _ASKED
            elif not run.is_live and run.deaths > policy.retries + _DEATHS:
                error = _DiedError(run.deaths)
            else:
                active.execution = self.open(run)
                self.store.started(run, self.application())
                if active.ends is None:
                    active.execution.run()
        except Exception as raised:  # noqa: BLE001 - a plugin may raise anything; its run fails alone
            error = raised
        try:
            if not active.lost:
                self._ended(active, error)
        except StaleEpochError as stale:
            log.warning("run was taken by another worker", run=run.id, why=str(stale))
        finally:
            with self._lock:
                if self._active.get(run.id) is active:
                    del self._active[run.id]
                self._threads.discard(threading.current_thread())
            self.wake()

    def _ended(self, active: _Active, error: Exception | None) -> None:
        """Store how an attempt has ended, retrying until the store answers."""
        while True:
            try:
                self._store_end(active, error)
            except StoreUnavailableError:
                if active.lost or self._stopping:
                    raise
                time.sleep(_STORE_WAIT)
            else:
                return

    def _store_end(self, active: _Active, error: Exception | None) -> None:
        run, now = active.run, self.clock()
        counts = active.execution.counts()
        state, why, due, cause = RunState.SUCCEEDED, None, None, ""
        counted, died, is_own_end = True, False, active.ends != _ASKED
        asked = error.end if isinstance(error, NotWantedError) else active.ends
        if asked is not None and asked.state is not None:
            state, why = asked.state, asked.why
            if state is RunState.QUEUED:
                due, counted = now, False
        elif error is not None or active.ends is not None:
            shown, ends = self.redact(error or Exception()), active.ends
            why = trace_of(shown) if ends is None else ends.why
            is_own = ends is not None or isinstance(error, _DiedError)
            died = isinstance(error, SparkUnavailableError)
            cause = why if is_own else cause_of(shown)
            state = RunState.FAILED
            # A real-time run has no end, so it is retried without a limit.
            wait: timedelta | None = timedelta() if died else active.policy.retry_delay
            if not (died or run.is_live):
                wait = active.policy.wait(run.attempt - run.deaths)
            if wait is not None and not isinstance(error, (*_FINAL, _DiedError)):
                state, due = RunState.QUEUED, now + wait
        ended = replace(run, state=state, ended=now, counts=counts, error=why)
        alerts = self.alerts(ended, cause)
        self.store.finish(
            run,
            state,
            now,
            counts=counts,
            error=why,
            due=due,
            alerts=alerts,
            counted=counted,
            died=died,
            version=active.execution.version if run.is_live and is_own_end else None,
        )
        report = log.info if state is RunState.SUCCEEDED else log.warning
        report("run ended", job=run.job, run=run.id, state=state.value, why=why)

    def _beat(self) -> None:
        """Renew the leases of active runs, and end the runs that have to end."""
        errors = RepeatedErrors("cannot renew leases of runs", "leases of runs renewed again")
        wait = min(self.lease.total_seconds() / 3, _BEAT_SECONDS)
        while not (self._stopping and not self._all()):
            time.sleep(wait)
            with errors.logged():
                self._hold()

    def _hold(self) -> None:
        held = self._all()
        if not held:
            return
        expires = self.lease_clock() + self.lease
        renewed = self.store.renew(self.owner, [active.run for active in held], expires)
        found = {run.id: run for run in renewed}
        now = self.clock()
        for active in held:
            run = found.get(active.run.id)
            if run is None or run.epoch != active.run.epoch:
                active.lost = True
                self._end(active, _End("Another worker has taken the run."))
                continue
            limit = active.policy.timeout
            assert run.began is not None
            if run.stop_asked:
                self._end(active, _ASKED)
            elif limit is not None and now - run.began > limit:
                self._end(active, _End(f"The run took longer than its timeout of {limit}."))
            elif run.is_live and not self._is_wanted(active):
                self._end(active, _CHANGED)
            elif time.monotonic() - active.stored_at > _COUNTS_SECONDS:
                active.stored_at = time.monotonic()
                counts, trouble = active.execution.counts(), active.execution.trouble()
                alerts = self._alerts_of_trouble(active, run, trouble)
                with suppress(StaleEpochError):  # the run has ended meanwhile
                    self.store.progress(run, counts, trouble, alerts)

    def _alerts_of_trouble(
        self, active: _Active, run: Run, trouble: str | None
    ) -> Sequence[NewAlert]:
        """Return the alerts for a run that has made no progress for ``patience``."""
        now = time.monotonic()
        if trouble is None:
            active.troubled = None
            return ()
        if active.troubled is None:
            active.troubled = now
        if now - active.troubled < self.patience.total_seconds():
            return ()
        # Only the error code is used, as the text may contain data of a record.
        code = _CODE.search(trouble)
        return self.alerts(run, code[0] if code else "see its error")

    def _is_wanted(self, active: _Active) -> bool:
        try:
            return active.execution.is_wanted()
        except JobNotFoundError:
            return False

    def _end(self, active: _Active, end: _End) -> None:
        if active.ends is None:
            active.ends = end
            active.execution.stop()

    def _all(self) -> list[_Active]:
        with self._lock:
            return list(self._active.values())


_ASKED = _End("A stop was requested.", RunState.STOPPED)
_SHUT_DOWN = _End("The server was stopped.", RunState.QUEUED)
_CHANGED = _End("The job was changed or suspended.", RunState.QUEUED)


class NotWantedError(Exception):
    """The job does not want this run now, or not any more."""

    def __init__(self, why: str, state: RunState) -> None:
        super().__init__(why)
        self.end = _End(why, state)


class _DiedError(Exception):
    """The worker of a run, or its Spark, has died too often."""

    def __init__(self, deaths: int) -> None:
        super().__init__(f"The worker or Spark died {deaths} times during the run.")


@dataclass(frozen=True)
class _Unopened:
    """Placeholder until the execution of a run is opened."""

    going: Run

    def run(self) -> None: ...

    def stop(self) -> None: ...

    def counts(self) -> Counts:
        return self.going.counts

    @property
    def version(self) -> int:
        return 0

    def trouble(self) -> None: ...

    def wake(self) -> None: ...

    def is_wanted(self) -> bool:
        return True
