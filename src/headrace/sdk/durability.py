"""Makes files durable: what a position covers is on disk before the position moves.

A write is in the operating system's memory for up to half a minute; if the power fails, or
the machine dies, before it is on disk, files are empty, torn or gone. So a sink flushes what
it has staged before the mark that stands for it becomes visible, and the mark itself before
``commit`` returns (Guarantee 1).
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
"""What file systems answer that have nothing to sync about a folder."""


class Durability(Enum):
    """Whether to wait for the disk.

    FSYNC: What is flushed survives a loss of power.
    OS: The operating system writes it when it likes: it survives the end of the process, and
        not that of the machine.
    """

    FSYNC = "fsync"
    OS = "os"


_mode = Durability.FSYNC


def set_durability(mode: Durability) -> None:
    """Choose for this process. Called once when it starts, with its settings."""
    global _mode  # noqa: PLW0603 - one setting of the process, as the disk is one
    _mode = mode


def durability() -> Durability:
    """Return what was chosen."""
    return _mode


def flush(files: Iterable[Path], *, up_to: Path | None = None, names: bool = True) -> None:
    """Return when files and their names would survive a loss of power.

    Called by sinks with all the files of an attempt at once: their syncs overlap, and each
    folder is synced once. Does nothing where the installation leaves it to the operating system
    (setting ``durability``). ``up_to`` is the folder up to which the names of folders are
    flushed too, itself included, for all that may have been made on the way; else only the
    files' own folders are. Without ``names`` none is, as for a file that is to be renamed.
    Raises OSError: a file is not there, or the disk did not take it. Nothing is known of the
    files then: write them again.
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
    """Make a folder and those above it, durably; nothing happens when it is there."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if missing:
        flush([missing[0]], up_to=missing[-1].parent)


def _folders_of(path: Path, up_to: Path | None) -> Iterable[Path]:
    """Return the folders to sync for a path, from the innermost on."""
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
