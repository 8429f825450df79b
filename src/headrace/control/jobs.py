"""What can be done with jobs: each call becomes rows that the scheduler and workers read."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.control.job_definitions import check_job, read_job, with_start
from headrace.model import (
    CatchUp,
    Job,
    JobSpec,
    JobState,
    Run,
    RunState,
    Stamp,
    TimeWindow,
    Trigger,
)
from headrace.sdk import Boundaries, ConfigError, StateError
from headrace.store import JobChange, JobChangedError, NewRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.plugins import Registry
    from headrace.store import JobStore

_MOST_WINDOWS = 100_000
"""How many windows a backfill has at most."""
_EDITED = {JobState.DRAFT, JobState.REJECTED, JobState.SUSPENDED, JobState.FINISHED}
"""The states that an edit leaves a job in, where nobody has to be asked."""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as it is shown.

    Args:
        runs: How many runs it has in each state.
        fires: When its next windows are due.
    """

    job: Job
    spec: JobSpec
    runs: Mapping[RunState, int]
    newest: Run | None
    fires: Sequence[datetime]


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """How far a backfill is.

    Args:
        id: What it is called.
        runs: How many of its runs are in each state.
    """

    id: str
    job: str
    runs: Mapping[RunState, int]

    @property
    def done(self) -> bool:
        """Return whether all its runs have ended."""
        return not any(self.runs.get(each) for each in (RunState.QUEUED, RunState.RUNNING))


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The offline jobs of an installation. Any thread may use it.

    Whatever names a job raises JobNotFoundError where there is none, and RunNotFoundError
    where its run is missing; JobChangedError where somebody else was faster.

    Args:
        changed: Called after each change, so that the scheduler and workers look at once.
        approvers: Who may approve any job; empty where a job's own list decides alone.
    """

    store: JobStore
    registry: Registry
    clock: Callable[[], datetime]
    changed: Callable[[], None] = lambda: None
    approvers: Collection[str] = field(default=())

    def views(self) -> list[JobView]:
        return [self._view(job, 1) for job in self.store.jobs()]

    def view(self, name: str, fires: int = 10) -> JobView:
        return self._view(self.store.job(name), fires)

    def _view(self, job: Job, fires: int) -> JobView:
        spec = read_job(job.document)
        newest = self.store.runs(job.name, limit=1)
        return JobView(
            job=job,
            spec=spec,
            runs=self.store.counts(job.name),
            newest=newest[0] if newest else None,
            fires=self._fires(job, spec, fires),
        )

    def _fires(self, job: Job, spec: JobSpec, amount: int) -> list[datetime]:
        if spec.schedule is None or job.state not in _MAY_FIRE:
            return []
        return spec.schedule.next_fires(self.clock(), amount)

    def create(self, document: Mapping[str, Any], by: str) -> Job:
        """Add a job as a draft. Raises JobExistsError, or what is wrong with it."""
        now = self.clock()
        written = with_start(document, now)
        spec = check_job(written, self.registry)
        wanted = Job(
            name=spec.definition.name,
            uid="",
            document=written,
            version=1,
            state=JobState.DRAFT,
            changed=now,
            by=by,
        )
        made = self.store.create(_at_start(wanted, spec, now), spec.after, Stamp(now, by))
        self.changed()
        return made

    def edit(self, name: str, document: Mapping[str, Any], by: str) -> Job:
        """Give a job another document.

        Its windows go on where they stood; one whose approval is asked for is asked for again.
        """
        seen, now = self.store.job(name), self.clock()
        section, stored = document.get("schedule"), seen.document.get("schedule")
        if isinstance(section, dict) and isinstance(stored, dict) and "start" in stored:
            document = {**document, "schedule": {"start": stored["start"], **section}}
        written = with_start(document, now)
        spec = check_job(written, self.registry)
        if spec.definition.name != name:
            problem = f"The document is of {spec.definition.name}, not of {name}."
            raise ConfigError(problem, field="name", fix="Use one name.")
        state = JobState.APPROVED
        if seen.state in _EDITED:
            state = seen.state
        elif self._asks(spec):
            state = JobState.SUBMITTED
        wanted = replace(seen, document=written, version=seen.version + 1, state=state)
        before = read_job(seen.document)
        if spec.schedule != before.schedule:
            wanted = _at_start(wanted, spec, now, since=seen.cursor)
        return self._change(seen, wanted, by, "job.edited", after=spec.after)

    def submit(self, name: str, by: str) -> Job:
        """Ask for a draft's approval; one that asks nobody is approved at once."""
        seen = self._in(name, JobState.DRAFT, JobState.REJECTED)
        asks = self._asks(read_job(seen.document))
        state = JobState.SUBMITTED if asks else JobState.APPROVED
        return self._change(seen, replace(seen, state=state, why=None), by, "job.submitted")

    def approve(self, name: str, by: str) -> Job:
        """Approve a job that was submitted. Raises StateError for who may not."""
        seen = self._in(name, JobState.SUBMITTED)
        self._check_approver(seen, by)
        return self._change(seen, replace(seen, state=JobState.APPROVED), by, "job.approved")

    def reject(self, name: str, by: str, why: str) -> Job:
        """Send a job back to who has submitted it. Raises StateError for who may not."""
        seen = self._in(name, JobState.SUBMITTED)
        self._check_approver(seen, by)
        rejected = replace(seen, state=JobState.REJECTED, why=why)
        return self._change(seen, rejected, by, "job.rejected")

    def suspend(self, name: str, by: str) -> Job:
        """Start no more runs of a job; what is running is finished."""
        seen = self._in(name, JobState.APPROVED, JobState.CONFIGURED, JobState.RUNNING)
        return self._change(seen, replace(seen, state=JobState.SUSPENDED), by, "job.suspended")

    def resume(self, name: str, by: str) -> Job:
        """Let a job go on: windows that were due meanwhile are run as ``catchup`` says."""
        seen = self._in(name, JobState.SUSPENDED, JobState.FAILED)
        resumed = replace(seen, state=JobState.APPROVED, why=None)
        return self._change(seen, resumed, by, "job.resumed")

    def delete(self, name: str, by: str) -> None:
        self.store.delete(name, Stamp(self.clock(), by))
        self.changed()

    def trigger(
        self,
        name: str,
        by: str,
        boundaries: Boundaries | None = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> Run:
        """Run a window now: the given one, or the newest that is past by the schedule.

        A window that has a run keeps it, however it is triggered: the run is returned as it is.
        """
        job = self._in(name, *_MAY_RUN)
        spec = read_job(job.document)
        if boundaries is None:
            boundaries = self._newest_past(spec)
        elif boundaries.kind is not spec.kind:
            problem = f"The bounds are of kind {boundaries.kind}, the job's of {spec.kind}."
            raise ConfigError(problem, field="boundaries", fix="Give bounds of the job's kind.")
        now = self.clock()
        made = NewRun(boundaries=boundaries, trigger=trigger, due=now)
        self.store.add_runs(name, [made], Stamp(now, by))
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
        """Run all windows of a range that have no run yet, so many of them together.

        Args:
            name: The job.
            lower: Where the range begins, aware.
            upper: Where it ends. Windows that it cuts are run whole.
            by: Who asks.
            chunk: How many windows that follow each other are read as one.
        """
        job = self._in(name, *_MAY_RUN)
        spec, now = read_job(job.document), self.clock()
        if spec.schedule is None:
            problem = f"Job {name} has no schedule, and so no windows."
            raise ConfigError(problem, field="schedule", fix="Trigger it with bounds instead.")
        if upper <= lower:
            problem, fix = "The range is empty.", "Set an upper bound after the lower one."
            raise ConfigError(problem, field="upper", fix=fix)
        windows = _within(spec, lower, min(upper, now))
        todo = [] if not windows else self._without_run(name, windows)
        id_ = uuid.uuid4().hex[:8]
        made = [
            NewRun(
                boundaries=Boundaries.between(windows[0].lower, windows[-1].upper),
                trigger=Trigger.BACKFILL,
                due=now,
                backfill=id_,
            )
            for windows in _chunks(todo, chunk)
        ]
        self.store.add_runs(name, made, Stamp(now, by))
        self.changed()
        return self.backfill_of(name, id_)

    def _without_run(self, name: str, windows: Sequence[TimeWindow]) -> list[TimeWindow]:
        """Return those of windows that no run has a part of; both are in their order."""
        spans = self.store.windows(name, windows[0].lower, windows[-1].upper)
        times = [span.times for span in spans]
        return [
            window
            for window in windows
            if not any(
                (lower is None or lower < window.upper)
                and (upper is None or upper > window.lower)
                for lower, upper in times
            )
        ]

    def backfill_of(self, name: str, backfill: str) -> Backfill:
        """Return how far a backfill is."""
        return Backfill(id=backfill, job=name, runs=self.store.counts(name, backfill))

    def stop_backfill(self, name: str, backfill: str, by: str) -> Backfill:
        """Stop what has not ended of a backfill."""
        self.store.stop_backfill(name, backfill, Stamp(self.clock(), by))
        self.changed()
        return self.backfill_of(name, backfill)

    def stop_run(self, number: int, by: str) -> Run:
        """Stop a run: what it has written stays, and a retry goes on from there."""
        found = self.store.ask_to_stop(number, Stamp(self.clock(), by))
        self.changed()
        return found

    def retry(self, number: int, by: str) -> Run:
        """Let a run that has failed, or was stopped, go on where it stood."""
        run = self.store.run(number)
        if run.state in {RunState.SUCCEEDED, RunState.SKIPPED} and run.attempt:
            problem = f"Run {number} has succeeded."
            fix = "To read its window again, run it from the beginning: headrace job rerun."
            raise StateError(problem, field="run", fix=fix)
        found = self.store.run_again(number, Stamp(self.clock(), by), from_beginning=False)
        self.changed()
        return found

    def rerun(self, number: int, by: str) -> Run:
        """Read a run's window again from the beginning, and write it anew.

        Raises ConfigError where a sink would hold its rows twice then.
        """
        run = self.store.run(number)
        spec = read_job(self.store.job(run.job).document)
        self._check_repeatable(spec)
        found = self.store.run_again(number, Stamp(self.clock(), by), from_beginning=True)
        self.changed()
        return found

    def _check_repeatable(self, spec: JobSpec) -> None:
        for sink in spec.definition.sinks:
            plugin = self.registry.sink(sink.plugin)
            values, _ = self.registry.references.values(sink.config)
            if not plugin.repeatable(plugin.config_def().parse(values)):
                raise ConfigError(
                    problem=f"{sink.plugin} appends, and would hold the window's rows twice.",
                    fix="Write it by upsert, or delete the window's rows and create the job "
                    "under another name.",
                    field=sink.field("connector"),
                )

    def _in(self, name: str, *states: JobState) -> Job:
        job = self.store.job(name)
        if job.state not in states:
            problem = f"Job {name} is {job.state}."
            fix = f"That is done with one that is {' or '.join(states)}."
            raise JobChangedError(problem, field="state", fix=fix)
        return job

    def _asks(self, spec: JobSpec) -> bool:
        return bool(spec.approvers or self.approvers)

    def _check_approver(self, job: Job, by: str) -> None:
        named = {*read_job(job.document).approvers, *self.approvers}
        if by not in named:
            problem = f"{by} may not approve job {job.name}."
            fix = f"Ask one of: {', '.join(sorted(named))}."
            raise StateError(problem, field="approvers", fix=fix)

    def _change(
        self, seen: Job, wanted: Job, by: str, event: str, after: str | None = None
    ) -> Job:
        change = JobChange(seen=seen, wanted=wanted, event=event, after=after)
        found = self.store.change(change, Stamp(self.clock(), by))
        self.changed()
        return found


_MAY_RUN = (
    JobState.APPROVED,
    JobState.CONFIGURED,
    JobState.RUNNING,
    JobState.FINISHED,
)
"""The states in which a job may be run by hand."""
_MAY_FIRE = {JobState.APPROVED, JobState.CONFIGURED, JobState.RUNNING}


def _at_start(job: Job, spec: JobSpec, now: datetime, since: datetime | None = None) -> Job:
    """Return a job that stands at the first window of its schedule, or at that of a time."""
    schedule = spec.schedule
    if schedule is None:
        return replace(job, cursor=None, due=None)
    if since is None and spec.policy.catch_up is not CatchUp.ALL:
        since = now
    first = next(schedule.windows(since), None)
    if first is None:
        return replace(job, cursor=None, due=None)
    return replace(job, cursor=first.lower, due=schedule.due(first))


def _within(spec: JobSpec, lower: datetime, upper: datetime) -> list[TimeWindow]:
    """Return the windows of a schedule that have a part in a range. Raises ConfigError."""
    assert spec.schedule is not None
    found: list[TimeWindow] = []
    for window in spec.schedule.windows(lower):
        if window.lower >= upper:
            break
        found.append(window)
        if len(found) > _MOST_WINDOWS:
            problem = f"The range has more than {_MOST_WINDOWS} windows."
            raise ConfigError(problem, field="upper", fix="Backfill a part of it at a time.")
    return found


def _chunks(windows: Sequence[TimeWindow], size: int) -> list[list[TimeWindow]]:
    """Return windows in chunks of a size, each of windows that follow each other."""
    chunks: list[list[TimeWindow]] = []
    for window in windows:
        newest = chunks[-1] if chunks else []
        if newest and newest[-1].upper == window.lower and len(newest) < size:
            newest.append(window)
        else:
            chunks.append([window])
    return chunks
