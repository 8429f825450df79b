"""The operations on jobs; each writes rows that the scheduler and workers read."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from headrace.control.alerts import check_channels
from headrace.control.job_definitions import check_job, read_job, with_start
from headrace.control.job_windows import JobWindows, require_plain
from headrace.evolution import plugin_keys
from headrace.model import (
    RUNNABLE,
    SCHEDULED,
    CatchUp,
    EventKind,
    Job,
    JobSpec,
    JobState,
    Mode,
    Registration,
    Run,
    RunState,
    Stamp,
    Trigger,
    in_chunks,
    unended,
)
from headrace.sdk import Boundaries, BoundaryKind, ConfigError, ConfigErrors, StateError
from headrace.sdk.errors import Category, HeadraceError
from headrace.store import JobChange, JobChangedError, NewRun, RunNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.plugins import Registry
    from headrace.store import JobStore, RegistrationStore

log = structlog.get_logger(__name__)

_NOT_SUBMITTED = (JobState.DRAFT, JobState.REJECTED)
_MAY_FIRE = {JobState.APPROVED, *SCHEDULED}


class NotApproverError(HeadraceError):
    """Only the approvers of a job may approve or reject it, or change its approvers."""

    code: ClassVar[str] = "job.not_approver"
    category: ClassVar[Category] = Category.CONFIG


class BackfillNotFoundError(HeadraceError):
    """The job has no backfill of that name."""

    code: ClassVar[str] = "backfill.not_found"
    category: ClassVar[Category] = Category.CONFIG


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job for display.

    Args:
        spec: The parsed document; None if this version cannot parse it.
        approvers: The users who may approve the job.
        runs: The number of runs in each state.
        fires: When the next windows are due; empty while the schedule creates no runs.
        registration: The job's registration with its external scheduler, if it has one.
    """

    job: Job
    spec: JobSpec | None
    approvers: Sequence[str]
    runs: Mapping[RunState, int]
    newest: Run | None
    fires: Sequence[datetime]
    registration: Registration | None = None


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """The progress of a backfill.

    Args:
        id: The id of the backfill.
        runs: The number of its runs in each state.
        paused: Whether waiting runs do not begin until the backfill is resumed.
    """

    id: str
    job: str
    runs: Mapping[RunState, int]
    paused: bool = False

    @property
    def total(self) -> int:
        return sum(self.runs.values())

    @property
    def done(self) -> bool:
        """Return whether all its runs have ended."""
        return not unended(self.runs)


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The jobs of an installation. Thread-safe.

    Methods raise JobNotFoundError if the job does not exist, RunNotFoundError if its run does
    not exist, and JobChangedError after a concurrent change.

    Args:
        changed: Called after each change, so that the scheduler and workers check at once.
        approvers: The users who may approve any job, in addition to the job's own approvers.
        channels: The channels by which jobs may alert.
        check_engine: Raises ConfigError for a job that its external scheduler cannot wake.
        registrations: The registrations of jobs with external schedulers.
    """

    store: JobStore
    registry: Registry
    clock: Callable[[], datetime]
    changed: Callable[[], None] = lambda: None
    approvers: Collection[str] = field(default=())
    channels: Collection[str] = field(default=())
    check_engine: Callable[[JobSpec], None] = lambda _: None
    registrations: RegistrationStore | None = None

    @property
    def windows(self) -> JobWindows:
        """The checks of which windows may run."""
        return JobWindows(self.store, self.registry)

    def views(self) -> list[JobView]:
        return [self._view(job, 1) for job in self.store.jobs()]

    def view(self, name: str, fires: int = 10) -> JobView:
        return self._view(self.store.job(name), fires)

    def _view(self, job: Job, fires: int) -> JobView:
        spec = _spec_of(job)
        newest = self.store.runs(job.name, limit=1)
        comes = spec is not None and job.state in _MAY_FIRE
        registration = None
        if job.engine is not None and self.registrations is not None:
            registration = self.registrations.of_job(job.engine, job.name)
        return JobView(
            job=job,
            spec=spec,
            approvers=self._approvers(spec),
            runs=self.store.counts(job.name),
            newest=newest[0] if newest else None,
            fires=self._fires(spec, fires) if spec is not None and comes else [],
            registration=registration,
        )

    def fires(self, name: str, amount: int) -> list[datetime]:
        """Return when the next windows of a job's schedule are due, in any state of the job."""
        return self._fires(read_job(self.store.job(name).document), amount)

    def _fires(self, spec: JobSpec, amount: int) -> list[datetime]:
        return spec.schedule.next_fires(self.clock(), amount) if spec.schedule else []

    def run(self, name: str, number: int) -> Run:
        """Return a run of a job. Raises RunNotFoundError, also for a run of another job."""
        self.store.job(name)
        run = self.store.run(number)
        if run.job != name:
            problem = f"Job {name} has no run {number}."
            fix = f"List its runs: headrace job runs {name}."
            raise RunNotFoundError(problem, field="run", fix=fix)
        return run

    def runs(
        self,
        name: str,
        *,
        states: Collection[RunState] = (),
        backfill: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[Run]:
        """Return a job's runs, newest first; with ``before``, only runs with lower numbers."""
        self.store.job(name)
        return self.store.runs(
            name, states=states, backfill=backfill, before=before, limit=limit
        )

    def create(self, document: Mapping[str, Any], by: str) -> Job:
        """Add a job as a draft. Raises JobExistsError, or the errors of the document."""
        now = self.clock()
        written = with_start(document, now)
        spec = self._checked(written)
        self.check_engine(spec)
        wanted = Job(
            name=spec.definition.name,
            uid="",
            document=written,
            version=1,
            state=JobState.DRAFT,
            engine=spec.engine,
            changed=now,
            by=by,
        )
        made = self.store.create(_at_start(wanted, spec, now), spec.after, Stamp(now, by))
        self.changed()
        return made

    def edit(
        self, name: str, document: Mapping[str, Any], by: str, approver: str | None = None
    ) -> Job:
        """Replace a job's document; an identical document changes nothing.

        The windows continue where they were. If the job has approvers, it is submitted again
        unless it was never submitted, and no run begins before the approval. Only an approver
        (``approver``) may change the approvers.
        """
        seen, now = self.store.job(name), self.clock()
        section, stored = document.get("schedule"), seen.document.get("schedule")
        if isinstance(section, dict) and isinstance(stored, dict) and "start" in stored:
            document = {**document, "schedule": {"start": stored["start"], **section}}
        written, before = with_start(document, now), _spec_of(seen)
        since = self._passed(seen, before)
        spec = self._checked(written, since)
        if spec.definition.name != name:
            problem = f"The document's name is {spec.definition.name}, but the job is {name}."
            raise ConfigError(problem, field="name", fix="Use the same name.")
        if written == seen.document:
            return seen
        if seen.state is not JobState.DRAFT and before is not None:
            self._check_approvers(before, spec, approver)
        self.check_engine(spec)
        wanted = replace(seen, document=written, version=seen.version + 1, engine=spec.engine)
        if spec.mode is Mode.REALTIME:
            self._check_known(name, spec, since)
            wanted = replace(wanted, cursor=since, due=None)
        elif before is not None and before.mode is Mode.REALTIME:
            self._check_behind(spec)
            wanted = _at_start(wanted, spec, now)
        elif before is None or spec.schedule != before.schedule:
            wanted = _at_start(wanted, spec, now, since=self._reached(seen, before, spec))
        state = JobState.APPROVED
        if seen.state in _NOT_SUBMITTED:
            state = seen.state
        elif self._approvers(spec):
            state = JobState.SUBMITTED
        elif seen.state is JobState.SUSPENDED:
            state = seen.state
        elif seen.state is JobState.FINISHED and wanted.cursor is None:
            state = seen.state if spec.mode is Mode.OFFLINE else JobState.APPROVED
        why = None if seen.state is JobState.FAILED else seen.why
        wanted = replace(wanted, state=state, why=why)
        return self._change(seen, wanted, by, EventKind.JOB_EDITED, after=spec.after)

    def _passed(self, seen: Job, before: JobSpec | None) -> datetime | None:
        """Return the time from which real time reads a job's source; None for the beginning.

        That is the end of the windows that have runs. If the newest run is itself in real time,
        it is that run's start, so that the run continues.
        """
        newest = next(iter(self.store.runs(seen.name, limit=1)), None)
        if newest is not None and newest.is_live:
            return newest.boundaries.times[0]
        if before is not None and before.mode is Mode.REALTIME:
            return seen.cursor
        if newest is None and seen.state in _NOT_SUBMITTED:
            return None
        if before is not None and before.schedule is not None and seen.cursor is None:
            end = before.schedule.end
            return None if end is None else before.schedule.local(end)
        return seen.cursor

    def _check_known(self, name: str, spec: JobSpec, since: datetime | None) -> None:
        """Raise ConfigError if it is unknown which rows real time would have to skip."""
        newest = next(iter(self.store.runs(name, limit=1)), None)
        if since is not None or newest is None or newest.is_live:
            return
        if (appending := self.windows.appending(spec)) is not None:
            raise ConfigError(
                problem="Without a schedule the end of the data read so far is unknown: real "
                f"time would begin at the start, and {appending.plugin} would duplicate rows.",
                fix="Write with upserts, or create another job in real time.",
                field="mode",
            )

    def _check_behind(self, spec: JobSpec) -> None:
        """Raise ConfigError if windows contain rows that real time has already delivered.

        Only if a sink would duplicate them.
        """
        schedule, now = spec.schedule, self.clock()
        is_ahead = schedule is not None and schedule.local(schedule.start) >= now
        if is_ahead or (schedule is None and spec.after is None):
            return
        if (appending := self.windows.appending(spec)) is not None:
            raise ConfigError(
                problem="Rows of the first windows were already delivered in real time, and "
                f"{appending.plugin} would duplicate them.",
                fix="Set a start in the future, or write with upserts.",
                field="schedule.start",
            )

    def _reached(self, seen: Job, before: JobSpec | None, spec: JobSpec) -> datetime | None:
        """Return the time up to which a job's schedule has created runs; None if none."""
        if not self.store.runs(seen.name, limit=1):
            return None
        if seen.cursor is not None:
            return seen.cursor
        old, new = None if before is None else before.schedule, spec.schedule
        is_longer = old is not None and new is not None and new.start == old.start
        if is_longer and old is not None and old.end is not None:
            return old.local(old.end)  # the old schedule has reached its end
        # A different schedule begins anew, except where its windows would be written twice.
        return (
            None
            if self.windows.overlapping(spec) is None
            else self.store.windows_end(seen.name)
        )

    def _checked(self, document: Mapping[str, Any], since: datetime | None = None) -> JobSpec:
        spec = check_job(document, self.registry, since)
        check_channels(spec, self.channels)
        return spec

    def submit(self, name: str, by: str) -> Job:
        """Submit a draft for approval; a job without approvers is approved at once."""
        seen = self._in(name, *_NOT_SUBMITTED)
        asks = self._approvers(read_job(seen.document))
        state = JobState.SUBMITTED if asks else JobState.APPROVED
        wanted = replace(seen, state=state, why=None)
        return self._change(seen, wanted, by, EventKind.JOB_SUBMITTED)

    def approve(self, name: str, by: str, approver: str, version: int | None = None) -> Job:
        """Approve a submitted job. Raises NotApproverError.

        Args:
            name: The job.
            by: The user and origin, for the event.
            approver: The user name alone.
            version: The version that the approver has read; None for the current one.
        """
        seen = self._to_approve(name, approver)
        if version not in {None, seen.version}:
            problem, fix = f"Job {name} is now at version {seen.version}.", "Review it again."
            raise JobChangedError(problem, field="version", fix=fix)
        approved = replace(seen, state=JobState.APPROVED)
        return self._change(seen, approved, by, EventKind.JOB_APPROVED)

    def reject(self, name: str, by: str, approver: str, why: str) -> Job:
        """Reject a submitted job. Raises NotApproverError."""
        seen = self._to_approve(name, approver)
        rejected = replace(seen, state=JobState.REJECTED, why=why)
        return self._change(seen, rejected, by, EventKind.JOB_REJECTED, detail={"why": why})

    def _to_approve(self, name: str, approver: str) -> Job:
        job = self.store.job(name)
        named = self._approvers(_spec_of(job))
        if approver not in named:
            problem = f"{approver} may not approve or reject job {name}."
            fix = f"Ask one of: {', '.join(named)}." if named else "It needs no approval."
            raise NotApproverError(problem, field="approvers", fix=fix)
        return self._in(name, JobState.SUBMITTED)

    def _check_approvers(self, before: JobSpec, spec: JobSpec, editor: str | None) -> None:
        """Raise NotApproverError if someone who is not an approver changes the approvers."""
        named = before.approvers
        same = set(named) == set(spec.approvers)
        if not named or same or editor in {*named, *self.approvers}:
            return
        raise NotApproverError(
            problem=f"Only approvers of job {before.definition.name} may change its approvers.",
            fix=f"Keep the approvers unchanged, or ask one of: {', '.join(named)}.",
            field="approvers",
        )

    def suspend(self, name: str, by: str) -> Job:
        """Start no more runs of a job; running ones finish."""
        seen = self._in(name, *_MAY_FIRE)
        suspended = replace(seen, state=JobState.SUSPENDED)
        return self._change(seen, suspended, by, EventKind.JOB_SUSPENDED)

    def resume(self, name: str, by: str) -> Job:
        """Resume a job; ``catchup`` decides which windows that were due meanwhile run."""
        seen = self._in(name, JobState.SUSPENDED, JobState.FAILED)
        resumed = replace(seen, state=JobState.APPROVED, why=None)
        if seen.state is JobState.FAILED and seen.cursor is not None:
            resumed = _at_start(resumed, read_job(seen.document), self.clock(), seen.cursor)
        return self._change(seen, resumed, by, EventKind.JOB_RESUMED)

    def delete(self, name: str, by: str) -> Sequence[str]:
        """Delete a job; return what its real-time runs leave behind and how to remove that."""
        left = self._left_behind(name)
        self.store.delete(name, Stamp(self.clock(), by))
        self.changed()
        for each in left:
            log.warning("deleted job left resources behind", job=name, left=each)
        return left

    def _left_behind(self, name: str) -> list[str]:
        spec, references = _spec_of(self.store.job(name)), self.registry.references
        source = None if spec is None else spec.definition.source
        left: list[str] = []
        for run in self.store.live_runs(name) if source is not None else ():
            assert source is not None
            try:
                plugin = self.registry.source(source.plugin)
                props = references.resolved(plugin_keys(source.config), source.field)
                config = plugin.config_def().parse({**props, "name": run.task_name})
                left += [
                    references.shown(each, source.config) for each in plugin.left_behind(config)
                ]
            except Exception as error:  # noqa: BLE001 - the job is deleted anyway
                why = references.secrets.redacted(str(error))
                log.warning("cannot determine what a job leaves behind", job=name, why=why)
        return left

    def trigger(
        self,
        name: str,
        by: str,
        lower: str | None = None,
        upper: str | None = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> Run:
        """Run a window now: between the bounds, or by default the schedule's newest past one.

        If the window already has a run, that run is returned unchanged.

        Args:
            name: The job.
            by: The user.
            lower: The start of the window.
            upper: The end of the window; a time must be in the past.
            trigger: The trigger to store with a new run.
        """
        job, now = self._in(name, *RUNNABLE), self.clock()
        spec = _offline(read_job(job.document))
        if lower is None and upper is None:
            boundaries = self._newest_past(spec)
        else:
            boundaries = Boundaries(spec.kind, lower, upper)
            require_plain(boundaries, self.registry)
        if boundaries.upper is None and boundaries.kind is not BoundaryKind.OFFSET:
            problem = "The window has no end, so rows that arrive later would never be read."
            raise ConfigError(problem, field="upper", fix="Set an upper bound.")
        if boundaries.kind is BoundaryKind.TIME and (boundaries.times[1] or now) > now:
            # Guarantee 5: the window would count as run, and rows that arrive later would
            # never be read.
            problem = f"The end of the window is in the future: {boundaries.upper}."
            raise ConfigError(problem, field="upper", fix="Set a time in the past.")
        if self.store.run_of(name, boundaries) is None:
            self.windows.check_apart(job, spec, boundaries)
            self.windows.check_order(spec, boundaries)
        made = NewRun(boundaries=boundaries, trigger=trigger, due=now)
        self.store.add_runs(
            name, [made], Stamp(now, by), apart=self.windows.overlapping(spec) is not None
        )
        found = self.store.run_of(name, boundaries)
        assert found is not None
        self.changed()
        return found

    def _newest_past(self, spec: JobSpec) -> Boundaries:
        schedule, now = spec.schedule, self.clock()
        window = None if schedule is None else schedule.newest_past(now)
        if window is None:
            raise ConfigError(
                problem="No window of the job is past yet.",
                fix="Set a lower and an upper bound.",
                field="boundaries",
            )
        return Boundaries.between(window.lower, window.upper)

    def backfill(
        self,
        name: str,
        lower: datetime,
        upper: datetime,
        by: str,
        *,
        chunk: int = 1,
    ) -> Backfill:
        """Run all past windows of a range that have no run yet.

        Windows that the schedule will still run are left to it. If no window is left, the
        backfill has no runs and is not stored.

        Args:
            name: The job.
            lower: The start of the range, aware.
            upper: The end of the range. Windows that overlap it run as a whole.
            by: The user.
            chunk: How many consecutive windows one run reads.
        """
        job, now = self._in(name, *RUNNABLE), self.clock()
        spec = _offline(read_job(job.document))
        if spec.schedule is None:
            problem = f"Job {name} has no windows, because it has no schedule."
            raise ConfigError(problem, field="schedule", fix="Trigger it with bounds instead.")
        if upper <= lower:
            problem, fix = "The range is empty.", "Set an upper bound after the lower one."
            raise ConfigError(problem, field="upper", fix=fix)
        reached = job.cursor or now
        windows = spec.schedule.windows_in(lower, min(upper, now, reached))
        past = [
            window
            for window in windows
            if spec.schedule.due(window) <= now and window.upper <= reached
        ]
        todo = self.windows.left_of(name, past) if past else []
        if todo:
            self.windows.check_order(spec, Boundaries.between(todo[0].lower, todo[0].upper))
        id_ = uuid.uuid4().hex[:8]
        made = [
            NewRun(
                boundaries=Boundaries.between(windows[0].lower, windows[-1].upper),
                trigger=Trigger.BACKFILL,
                due=now,
                backfill=id_,
            )
            for windows in in_chunks(todo, chunk)
        ]
        self.store.add_runs(
            name, made, Stamp(now, by), apart=self.windows.overlapping(spec) is not None
        )
        self.changed()
        return Backfill(id=id_, job=name, runs=self.store.counts(name, id_))

    def backfill_of(self, name: str, backfill: str) -> Backfill:
        """Return the progress of a backfill. Raises BackfillNotFoundError."""
        self.store.job(name)
        runs = self.store.counts(name, backfill)
        if not runs:
            problem = f"Job {name} has no backfill {backfill}."
            fix = f"List its runs, which show their backfills: headrace job runs {name}."
            raise BackfillNotFoundError(problem, field="backfill", fix=fix)
        paused = self.store.backfills.is_paused(name, backfill)
        return Backfill(id=backfill, job=name, runs=runs, paused=paused)

    def stop_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Stop the runs of a backfill that have not ended. Raises BackfillNotFoundError."""
        return self._for_backfill(name, backfill, by, self.store.backfills.stop)

    def pause_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Begin no more runs of a backfill; running ones finish.

        The backfill keeps its windows. Raises BackfillNotFoundError, or JobChangedError if the
        backfill is paused or has ended.
        """
        return self._for_backfill(name, backfill, by, self.store.backfills.pause)

    def resume_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Resume a paused backfill. Raises BackfillNotFoundError or JobChangedError."""
        return self._for_backfill(name, backfill, by, self.store.backfills.resume)

    def _for_backfill(
        self, name: str, backfill: str, by: str, do: Callable[[str, str, Stamp], object]
    ) -> Backfill:
        self.backfill_of(name, backfill)
        do(name, backfill, Stamp(self.clock(), by))
        self.changed()
        return self.backfill_of(name, backfill)

    def stop_run(self, name: str, number: int, by: str) -> Run:
        """Stop a run. Its written data stays, and a retry continues from there."""
        self.run(name, number)
        found = self.store.ask_to_stop(number, Stamp(self.clock(), by))
        self.changed()
        return found

    def retry(self, name: str, number: int, by: str) -> Run:
        """Continue a failed or stopped run where it was."""
        run = self.run(name, number)
        if run.state is RunState.SUCCEEDED:
            problem = f"Run {number} has succeeded."
            fix = f"To read its window again: headrace job rerun {name} {number}."
            raise StateError(problem, field="run", fix=fix)
        return self._again(number, by, from_beginning=False)

    def rerun(self, name: str, number: int, by: str) -> Run:
        """Read and write a run's window again from the beginning.

        Raises ConfigError if a sink would duplicate rows.
        """
        run, spec = self.run(name, number), _offline(read_job(self.store.job(name).document))
        self.windows.check_order(spec, run.boundaries)
        appending = self.windows.appending(spec)
        if appending is not None:
            raise ConfigError(
                problem=f"{appending.plugin} appends, and would duplicate the window's rows.",
                fix="Write with upserts, or set replace.window.column or replace.window if the "
                "sink has it, so that the window's rows are replaced.",
                field=appending.field("connector"),
            )
        return self._again(number, by, from_beginning=True)

    def _again(self, number: int, by: str, *, from_beginning: bool) -> Run:
        stamp = Stamp(self.clock(), by)
        found = self.store.run_again(number, stamp, from_beginning=from_beginning)
        self.changed()
        return found

    def _in(self, name: str, *states: JobState) -> Job:
        job = self.store.job(name)
        if job.state not in states:
            problem = f"Job {name} is {job.state}."
            fix = f"The job must be {' or '.join(sorted(states))}."
            raise JobChangedError(problem, field="state", fix=fix)
        return job

    def _approvers(self, spec: JobSpec | None) -> list[str]:
        return sorted({*self.approvers, *(() if spec is None else spec.approvers)})

    def _change(
        self,
        seen: Job,
        wanted: Job,
        by: str,
        event: EventKind,
        *,
        detail: Mapping[str, object] | None = None,
        after: str | None = None,
    ) -> Job:
        change = JobChange(seen=seen, wanted=wanted, event=event, after=after, detail=detail)
        found = self.store.change(change, Stamp(self.clock(), by))
        self.changed()
        return found


def _offline(spec: JobSpec) -> JobSpec:
    """Return the spec. Raises StateError if the job is in real time."""
    if spec.mode is Mode.REALTIME:
        problem = f"Job {spec.definition.name} runs in real time and has no windows."
        raise StateError(problem, field="mode", fix="Set mode to offline.")
    return spec


def _spec_of(job: Job) -> JobSpec | None:
    """Return the parsed document of a job; None if this version cannot parse it."""
    try:
        return read_job(job.document)
    except ConfigErrors:
        return None


def _at_start(job: Job, spec: JobSpec, now: datetime, since: datetime | None = None) -> Job:
    """Return a job with its cursor at the first window of its schedule, or at ``since``.

    The window that contains ``since`` is shortened to begin there, because earlier rows have
    been read (Guarantee 5).
    """
    schedule = spec.schedule
    if schedule is None:
        return replace(job, cursor=None, due=None)
    begin = now if since is None and spec.policy.catch_up is not CatchUp.ALL else since
    first = next(schedule.windows(begin), None)
    if first is None:
        return replace(job, cursor=None, due=None)
    lower = first.lower if since is None else max(first.lower, since)
    return replace(job, cursor=lower, due=schedule.due(first))
