"""Executes the runs of jobs, in a server or in one process without a server."""

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
    SparkCrashedError,
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
"""The timeout for the scheduler and the runs to end."""
_PLAN_SECONDS = 1.0
"""The pause before a run in real time is planned again."""
_SHOWN = 1000
"""The maximum number of runs that one call returns."""


@dataclass
class RunExecution:
    """One attempt of a run: copies data with its own worker, bounded or in real time.

    The tasks' ids contain the run, so that they have their own positions and marks: an attempt
    continues at the position of the attempt before (Guarantee 2).

    Args:
        version: The version of the job's document that it was opened with.
        opener: The RunOpener that opened it.
        identity: The identity of its tasks in marks, in addition to their name.
    """

    going: Run
    version: int
    definition: Definition
    opener: RunOpener
    identity: str
    _worker: Worker | None = None
    _plans: Sequence[TaskPlan] = ()
    _again: bool = False
    _stopping: threading.Event = field(default_factory=threading.Event)
    _failure: Exception | None = None
    """The failure that its connector has reported."""

    def run(self) -> None:
        """Copy the run's data. Raises the error that it failed with."""
        try:
            self._run()
        except Exception as error:
            if has_lost_jvm(error) and not isinstance(error, SparkCrashedError):
                raise SparkUnavailableError from error
            raise

    def _run(self) -> None:
        with closing(self.planning()) as plan:
            self._again, pause = True, 0.0
            # The pause is for a connector that asks for a plan each time that it gives one.
            while self._again and not self._stopping.wait(pause):
                self._again, pause = False, _PLAN_SECONDS
                self._plans = self.opener.plans(plan, self.going, self.identity)
                self._move()

    def planning(self) -> OpenPlan:
        """Return the open plan, which plans the tasks from the earlier attempts' positions."""
        context = StoredConnectorContext(
            self.opener.state, self.going.task_name, self._plan_again, self._fail
        )
        return self.opener.planner.open(self.definition, context)

    def _move(self) -> None:
        live, opener = self.going.is_live, self.opener
        worker = opener.worker([_StopAtFailure(self._end_worker)] if live else [], not live)
        self._worker = worker
        if self._failure is not None:
            raise self._failure
        if self._stopping.is_set() or self._again:
            return
        maker = replace(opener.maker, once=not live, notify=worker.wake_task)
        # Guarantee 3: a suspended attempt gets no lease after a restart from the beginning.
        worker.add([maker.task(plan) for plan in self._plans], self.identity)
        outcome: Outcome = worker.run()
        for error in [self._failure, *outcome.errors.values()]:
            if error is not None:
                raise error

    def _plan_again(self) -> None:
        """Plan the tasks of a run in real time again, such as after a new table appeared."""
        if self.going.is_live:
            self._again = True
            self._end_worker()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._end_worker()

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopping.set()
        self._end_worker()

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop(self.opener.maker.grace)

    def wake(self) -> None:
        """End the backoff of its tasks, so that they retry at once."""
        if self._worker is not None:
            self._worker.wake_all()

    def counts(self) -> Counts:
        """Return the record counts of the run, over all its attempts."""
        if not self._plans:
            return self.going.counts
        totals = (self.opener.state.totals(plan.id) for plan in self._plans)
        return reduce(Counts.plus, totals, Counts())

    def trouble(self) -> str | None:
        """Return the error for which a task is retried, if any."""
        statuses = self.opener.state.statuses(self.going.task_name).values()
        return next((each.trace for each in statuses if each.trace), None)

    def is_wanted(self) -> bool:
        """Return whether its job is runnable and unchanged, and no window waits.

        A window that is retried runs first, so that no older row arrives after a newer row.
        """
        job = self.opener.jobs.job(self.going.job)
        as_opened = job.state in RUNNABLE and job.version == self.version
        return as_opened and not self.opener.jobs.has_waiting(self.going)


@dataclass(frozen=True)
class _StopAtFailure:
    """Stops a run in real time when its first task fails: the run is retried as a whole."""

    end: Callable[[], None]

    def batch_finished(self, batch: Batch, took: timedelta) -> None: ...

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None: ...

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        if state is TaskState.FAILED:
            self.end()


@dataclass(frozen=True, kw_only=True)
class RunPlanner:
    """Plans the tasks of runs from the current documents of their jobs."""

    jobs: JobStore
    state: Store
    planner: Planner

    def definition(self, run: Run, job: Job, *, checked: bool = True) -> Definition:
        """Return the definition of a run of a job.

        Raises the errors of the job's current document; its systems are only checked if
        ``checked`` is true.
        """
        registry, document = self.planner.registry, job.document
        # The boundaries are not checked: a window may be left of a job now in real time.
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
        """Return the identity of a run's tasks in marks, in addition to their name.

        All generations of the run share it; their marks differ by the generation in the name.
        """
        return self.state.register(run.task_name, self.state.register(run.name))

    def planned(self, run: Run) -> list[TaskPlan]:
        """Return the tasks of a run that is not running. Raises the job's current errors."""
        job = self.jobs.job(run.job)
        definition = self.definition(run, job, checked=False)  # the source may not exist
        context = connector_context(self.state, run.task_name)
        with closing(self.planner.open(definition, context)) as plan:
            return self.plans(plan, run, self.identity(run))

    def _check_endpoints(self, run: Run, definition: Definition) -> None:
        """Raise ConfigError if a run has started to copy with another source or other sinks.

        Its positions are not valid in another source, and another sink lacks the rows that were
        already written (Guarantee 1).
        """
        now = endpoints_of(definition, self.planner.registry)
        begun = self.state.endpoints(run.task_name)
        if begun is not None and self.state.has_begun(run.task_name):
            same = begun.source == now.source
            if not same or not set(now.sinks) <= set(begun.sinks):
                again = "create another job" if run.is_live else "read its window again: "
                if not run.is_live:
                    again += f"headrace job rerun {run.job} {run.id}"
                raise ConfigError(
                    problem=f"Run {run.id} has started with "
                    + ("other sinks." if same else "another source."),
                    fix=f"Restore it in the document of job {run.job}, or {again}.",
                    field="sinks" if same else "source",
                )
        if begun != now:
            self.state.put_endpoints(run.task_name, now)

    def plans(self, plan: OpenPlan, run: Run, identity: str) -> list[TaskPlan]:
        """Return the tasks of a run, with ids that contain the run."""
        return [
            replace(
                each,
                id=TaskId(run.task_name, each.id.number),
                memory=memory_name(run.job),  # the schemas are shared by all runs
                identity=identity,
            )
            for each in self.planner.open_plans(plan, run.task_name)
        ]


@dataclass(frozen=True, kw_only=True)
class RunOpener(RunPlanner):
    """Creates the executions of runs, in this process.

    Args:
        worker: Creates a worker that ends with its tasks, from additional event listeners and
            whether the tasks are bounded.
    """

    maker: TaskMaker
    worker: Callable[[Sequence[Events], bool], Worker]
    _ordered: dict[tuple[str, int], bool] = field(default_factory=dict)
    """A cache of whether windows are read in order, by a job's identity and version: it is
    needed at each poll, and computing it may have to resolve secrets."""

    def open(self, run: Run) -> RunExecution:
        """Return the execution of a run. Raises the current errors of its job."""
        job = self.jobs.job(run.job)
        if job.state not in RUNNABLE:
            why = f"Job {job.name} is {job.state}."
            raise NotWantedError(why, RunState.QUEUED)
        definition = self.definition(run, job)
        return RunExecution(run, job.version, definition, self, self.identity(run))

    def policy(self, job: str) -> RunPolicy:
        """Return the run policy of a job.

        A document that cannot be read only fails the run when it is opened, not here.
        """
        try:
            found = self.jobs.job(job)
            spec = read_job(found.document)
        except (ConfigErrors, JobNotFoundError):
            return RunPolicy()
        version = found.uid, found.version
        if version not in self._ordered:
            with suppress(ConfigErrors):  # opening its runs raises the same
                self._ordered[version] = is_ordered(spec.definition, self.planner.registry)
        if self._ordered.get(version):
            return replace(spec.policy, overlap=Overlap.QUEUE, depends_on_past=True)
        return spec.policy


@dataclass(frozen=True, kw_only=True)
class LocalRuns:
    """Runs the due windows of one job in this process, without a server, such as from cron."""

    jobs: Jobs
    scheduler: Scheduler
    runs: RunWorker
    engine: SparkSupervisor
    alert: Callable[[], None] = lambda: None
    """Sends the alerts that are due."""

    def run(
        self, document: Mapping[str, Any], by: str, lower: str | None, upper: str | None
    ) -> Sequence[Run]:
        """Run all windows that are due, or the one between bounds; return the ended runs.

        The job is created, or updated with this document. Raises StateError if it may not run.
        """
        began, spec = self.jobs.clock(), read_job(document)
        name = spec.definition.name
        if spec.mode is Mode.REALTIME:
            problem = f"Job {name} has the mode realtime, which needs a server."
            raise StateError(problem, field="mode", fix="Run it on a server: headrace server.")
        try:
            job = self.jobs.edit(name, document, by)
        except JobNotFoundError:
            job = self.jobs.create(document, by)
        if job.state in {JobState.DRAFT, JobState.REJECTED}:
            job = self.jobs.submit(name, by)
        if job.state in {JobState.SUBMITTED, JobState.SUSPENDED, JobState.FAILED}:
            problem = f"Job {name} is {job.state}."
            fix = "Approve or resume it on its server."
            raise StateError(problem, field="state", fix=fix)
        if lower is None and upper is None:
            self.scheduler.fire(job)
        else:
            found = self.jobs.trigger(name, by, lower, upper)
            if found.state in {RunState.FAILED, RunState.STOPPED}:
                self.jobs.retry(name, found.id, by)
        if not self.jobs.store.is_busy(name):
            self.alert()
            return ()  # without starting Spark
        with self.engine.watching(lost=self.runs.stop):
            self.runs.run()
        self.alert()
        if self.runs.stuck:
            raise StateError(
                problem=f"Windows of job {name} wait for an earlier one that failed.",
                fix="Rerun the failed window with --lower and --upper.",
                field="schedule.depends.on.past",
            )
        newest = self.jobs.store.runs(name, limit=_SHOWN)
        return [run for run in newest if run.ended is not None and run.ended >= began]


@dataclass(kw_only=True)
class JobService:
    """A server's threads for jobs. Use ``serving`` as a context manager, which ends them."""

    scheduler: Scheduler
    runs: RunWorker
    registrars: Sequence[Registrar] = ()
    _threads: list[threading.Thread] = field(default_factory=list)

    def wake(self) -> None:
        """Poll for due work soon. Thread-safe."""
        self.scheduler.wake()
        self.runs.wake()
        for registrar in self.registrars:
            registrar.wake()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Create and execute runs inside this context; at its end, running batches finish."""
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
