"""A task: the unit of assignment and of failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

from typing_extensions import override

_LEADS = re.compile(r"[/\\%\x00-\x1f]")


def file_name(text: str) -> str:
    """Return a text as the name of one file or folder that leads nowhere else."""
    name = _LEADS.sub(lambda found: quote(found[0], safe=""), text)
    return name if name.strip(".") else name.replace(".", "%2E")


_OF_RUN = re.compile(r"(.+)@(\d+)\.\d+", re.DOTALL)
"""What the tasks of a run of a job are named by, see ``Run.task_name``."""


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """Names a task: its connector and its number there, from 0."""

    connector: str
    number: int

    @override
    def __str__(self) -> str:
        return f"{self.connector}-{self.number}"

    @property
    def run(self) -> tuple[str, int] | None:
        """Return the job and the run that it is a task of; None for a connector's."""
        found = _OF_RUN.fullmatch(self.connector)
        return None if found is None else (found[1], int(found[2]))

    @property
    def file_name(self) -> str:
        """Return a name for its files: a connector's may hold slashes, dots and more."""
        return file_name(str(self))


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
    """The state of a task.

    Args:
        next_try: When it is started again by itself, if it is; aware.
        restarts: How often it was started again after it had failed; counted by the store.
    """

    state: TaskState
    trace: str | None = None
    next_try: datetime | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may run a task, until when.

    Args:
        epoch: Grows by one with each new holder; every write names it (Guarantee 3).
        expires: Aware time after which another worker may take the task.
    """

    task: TaskId
    owner: str
    epoch: int
    expires: datetime
