"""Where a task stood at a time, as its batches and the changes of its offsets tell."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, Position

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from headrace.model import TaskId
    from headrace.store import Store

    Place = tuple[datetime, Position]

__all__ = ["stood_at"]


def stood_at(
    to: datetime, task: TaskId, stands: Position, state: Store, changes: Sequence[Place]
) -> Position:
    """Return where a task stood at a time, or earlier where that is not known as exactly.

    Where the clock was put back the first of the times that are alike counts.

    Args:
        to: The time.
        task: The task.
        stands: Where it stands now.
        state: Where its batches are.
        changes: When people let it go on from where since it was made, oldest first.

    Raises:
        ConfigError: Nothing is known that is as old.
    """
    places: list[Place] = []
    is_newest = True
    batch = state.batch_at(task, to)
    if batch is not None:
        done = batch.finished is not None and batch.finished <= to
        [newest] = state.batches(task, 1)
        is_newest = done and newest.id == batch.id
        places.append((batch.finished or to, batch.end) if done else (batch.begun, batch.start))
    known = list(takewhile(lambda place: place[0] <= to, changes))
    places.extend(known[-1:])
    if places:
        is_newest = is_newest and len(known) == len(changes)
        return stands if is_newest else max(places, key=lambda place: place[0])[1]
    oldest = state.oldest_batch(task)
    if oldest is not None and (oldest.id == 1 or not len(oldest.start)):
        return oldest.start
    since = [oldest.begun] if oldest is not None else []
    since += [at for at, _ in changes[:1]]
    only = f", only since {min(since).isoformat()}" if since else ""
    raise ConfigError(
        problem=f"It is not known where the connector stood at {to.isoformat()}{only}.",
        field="to",
        fix="Give that time or a later one, or alter or reset the offsets."
        if since
        else "Alter or reset the offsets.",
    )
