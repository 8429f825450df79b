"""Tells which processes on this machine are alive, by the locks they hold."""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from headrace.model import TaskState, TaskStatus
from headrace.sdk import StaleEpochError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from headrace.store import Store


class Owner:
    """This process as an owner of leases: alive as long as its lock file is locked.

    The system drops the lock when the process dies in whatever way, so that a new
    process need not wait until a dead one's leases expire.
    """

    def __init__(self, folder: Path) -> None:
        """Take a new name, and lock the file of that name in ``folder``."""
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
        """Forget a dead owner."""
        (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Give the name up."""
        self._file.close()
        self.bury(self.name)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the name up."""
        self.close()


def living(folder: Path) -> list[str]:
    """Return the names of the owners of a folder whose processes run."""
    with Owner(folder) as me:
        names = sorted(each.name for each in folder.iterdir())
        return [each for each in names if each != me.name and not me.is_dead(each)]


def bury_dead(owner: Owner, store: Store, now: datetime, former: str | None = None) -> None:
    """Take the leases of processes that are gone: those of this machine, and a server's.

    Args:
        owner: This process.
        store: Where leases are kept.
        now: The present, aware.
        former: The server that had the store before, wherever it was.
    """
    leases = store.leases()
    dead = {each.owner for each in leases if each.owner == former or owner.is_dead(each.owner)}
    for lease in leases:
        if lease.owner in dead:
            # Else a task that is to run no more would be shown as one that runs.
            with suppress(StaleEpochError):  # another process was faster
                store.fence(lease, TaskStatus(TaskState.UNASSIGNED), now)
    for each in dead:
        owner.bury(each)
