"""A lease: the right to run a task, for a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.model.task import TaskId


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may run a task, until when.

    Args:
        task: The task.
        owner: The worker that holds it.
        epoch: Grows by one with each new holder; every write names it (Guarantee 3).
        expires: Aware time after which another worker may take the task.
    """

    task: TaskId
    owner: str
    epoch: int
    expires: datetime
