"""Deletes the files that no version of a topic names any more, when nobody reads them.

What a commit of upkeep removes from the table is noted first, in a file whose name has the
time. After the grace time each noted file is deleted, unless the table has it after all,
as when the commit failed.
"""

from __future__ import annotations

import json
import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from headrace.sdk.delta import newest_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.sdk.location import Entry, Location
    from headrace.topics.segments import TopicFile

_ATTEMPT = re.compile(r"\d{12,}-\d+")
"""The folder in which one attempt at a batch stages its files."""


class Trash:
    """The removed files of one topic."""

    def __init__(self, table: Location) -> None:
        """Look after the table in folder ``table``."""
        self._table = table
        self._folder = table / "_headrace" / "trash"

    def note(self, files: Sequence[TopicFile], now: datetime) -> None:
        """Remember files, in order, that the next commit removes from the table."""
        millis = int(now.timestamp() * 1000)
        name = f"{millis:015d}-{uuid.uuid4().hex}"
        told = {"paths": [file.file.path for file in files], "last": files[-1].version}
        (self._folder / f"{name}.json").put(json.dumps(told))

    def noted(self) -> set[str]:
        """Return all files that are remembered."""
        return {path for note in self._notes() for path in _noted(note)[0]}

    def is_due(self, before: datetime) -> bool:
        """Return whether anything was noted before a time."""
        return any(_time(note) < before for note in self._notes())

    def empty(
        self, live: AbstractSet[str], before: datetime, reading: int | None = None
    ) -> int:
        """Delete what was noted before a time and is not live; return how many files.

        What holds rows of versions behind ``reading`` stays: somebody is reading them.
        """
        deleted = 0
        for note in self._notes():
            if _time(note) >= before:
                break
            paths, last = _noted(note)
            if reading is not None and last > reading:
                continue
            for path in paths:
                if path not in live:
                    deleted += self._delete(path)
            note.delete()
        return deleted

    def _delete(self, path: str) -> int:
        file = self._table / path
        if not file.exists():
            return 0
        file.delete()
        # Spark on a local disk keeps a checksum beside each file.
        (file.parent / f".{file.name}.crc").delete()
        if _ATTEMPT.fullmatch(file.parent.name):
            with suppress(OSError):  # others of its batch are still there
                file.parent.delete()
        return 1

    def _notes(self) -> list[Location]:
        names = (entry.name for entry in self._folder.list())
        return [self._folder / name for name in sorted(names) if name.endswith(".json")]


def clear_leftovers(
    table: Location,
    live: AbstractSet[str],
    noted: Callable[[], AbstractSet[str]],
    before: datetime,
) -> int:
    """Delete what crashed attempts staged before a time; return how many of them.

    An attempt is a folder named by batch and epoch, a file that a plugin's host has staged,
    or a segment that was not committed.

    Args:
        table: The table's folder.
        live: The files that the table has.
        noted: Returns other files that are to stay, such as those in the trash; called after
            ``live`` was taken, so that a file that is removed meanwhile is in one of both.
        before: Younger attempts may still be running. A host renews the time of what it has
            staged just before it commits.
    """
    known: set[str] = {*live, *noted()}
    known |= {parent.as_posix() for path in known for parent in PurePath(path).parents}
    cleared = 0
    for found in _attempts(table):
        path = found.location
        if path.relative_to(table) in known or newest_change(path) >= before.timestamp():
            continue
        if found.is_folder:
            path.delete_folder()
        else:
            path.delete()
        cleared += 1
    return cleared


def _attempts(table: Location) -> Iterator[Entry]:
    waiting = [table / "data"]
    while waiting:
        for entry in waiting.pop().list():
            if entry.is_folder and not _ATTEMPT.fullmatch(entry.name):
                waiting.append(entry.location)
            elif entry.is_folder or entry.name.endswith(".parquet"):
                yield entry


def _noted(note: Location) -> tuple[list[str], int]:
    """Return the files of a note, and the newest version that they have rows of."""
    with suppress(FileNotFoundError):
        told = json.loads(note.read_text())
        if isinstance(told, list):  # as earlier releases wrote it
            return told, -1
        return told["paths"], int(told["last"])
    return [], -1


def _time(note: Location) -> datetime:
    return datetime.fromtimestamp(int(note.name[:15]) / 1000, UTC)
