"""The record counts of connectors, by task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from headrace.control.planning import REPLAYS
from headrace.model import Batch, Counts, TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.control.connectors import ConnectorFilter, Connectors


BALANCE = "read = written + filtered + rejected"
"""Guarantee 4: holds for each batch, and so for any sum of batches."""


@dataclass(frozen=True)
class Tally:
    """The record counts of one connector.

    Args:
        tasks: The counts of each task that has ever run, by number.
        replays: The counts of replayed dead letters, which were rejected before.
    """

    connector: str
    tasks: Mapping[int, Counts]
    replays: Counts

    @property
    def total(self) -> Counts:
        """Return the sum over all tasks, without replays."""
        return reduce(Counts.plus, self.tasks.values(), Counts())


@dataclass(frozen=True)
class Tallies:
    """The record counts of an installation's connectors. Thread-safe."""

    connectors: Connectors

    def of(self, name: str, since: datetime | None = None) -> Tally:
        """Return the counts of one connector.

        With ``since``, of the batches since that time, as far as the store still has them.
        """
        self.connectors.get(name)
        state = self.connectors.task_store
        found = state.all_totals(name)
        if since is not None:
            found = {task: state.counts_since(task, since) for task in found}
        return _tally(name, found)

    def chosen(self, chosen: ConnectorFilter) -> list[Tally]:
        """Return the counts of the connectors that match a filter, by name.

        The number of store queries does not depend on the number of connectors.
        """
        found: dict[str, dict[TaskId, Counts]] = {}
        for task, counts in self.connectors.task_store.all_totals().items():
            found.setdefault(task.connector, {})[task] = counts
        names = [view.connector.name for view in self.connectors.chosen(chosen)]
        return [_tally(name, found.get(name, {})) for name in names]

    def batches(self, name: str, number: int, limit: int) -> Sequence[Batch]:
        """Return the newest batches of a task, newest first; empty if it never ran.

        Raises ConnectorNotFoundError.
        """
        self.connectors.get(name)
        return self.connectors.task_store.batches(TaskId(name, number), limit)


def _tally(name: str, found: Mapping[TaskId, Counts]) -> Tally:
    tasks = {task.number: counts for task, counts in sorted(found.items())}
    replays = tasks.pop(REPLAYS, Counts())
    return Tally(name, tasks, replays)
