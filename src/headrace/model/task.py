"""A task: the unit of assignment and of failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from typing_extensions import override


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """Names a task: its connector and its number there, from 0."""

    connector: str
    number: int

    @override
    def __str__(self) -> str:
        """Return Kafka Connect's form, ``connector-0``."""
        return f"{self.connector}-{self.number}"


class TaskState(StrEnum):
    """The states of a task, as Kafka Connect shows them, and the end of a bounded one."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of a task and, when it failed, why."""

    state: TaskState
    trace: str | None = None
