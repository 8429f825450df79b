"""Who else learns what happens in a worker, and how several listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from headrace.model import Batch, Connector, ConnectorState, TaskId, TaskState
    from headrace.worker.events import Events


class Measures(Protocol):
    """Learns what only figures are made of. Called as Events are."""

    def started(self, task: TaskId, took: timedelta) -> None:
        """Learn that a task is ready to run."""

    def committed(self, task: TaskId, took: timedelta) -> None:
        """Learn how long the position and the counts of a durable batch took to store."""


class Unmeasured:
    """Does nothing with figures."""

    def started(self, task: TaskId, took: timedelta) -> None:
        """See Measures."""

    def committed(self, task: TaskId, took: timedelta) -> None:
        """See Measures."""


class ConnectorEvents(Protocol):
    """Learns how connectors are. Called from the reconciler's thread; must not block."""

    def connector_changed(
        self, connector: Connector, state: ConnectorState, tasks: Collection[int]
    ) -> None:
        """Learn that a connector was settled, in which state, and which tasks it has."""

    def connector_gone(self, name: str) -> None:
        """Learn that a connector was deleted; its tasks have ended."""


@dataclass(frozen=True)
class Everyone:
    """Tells several listeners of the same events, one after the other."""

    listeners: Collection[Events]

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        for each in self.listeners:
            each.batch_finished(batch, took)

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        for each in self.listeners:
            each.state_changed(task, state, error)

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        for each in self.listeners:
            each.retrying(task, error, wait)
