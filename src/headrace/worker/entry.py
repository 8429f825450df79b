"""A task as a worker has it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from headrace.model import TaskState
from headrace.worker.labels import labels
from headrace.worker.restarts import Verdict

if TYPE_CHECKING:
    from headrace.model import Lease
    from headrace.sdk import RetriableError
    from headrace.worker.task import Task

log = structlog.get_logger(__name__)

_LIVE = {TaskState.UNASSIGNED, TaskState.RUNNING}


@dataclass(eq=False)
class Entry:
    """A task with what the worker knows of it."""

    task: Task
    identity: str | None = None
    """Its connector's, if that may be removed while the task runs."""
    due: float = 0.0
    running: bool = False
    """Whether somebody sees to it just now; nobody else does then."""
    thread: threading.Thread | None = None
    """What runs its step."""
    woken: bool = False
    recalled: bool = False
    """Whether it was woken although it may wait to be tried again."""
    started: bool = False
    ending: TaskState | None = None
    state: TaskState = TaskState.UNASSIGNED
    lease: Lease | None = None
    failures: int = 0
    trying_since: float = 0.0
    retrying: str | None = None
    """The code of the error that is shown while it is tried again."""
    error: Exception | None = None
    began: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    abandoned: bool = False
    """Whether its step did not end in time; the thread that runs it is given up with it."""
    stalled: RetriableError | None = None
    """Why its step is cancelled, where that is for lack of progress."""
    let_go: bool = False
    """Whether its task was told to let go of everything."""

    @property
    def live(self) -> bool:
        """Whether it runs or is to run."""
        return self.state in _LIVE

    @property
    def ready(self) -> float:
        """When it is to run, in seconds of the monotonic clock."""
        return self.due if self.ending is None else 0.0

    @property
    def ran(self) -> float:
        """For how many seconds it has run, without those in which it was tried again."""
        until = self.trying_since if self.failures else time.monotonic()
        return max(0.0, until - self.began)

    def wake(self, *, again: bool = False) -> None:
        """Make it ready, also once more if it runs just now.

        Behind all that have been ready before: who is woken often is not to starve others.
        New data does not help one that has failed: it waits on, unless it is to try ``again``.
        """
        if again or not self.failures:
            self.due = min(self.due, time.monotonic())
        self.woken = True
        self.recalled = self.recalled or again

    def cancel(self) -> None:
        """Make a running step end soon. It is up to others if that cannot be done."""
        try:
            self.task.cancel()
        except Exception:
            log.warning("task cannot be cancelled", **labels(self.task.id), exc_info=True)
