"""The rules that every store keeps, so that they are written once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from headrace.model import (
    Batch,
    BatchState,
    Connector,
    ConnectorState,
    Lease,
    TargetState,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk.errors import StaleEpochError, StateError
from headrace.store.errors import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    TaskNotFoundError,
    TaskRemovedError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.sdk import Position

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HISTORY = 1000
"""How many batches of a task are kept; their counts stay in the totals for ever."""
HOURLY = timedelta(days=30)
"""How long the first batch of each hour is kept beyond those: it tells where a task stood."""


_HOUR = timedelta(hours=1)


def forgotten(
    begun: Iterable[tuple[int, datetime]], newest: int, now: datetime, keep: datetime | None
) -> list[int]:
    """Return the ids of a task's batches that need not be retained.

    Of its batches, oldest first, with when each began; those that began at ``keep`` or later
    are retained.
    """
    found: list[int] = []
    hour: int | None = None
    for id_, at in begun:
        before, hour = hour, (at - _EPOCH) // _HOUR
        is_retained = keep is not None and at >= keep
        is_first = hour != before and at >= now - HOURLY
        if not (is_retained or is_first or id_ > newest - HISTORY):
            found.append(id_)
    return found


def forgets(batch: int) -> bool:
    """Return whether old batches are looked for after one: that is done now and then."""
    return batch % max(1, HISTORY // 10) == 0


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
    """Return how often a task was started again, when it gets a lease and a status."""
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
        fix = f"Start the task: it finishes its batch first. {batch.way_out}"
        raise StateError(problem, fix=fix)


def check_to_stop(connector: Connector) -> None:
    """Refuse what may only happen to a connector that is to be stopped."""
    if connector.target is not TargetState.STOPPED:
        problem = f"Connector {connector.name} is not stopped."
        raise StateError(problem, fix="Stop it, and wait until it is stopped.")


def given_up(batch: Batch, before: str, after: str) -> dict[str, object]:
    """Return what an event tells of a batch that was given up; positions are JSON."""
    number = batch.task.number
    return {
        "action": "give-up",
        "batch": {
            "task": number,
            "id": batch.id,
            "start": batch.start.to_json(),
            "end": batch.end.to_json(),
        },
        "before": {number: before},
        "after": {number: after},
    }


def repeated_append(
    task: TaskId,
    items: Sequence[Mapping[str, str | int]],
    after: int,
    there: Sequence[Mapping[str, str | int]],
) -> int:
    """Return the length of a ledger behind items that an earlier call has added.

    They are to be added behind ``after`` entries, where ``there`` is now.
    """
    if items and [dict(item) for item in there[: len(items)]] == [dict(i) for i in items]:
        return after + len(items)
    problem = f"The ledger of task {task} does not have {after} entries any more."
    raise StateError(problem, fix="Read it again.")


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


def state_after(found: Connector, target: TargetState) -> ConnectorState:
    """Return the state of a connector whose target changes.

    What is to go on is not at rest any more, whenever a worker sees to it: whoever waits for
    its next rest must not be shown this one.
    """
    at_rest = found.status.state in {ConnectorState.STOPPED, ConnectorState.PAUSED}
    runs = target is TargetState.RUNNING
    return ConnectorState.UNASSIGNED if runs and at_rest else found.status.state


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


def check_epoch(task: TaskId, found: int | None, epoch: int) -> None:
    """Refuse whoever does not hold the newest epoch (Guarantee 3)."""
    if found is None:
        problem = f"Task {task} was removed with its connector."
        raise TaskRemovedError(problem)
    if found != epoch:
        problem = (
            f"Epoch {epoch} of task {task} is no longer valid: another worker has taken the "
            "task."
        )
        raise StaleEpochError(problem)
