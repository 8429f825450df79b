"""Files and folders that only the user of this process can access, regardless of the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = ("store.db", "store.db.marker", "server.lock", "workers", "logs/headrace.log")
"""Names that identify a folder as a Headrace home, if any of them exists in it."""


def private_opener(path: str, flags: int) -> int:
    """Open a file, for ``open(..., opener=private_opener)``; a new file is private."""
    return os.open(path, flags, FILE)


def make_private_folder(folder: Path) -> None:
    """Create a missing folder and missing parents; existing folders are left unchanged."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER, exist_ok=True)


def make_private_home(home: Path) -> bool:
    """Create the home folder, or make it private; return whether others could access it.

    A folder used only for other purposes is left unchanged; files with passwords are created
    private anyway.
    """
    make_private_folder(home)
    found = home.stat()
    ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    used = any((home / name).exists() for name in _OURS)
    if not ours or not (used or not any(home.iterdir())):
        return False
    return bool(narrow([home])) and used


def narrow(paths: Iterable[Path]) -> list[Path]:
    """Remove other users' access to this user's files and folders; return the changed ones."""
    narrowed = []
    for path in paths:
        try:
            mode = path.stat()
            if not mode.st_mode & _OTHERS or mode.st_uid != os.geteuid():
                continue
            path.chmod(stat.S_IMODE(mode.st_mode) & ~_OTHERS)
        except OSError:
            continue  # deleted in the meantime, or on a file system without permissions
        narrowed.append(path)
    return narrowed
