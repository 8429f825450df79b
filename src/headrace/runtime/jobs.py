"""Executes the runs of offline jobs, and is what a server does for them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.control import Jobs, bounded, check_job, read_job
from headrace.model import Counts, JobState, Run, RunPolicy, TaskId, memory_name, unended
from headrace.sdk import ConfigErrors, StateError
from headrace.store import JobNotFoundError
from headrace.worker import Outcome, RunWorker, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.control import TaskPlan
    from headrace.runtime.tasks import Planner, TaskMaker
    from headrace.scheduler import Registrar, Scheduler
    from headrace.spark import SparkSupervisor
    from headrace.store import JobStore, Store

_END_SECONDS = 30.0
"""How long the scheduler and the runs may take to end."""
_SHOWN = 1000
"""How many runs are told of that one call has run."""


@dataclass
class RunExecution:
    """One attempt of a run: its copy, between its boundaries, by a worker of its own.

    The tasks are named by the run, so that they have their own positions and marks: an attempt
    goes on where the one before it stood (Guarantee 2).
    """

    going: Run
    plans: list[TaskPlan]
    maker: TaskMaker
    worker: Worker
    state: Store

    def run(self) -> None:
        """Move what lies between the boundaries. Raises why it has failed."""
        self.worker.add([self.maker.task(plan) for plan in self.plans])
        outcome: Outcome = self.worker.run()
        for error in outcome.errors.values():
            raise error

    def stop(self) -> None:
        """Stop after the batch that moves."""
        self.worker.stop(self.maker.grace)

    def counts(self) -> Counts:
        """Return what became of the records of the run, in all its attempts."""
        totals = (self.state.totals(plan.id) for plan in self.plans)
        return reduce(Counts.plus, totals, Counts())


@dataclass(frozen=True, kw_only=True)
class RunOpener:
    """Makes executions of runs, in this process.

    Args:
        worker: Makes a worker that ends with its tasks.
    """

    jobs: JobStore
    state: Store
    planner: Planner
    maker: TaskMaker
    worker: Callable[[], Worker]

    def open(self, run: Run) -> RunExecution:
        """Return the execution of a run. Raises what is wrong with its job by now."""
        spec = check_job(self.jobs.job(run.job).document, self.planner.registry)
        definition = bounded(spec.definition, run.boundaries, self.planner.registry)
        plans = [
            replace(
                plan,
                id=TaskId(run.task_name, plan.id.number),
                memory=memory_name(run.job),  # whichever run has met them
            )
            for plan in self.planner.plans(definition)
        ]
        return RunExecution(run, plans, self.maker, self.worker(), self.state)

    def policy(self, job: str) -> RunPolicy:
        """Return what is done with the runs of a job.

        A document that cannot be read fails its run alone, once that is opened.
        """
        try:
            return read_job(self.jobs.job(job).document).policy
        except (ConfigErrors, JobNotFoundError):
            return RunPolicy()


@dataclass(frozen=True, kw_only=True)
class LocalRuns:
    """Runs what is due of one job in this process, without a server: for cron and the like."""

    jobs: Jobs
    scheduler: Scheduler
    runs: RunWorker
    engine: SparkSupervisor

    def run(
        self, document: Mapping[str, Any], by: str, lower: str | None, upper: str | None
    ) -> Sequence[Run]:
        """Run all windows that are due, or the one between bounds; return those that ended.

        The job is stored, or given this document. Raises StateError while it may not run.
        """
        began = self.jobs.clock()
        name = read_job(document).definition.name
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
            self.jobs.trigger(name, by, lower, upper)
        if not unended(self.jobs.store.counts(name)):
            return ()  # and no Spark is started for it
        with self.engine.watching(lost=self.runs.stop):
            self.runs.run()
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
