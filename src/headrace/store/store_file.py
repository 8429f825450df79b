"""The file of an embedded store: made for its owner alone, and watched while it is open."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from headrace.permissions import FILE, make_private_folder, narrow
from headrace.store.errors import StoreDamagedError, StoreMissingError

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger(__name__)

BACKUPS = "backups"
"""The folder beside the store in which its backups are."""
BESIDE = ("-wal", "-shm")
_MARKER_TEXT = (
    "{name} belongs here. While this file is here and {name} is not, nothing starts, so that "
    "a store that was lost is not taken for a new one.\n"
)
_SHOWN = 3


class StoreFile:
    """Knows the file that an engine has opened. Any thread may call it.

    A process that has opened a file goes on writing to it when its name is taken away, and
    what it writes is lost with the process. So each transaction asks whether the name still
    stands for the same file.
    """

    def __init__(self, path: Path) -> None:
        """Take the path; nothing is opened."""
        self.path = path
        self._file: tuple[int, int] | None = None
        self._size = 0

    @property
    def marker(self) -> Path:
        """The file that says that there was a store here."""
        return self.path.with_name(f"{self.path.name}.marker")

    def open(self) -> None:
        """Make the file when there was none yet, readable for its owner alone.

        Raises:
            StoreMissingError: There was one.
            OSError: It cannot be made.
        """
        make_private_folder(self.path.parent)
        if self.marker.exists() and not (self.path.exists() and self.path.stat().st_size):
            what = "is empty" if self.path.exists() else "is gone"
            raise self._missing(what)
        # SQLite gives the files beside it the permissions of this one.
        self.path.touch(FILE)
        beside = [self.path.with_name(f"{self.path.name}{end}") for end in BESIDE]
        narrowed = narrow([self.path, *beside])
        if narrowed:
            names = [each.name for each in narrowed]
            log.warning("files of the store were open to other users", now_private=names)
        found = self.path.stat()
        self._file, self._size = (found.st_dev, found.st_ino), found.st_size

    def mark(self) -> None:
        """Say in the folder that there is a store, once it has its tables."""
        if not self.marker.exists():
            self.marker.touch(FILE)
            self.marker.write_text(_MARKER_TEXT.format(name=self.path.name))

    def check(self) -> None:
        """Raise StoreMissingError if the file was deleted, replaced or cut meanwhile."""
        wrong = self._wrong()
        if wrong:
            raise self._missing(wrong)

    def _wrong(self) -> str:
        try:
            found = self.path.stat()
        except OSError:
            return "was deleted"
        if (found.st_dev, found.st_ino) != self._file:
            return "was replaced by another file"
        if found.st_size < self._size:
            return "was cut short"
        self._size = found.st_size
        return ""

    def lost(self, what: str) -> None:
        """Raise StoreMissingError, saying what has become of the file."""
        raise self._missing(what)

    def damaged(self, told: str) -> StoreDamagedError:
        """Return the error of a file that is no store any more."""
        problem = f"The store {self.path} is damaged: {told}."
        return StoreDamagedError(problem, field="home", fix=self._restore())

    def _missing(self, what: str) -> StoreMissingError:
        problem = f"The store {self.path} {what}; nothing can be stored."
        return StoreMissingError(problem, field="home", fix=self._restore())

    def _restore(self) -> str:
        folder = self.path.parent / BACKUPS
        found = sorted(folder.glob("store-*.db"), reverse=True)[:_SHOWN]
        if not found:
            return (
                f"Stop the server, and put a copy of the store back with `headrace backup "
                f"restore FILE` (there is none in {folder}), or begin with an empty one with "
                "`headrace backup restore --empty`."
            )
        newest = ", ".join(f"{each.name} of {_time(each)}" for each in found)
        return (
            f"Stop the server, and put a backup back with `headrace backup restore {found[0]}`"
            f"; the newest are: {newest}."
        )


def _time(file: Path) -> str:
    return f"{datetime.fromtimestamp(file.stat().st_mtime, UTC):%Y-%m-%d %H:%M:%S %Z}"
