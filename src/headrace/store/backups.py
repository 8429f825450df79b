"""Creates and restores backups of a store."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from headrace.permissions import make_private_folder
from headrace.sdk.durability import flush
from headrace.sdk.errors import Category, ConfigError, HeadraceError
from headrace.store.connections import BESIDE, BUSY_SECONDS, Mode, StoreFile, in_mode
from headrace.store.database import Place, mark_as_copy, open_database
from headrace.store.rows import set_back


class BackupNotSupportedError(HeadraceError):
    """The store is in a database that makes its own backups."""

    code: ClassVar[str] = "store.backup_not_supported"
    category: ClassVar[Category] = Category.ENVIRONMENT


def back_up(place: Place, file: Path) -> None:
    """Copy a snapshot of the store to a new file, while the store remains in use.

    The file gets its name only when it is complete and synced to disk.

    Raises:
        BackupNotSupportedError: The store is in PostgreSQL.
    """
    if not isinstance(place, Path):
        problem = "The store is in PostgreSQL, which makes its own backups."
        raise BackupNotSupportedError(problem, fix="Use pg_dump.")
    make_private_folder(file.parent)
    part = file.with_name(f"{file.name}.part")
    part.touch(mode=0o600)
    with (
        closing(sqlite3.connect(place, timeout=BUSY_SECONDS)) as source,
        closing(sqlite3.connect(part)) as target,
    ):
        # All pages in one step: one read transaction, isolated from concurrent writes.
        source.backup(target)
        # The copy needs no write-ahead log.
        target.execute("PRAGMA journal_mode=DELETE")
        mark_as_copy(target)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)


_REPLACED = "replaced"
"""The folder beside the store for the files that a restore replaced."""


def put_back(place: Path, backup: Path) -> Path | None:
    """Restore a copy of a backup as the store, so that tasks continue from there.

    Returns the folder to which the replaced files were moved; None if there were none.

    Raises:
        ConfigError: The file is not a complete store.
    """
    _check(backup)
    new = place.with_name(f"{place.name}.new")
    make_private_folder(place.parent)
    back_up(backup, new)
    replaced = _put_aside(place)
    new.replace(place)
    flush([place])
    open_database(place).dispose()
    return replaced


def start_empty(place: Path) -> Path | None:
    """Replace the store by an empty one; returns as ``put_back``."""
    replaced = _put_aside(place)
    StoreFile(place).marker.unlink(missing_ok=True)
    open_database(place).dispose()
    return replaced


def go_on_from_earlier(place: Place) -> None:
    """Prepare a store for work that was restored to an earlier state without ``put_back``."""
    engine = open_database(place)
    try:
        with in_mode(engine, Mode.WRITE).begin() as db:
            set_back(db)
    finally:
        engine.dispose()


def check_not_lost(place: Path, topics: Path) -> None:
    """Raise StoreMissingError if there is no store but there are topics."""
    if not place.exists() and any(topics.glob("*/_delta_log")):
        StoreFile(place).lost(f"is missing, although its topics are in {topics}")


def _check(backup: Path) -> None:
    fix = "Choose a backup; to list those of a server: headrace backup list."
    if not backup.is_file():
        problem = f"There is no file {backup}."
        raise ConfigError(problem, field="FILE", fix=fix)
    try:
        with closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as db:
            [found] = db.execute("PRAGMA quick_check(1)").fetchone()
            db.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        problem = f"{backup} is not a complete store: {found}."
        raise ConfigError(problem, field="FILE", fix=fix)


def _put_aside(place: Path) -> Path | None:
    files = [place, *(place.with_name(f"{place.name}{end}") for end in BESIDE)]
    found = [file for file in files if file.exists()]
    if not found:
        return None
    folder = place.parent / _REPLACED / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    make_private_folder(folder)
    for file in found:
        file.replace(folder / file.name)
    return folder


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
