"""Task leases: taking them, renewing them, and fencing those of dead processes."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

import structlog

from headrace.model import Lease, TaskId, TaskState, TaskStatus
from headrace.sdk import RetriableError, StateError
from headrace.sdk.errors import StaleEpochError
from headrace.worker.events import labels

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.store import Store
    from headrace.worker.task_queue import TaskSlot

log = structlog.get_logger(__name__)


class HeldElsewhereError(RetriableError):
    """Another worker, alive or dead, holds the task's lease, which has not expired yet."""

    code = "task.held_elsewhere"


def take_lease(
    task: TaskId,
    store: Store,
    owner: str,
    duration: timedelta,
    identity: str | None,
    *,
    waits: bool,
    trace: str | None = None,
) -> Lease:
    """Take a task's lease and store the task as running, with ``trace`` if it is being retried.

    Raises StateError while another owner holds the lease, or HeldElsewhereError if ``waits``.
    """
    running = TaskStatus(TaskState.RUNNING, trace)
    try:
        return store.lease(task, owner, store.now(), duration, running, identity=identity)
    except StateError as error:
        if not waits:
            raise
        raise HeldElsewhereError(error.problem, after=duration / 10, fix=error.fix) from error


class Owner:
    """This process as an owner of leases: alive as long as its lock file is locked.

    The operating system releases the lock however the process dies, so a new process need not
    wait until the leases of a dead one expire.
    """

    def __init__(self, folder: Path) -> None:
        """Choose a unique name and lock the file of that name in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.name = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self._file = (folder / self.name).open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_dead(self, name: str) -> bool:
        """Return whether ``name`` was an owner in this folder whose process is gone."""
        path = self._folder / name
        if name == self.name or not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def bury(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        self._file.close()
        self.bury(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def living(folder: Path) -> list[str]:
    """Return the names of the owners in a folder whose processes are running."""
    with Owner(folder) as me:
        names = sorted(each.name for each in folder.iterdir())
        return [each for each in names if each != me.name and not me.is_dead(each)]


def fence_dead_workers(
    owner: Owner, store: Store, now: datetime, former: str | None = None
) -> None:
    """Fence the leases of dead processes on this machine, and those of the former server."""
    leases = store.leases()
    dead = {each.owner for each in leases if each.owner == former or owner.is_dead(each.owner)}
    for lease in leases:
        if lease.owner in dead:
            # Otherwise a task that nobody restarts would still be shown as running.
            with suppress(StaleEpochError):  # another process has already done it
                store.fence(lease, TaskStatus(TaskState.UNASSIGNED), now)
    for each in dead:
        owner.bury(each)


def lost_tasks(tasks: Iterable[TaskId], store: Store, owner: str) -> set[TaskId]:
    """Return the tasks that the store shows as running although no worker runs them."""
    candidates = set(tasks)
    if not candidates:
        return candidates
    now, statuses = store.now(), store.statuses()
    others = (each for each in store.leases() if each.owner != owner)
    held = {each.task for each in others if each.expires > now}
    shown = {task for task, each in statuses.items() if each.state is TaskState.RUNNING}
    return (candidates & shown) - held


def renew_leases(slots: Collection[TaskSlot], store: Store, lease: timedelta) -> None:
    """Renew the leases of running tasks, and cancel the tasks that have lost theirs.

    If renewal fails, a worker that takes over an expired lease is safe: our later writes have
    a stale epoch.
    """
    held = [(slot, slot.lease) for slot in slots if slot.live and slot.lease]
    if not held:
        return
    renewed = store.renew([each for _, each in held], store.now(), lease)
    for slot, had in held:
        # A task that has ended or restarted meanwhile has not lost its lease.
        if had.task not in renewed and slot.lease is had and slot.live:
            log.warning("task lease lost", **labels(had.task))
            slot.cancel()
