"""Tasks that the store shows as running, and that nobody runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import structlog

from headrace.model import TargetState, TaskId, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.store import Store
    from headrace.worker.planned import KeptConnector

LostOf: TypeAlias = Callable[[Iterable[TaskId]], set[TaskId]]
"""Gives those of some tasks that nobody runs."""

log = structlog.get_logger(__name__)


def lost_tasks(tasks: Iterable[TaskId], store: Store, owner: str) -> set[TaskId]:
    """Return those of these tasks that run nowhere, though the store shows that they do.

    Args:
        tasks: Tasks that do not run here.
        store: What shows them as running.
        owner: This worker, whose leases of them are nobody's.
    """
    candidates = set(tasks)
    if not candidates:
        return candidates
    now, statuses = store.now(), store.statuses()
    others = (each for each in store.leases() if each.owner != owner)
    held = {each.task for each in others if each.expires > now}
    shown = {task for task, each in statuses.items() if each.state is TaskState.RUNNING}
    return (candidates & shown) - held


@dataclass
class LostTasks:
    """Looks now and then for the tasks of connectors that were lost.

    One was taken by a worker that died, or the store went back to an earlier state.

    Args:
        interval: How often it looks.
    """

    interval: timedelta = timedelta(seconds=10)
    _next: float = 0.0

    def found(
        self, kept: Collection[KeptConnector], lost: LostOf
    ) -> list[tuple[KeptConnector, set[int]]]:
        """Return the numbers of lost tasks by connector, when it is time to look."""
        now = time.monotonic()
        if now < self._next:
            return []
        self._next = now + self.interval.total_seconds()
        wanted = [each for each in kept if each.connector.target is TargetState.RUNNING]
        gone = lost(task for each in wanted for task in each.running)
        numbers = [(each, {t.number for t in each.running if t in gone}) for each in wanted]
        found = [(each, some) for each, some in numbers if some]
        for each, some in found:
            log.warning(
                "tasks that are shown as running are run by nobody, and started anew",
                connector=each.connector.name,
                tasks=sorted(some),
            )
        return found
