"""Tasks: the unit of assignment and of failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

from typing_extensions import override

_LEADS = re.compile(r"[/\\%\x00-\x1f]")


def file_name(text: str) -> str:
    """Return a text as a file or folder name that cannot lead to another folder."""
    name = _LEADS.sub(lambda found: quote(found[0], safe=""), text)
    return name if name.strip(".") else name.replace(".", "%2E")


_OF_RUN = re.compile(r"(.+)@(\d+)\.\d+", re.DOTALL)
"""Matches the connector part of the ids of a job run's tasks, see ``Run.task_name``."""


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """Identifies a task: its connector and its number there, from 0."""

    connector: str
    number: int

    @override
    def __str__(self) -> str:
        return f"{self.connector}-{self.number}"

    @property
    def run(self) -> tuple[str, int] | None:
        """Return the job and the run of the task; None for a connector's task."""
        found = _OF_RUN.fullmatch(self.connector)
        return None if found is None else (found[1], int(found[2]))

    @property
    def file_name(self) -> str:
        """Return the id as a file name: a connector's name may contain slashes and dots."""
        return file_name(str(self))


class TaskState(StrEnum):
    """The states of a task, as in Kafka Connect, and COMPLETED for a bounded task."""

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
        next_try: Time of the next automatic restart, if any; aware.
        restarts: The number of restarts after failures; counted by the store.
    """

    state: TaskState
    trace: str | None = None
    next_try: datetime | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker to run a task until a time.

    Args:
        epoch: Increases by one with each new owner; every write includes it (Guarantee 3).
        expires: Aware time after which another worker may take the task.
    """

    task: TaskId
    owner: str
    epoch: int
    expires: datetime
