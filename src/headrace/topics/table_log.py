"""Reads a Delta table's log directly from storage: which files each version added.

The JSON commits are read as the transaction log protocol defines them
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md), because checking for the next
version this way costs microseconds, and a hundred idle topics must cost nothing.

Every user of a Delta table lists its log folder, which takes a millisecond per thousand
commits. So upkeep moves old commits, which a checkpoint covers, to a separate folder (the
attic) that only this class reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from headrace.sdk.delta import AddedFile, receipt_in
from headrace.sdk.deltalog import ACTIONS, actions_in
from headrace.sdk.errors import DataLostError
from headrace.sdk.location import Location

SCHEMAS = "headrace.schemas"
"""The field of a commit with the schemas that are new to the streams of its packed rows."""
_CHECKED = 20
"""How many of the newest commits are checked for damage after a power failure."""
_SHELF = 1000
"""How many commits one folder of the attic contains."""
_DIGITS = 12
"""Length of the digests: every position stores one; they detect mistakes, not attacks."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of the table.

    Args:
        added: The files with new data, in the order of the log, without the files of a
            compaction.
        time: The commit time, by the writer's clock.
        schema_json: The table's schema, if this version changed it.
        application: The writer's transaction id, if any.
        batch: The transaction's version, if any.
        receipt: The receipt of the batch.
        schemas: The new schemas of the streams of its packed rows, as JSON.
        digest: Distinguishes the commit from one of the same version in another table.
    """

    version: int
    added: tuple[AddedFile, ...]
    time: datetime
    schema_json: str | None = None
    application: str | None = None
    batch: int | None = None
    receipt: str = ""
    schemas: str = ""
    digest: str = ""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.added)


class DeltaLog:
    """The log of one table. Safe to use from many threads."""

    def __init__(self, table: Location) -> None:
        self._folder = table / "_delta_log"
        self._attic = table / "_headrace" / "log"

    def newest(self, known: int = -1) -> int:
        """Return the newest version, searching from ``known``; -1 if there is no table."""
        if known < 0 or not self._file(known).exists():
            known = self.checkpoint()
        if known < 0 or not self._file(known).exists():
            known = max(self.versions(), default=-1)
        while self._file(known + 1).exists():
            known += 1
        return known

    def oldest(self) -> int:
        """Return the oldest version whose commit still exists; -1 for none."""
        for shelf in self._shelves():
            if found := list(_versions(shelf)):
                return min(found)
        return min(self.versions(), default=-1)

    def has(self, version: int) -> bool:
        return self._file(version).exists() or self._stored(version).exists()

    def commit(self, version: int) -> Commit:
        """Read one commit. Raises FileNotFoundError if it was deleted or does not exist yet."""
        try:
            return _commit(self._file(version), version)
        except FileNotFoundError:
            return _commit(self._stored(version), version)

    def back_from(self, version: int) -> Iterator[Commit]:
        """Yield a version's commit and the commits before it, as far as they still exist."""
        with suppress(FileNotFoundError):
            for each in range(version, -1, -1):
                yield self.commit(each)

    def check(self) -> None:
        """Raise DataLostError if one of the newest commits is damaged: none may follow it."""
        newest = self.newest()
        for version in range(max(0, newest - _CHECKED + 1), newest + 1):
            with suppress(FileNotFoundError):
                self.commit(version)

    def checkpoint(self) -> int:
        """Return the version of the newest checkpoint; -1 for none."""
        try:
            facts = json.loads((self._folder / "_last_checkpoint").read_text())
        except (FileNotFoundError, ValueError):
            return -1
        return int(facts["version"])

    def versions(self) -> Iterator[int]:
        return _versions(self._folder)

    def store_away(self, before: int) -> None:
        """Move the commits before a version to the attic, and delete older checkpoints.

        ``before`` must be the version of a checkpoint, which covers all moved commits.
        """
        for name in list(_files_of_versions(self._folder)):
            version, path = int(name[:20]), self._folder / name
            if version >= before:
                continue
            if name[20:] == ".json":
                with suppress(FileNotFoundError):  # another worker's upkeep has moved it
                    path.move_to(self._stored(version))
            else:
                path.delete()

    def checkpoints(self) -> list[int]:
        """Return the versions that have a checkpoint in one file, oldest first."""
        suffix = ".checkpoint.parquet"
        names = _files_of_versions(self._folder)
        return sorted(int(name[:20]) for name in names if name[20:] == suffix)

    def forget(self, until: int, older_than: datetime) -> None:
        """Delete the attic's commits up to a version that are older than a time."""
        # Another worker's upkeep may do the same at the same time.
        with suppress(FileNotFoundError):
            for shelf in self._shelves():
                for version in sorted(_versions(shelf)):
                    path = self._stored(version)
                    if version > until or _commit(path, version).time >= older_than:
                        return
                    path.delete()
                shelf.delete()

    def _file(self, version: int) -> Location:
        return self._folder / f"{version:020d}.json"

    def _stored(self, version: int) -> Location:
        return self._attic / f"{version // _SHELF:017d}" / f"{version:020d}.json"

    def _shelves(self) -> list[Location]:
        shelves = [entry.location for entry in self._attic.list()]
        return sorted(shelves, key=lambda shelf: shelf.name)


def _files_of_versions(folder: Location) -> Iterator[str]:
    """Yield the names of a folder's files that belong to one version."""
    for entry in folder.list():
        if entry.name[:20].isdigit() and entry.name[20:21] == ".":
            yield entry.name


def _versions(folder: Location) -> Iterator[int]:
    names = _files_of_versions(folder)
    return (int(name[:20]) for name in names if name[20:] == ".json")


def _commit(path: Location, version: int) -> Commit:
    # A topic may be deleted and created again, so the file's identity is part of the key.
    found = path.info()
    if found is None:
        raise FileNotFoundError(path.path)
    return _read(path, version, found.mtime_ns, found.identity)


@lru_cache(maxsize=4096)
def _read(path: Location, version: int, written_ns: int, _identity: str) -> Commit:
    facts: dict[str, Any] = {
        "time": datetime.fromtimestamp(written_ns / 1e9, UTC),
        "digest": hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS],
    }
    added: list[AddedFile] = []
    for action in _actions(path, version):
        match action:
            case {"add": {"dataChange": True} as add}:
                added.append(_added(add))
            case {"metaData": {"schemaString": str(schema)}}:
                facts["schema_json"] = schema
            case {"txn": {"appId": str(application), "version": int(batch)}}:
                facts |= {"application": application, "batch": batch}
            case {"commitInfo": {"timestamp": int(millis)} as info}:
                facts["time"] = datetime.fromtimestamp(millis / 1000, UTC)
                facts["receipt"] = receipt_in(info)
                facts["schemas"] = str(info.get(SCHEMAS, ""))
            case _:
                pass
    return Commit(version, tuple(added), **facts)


def _actions(path: Location, version: int) -> list[dict[str, Any]]:
    """Return a commit's actions. Raises DataLostError if the file is incomplete."""
    try:
        actions = list(actions_in(path))
    except ValueError:
        actions = []
    facts: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    if actions and facts.get(ACTIONS, len(actions)) == len(actions):
        return actions
    problem = (
        f"Version {version} of the topic in {path.parent.parent} is damaged: {path.name} is "
        "empty or truncated, for example by a power failure with durability=os."
    )
    fix = (
        "If that file is the newest version, delete it; otherwise restore it from a backup. "
        "Deleting it loses the rows of its batch: rewind the source that wrote them."
    )
    raise DataLostError(problem, fix=fix)


def _added(add: dict[str, Any]) -> AddedFile:
    stats = json.loads(add.get("stats") or "{}")
    return AddedFile(unquote(add["path"]), int(add["size"]), int(stats.get("numRecords", 0)))
