"""Makes files durable, so data is on disk before the position moves past it.

A write stays in the operating system's memory for up to half a minute; if the power or the
machine fails before it is on disk, files are empty, torn or missing. So a sink flushes its
staged files before their mark becomes visible, and the mark itself before ``commit`` returns
(Guarantee 1).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from pathlib import Path

_THREADS = 8
_NO_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""The errors of file systems that do not support syncing a folder."""


class Durability(Enum):
    """Whether to wait for the disk.

    FSYNC: Flushed files survive a power failure.
    OS: The operating system decides when to write: files survive a crash of the process, but
        not of the machine.
    """

    FSYNC = "fsync"
    OS = "os"


_mode = Durability.FSYNC


def set_durability(mode: Durability) -> None:
    """Set the durability of this process. Called once at its start, with its settings."""
    global _mode  # noqa: PLW0603 - one setting per process, as there is one disk
    _mode = mode


def durability() -> Durability:
    """Return the durability of this process."""
    return _mode


def flush(files: Iterable[Path], *, up_to: Path | None = None, names: bool = True) -> None:
    """Return when the files and their names would survive a power failure.

    Sinks call it with all files of an attempt at once: their syncs overlap, and each folder is
    synced once. It does nothing if the setting ``durability`` is ``os``. By default only the
    files' own folders are flushed; with ``up_to`` also their parents up to and including that
    folder, because any of them may be new. Without ``names`` no folder is flushed, for example
    for a file that is renamed later. Raises OSError: a file does not exist, or the disk did not
    accept it. The state of the files is then unknown: write them again.
    """
    if _mode is Durability.OS:
        return
    distinct = list(dict.fromkeys(files))
    folders: dict[Path, None] = {}
    for path in distinct if names else ():
        folders |= dict.fromkeys(_folders_of(path, up_to))
    plain = [path for path in distinct if path not in folders]
    if len(plain) > 1:
        with ThreadPoolExecutor(min(_THREADS, len(plain))) as pool:
            list(pool.map(_sync, plain))
    else:
        for path in plain:
            _sync(path)
    for folder in folders:  # after the files, and the innermost first
        _sync(folder)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably; do nothing if it exists."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if missing:
        flush([missing[0]], up_to=missing[-1].parent)


def _folders_of(path: Path, up_to: Path | None) -> Iterable[Path]:
    """Return the folders to sync for a path, innermost first."""
    first = path if path.is_dir() else path.parent
    if up_to is None or not first.is_relative_to(up_to):
        return [first]
    chain = [first, *first.parents]
    return chain[: chain.index(up_to) + 1]


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_FOLDERS or not path.is_dir():
            raise
    finally:
        with suppress(OSError):
            os.close(file)
