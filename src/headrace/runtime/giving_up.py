"""Gives up batches of `headrace run`, or of a job, that can no longer run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from headrace.control import REPLAYS, GivenUp, meaning_of, places_text, require_not_held
from headrace.model import (
    RUNNABLE,
    Batch,
    BatchState,
    Counts,
    EventKind,
    RunState,
    Stamp,
    TaskId,
    memory_name,
)
from headrace.runtime.receipts import plan_of
from headrace.sdk import ConfigError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from headrace.control import Jobs, TaskPlan
    from headrace.model import Run
    from headrace.runtime.jobs import RunPlanner
    from headrace.runtime.receipts import Receipts
    from headrace.store import Store


@dataclass(frozen=True, kw_only=True)
class GivingUp:
    """Abandons the unfinished batch of a task that no worker runs.

    Args:
        name: The connector part of the tasks' ids.
        tasks: The tasks that may have an unfinished batch.
        planned: Returns the plan of a task; may raise anything.
        memory: The name under which the schemas of the targets are stored.
        owner: The owner of the task's lease meanwhile, so that nothing else runs the task.
        before: Called with the batch, while the lease is held, before it is given up.
    """

    store: Store
    receipts: Receipts
    name: str
    tasks: Sequence[TaskId]
    planned: Callable[[TaskId], TaskPlan]
    memory: str
    owner: str
    lease: timedelta
    before: Callable[[Batch], None] = field(default=lambda _: None)

    def give_up(self, number: int | None, *, skip: bool, force: bool, dry_run: bool) -> GivenUp:
        """Give up the unfinished batch of a task by number, or of the only task that has one.

        The task then plans a new batch from the start of this one or, to ``skip`` its records,
        from its end. With ``dry_run`` nothing is changed.

        Raises:
            ConfigError: No task has an unfinished batch, or several have.
            StateError: The task runs or, unless forced, a target contains the batch or cannot
                be asked.
        """
        batch = self._unfinished(number)
        held = self.store.lease(batch.task, self.owner, self.store.now(), self.lease)
        try:
            planned = partial(self.planned, batch.task)
            topics = sorted(self.store.schemas(self.memory))
            targets = self.receipts.ask_of(planned, batch, topics)
            if not dry_run and not force:
                require_not_held(batch, targets)
            if not dry_run:
                self.before(batch)
            # Guarantee 3: the batch's former worker has an older epoch, and cannot finish it.
            if not dry_run and skip:
                none = Counts()
                self.store.finish_batch(
                    batch.task, held.epoch, batch.id, none, self.store.now()
                )
            elif not dry_run:
                self.store.abandon_batch(batch.task, held.epoch, batch.id)
        finally:
            self.store.release(held)
        start, end = (places_text(each.items()) for each in (batch.start, batch.end))
        return GivenUp(batch, skip, targets, not dry_run, meaning_of(start, end, skip=skip))

    def _unfinished(self, number: int | None) -> Batch:
        name = self.name
        tasks = self.tasks if number is None else [TaskId(name, number)]
        newest = [batch for task in tasks for batch in self.store.batches(task, 1)]
        found = [batch for batch in newest if batch.state is not BatchState.FINISHED]
        if len(found) == 1:
            return found[0]
        if not found:
            problem, fix = f"{name} has no unfinished batch.", "Run it."
            raise ConfigError(problem, fix=fix, field="--task")
        numbers = ", ".join(str(batch.task.number) for batch in found)
        problem = f"The tasks {numbers} of {name} have unfinished batches."
        raise ConfigError(problem, field="--task", fix="Select one of them.")


def giving_up_of(
    plans: Sequence[TaskPlan], store: Store, receipts: Receipts, owner: str, lease: timedelta
) -> GivingUp:
    """Return GivingUp for a connector without a server, from its tasks, at least one."""
    name = plans[0].id.connector
    return GivingUp(
        store=store,
        receipts=receipts,
        name=name,
        tasks=[*(plan.id for plan in plans), TaskId(name, REPLAYS)],
        planned=partial(plan_of, plans),
        memory=name,
        owner=owner,
        lease=lease,
    )


@dataclass(frozen=True, kw_only=True)
class GivingUpOfRuns:
    """Abandons unfinished batches of stopped job runs. Thread-safe.

    Args:
        planner: Plans the tasks of runs.
        owner: The owner of a task's lease meanwhile.
    """

    jobs: Jobs
    planner: RunPlanner
    receipts: Receipts
    owner: str
    lease: timedelta

    def give_up(
        self,
        job: str,
        number: int,
        by: str,
        *,
        task: int | None = None,
        skip: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> GivenUp:
        """Give up the unfinished batch of a run, as ``GivingUp.give_up`` does.

        Raises JobNotFoundError and RunNotFoundError, and StateError while the run is running or
        queued.
        """
        run = self.jobs.run(job, number)
        self._require_at_rest(run)
        tasks = sorted(self.planner.state.positions(run.task_name))

        def before(batch: Batch) -> None:
            self._require_at_rest(self.jobs.run(job, number))  # the lease is held only now
            detail = {"run": number, "task": batch.task.number, "batch": batch.id, "skip": skip}
            stamp = Stamp(self.jobs.clock(), by)
            self.jobs.store.tell(job, EventKind.RUN_GIVE_UP, stamp, detail)

        return GivingUp(
            store=self.planner.state,
            receipts=self.receipts,
            name=run.task_name,
            tasks=tasks,
            planned=lambda each: plan_of(self.planner.planned(run), each),
            memory=memory_name(job),
            owner=self.owner,
            lease=self.lease,
            before=before,
        ).give_up(task, skip=skip, force=force, dry_run=dry_run)

    def _require_at_rest(self, run: Run) -> None:
        job = self.jobs.store.job(run.job)
        waits = run.state is RunState.QUEUED and job.state in RUNNABLE
        if waits or run.state is RunState.RUNNING:
            way = f"headrace job {'suspend' if run.is_live else 'stop-run'} {run.job}"
            problem = f"Run {run.id} of job {run.job} is {run.state}."
            fix = f"Stop it first: {way}{'' if run.is_live else f' {run.id}'}."
            raise StateError(problem, field="run", fix=fix)
