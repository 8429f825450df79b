"""Copies a store while it is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.permissions import make_private_folder
from headrace.sdk.errors import Category, HeadraceError
from headrace.store.restoring import tell_copy
from headrace.store.sqlite_file import BUSY_SECONDS

if TYPE_CHECKING:
    from headrace.store.database import Place


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
        tell_copy(target)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)
