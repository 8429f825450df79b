"""Backups of the store, in a folder of the home."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.store import back_up

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.store import Place

_PREFIX, _SUFFIX = "store-", ".db"


@dataclass(frozen=True)
class Backup:
    """A copy of the store.

    Args:
        file: Where it is.
        size_bytes: How large it is.
        at: When it was made; aware.
    """

    file: Path
    size_bytes: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Backups:
    """The backups of one store. Any thread may use it.

    Args:
        place: The store.
        folder: Where they are.
        clock: Gives the present, aware.
    """

    place: Place
    folder: Path
    clock: Callable[[], datetime]
    _one: threading.Lock = field(default_factory=threading.Lock)

    def make(self) -> Backup:
        """Make one. Raises BackupNotSupportedError."""
        with self._one:
            file = self.folder / f"{_PREFIX}{self.clock():%Y%m%dT%H%M%S.%fZ}{_SUFFIX}"
            back_up(self.place, file)
            return _shown(file)

    def all(self) -> list[Backup]:
        """Return those that are there, the newest first."""
        files = self.folder.glob(f"{_PREFIX}*{_SUFFIX}")
        return [_shown(file) for file in sorted(files, reverse=True)]


def _shown(file: Path) -> Backup:
    told = file.stat()
    return Backup(file, told.st_size, datetime.fromtimestamp(told.st_mtime, UTC))
