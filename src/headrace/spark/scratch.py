"""The folder of a JVM's temporary files, which goes with it however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

_LOCK = ".lock"


@dataclass(frozen=True)
class Scratch:
    """A folder, and the lock that says that its process lives.

    Spark removes what it keeps in its local folders when it ends by itself; a JVM that was
    killed leaves them, and a server whose JVM dies now and then would fill the disk.
    """

    folder: Path
    _locked: TextIO

    @classmethod
    def make(cls, root: Path | None = None) -> Self:
        """Make a folder, and remove those whose processes are gone.

        Args:
            root: Where; by default in the system's folder for temporary files.
        """
        root = root or Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if root.is_symlink() or root.stat().st_uid != os.getuid():
            root = Path(tempfile.mkdtemp(prefix="headrace-"))  # somebody else made it
        _remove_dead(root)
        name = f"spark-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        beginning = root / f".{name}"
        locked = beginning.open("w")
        fcntl.flock(locked, fcntl.LOCK_EX)
        beginning.rename(root / f"{name}{_LOCK}")  # seen by others only now that it is locked
        folder = root / name
        folder.mkdir(mode=0o700)
        return cls(folder, locked)

    def remove(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.with_name(f"{self.folder.name}{_LOCK}").unlink(missing_ok=True)
        self._locked.close()


def _remove_dead(root: Path) -> None:
    for lock in root.glob(f"*{_LOCK}"):
        with suppress(OSError), lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink()
