"""Makes runs of the windows that are due."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import structlog

from headrace.control import read_job
from headrace.model import (
    CatchUp,
    EventKind,
    Job,
    JobSpec,
    JobState,
    Overlap,
    RunState,
    Stamp,
    TimeWindow,
    Trigger,
)
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import Boundaries, ConfigErrors
from headrace.store import JobChangedError, NewRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.store import JobStore

log = structlog.get_logger(__name__)

_JOBS = 200
"""How many jobs a tick looks at, so that it is short; those that are left come next."""
_WINDOWS = 1000
"""How many windows of a job a tick makes runs of."""
_LATE = timedelta(minutes=1)
"""A window that is due for longer was missed."""
_BY = "scheduler"


@dataclass(kw_only=True)
class Scheduler:
    """Ticks, and makes runs of windows that are due (Guarantee 5).

    Args:
        made: Called after a tick that made runs, so that workers look at once.
        interval: The longest wait between two ticks.
    """

    store: JobStore
    clock: Callable[[], datetime]
    made: Callable[[], None] = lambda: None
    interval: timedelta = timedelta(seconds=1)
    _woken: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False

    def run(self) -> None:
        """Tick until ``stop`` is called; blocks."""
        errors = RepeatedErrors("schedules cannot be looked at now", "schedules work again")
        while not self._stopping:
            with errors.logged():
                if self.tick():
                    self.made()
            self._woken.wait(self.interval.total_seconds())
            self._woken.clear()

    def wake(self) -> None:
        """Tick soon. Any thread may call it."""
        self._woken.set()

    def stop(self) -> None:
        """End ``run``. Any thread may call it."""
        self._stopping = True
        self._woken.set()

    def tick(self) -> int:
        """Register jobs that were approved, and make runs of what is due; return how many."""
        now = self.clock()
        for job in self.store.in_states([JobState.APPROVED]):
            with suppress(JobChangedError):  # another server was faster, or a person
                self._register(job, now)
        count = 0
        for job in self.store.due(now, _JOBS):
            with suppress(JobChangedError):
                count += self._fire(job, now)
        return count

    def _register(self, job: Job, now: datetime) -> None:
        runs, section = self.store.counts(job.name), job.document.get("schedule")
        state = JobState.RUNNING if runs else JobState.CONFIGURED
        has_windows = isinstance(section, dict) and not section.get("after")
        if has_windows and job.cursor is None and runs and not _waiting(runs):
            state = JobState.FINISHED
        self.store.change(
            job, replace(job, state=state), Stamp(now, _BY), EventKind.JOB_REGISTERED
        )

    def _fire(self, job: Job, now: datetime) -> int:
        try:
            spec = read_job(job.document)
        except ConfigErrors as errors:  # it was written by another version
            failed = replace(job, state=JobState.FAILED, why=str(errors), due=None)
            self.store.change(job, failed, Stamp(now, _BY), EventKind.JOB_FAILED)
            return 0
        if spec.schedule is None or job.cursor is None:
            self.store.change(job, replace(job, due=None), Stamp(now, _BY))
            return 0
        due, moved = _due(job, spec, now)
        wanted, passed = _wanted(
            spec, due, now, more=moved.due is not None and moved.due <= now
        )
        made = self._runs(job, spec, wanted, now)
        if moved.cursor is None and not made and not _waiting(self.store.counts(job.name)):
            moved = replace(moved, state=JobState.FINISHED)
        event = EventKind.WINDOWS_MISSED if passed else None
        detail = {} if not passed else {"windows": len(passed), "until": str(passed[-1].upper)}
        self.store.change(job, moved, Stamp(now, _BY), event, made=made, detail=detail)
        return len(made)

    def _runs(
        self, job: Job, spec: JobSpec, windows: Sequence[TimeWindow], now: datetime
    ) -> list[NewRun]:
        skips = spec.policy.overlap is Overlap.SKIP
        busy = skips and _waiting(self.store.counts(job.name))
        made: list[NewRun] = []
        for window in windows:
            bounds = Boundaries.between(window.lower, window.upper)
            run = NewRun(boundaries=bounds, trigger=Trigger.SCHEDULE, due=now)
            if busy or (skips and made):
                why = "An earlier window was running when this one was due."
                run = replace(run, state=RunState.SKIPPED, error=why)
            made.append(run)
        return made


def _waiting(runs: Mapping[RunState, int]) -> bool:
    return any(runs.get(state) for state in (RunState.QUEUED, RunState.RUNNING))


def _due(job: Job, spec: JobSpec, now: datetime) -> tuple[list[TimeWindow], Job]:
    """Return the windows from a job's cursor on that are due, and the job behind them."""
    schedule = spec.schedule
    assert schedule is not None
    coming = schedule.windows(job.cursor)
    windows = takewhile(lambda window: schedule.due(window) <= now, islice(coming, _WINDOWS))
    due = list(windows)
    following = next(schedule.windows(due[-1].upper if due else job.cursor), None)
    if following is None:
        return due, replace(job, cursor=None, due=None)
    return due, replace(job, cursor=following.lower, due=schedule.due(following))


def _wanted(
    spec: JobSpec, due: Sequence[TimeWindow], now: datetime, *, more: bool
) -> tuple[Sequence[TimeWindow], Sequence[TimeWindow]]:
    """Return which windows that are due are run, and which were missed.

    ``more`` says that later ones are due too, which the next tick looks at.
    """
    match spec.policy.catch_up:
        case CatchUp.ALL:
            return due, ()
        case CatchUp.LATEST:
            newest = len(due) if more else len(due) - 1
            return due[newest:], due[:newest]
        case CatchUp.NONE:
            assert spec.schedule is not None
            late = [now - spec.schedule.due(window) > _LATE for window in due]
            missed = late.count(True)  # those that are late come first
            return due[missed:], due[:missed]
