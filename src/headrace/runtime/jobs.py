"""Executes the runs of jobs, and is what a server does for them."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.control import (
    Jobs,
    bounded,
    check_copy,
    errors_at,
    followed,
    is_ordered,
    read_job,
)
from headrace.model import (
    RUNNABLE,
    Counts,
    JobState,
    Mode,
    Overlap,
    Run,
    RunPolicy,
    RunState,
    SparkUnavailableError,
    TaskId,
    TaskState,
    memory_name,
)
from headrace.runtime.tasks import connector_context, endpoints_of
from headrace.sdk import ConfigError, ConfigErrors, StateError
from headrace.spark import has_lost_jvm
from headrace.store import JobNotFoundError
from headrace.worker import NotWantedError, Outcome, RunWorker, StoredConnectorContext, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from headrace.control import OpenPlan, TaskPlan
    from headrace.model import Batch, Definition, Job
    from headrace.runtime.tasks import Planner, TaskMaker
    from headrace.scheduler import Registrar, Scheduler
    from headrace.spark import SparkSupervisor
    from headrace.store import JobStore, Store
    from headrace.worker import Events

_END_SECONDS = 30.0
"""How long the scheduler and the runs may take to end."""
_SHOWN = 1000
"""How many runs are told of that one call has run."""


@dataclass
class RunExecution:
    """One attempt of a run: its copy by a worker of its own, between boundaries or without end.

    The tasks are named by the run, so that they have their own positions and marks: an attempt
    goes on where the one before it stood (Guarantee 2).

    Args:
        version: That of the job's document that it was opened with.
        opener: What has opened it.
        identity: What its tasks are called in marks beside their name.
    """

    going: Run
    version: int
    definition: Definition
    opener: RunOpener
    identity: str
    _worker: Worker | None = None
    _plans: Sequence[TaskPlan] = ()
    _again: bool = False
    _stopped: bool = False
    _failure: Exception | None = None
    """What its connector has reported."""

    def run(self) -> None:
        """Move what the run is to move. Raises why it has failed."""
        try:
            self._run()
        except Exception as error:
            if has_lost_jvm(error):
                raise SparkUnavailableError from error
            raise

    def _run(self) -> None:
        with closing(self.planning()) as plan:
            self._again = True
            while self._again and not self._stopped:
                self._again = False
                self._plans = self.opener.plans(plan, self.going, self.identity)
                self._move()

    def planning(self) -> OpenPlan:
        """Return what plans the tasks, by where those of the attempts before it stood."""
        context = StoredConnectorContext(
            self.opener.state, self.going.task_name, self._plan_again, self._fail
        )
        return self.opener.planner.open(self.definition, context)

    def _move(self) -> None:
        live, opener = self.going.is_live, self.opener
        worker = opener.worker([_StopAtFailure(self._end_worker)] if live else [], not live)
        self._worker = worker
        maker = replace(opener.maker, once=not live, notify=worker.wake_task)
        # Guarantee 3: who slept while the run was begun anew gets no lease of what is gone.
        worker.add([maker.task(plan) for plan in self._plans], self.identity)
        if self._stopped:
            return
        outcome: Outcome = worker.run()
        for error in [self._failure, *outcome.errors.values()]:
            if error is not None:
                raise error

    def _plan_again(self) -> None:
        """Let tasks of a run in real time be planned anew, as for a table that is new."""
        if self.going.is_live:
            self._again = True
            self._end_worker()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._end_worker()

    def stop(self) -> None:
        """Stop after the batch that moves."""
        self._stopped = True
        self._end_worker()

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop(self.opener.maker.grace)

    def wake(self) -> None:
        """Let its tasks try again at once what waits to be."""
        if self._worker is not None:
            self._worker.wake_all()

    def counts(self) -> Counts:
        """Return what became of the records of the run, in all its attempts."""
        if not self._plans:
            return self.going.counts
        totals = (self.opener.state.totals(plan.id) for plan in self._plans)
        return reduce(Counts.plus, totals, Counts())

    def trouble(self) -> str | None:
        """Return why one of its tasks tries again."""
        statuses = self.opener.state.statuses(self.going.task_name).values()
        return next((each.trace for each in statuses if each.trace), None)

    def is_wanted(self) -> bool:
        """Return whether its job wants it as it is: as it was opened, and no window waits.

        A window that is tried again comes first, so that no older row comes after a newer one.
        """
        job = self.opener.jobs.job(self.going.job)
        as_opened = job.state in RUNNABLE and job.version == self.version
        return as_opened and not self.opener.jobs.has_waiting(self.going)


@dataclass(frozen=True)
class _StopAtFailure:
    """Stops a run in real time with its first task that fails: it is tried as a whole."""

    end: Callable[[], None]

    def batch_finished(self, batch: Batch, took: timedelta) -> None: ...

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None: ...

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        if state is TaskState.FAILED:
            self.end()


@dataclass(frozen=True, kw_only=True)
class RunPlanner:
    """Plans the tasks of runs, by what their jobs say now."""

    jobs: JobStore
    state: Store
    planner: Planner

    def definition(self, run: Run, job: Job, *, checked: bool = True) -> Definition:
        """Return the copy that a run of a job is.

        Raises what is wrong with the job by now; what is wrong with its systems is looked for
        where it is to be ``checked``.
        """
        registry, document = self.planner.registry, job.document
        # Not how it is bounded: a window may be left of a job that is in real time by now.
        spec, found = check_copy(document, registry) if checked else (read_job(document), [])
        if found:
            raise errors_at(found)
        if not run.is_live:
            definition = bounded(spec.definition, run.boundaries, registry)
        elif spec.mode is Mode.REALTIME:
            definition = followed(spec.definition, run.boundaries, registry)
        else:
            why = f"Job {job.name} is offline."
            raise NotWantedError(why, RunState.STOPPED)
        self._check_endpoints(run, definition)
        return definition

    def identity(self, run: Run) -> str:
        """Return what a run's tasks are called in marks beside their name.

        It is one for all that the run is begun anew, so that their marks are told apart.
        """
        return self.state.register(run.task_name, self.state.register(run.name))

    def planned(self, run: Run) -> list[TaskPlan]:
        """Return the tasks of a run that does not go on. Raises what is wrong by now."""
        job = self.jobs.job(run.job)
        definition = self.definition(run, job, checked=False)  # the source may be gone
        context = connector_context(self.state, run.task_name)
        with closing(self.planner.open(definition, context)) as plan:
            return self.plans(plan, run, self.identity(run))

    def _check_endpoints(self, run: Run, definition: Definition) -> None:
        """Raise ConfigError if a run has begun to copy between other systems than now.

        Its positions mean nothing in another source, and another sink lacks what was written
        (Guarantee 1).
        """
        now = endpoints_of(definition, self.planner.registry)
        begun = self.state.endpoints(run.task_name)
        if begun is not None and self.state.has_begun(run.task_name):
            same = begun.source == now.source
            if not same or not set(now.sinks) <= set(begun.sinks):
                again = "make another job" if run.is_live else "read its window anew: "
                if not run.is_live:
                    again += f"headrace job rerun {run.job} {run.id}"
                raise ConfigError(
                    problem=f"Run {run.id} has begun to copy "
                    + ("into other sinks." if same else "from another source."),
                    fix=f"Set it back in the document of job {run.job}, or {again}.",
                    field="sinks" if same else "source",
                )
        if begun != now:
            self.state.put_endpoints(run.task_name, now)

    def plans(self, plan: OpenPlan, run: Run, identity: str) -> list[TaskPlan]:
        """Return the tasks of a run, named by it."""
        return [
            replace(
                each,
                id=TaskId(run.task_name, each.id.number),
                memory=memory_name(run.job),  # whichever run has met them
                identity=identity,
            )
            for each in self.planner.open_plans(plan, run.task_name)
        ]


@dataclass(frozen=True, kw_only=True)
class RunOpener(RunPlanner):
    """Makes executions of runs, in this process.

    Args:
        worker: Makes a worker that ends with its tasks, given who else is told of them, and
            whether they are to end.
    """

    maker: TaskMaker
    worker: Callable[[Sequence[Events], bool], Worker]
    _ordered: dict[tuple[str, int], bool] = field(default_factory=dict)
    """Whether windows are read in order, by a job's identity and version: it is asked for each
    look, and may have to ask for secrets."""

    def open(self, run: Run) -> RunExecution:
        """Return the execution of a run. Raises what is wrong with its job by now."""
        job = self.jobs.job(run.job)
        if job.state not in RUNNABLE:
            why = f"Job {job.name} is {job.state}."
            raise NotWantedError(why, RunState.QUEUED)
        definition = self.definition(run, job)
        return RunExecution(run, job.version, definition, self, self.identity(run))

    def policy(self, job: str) -> RunPolicy:
        """Return what is done with the runs of a job.

        A document that cannot be read fails its run alone, once that is opened.
        """
        try:
            found = self.jobs.job(job)
            spec = read_job(found.document)
        except (ConfigErrors, JobNotFoundError):
            return RunPolicy()
        version = found.uid, found.version
        if version not in self._ordered:
            with suppress(ConfigErrors):  # its runs fail of that
                self._ordered[version] = is_ordered(spec.definition, self.planner.registry)
        if self._ordered.get(version):
            return replace(spec.policy, overlap=Overlap.QUEUE, depends_on_past=True)
        return spec.policy


@dataclass(frozen=True, kw_only=True)
class LocalRuns:
    """Runs what is due of one job in this process, without a server: for cron and the like."""

    jobs: Jobs
    scheduler: Scheduler
    runs: RunWorker
    engine: SparkSupervisor
    alert: Callable[[], None] = lambda: None
    """Sends the alerts that are due."""

    def run(
        self, document: Mapping[str, Any], by: str, lower: str | None, upper: str | None
    ) -> Sequence[Run]:
        """Run all windows that are due, or the one between bounds; return those that ended.

        The job is stored, or given this document. Raises StateError while it may not run.
        """
        began, spec = self.jobs.clock(), read_job(document)
        name = spec.definition.name
        if spec.mode is Mode.REALTIME:
            problem = f"Job {name} is in real time, and does not end."
            raise StateError(problem, field="mode", fix="Give it to a server: headrace server.")
        try:
            job = self.jobs.edit(name, document, by)
        except JobNotFoundError:
            job = self.jobs.create(document, by)
        if job.state in {JobState.DRAFT, JobState.REJECTED}:
            job = self.jobs.submit(name, by)
        if job.state in {JobState.SUBMITTED, JobState.SUSPENDED, JobState.FAILED}:
            problem = f"Job {name} is {job.state}."
            fix = "Let it be approved, or resumed, by way of its server."
            raise StateError(problem, field="state", fix=fix)
        if lower is None and upper is None:
            self.scheduler.fire(job)
        else:
            found = self.jobs.trigger(name, by, lower, upper)
            if found.state in {RunState.FAILED, RunState.STOPPED}:
                self.jobs.retry(name, found.id, by)
        if not self.jobs.store.is_busy(name):
            self.alert()
            return ()  # and no Spark is started for it
        with self.engine.watching(lost=self.runs.stop):
            self.runs.run()
        self.alert()
        if self.runs.stuck:
            raise StateError(
                problem=f"Windows of job {name} wait for an earlier one that failed.",
                fix="Run that one again with --lower and --upper.",
                field="schedule.depends.on.past",
            )
        newest = self.jobs.store.runs(name, limit=_SHOWN)
        return [run for run in newest if run.ended is not None and run.ended >= began]


@dataclass(kw_only=True)
class JobService:
    """What a server runs for jobs. Use it in a ``with``, which ends it."""

    scheduler: Scheduler
    runs: RunWorker
    registrars: Sequence[Registrar] = ()
    _threads: list[threading.Thread] = field(default_factory=list)

    def wake(self) -> None:
        """Look soon at what is due. Any thread may call it."""
        self.scheduler.wake()
        self.runs.wake()
        for registrar in self.registrars:
            registrar.wake()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Make and execute runs for as long as this lasts; what is moving is finished."""
        work = {"scheduler": self.scheduler.run, "runs": self.runs.run}
        work |= {f"engine-{each.name}": each.run for each in self.registrars}
        threads = [
            threading.Thread(target=run, name=f"headrace-{name}", daemon=True)
            for name, run in work.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.scheduler.stop()
            self.runs.stop()
            for registrar in self.registrars:
                registrar.stop()
            for thread in threads:
                thread.join(_END_SECONDS)
