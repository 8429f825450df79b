"""Backups of the store, in a folder inside the home folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headrace.store import Place, back_up

_PREFIX, _SUFFIX = "store-", ".db"
_UNFINISHED = f"{_PREFIX}*{_SUFFIX}.part"


@dataclass(frozen=True)
class Backup:
    """A copy of the store."""

    file: Path
    size_bytes: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Backups:
    """The backups of one store. Thread-safe.

    Args:
        kept: How many of the newest backups to keep; 0 for all.
    """

    place: Place
    folder: Path
    clock: Callable[[], datetime]
    kept: int = 0
    _one: threading.Lock = field(default_factory=threading.Lock)

    def make(self) -> Backup:
        """Create a backup, and remove the oldest ones. Raises BackupNotSupportedError.

        Old backups are only removed after the new one is complete and synced to disk.
        """
        with self._one:
            for left in self.folder.glob(_UNFINISHED):
                left.unlink(missing_ok=True)  # its process was killed
            file = self.folder / f"{_PREFIX}{self.clock():%Y%m%dT%H%M%S.%fZ}{_SUFFIX}"
            back_up(self.place, file)
            made = _shown(file)
            for old in self._files()[self.kept :] if self.kept else ():
                if old != file:  # the clock may have been set back
                    old.unlink(missing_ok=True)
            return made

    def all(self) -> list[Backup]:
        """Return the existing backups, newest first."""
        found = []
        for file in self._files():
            with suppress(FileNotFoundError):  # removed meanwhile
                found.append(_shown(file))
        return found

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_PREFIX}*{_SUFFIX}"), reverse=True)


def _shown(file: Path) -> Backup:
    status = file.stat()
    return Backup(file, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
