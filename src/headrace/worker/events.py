"""What a worker tells while it runs, and in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from headrace.model import Batch, TaskId, TaskState


class Events(Protocol):
    """Learns what happens in a worker. Called from its threads; must not block."""

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Learn that a batch is durable."""

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        """Learn that a task changed its state; ``error`` says why it failed."""

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """Learn that a step failed for now and runs again after ``wait``."""


@dataclass(frozen=True)
class Outcome:
    """How the tasks of a run ended."""

    states: Mapping[TaskId, TaskState]
    errors: Mapping[TaskId, Exception]

    @property
    def failed(self) -> bool:
        """Return whether any task failed."""
        return bool(self.errors)
