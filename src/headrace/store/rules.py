"""The rules that every store keeps, so that they are written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model import BatchState
from headrace.sdk.errors import StateError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.model import Batch, Lease, TaskId
    from headrace.sdk import Position

HISTORY = 1000
"""How many batches of a task are kept; their counts stay in the totals for ever."""


def check_free(lease: Lease | None, owner: str, now: datetime) -> None:
    """Refuse to take a lease that another owner still holds."""
    if lease is None or lease.owner == owner or lease.expires <= now:
        return
    problem = f"Task {lease.task} is run by {lease.owner} until {lease.expires:%H:%M:%S %Z}."
    raise StateError(problem, fix="Stop that process, or wait until its lease has expired.")


def check_none_unfinished(batch: Batch | None) -> None:
    """Refuse what may not happen while a batch is unfinished."""
    if batch is not None:
        problem = f"Batch {batch.id} of task {batch.task} is unfinished."
        raise StateError(problem, fix="Start the task: it finishes its batch first.")


def check_start(start: Position, position: Position) -> None:
    """Refuse a batch that does not begin where the last one ended."""
    if start != position:
        problem = f"A batch must begin at {position.to_json()}, not at {start.to_json()}."
        raise StateError(problem)


def already_finished(last: Batch, batch_id: int) -> bool:
    """Return whether ``batch_id`` is the newest batch and was finished before."""
    return last.id == batch_id and last.state is BatchState.FINISHED


def expect(batch: Batch | None, batch_id: int) -> Batch:
    """Return the unfinished batch, which must be ``batch_id``."""
    if batch is None or batch.id != batch_id:
        found = "none" if batch is None else str(batch.id)
        problem = f"Batch {batch_id} is not the unfinished batch (that is {found})."
        raise StateError(problem)
    return batch


def stale(task: TaskId, epoch: int) -> str:
    """Say that the epoch is no longer the task's."""
    return (
        f"Epoch {epoch} of task {task} is no longer valid: another worker has taken the task."
    )
