"""The way out of a batch that `headrace run` has begun, and that cannot run any more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.control import REPLAYS, GivenUp, meaning_of, places_text, require_not_held
from headrace.model import Batch, BatchState, Counts, TaskId
from headrace.runtime.receipts import plan_of
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from headrace.control import TaskPlan
    from headrace.runtime.receipts import Receipts
    from headrace.store import Store


@dataclass(frozen=True, kw_only=True)
class GivingUp:
    """Forgets the unfinished batch of a connector that no server has.

    Args:
        plans: Its tasks, at least one.
        owner: Who holds the task's lease meanwhile, so that nobody runs it.
    """

    store: Store
    receipts: Receipts
    plans: Sequence[TaskPlan]
    owner: str
    lease: timedelta

    def give_up(self, number: int | None, *, skip: bool, force: bool, dry_run: bool) -> GivenUp:
        """Give up the unfinished batch of the task of a number, or of the one that has one.

        The task then plans a new batch from where this one began or, to ``skip`` its records,
        from where it ended. With ``dry_run`` nothing is done.

        Raises:
            ConfigError: No task has one, or several have.
            StateError: The task runs or, unless forced, a target holds the batch or cannot be
                asked.
        """
        batch = self._unfinished(number)
        held = self.store.lease(batch.task, self.owner, self.store.now(), self.lease)
        try:
            planned = partial(plan_of, self.plans, batch.task)
            topics = sorted(self.store.schemas(batch.task.connector))
            targets = self.receipts.ask_of(planned, batch, topics)
            if not dry_run and not force:
                require_not_held(batch, targets)
            # Guarantee 3: whoever ran the batch has an older epoch, and may not finish it.
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
        name = self.plans[0].id.connector
        tasks = [*(plan.id for plan in self.plans), TaskId(name, REPLAYS)]
        if number is not None:
            tasks = [TaskId(name, number)]
        newest = [batch for task in tasks for batch in self.store.batches(task, 1)]
        found = [batch for batch in newest if batch.state is not BatchState.FINISHED]
        if len(found) == 1:
            return found[0]
        if not found:
            problem, fix = f"{name} has no unfinished batch.", "Run it."
            raise ConfigError(problem, fix=fix, field="--task")
        numbers = ", ".join(str(batch.task.number) for batch in found)
        problem = f"The tasks {numbers} of {name} have unfinished batches."
        raise ConfigError(problem, field="--task", fix="Name one of them.")
