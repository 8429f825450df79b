"""Files and folders that only the user of this process may read, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = ("store.db", "store.db.marker", "server.lock", "workers", "logs/headrace.log")
"""Names in a home folder, any of which shows that it is one."""


def private_opener(path: str, flags: int) -> int:
    """Open a file as ``open(..., opener=private_opener)``: a new one is for its owner alone."""
    return os.open(path, flags, FILE)


def make_private_folder(folder: Path) -> None:
    """Make a folder that is missing, and those above it; what is there is left as it is."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER, exist_ok=True)


def make_private_home(home: Path) -> bool:
    """Make the home folder, or take it from others; return whether they could look into it.

    A folder that has been used for other things only is left as it is; what holds a password
    is private in there by itself.
    """
    make_private_folder(home)
    found = home.stat()
    ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    used = any((home / name).exists() for name in _OURS)
    if not ours or not (used or not any(home.iterdir())):
        return False
    return bool(narrow([home])) and used


def narrow(paths: Iterable[Path]) -> list[Path]:
    """Take files and folders of this user from all others; return those that others had."""
    narrowed = []
    for path in paths:
        try:
            mode = path.stat()
            if not mode.st_mode & _OTHERS or mode.st_uid != os.geteuid():
                continue
            path.chmod(stat.S_IMODE(mode.st_mode) & ~_OTHERS)
        except OSError:
            continue  # gone meanwhile, or of a file system without permissions
        narrowed.append(path)
    return narrowed
