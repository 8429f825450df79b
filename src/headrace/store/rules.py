"""The rules that every store keeps, so that they are written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.model import BatchState, TaskState
from headrace.sdk.errors import StaleEpochError, StateError
from headrace.store.errors import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    TaskNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from headrace.model import Batch, Lease, TaskId, TaskStatus
    from headrace.sdk import Position

T = TypeVar("T")

HISTORY = 1000
"""How many batches of a task are kept; their counts stay in the totals for ever."""


def check_free(lease: Lease | None, owner: str, now: datetime) -> None:
    """Refuse to take a lease that another owner still holds."""
    if lease is None or lease.owner == owner or lease.expires <= now:
        return
    problem = f"Task {lease.task} is run by {lease.owner} until {lease.expires:%H:%M:%S %Z}."
    raise StateError(problem, fix="Stop that process, or wait until its lease has expired.")


def check_unchanged(name: str, there: object, seen: object) -> None:
    """Refuse a change that was made of something else than what is there by now."""
    if there != seen:
        problem = f"Connector {name} has changed meanwhile."
        raise ConnectorChangedError(problem, fix="Look at it, and try again.")


def storable(text: str | None) -> str | None:
    """Return a text without the character that PostgreSQL cannot hold."""
    return None if text is None else text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def check_identity(name: str, known: str | None, identity: str | None) -> None:
    """Refuse what is done for a connector that was removed, and perhaps made again."""
    if identity is not None and known != identity:
        problem = f"Connector {name} was removed."
        raise StaleEpochError(problem)


def restarts_after(state: TaskState, restarts: int, status: TaskStatus | None) -> int:
    """Return how often a task was started anew, when it gets a lease and a status."""
    if status is None or state is not TaskState.FAILED:
        return restarts
    return restarts + (status.state is TaskState.RUNNING)


def check_idle(task: TaskId, owner: str | None) -> None:
    """Refuse what may not happen while somebody runs a task."""
    if owner is not None:
        problem = f"Task {task} is run by {owner}."
        raise StateError(problem, fix="Stop its connector first.")


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


def check_new(name: str, found: object | None) -> None:
    """Refuse a name that a connector has."""
    if found is not None:
        problem = f"Connector {name} already exists."
        raise ConnectorExistsError(problem, fix="Choose another name, or change that one.")


def existing(name: str, found: T | None) -> T:
    """Return a connector, which must be there."""
    if found is None:
        fix = "The command `headrace connector list` shows those that are."
        problem = f"There is no connector {name}."
        raise ConnectorNotFoundError(problem, fix=fix)
    return found


def check_tasks(name: str, asked: Collection[int], known: Collection[int]) -> None:
    """Refuse tasks that a connector does not have."""
    missing = sorted(set(asked) - set(known))
    if missing:
        problem = f"Connector {name} has no task {missing[0]}."
        raise TaskNotFoundError(problem)


def stale(task: TaskId, epoch: int) -> str:
    """Say that the epoch is no longer the task's."""
    return (
        f"Epoch {epoch} of task {task} is no longer valid: another worker has taken the task."
    )
