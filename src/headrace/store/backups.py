"""Backups of a store, and putting one in its place."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from headrace.permissions import make_private_folder
from headrace.sdk.errors import Category, ConfigError, HeadraceError
from headrace.store.connections import BESIDE, BUSY_SECONDS, Mode, StoreFile, in_mode
from headrace.store.database import Place, mark_as_copy, open_database
from headrace.store.rows import set_back


class BackupNotSupportedError(HeadraceError):
    """The store is in a database that makes its own backups."""

    code: ClassVar[str] = "store.backup_not_supported"
    category: ClassVar[Category] = Category.ENVIRONMENT


def back_up(place: Place, file: Path) -> None:
    """Copy the store to a new file, as it is at one moment; who uses it goes on meanwhile.

    The file is whole and on the disk once it has its name.

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
        # All pages in one step: one reading transaction, which nobody's writes disturb.
        source.backup(target)
        # A copy of its own needs no log beside it.
        target.execute("PRAGMA journal_mode=DELETE")
        mark_as_copy(target)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)


_REPLACED = "replaced"
"""The folder beside the store in which the files are that it replaced."""


def put_back(place: Path, backup: Path) -> Path | None:
    """Put a copy of a backup in the store's place, so that tasks go on from there.

    Returns the folder in which the files are now that were there; None if there were none.

    Raises:
        ConfigError: The file is not a whole store.
    """
    _check(backup)
    new = place.with_name(f"{place.name}.new")
    make_private_folder(place.parent)
    back_up(backup, new)
    replaced = _put_aside(place)
    new.replace(place)
    _flush(place.parent)
    open_database(place).dispose()
    return replaced


def start_empty(place: Path) -> Path | None:
    """Put an empty store in the store's place, see ``put_back`` for what it returns."""
    replaced = _put_aside(place)
    StoreFile(place).marker.unlink(missing_ok=True)
    open_database(place).dispose()
    return replaced


def go_on_from_earlier(place: Place) -> None:
    """Let the tasks of a store go on that was set back by other means than ``put_back``."""
    engine = open_database(place)
    try:
        with in_mode(engine, Mode.WRITE).begin() as db:
            set_back(db)
    finally:
        engine.dispose()


def check_not_lost(place: Path, topics: Path) -> None:
    """Raise StoreMissingError if there is no store, though there are topics that it had."""
    if not place.exists() and any(topics.glob("*/_delta_log")):
        StoreFile(place).lost(f"is gone, though its topics are in {topics}")


def _check(backup: Path) -> None:
    fix = "Name a backup; `headrace backup list` shows those of a server."
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
        problem = f"{backup} is not a whole store: {found}."
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


def _flush(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
