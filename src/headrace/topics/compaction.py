"""Rewrites a topic's small files, removes old rows, and deletes unreferenced files."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from headrace.model import Reading, TopicRetention
from headrace.sdk.arrow import to_arrow
from headrace.sdk.delta import AddedFile, add_action, newest_change
from headrace.sdk.deltalog import CommitConflictError, commit, encoded_path, load_table
from headrace.sdk.location import Entry as FolderEntry
from headrace.sdk.location import Location, sync
from headrace.topics.segments import (
    Segment,
    TopicFile,
    segments_of,
    stored_schema,
    write_segment,
)
from headrace.topics.table_log import Commit, DeltaLog
from headrace.topics.topic import RETENTION, Topic, live_files, schema_of

if TYPE_CHECKING:
    from headrace.topics.upkeep import UpkeepPolicy


_MOST_VERSIONS = 20_000
"""How many commits are examined per run; the next run continues."""
_MOST_FILES = 10_000
"""The most files that are merged into one segment."""
_YOUNG = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """All rows of one version, or of a segment's versions.

    Args:
        time: The latest commit time of these and all earlier versions, so that a clock that
            was set back makes nothing older.
    """

    files: tuple[TopicFile, ...]
    time: datetime

    @property
    def first(self) -> int:
        return self.files[0].first

    @property
    def last(self) -> int:
        return self.files[-1].version

    @property
    def size_bytes(self) -> int:
        return sum(file.file.size_bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.file.rows for file in self.files)

    def level(self, fan_in: int) -> int:
        """Return how often its rows were rewritten at most."""
        if self.files[0].segment is None:
            return 0
        return math.floor(math.log(self.last - self.first + 1, fan_in) + 1e-9)


def layout(
    log: DeltaLog, live: Sequence[AddedFile], first: int, newest: int
) -> list[VersionFiles]:
    """Return the files of a topic by version or segment, oldest first."""
    paths = {file.path for file in live}
    entries: list[VersionFiles] = []
    newest_time = datetime.min.replace(tzinfo=UTC)
    looked = 0
    for version, segment in _walk(segments_of(live), first, newest):
        looked += 1
        if looked > _MOST_VERSIONS:
            break
        commit = _commit(log, version)
        if commit is not None and commit.added:
            newest_time = max(newest_time, commit.time)
        if segment is not None:
            file = TopicFile(segment.file, segment.last, segment=segment)
            # An unknown time counts as young, so that the rows are not removed.
            entries.append(
                VersionFiles((file,), max(newest_time, commit.time) if commit else _YOUNG)
            )
            continue
        if commit is None:
            continue
        files = [TopicFile(f, version, part) for part, f in enumerate(commit.added)]
        present = tuple(file for file in files if file.file.path in paths)
        if present:
            entries.append(VersionFiles(present, newest_time))
    return entries


def worth_merging(
    entries: Sequence[VersionFiles], *, fan_in: int, target_bytes: int
) -> list[TopicFile]:
    """Return adjacent files to rewrite as one file; empty if there are none.

    As in a log-structured merge tree, about ``fan_in`` files of one level become one file of
    the next level, so that each row is rewritten only a few times, however long the topic is.
    A file of at least half the target size is not rewritten.
    """
    for level in sorted({entry.level(fan_in) for entry in entries}):
        for run in _runs(entries, level, fan_in, target_bytes):
            for chunk in _cut(run, target_bytes):
                files = [file for entry in chunk for file in entry.files]
                equals = sum(len(e.files) for e in chunk if e.level(fan_in) == level)
                full = sum(entry.size_bytes for entry in chunk) * 2 >= target_bytes
                if equals >= fan_in or (full and len(files) > 1):
                    return files
    return []


def _commit(log: DeltaLog, version: int) -> Commit | None:
    try:
        return log.commit(version)
    except FileNotFoundError:
        return None


def _walk(
    segments: Sequence[Segment], first: int, newest: int
) -> Iterator[tuple[int, Segment | None]]:
    """Yield the versions in order, with each segment instead of the versions that it covers."""
    version = first
    for segment in segments:
        while version < segment.first:
            yield version, None
            version += 1
        yield segment.last, segment
        version = max(version, segment.last + 1)
    while version <= newest:
        yield version, None
        version += 1


def _runs(
    entries: Sequence[VersionFiles], level: int, fan_in: int, target_bytes: int
) -> Iterator[list[VersionFiles]]:
    """Yield runs of adjacent small entries that begin and end with an entry of this level.

    The runs include entries of lower levels in between, which would otherwise stay small.
    """

    def fits(entry: VersionFiles) -> bool:
        return entry.level(fan_in) <= level and entry.size_bytes * 2 < target_bytes

    for small, run in groupby(entries, fits):
        members = list(run)
        ends = [n for n, entry in enumerate(members) if entry.level(fan_in) == level]
        if small and ends:
            yield members[ends[0] : ends[-1] + 1]


def _cut(run: Sequence[VersionFiles], target_bytes: int) -> Iterator[list[VersionFiles]]:
    chunk: list[VersionFiles] = []
    size = files = 0
    for entry in run:
        size += entry.size_bytes
        files += len(entry.files)
        if chunk and (size > target_bytes or files > _MOST_FILES):
            yield chunk
            chunk, size, files = [], entry.size_bytes, len(entry.files)
        chunk.append(entry)
    if chunk:
        yield chunk


_ATTEMPT = re.compile(r"\d{12,}-\d+")
"""The folder in which one attempt at a batch stages its files."""


class Trash:
    """The files that upkeep removed from a topic's table, until no batch reads them.

    Before a commit of upkeep removes files from the table, it lists them in a note, a file with
    the time in its name. After the grace period each listed file is deleted, unless the table
    still has it, for example because the commit failed.
    """

    def __init__(self, table: Location) -> None:
        self._table = table
        self._folder = table / "_headrace" / "trash"

    def note(self, files: Sequence[TopicFile], now: datetime) -> None:
        """Write a note of the files, in order, that the next commit removes from the table."""
        millis = int(now.timestamp() * 1000)
        name = f"{millis:015d}-{uuid.uuid4().hex}"
        details = {"paths": [file.file.path for file in files], "last": files[-1].version}
        (self._folder / f"{name}.json").put(json.dumps(details))

    def noted(self) -> set[str]:
        return {path for note in self._notes() for path in _noted(note)[0]}

    def is_due(self, before: datetime) -> bool:
        return any(_time(note) < before for note in self._notes())

    def empty(
        self, live: AbstractSet[str], before: datetime, reading: int | None = None
    ) -> int:
        """Delete files that were noted before a time and are not live; return how many.

        Keeps notes with rows of versions after ``reading``: a batch is reading them.
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
        # On a local disk, Spark stores a checksum file for each file.
        (file.parent / f".{file.name}.crc").delete()
        if _ATTEMPT.fullmatch(file.parent.name):
            with suppress(OSError):  # the folder still has other files of the batch
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
    """Delete files that crashed attempts staged before a time; return how many attempts.

    An attempt is a folder named by batch and epoch, a file that a plugin's host has staged,
    or a segment that was not committed.

    Args:
        table: The table's folder.
        live: The files of the table.
        noted: Returns other files to keep, such as those in the trash. Called after ``live``
            was determined, so that a file that is removed meanwhile is in one of the two.
        before: Keep newer attempts, which may still be running. A host updates the time of its
            staged files just before it commits.
    """
    known: set[str] = {*live, *noted()}
    known |= {parent.as_posix() for path in known for parent in PurePath(path).parents}
    cleared = 0
    for found in _attempts(table):
        path = found.location
        if path.relative_to(table) in known or newest_change(path) >= before.timestamp():
            continue
        if found.is_folder:
            cleared += path.delete_folder()
        else:
            path.delete()
            cleared += 1
    return cleared


def _attempts(table: Location) -> Iterator[FolderEntry]:
    waiting = [table / "data"]
    while waiting:
        for entry in waiting.pop().list():
            if entry.is_folder and not _ATTEMPT.fullmatch(entry.name):
                waiting.append(entry.location)
            elif entry.is_folder or entry.name.endswith(".parquet"):
                yield entry


def _noted(note: Location) -> tuple[list[str], int]:
    """Return the files of a note, and the newest version of their rows."""
    with suppress(FileNotFoundError):
        details = json.loads(note.read_text())
        return details["paths"], int(details["last"])
    return [], -1


def _time(note: Location) -> datetime:
    return datetime.fromtimestamp(int(note.name[:15]) / 1000, UTC)


_UPKEEP = "headrace.upkeep"
"""The transaction application of all commits that remove files. Delta rejects a commit that has
not seen the previous one, so two workers never rewrite or remove the same rows."""

_MOST_STEPS = 8
"""How many commits a topic gets before other topics have their turn."""


@dataclass(frozen=True)
class Compaction:
    """One compaction and retention run over a topic."""

    topic: Topic
    policy: UpkeepPolicy
    now: datetime
    retention: TopicRetention | None = None
    """How long rows are kept; None to remove no rows in this run."""
    readings: Sequence[Reading] = ()

    def held_by(self) -> Sequence[str]:
        """Return the readers whose unread rows are kept past the topic's limits."""
        if not self.readings or self.retention is None or self.retention.unread:
            return ()
        entries = self._entries(load_table(self.topic.location))
        old = entries[: self._past_limits(entries)]
        last = old[-1].last if old else -1
        return [each.reader for each in self.readings if each.version < last]

    def run(self) -> bool:
        """Remove old rows, then rewrite files; return whether nothing is left to do."""
        return any(not self._step() for _ in range(_MOST_STEPS))

    def _step(self) -> bool:
        """Plan and make one commit; return whether more may be needed."""
        # The commit uses the table version that it was planned on: Delta rejects the commit if
        # another worker has rewritten or removed anything since then.
        table = load_table(self.topic.location)
        entries = self._entries(table)
        policy = self.policy
        if old := self._too_old(entries):
            self._remove(table, old)
            return True
        settled = [e for e in entries if self.now - e.time >= policy.compact_after]
        files = worth_merging(
            settled, fan_in=policy.compact_files, target_bytes=policy.target_bytes
        )
        if files:
            self._rewrite(table, files)
        return bool(files)

    def _entries(self, table: DeltaTable) -> Sequence[VersionFiles]:
        first, newest = max(self.topic.lost() + 1, 0), int(table.version())
        return layout(self.topic.log, live_files(table), first, newest)

    def _too_old(self, entries: Sequence[VersionFiles]) -> Sequence[VersionFiles]:
        """Return the oldest entries, which must be removed.

        Keeps unread entries, unless the topic is configured to remove unread rows.
        """
        old = entries[: self._past_limits(entries)]
        if self.retention is None or self.retention.unread:
            return old
        read = min((each.version for each in self.readings), default=None)
        return [entry for entry in old if read is None or entry.last <= read]

    def _past_limits(self, entries: Sequence[VersionFiles]) -> int:
        """Return how many of the oldest entries are past the topic's limits.

        The size limit never removes the newest entry, but the age limit may.
        """
        limits = self.retention
        if limits is None:
            return 0
        size = sum(entry.size_bytes for entry in entries)
        for number, entry in enumerate(entries):
            is_last = entry is entries[-1]
            is_over = limits.size_bytes is not None and size > limits.size_bytes
            is_old = limits.age is not None and self.now - entry.time >= limits.age
            if not is_old and (not is_over or is_last):
                return number
            size -= entry.size_bytes
        return len(entries)

    def _remove(self, table: DeltaTable, entries: Sequence[VersionFiles]) -> None:
        files = [file for entry in entries for file in entry.files]
        first, last = files[0].first, files[-1].version
        details = {
            "headrace.retention": {
                "from": first,
                "to": last,
                "rows": sum(entry.rows for entry in entries),
                "size": sum(entry.size_bytes for entry in entries),
            }
        }
        # Readers get the lost versions from this number, even after the commit is deleted.
        self._commit(table, files, None, details, {RETENTION: last})

    def _rewrite(self, table: DeltaTable, files: Sequence[TopicFile]) -> None:
        schema = to_arrow(stored_schema(schema_of(table)))
        segment = write_segment(self.topic.location, files, schema)
        details = {
            "headrace.segment": {
                "from": segment.first,
                "to": segment.last,
                "path": segment.file.path,
                "rows": segment.file.rows,
                "size": segment.file.size_bytes,
            }
        }
        if not self._commit(table, files, segment, details, {}):
            (self.topic.location / segment.file.path).delete()

    def _commit(
        self,
        table: DeltaTable,
        files: Sequence[TopicFile],
        segment: Segment | None,
        details: Mapping[str, object],
        marks: Mapping[str, int],
    ) -> bool:
        """Replace files by a segment, if any; return False if another commit was first."""
        # For readers of the table's changes, only removed rows are a change of data.
        actions = [self._remove_action(f.file, change=segment is None) for f in files]
        if segment is not None:
            sync([self.topic.location / segment.file.path], up_to=self.topic.location)
            actions.append(add_action(segment.file, self.now, change=False))
        number = (table.transaction_version(_UPKEEP) or 0) + 1
        Trash(self.topic.location).note(files, self.now)
        with suppress(CommitConflictError):
            commit(
                self.topic.location,
                int(table.version()),
                actions,
                operation="OPTIMIZE" if segment else "DELETE",
                transactions={**marks, _UPKEEP: number},
                details=details,
                now=self.now,
            )
            return True
        return False

    def _remove_action(self, file: AddedFile, *, change: bool) -> dict[str, object]:
        remove = {
            "path": encoded_path(file.path),
            "deletionTimestamp": int(self.now.timestamp() * 1000),
            "dataChange": change,
            "size": file.size_bytes,
        }
        return {"remove": remove}
