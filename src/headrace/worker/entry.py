"""A task as a worker has it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model import TaskState
from headrace.worker.restarts import Verdict

if TYPE_CHECKING:
    from headrace.model import Lease
    from headrace.worker.task import Task

_LIVE = {TaskState.UNASSIGNED, TaskState.RUNNING}


@dataclass
class Entry:
    """A task with what the worker knows of it."""

    task: Task
    identity: str | None = None
    """Its connector's, if that may be removed while the task runs."""
    due: float = 0.0
    running: bool = False
    woken: bool = False
    started: bool = False
    ending: TaskState | None = None
    state: TaskState = TaskState.UNASSIGNED
    lease: Lease | None = None
    failures: int = 0
    trying_since: float = 0.0
    error: Exception | None = None
    began: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    abandoned: bool = False
    """Whether its step did not end in time; the thread that runs it is given up with it."""

    @property
    def live(self) -> bool:
        """Whether it runs or is to run."""
        return self.state in _LIVE

    @property
    def ready(self) -> float:
        """When it is to run, in seconds of the monotonic clock."""
        return self.due if self.ending is None else 0.0

    def wake(self) -> None:
        """Make it ready, also once more if it runs just now.

        Behind all that have been ready before: who is woken often is not to starve others.
        """
        self.due = min(self.due, time.monotonic())
        self.woken = True
