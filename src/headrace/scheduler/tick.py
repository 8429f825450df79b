"""Creates runs of due windows."""

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
"""The maximum number of jobs per tick, to keep it short; the next tick handles the rest."""
_WINDOWS = 1000
"""The maximum number of windows of a job for which a tick creates runs."""
_LATE = timedelta(minutes=1)
"""A window that has been due for longer counts as missed."""
_BY = "scheduler"


@dataclass(kw_only=True)
class Scheduler:
    """Creates runs of due windows, at each tick (Guarantee 5).

    Args:
        made: Called after a tick that created runs, so that workers check at once.
        interval: The longest wait between two ticks.
        alerts: Builds the alerts for a job that has failed, given the reason.
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
        errors = RepeatedErrors("cannot check schedules", "schedules are checked again")
        while not self._stopping:
            with errors.logged():
                if self.tick():
                    self.made()
            self._woken.wait(self.interval.total_seconds())
            self._woken.clear()

    def wake(self) -> None:
        """Tick soon. Thread-safe."""
        self._woken.set()

    def stop(self) -> None:
        """End ``run``. Thread-safe."""
        self._stopping = True
        self._woken.set()

    def tick(self) -> int:
        """Register approved jobs, and create runs of due windows; return how many."""
        now = self.clock()
        stamp = Stamp(now, _BY)
        approved = self.store.in_states([JobState.APPROVED])
        mine = [job for job in approved if job.engine is None]
        self.store.change_all(self._changes(mine, now, self._registered), stamp)
        due = self.store.due(now, _JOBS)
        # One transaction for all jobs, since each commit waits for the disk. If two servers
        # tick at once, only one of them creates a run.
        done = self.store.change_all(self._changes(due, now, self._fired), stamp)
        return sum(len(change.made) for change in done)

    def _changes(
        self,
        jobs: Sequence[Job],
        now: datetime,
        changed: Callable[[Job, datetime], JobChange],
    ) -> list[JobChange]:
        """Return the changes of jobs; an error for one job does not affect the others."""
        found = []
        for job in jobs:
            try:
                found.append(changed(job, now))
            except StoreUnavailableError:
                raise
            except Exception:
                log.exception("cannot schedule job", job=job.name)
        return found

    def take_on(self, job: Job) -> None:
        """Activate an approved job that an external scheduler wakes from now on."""
        self.store.change_all([self._registered(job, self.clock())], Stamp(self.clock(), _BY))

    def fire(self, job: Job, trigger: Trigger = Trigger.SCHEDULE, by: str = _BY) -> None:
        """Create runs of all due windows of a job, in any state of the job.

        Raises JobChangedError after a concurrent change.

        Args:
            job: The stored job.
            trigger: The trigger of the runs. With CALLBACK the newest window never counts as
                missed, since external schedulers are not punctual to the minute.
            by: The user, for the event.
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
        """Start a job in real time, from the end of its windows."""
        bounds = Boundaries.between(job.cursor, None)
        run = NewRun(boundaries=bounds, trigger=Trigger.REALTIME, due=now)
        wanted = replace(job, state=JobState.RUNNING)
        return JobChange(seen=job, wanted=wanted, event=EventKind.JOB_REGISTERED, made=[run])

    def _fired(self, job: Job, now: datetime, trigger: Trigger = Trigger.SCHEDULE) -> JobChange:
        try:
            spec = read_job(job.document)
        except ConfigErrors as errors:  # written by another version
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
    """Return the due windows from a job's cursor on, and the job with the cursor moved."""
    schedule = spec.schedule
    assert schedule is not None
    coming = schedule.windows(job.cursor)
    windows = takewhile(lambda window: schedule.due(window) <= now, islice(coming, _WINDOWS))
    due = list(windows)
    if due and job.cursor is not None and due[0].lower < job.cursor:
        # The schedule was different before: rows before the cursor have been read.
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
    """Return which due windows to run, and which were missed.

    ``more`` means that later windows are due too, which the next tick handles.
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
            missed = late.count(True)  # late windows come first
            return due[missed:], due[:missed]
