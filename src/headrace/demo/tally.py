"""Counts what the pipelines do, from the worker's events."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model import Counts, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from headrace.model import Batch, TaskId


@dataclass(frozen=True)
class Arrival:
    """So many records of a connector had been moved at a time of the tally's clock."""

    time: float
    rows: int


@dataclass
class Tally:
    """The worker's events of one run. Any thread may use it.

    Args:
        clock: Gives seconds that only grow.
        moved: Called after each batch with the connector and its records so far.
        began: Called when a task changes its state, at its start before all.
        failed: Called when a task fails.
    """

    clock: Callable[[], float]
    moved: Callable[[str, int], None] = lambda _connector, _rows: None
    began: Callable[[], None] = lambda: None
    failed: Callable[[], None] = lambda: None
    counts: dict[str, Counts] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, list[Arrival]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, connector: str) -> Counts:
        """Return the sum of a connector's counts."""
        return self.counts.get(connector, Counts())

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        now, connector = self.clock(), batch.task.connector
        with self._lock:
            counts = self.counts.get(connector, Counts()).plus(batch.counts)
            self.counts[connector] = counts
            self.batches[connector] = self.batches.get(connector, 0) + 1
            self.arrivals.setdefault(connector, []).append(Arrival(now, counts.read))
        self.moved(connector, counts.read)

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        self.began()
        if state is TaskState.FAILED:
            self.failed()

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """See headrace.worker.Events."""
