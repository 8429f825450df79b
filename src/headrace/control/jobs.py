"""What can be done with jobs: each call becomes rows that the scheduler and workers read."""

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
    """Only the approvers of a job may approve or reject it, or say who its approvers are."""

    code: ClassVar[str] = "job.not_approver"
    category: ClassVar[Category] = Category.CONFIG


class BackfillNotFoundError(HeadraceError):
    """The job has no backfill of that name."""

    code: ClassVar[str] = "backfill.not_found"
    category: ClassVar[Category] = Category.CONFIG


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as it is shown.

    Args:
        spec: What its document says; None where this version cannot read it.
        approvers: Who may approve it.
        runs: How many runs it has in each state.
        fires: When its next windows are due; none while its schedule makes no runs.
        registration: What the outside scheduler has of it that is to wake it, if there is one.
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
    """How far a backfill is.

    Args:
        id: What it is called.
        runs: How many of its runs are in each state.
        paused: Whether those that wait do not begin until it is resumed.
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
    """The jobs of an installation. Any thread may use it.

    Whatever names a job raises JobNotFoundError where there is none, and RunNotFoundError
    where its run is missing; JobChangedError where somebody else was faster.

    Args:
        changed: Called after each change, so that the scheduler and workers look at once.
        approvers: Who may approve any job; empty where a job's own list decides alone.
        channels: The channels by which jobs may alert.
        check_engine: Raises ConfigError for a job that its outside scheduler cannot wake.
        registrations: What outside schedulers have of jobs.
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
        """What windows may be run."""
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
        """Return when the next windows of a job's schedule are due, whatever its state."""
        return self._fires(read_job(self.store.job(name).document), amount)

    def _fires(self, spec: JobSpec, amount: int) -> list[datetime]:
        return spec.schedule.next_fires(self.clock(), amount) if spec.schedule else []

    def run(self, name: str, number: int) -> Run:
        """Return a run of a job. Raises RunNotFoundError for another job's too."""
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
        """Return a job's runs, newest first, those before a number."""
        self.store.job(name)
        return self.store.runs(
            name, states=states, backfill=backfill, before=before, limit=limit
        )

    def create(self, document: Mapping[str, Any], by: str) -> Job:
        """Add a job as a draft. Raises JobExistsError, or what is wrong with it."""
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
        """Give a job another document; the same one changes nothing.

        Its windows go on where they stood. Where somebody is to be asked, it is submitted again
        unless it never was, and none of its runs begins before the approval. Only who is asked
        says who else is (``approver``).
        """
        seen, now = self.store.job(name), self.clock()
        section, stored = document.get("schedule"), seen.document.get("schedule")
        if isinstance(section, dict) and isinstance(stored, dict) and "start" in stored:
            document = {**document, "schedule": {"start": stored["start"], **section}}
        written, before = with_start(document, now), _spec_of(seen)
        since = self._passed(seen, before)
        spec = self._checked(written, since)
        if spec.definition.name != name:
            problem = f"The document is of {spec.definition.name}, not of {name}."
            raise ConfigError(problem, field="name", fix="Use one name.")
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
        """Return from where on a job is read in real time; None for the very beginning.

        That is where its windows have been made up to, or where real time has begun before,
        if no window has been read since: its run goes on then.
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
        """Raise ConfigError where nobody knows what real time would have to leave out."""
        newest = next(iter(self.store.runs(name, limit=1)), None)
        if since is not None or newest is None or newest.is_live:
            return
        if (appending := self.windows.appending(spec)) is not None:
            raise ConfigError(
                problem="No schedule says up to where the job has read, so real time would "
                f"begin anew, and {appending.plugin} would hold rows twice.",
                fix="Write by upsert, or make another job in real time.",
                field="mode",
            )

    def _check_behind(self, spec: JobSpec) -> None:
        """Raise ConfigError for windows that real time has delivered, where that counts."""
        schedule, now = spec.schedule, self.clock()
        is_ahead = schedule is not None and schedule.local(schedule.start) >= now
        if is_ahead or (schedule is None and spec.after is None):
            return
        if (appending := self.windows.appending(spec)) is not None:
            raise ConfigError(
                problem="Rows of the first windows were delivered in real time, and "
                f"{appending.plugin} would hold them twice.",
                fix="Let the schedule start in the future, or write by upsert.",
                field="schedule.start",
            )

    def _reached(self, seen: Job, before: JobSpec | None, spec: JobSpec) -> datetime | None:
        """Return up to where a job's schedule has made runs; None where it has made none."""
        if not self.store.runs(seen.name, limit=1):
            return None
        if seen.cursor is not None:
            return seen.cursor
        old, new = None if before is None else before.schedule, spec.schedule
        is_longer = old is not None and new is not None and new.start == old.start
        if is_longer and old is not None and old.end is not None:
            return old.local(old.end)  # it has come to its end there
        # Another schedule is new, but for what its windows would write twice.
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
        """Ask for a draft's approval; one that asks nobody is approved at once."""
        seen = self._in(name, *_NOT_SUBMITTED)
        asks = self._approvers(read_job(seen.document))
        state = JobState.SUBMITTED if asks else JobState.APPROVED
        wanted = replace(seen, state=state, why=None)
        return self._change(seen, wanted, by, EventKind.JOB_SUBMITTED)

    def approve(self, name: str, by: str, approver: str, version: int | None = None) -> Job:
        """Approve a job that was submitted. Raises NotApproverError for who may not.

        Args:
            name: The job.
            by: Who does it, for the record.
            approver: Their name alone.
            version: The version that they have read; None for whichever there is.
        """
        seen = self._to_approve(name, approver)
        if version not in {None, seen.version}:
            problem, fix = f"Job {name} has version {seen.version} by now.", "Look at it again."
            raise JobChangedError(problem, field="version", fix=fix)
        approved = replace(seen, state=JobState.APPROVED)
        return self._change(seen, approved, by, EventKind.JOB_APPROVED)

    def reject(self, name: str, by: str, approver: str, why: str) -> Job:
        """Send a job back to who has submitted it. Raises NotApproverError for who may not."""
        seen = self._to_approve(name, approver)
        rejected = replace(seen, state=JobState.REJECTED, why=why)
        return self._change(seen, rejected, by, EventKind.JOB_REJECTED, detail={"why": why})

    def _to_approve(self, name: str, approver: str) -> Job:
        job = self.store.job(name)
        named = self._approvers(_spec_of(job))
        if approver not in named:
            problem = f"{approver} may not approve or reject job {name}."
            fix = f"Ask one of: {', '.join(named)}." if named else "Nobody has to approve it."
            raise NotApproverError(problem, field="approvers", fix=fix)
        return self._in(name, JobState.SUBMITTED)

    def _check_approvers(self, before: JobSpec, spec: JobSpec, editor: str | None) -> None:
        """Raise NotApproverError where an edit takes the approval from those who have it."""
        named = before.approvers
        same = set(named) == set(spec.approvers)
        if not named or same or editor in {*named, *self.approvers}:
            return
        raise NotApproverError(
            problem=f"Only who approves job {before.definition.name} says who else does.",
            fix=f"Leave the approvers as they are, or ask one of: {', '.join(named)}.",
            field="approvers",
        )

    def suspend(self, name: str, by: str) -> Job:
        """Start no more runs of a job; what is running is finished."""
        seen = self._in(name, *_MAY_FIRE)
        suspended = replace(seen, state=JobState.SUSPENDED)
        return self._change(seen, suspended, by, EventKind.JOB_SUSPENDED)

    def resume(self, name: str, by: str) -> Job:
        """Let a job go on: windows that were due meanwhile are run as ``catchup`` says."""
        seen = self._in(name, JobState.SUSPENDED, JobState.FAILED)
        resumed = replace(seen, state=JobState.APPROVED, why=None)
        if seen.state is JobState.FAILED and seen.cursor is not None:
            resumed = _at_start(resumed, read_job(seen.document), self.clock(), seen.cursor)
        return self._change(seen, resumed, by, EventKind.JOB_RESUMED)

    def delete(self, name: str, by: str) -> Sequence[str]:
        """Delete a job; return what its runs in real time leave, and how that is dropped."""
        left = self._left_behind(name)
        self.store.delete(name, Stamp(self.clock(), by))
        self.changed()
        for each in left:
            log.warning("job is deleted, and leaves something", job=name, left=each)
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
            except Exception as error:  # noqa: BLE001 - it is deleted all the same
                why = references.secrets.redacted(str(error))
                log.warning("what a job leaves is not known", job=name, why=why)
        return left

    def trigger(
        self,
        name: str,
        by: str,
        lower: str | None = None,
        upper: str | None = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> Run:
        """Run a window now: between bounds, or the newest that is past by the schedule.

        A window that has a run keeps it: the run is returned as it is.

        Args:
            name: The job.
            by: Who asks.
            lower: Where the window begins.
            upper: Where it ends; a time must be past.
            trigger: What is kept as the reason of a run that is made.
        """
        job, now = self._in(name, *RUNNABLE), self.clock()
        spec = _offline(read_job(job.document))
        if lower is None and upper is None:
            boundaries = self._newest_past(spec)
        else:
            boundaries = Boundaries(spec.kind, lower, upper)
            require_plain(boundaries, self.registry)
        if boundaries.upper is None and boundaries.kind is not BoundaryKind.OFFSET:
            problem = "The window has no end, and what comes yet would never be read."
            raise ConfigError(problem, field="upper", fix="Give an upper bound.")
        if boundaries.kind is BoundaryKind.TIME and (boundaries.times[1] or now) > now:
            # Guarantee 5: its own run would be held for made, and what comes yet never read.
            problem = f"The window up to {boundaries.upper} is not past."
            raise ConfigError(problem, field="upper", fix="Give a time that is past.")
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
                problem="The job has no window that is past.",
                fix="Give a lower and an upper bound.",
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
        """Run all past windows of a range that have no run yet, so many of them together.

        Those that the schedule makes runs of yet are left to it. Where there is no window left,
        the backfill has no runs, and is not kept.

        Args:
            name: The job.
            lower: Where the range begins, aware.
            upper: Where it ends. Windows that it cuts are run whole.
            by: Who asks.
            chunk: How many windows that follow each other are read as one.
        """
        job, now = self._in(name, *RUNNABLE), self.clock()
        spec = _offline(read_job(job.document))
        if spec.schedule is None:
            problem = f"Job {name} has no schedule, and so no windows."
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
        """Return how far a backfill is. Raises BackfillNotFoundError."""
        self.store.job(name)
        runs = self.store.counts(name, backfill)
        if not runs:
            problem = f"Job {name} has no backfill {backfill}."
            fix = f"Its runs name theirs: headrace job runs {name}."
            raise BackfillNotFoundError(problem, field="backfill", fix=fix)
        paused = self.store.backfills.is_paused(name, backfill)
        return Backfill(id=backfill, job=name, runs=runs, paused=paused)

    def stop_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Stop what has not ended of a backfill. Raises BackfillNotFoundError."""
        return self._for_backfill(name, backfill, by, self.store.backfills.stop)

    def pause_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Begin no more runs of a backfill; those that run are finished.

        Its windows stay its own. Raises BackfillNotFoundError, and JobChangedError for one
        that is paused or has ended.
        """
        return self._for_backfill(name, backfill, by, self.store.backfills.pause)

    def resume_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Let a backfill that is paused go on. Raises as ``pause_backfill`` does."""
        return self._for_backfill(name, backfill, by, self.store.backfills.resume)

    def _for_backfill(
        self, name: str, backfill: str, by: str, do: Callable[[str, str, Stamp], object]
    ) -> Backfill:
        self.backfill_of(name, backfill)
        do(name, backfill, Stamp(self.clock(), by))
        self.changed()
        return self.backfill_of(name, backfill)

    def stop_run(self, name: str, number: int, by: str) -> Run:
        """Stop a run: what it has written stays, and a retry goes on from there."""
        self.run(name, number)
        found = self.store.ask_to_stop(number, Stamp(self.clock(), by))
        self.changed()
        return found

    def retry(self, name: str, number: int, by: str) -> Run:
        """Let a run that has failed, or was stopped, go on where it stood."""
        run = self.run(name, number)
        if run.state is RunState.SUCCEEDED:
            problem = f"Run {number} has succeeded."
            fix = f"To read its window again: headrace job rerun {name} {number}."
            raise StateError(problem, field="run", fix=fix)
        return self._again(number, by, from_beginning=False)

    def rerun(self, name: str, number: int, by: str) -> Run:
        """Read a run's window again from the beginning, and write it anew.

        Raises ConfigError where a sink would hold its rows twice then.
        """
        run, spec = self.run(name, number), _offline(read_job(self.store.job(name).document))
        self.windows.check_order(spec, run.boundaries)
        appending = self.windows.appending(spec)
        if appending is not None:
            raise ConfigError(
                problem=f"{appending.plugin} appends, and would hold the window's rows twice.",
                fix="Write it by upsert, or let it replace the window's rows, by "
                "replace.window.column or replace.window, where it has that key.",
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
            fix = f"That is done with one that is {' or '.join(sorted(states))}."
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
    """Return what an offline job's document says. Raises StateError for one in real time."""
    if spec.mode is Mode.REALTIME:
        problem = f"Job {spec.definition.name} is in real time and has no windows to run."
        raise StateError(problem, field="mode", fix="Edit it: set mode to offline.")
    return spec


def _spec_of(job: Job) -> JobSpec | None:
    """Return what a job's document says; None where another version has written it."""
    try:
        return read_job(job.document)
    except ConfigErrors:
        return None


def _at_start(job: Job, spec: JobSpec, now: datetime, since: datetime | None = None) -> Job:
    """Return a job that stands at the first window of its schedule, or at a time.

    The window that the time is in begins there, however the schedule cuts: what lies before it
    has been read (Guarantee 5).
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
