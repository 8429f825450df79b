"""Makes runs of the windows that are due."""

from __future__ import annotations

import threading
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
    is_realtime,
    unended,
)
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import Boundaries, ConfigErrors
from headrace.store import JobChange, NewRun, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.store import JobStore, NewAlert

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
        alerts: Gives what people are told of a job that has failed, and of why.
    """

    store: JobStore
    clock: Callable[[], datetime]
    made: Callable[[], None] = lambda: None
    interval: timedelta = timedelta(seconds=1)
    alerts: Callable[[Job, str], Sequence[NewAlert]] = lambda _job, _why: ()
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
        stamp = Stamp(now, _BY)
        approved = self.store.in_states([JobState.APPROVED])
        mine = [job for job in approved if job.engine is None]
        self.store.change_all(self._changes(mine, now, self._registered), stamp)
        due = self.store.due(now, _JOBS)
        # One transaction for all: each is a write to the disk. Of two servers one makes a run.
        done = self.store.change_all(self._changes(due, now, self._fired), stamp)
        return sum(len(change.made) for change in done)

    def _changes(
        self,
        jobs: Sequence[Job],
        now: datetime,
        changed: Callable[[Job, datetime], JobChange],
    ) -> list[JobChange]:
        """Return what is to be made of jobs; one that is like no other leaves them alone."""
        found = []
        for job in jobs:
            try:
                found.append(changed(job, now))
            except StoreUnavailableError:
                raise
            except Exception:
                log.exception("a job cannot be scheduled", job=job.name)
        return found

    def take_on(self, job: Job) -> None:
        """Let an approved job be at work, as an outside scheduler wakes it from now on."""
        self.store.change_all([self._registered(job, self.clock())], Stamp(self.clock(), _BY))

    def fire(self, job: Job, trigger: Trigger = Trigger.SCHEDULE, by: str = _BY) -> None:
        """Make runs of all windows of a job that are due, whatever its state.

        Raises JobChangedError where somebody else was faster.

        Args:
            job: As it is stored.
            trigger: What makes the runs. One that wakes us is never on time to the minute: the
                newest window is not missed then.
            by: Who makes them, for the record.
        """
        now = self.clock()
        while job.due is not None and job.due <= now:
            job = self.store.change(self._fired(job, now, trigger), Stamp(now, by))

    def _registered(self, job: Job, now: datetime) -> JobChange:
        if is_realtime(job.document):
            return self._followed(job, now)
        runs, section = self.store.counts(job.name), job.document.get("schedule")
        state = JobState.RUNNING if runs else JobState.CONFIGURED
        has_windows = isinstance(section, dict) and not section.get("after")
        if has_windows and job.cursor is None and runs and not unended(runs):
            state = JobState.FINISHED
        wanted = replace(job, state=state)
        return JobChange(seen=job, wanted=wanted, event=EventKind.JOB_REGISTERED)

    def _followed(self, job: Job, now: datetime) -> JobChange:
        """Let a job run in real time, from where its windows have ended on."""
        bounds = Boundaries.between(job.cursor, None)
        run = NewRun(boundaries=bounds, trigger=Trigger.REALTIME, due=now)
        wanted = replace(job, state=JobState.RUNNING)
        return JobChange(seen=job, wanted=wanted, event=EventKind.JOB_REGISTERED, made=[run])

    def _fired(self, job: Job, now: datetime, trigger: Trigger = Trigger.SCHEDULE) -> JobChange:
        try:
            spec = read_job(job.document)
        except ConfigErrors as errors:  # it was written by another version
            failed = replace(job, state=JobState.FAILED, why=str(errors), due=None)
            return JobChange(
                seen=job,
                wanted=failed,
                event=EventKind.JOB_FAILED,
                alerts=self.alerts(failed, str(errors)),
            )
        if spec.schedule is None or job.cursor is None:
            return JobChange(seen=job, wanted=replace(job, due=None))
        due, moved = _due(job, spec, now)
        more = moved.due is not None and moved.due <= now
        catch_up = spec.policy.catch_up
        if trigger is Trigger.CALLBACK and catch_up is CatchUp.NONE:
            catch_up = CatchUp.LATEST
        wanted, missed = _wanted(spec, due, now, catch_up, more=more)
        made = self._runs(job, spec, wanted, now, trigger)
        if moved.cursor is None and not made and not unended(self.store.counts(job.name)):
            moved = replace(moved, state=JobState.FINISHED)
        if not missed:
            return JobChange(seen=job, wanted=moved, made=made)
        detail = {"windows": len(missed), "until": missed[-1].upper.isoformat()}
        return JobChange(
            seen=job, wanted=moved, event=EventKind.WINDOWS_MISSED, made=made, detail=detail
        )

    def _runs(
        self,
        job: Job,
        spec: JobSpec,
        windows: Sequence[TimeWindow],
        now: datetime,
        trigger: Trigger,
    ) -> list[NewRun]:
        skips = spec.policy.overlap is Overlap.SKIP
        busy = skips and self.store.is_busy(job.name)
        made: list[NewRun] = []
        for window in windows:
            bounds = Boundaries.between(window.lower, window.upper)
            run = NewRun(boundaries=bounds, trigger=trigger, due=now)
            if busy or (skips and made):
                why = "An earlier window was running when this one was due."
                run = replace(run, state=RunState.SKIPPED, error=why)
            made.append(run)
        return made


def _due(job: Job, spec: JobSpec, now: datetime) -> tuple[list[TimeWindow], Job]:
    """Return the windows from a job's cursor on that are due, and the job behind them."""
    schedule = spec.schedule
    assert schedule is not None
    coming = schedule.windows(job.cursor)
    windows = takewhile(lambda window: schedule.due(window) <= now, islice(coming, _WINDOWS))
    due = list(windows)
    if due and job.cursor is not None and due[0].lower < job.cursor:
        # The schedule cut otherwise before: what lies before the cursor has been read.
        due[0] = replace(due[0], lower=job.cursor)
    following = next(schedule.windows(due[-1].upper if due else job.cursor), None)
    if following is None:
        return due, replace(job, cursor=None, due=None)
    lower = following.lower if due or job.cursor is None else job.cursor
    return due, replace(job, cursor=lower, due=schedule.due(following))


def _wanted(
    spec: JobSpec,
    due: Sequence[TimeWindow],
    now: datetime,
    catch_up: CatchUp,
    *,
    more: bool,
) -> tuple[Sequence[TimeWindow], Sequence[TimeWindow]]:
    """Return which windows that are due are run, and which were missed.

    ``more`` says that later ones are due too, which the next tick looks at.
    """
    match catch_up:
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
