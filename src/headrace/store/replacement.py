"""Puts another store in the place of the one in a home folder, while nobody uses it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.permissions import make_private_folder
from headrace.sdk.errors import ConfigError
from headrace.store.backup import back_up
from headrace.store.database import open_database
from headrace.store.modes import Mode, in_mode
from headrace.store.restoring import set_back
from headrace.store.store_file import BESIDE, StoreFile

if TYPE_CHECKING:
    from headrace.store.database import Place

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
