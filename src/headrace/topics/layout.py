"""Which files hold which versions of a topic, and which of them to rewrite as one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from headrace.topics.segments import Segment, TopicFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk.delta import AddedFile
    from headrace.topics.log import Commit, DeltaLog

_MOST_VERSIONS = 20_000
"""How many commits are looked at in one go: the rest waits for the next."""
_MOST_FILES = 10_000
"""How many files become one segment at most."""
_YOUNG = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """All rows of one version, or of a segment's versions.

    Args:
        files: Where they are, in order.
        time: When the last of them was committed, or any before it: a clock that was put
            back makes nothing older.
    """

    files: tuple[TopicFile, ...]
    time: datetime

    @property
    def first(self) -> int:
        """Return its oldest version."""
        return self.files[0].first

    @property
    def last(self) -> int:
        """Return its newest version."""
        return self.files[-1].version

    @property
    def size_bytes(self) -> int:
        """Return the size of its files."""
        return sum(file.file.size_bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        return sum(file.file.rows for file in self.files)

    def level(self, fan_in: int) -> int:
        """Return how often its rows were rewritten, at most."""
        if self.files[0].segment is None:
            return 0
        return math.floor(math.log(self.last - self.first + 1, fan_in) + 1e-9)


def layout(log: DeltaLog, live: Sequence[AddedFile], first: int, newest: int) -> list[Entry]:
    """Return what the files of a topic hold, oldest first.

    Args:
        log: The topic's log.
        live: The files that the table now has.
        first: The oldest version that can have rows.
        newest: The newest version that ``live`` knows.
    """
    found = (Segment.of(file) for file in live)
    segments = sorted((s for s in found if s is not None), key=lambda segment: segment.first)
    paths = {file.path for file in live}
    entries: list[Entry] = []
    newest_time = datetime.min.replace(tzinfo=UTC)
    looked = 0
    for version, segment in _walk(segments, first, newest):
        looked += 1
        if looked > _MOST_VERSIONS:
            break
        commit = _commit(log, version)
        if commit is not None and commit.added:
            newest_time = max(newest_time, commit.time)
        if segment is not None:
            file = TopicFile(segment.file, segment.last, segment=segment)
            # A time that is not known is taken as young: its rows are not to be removed.
            entries.append(Entry((file,), max(newest_time, commit.time) if commit else _YOUNG))
            continue
        if commit is None:
            continue
        files = [TopicFile(f, version, part) for part, f in enumerate(commit.added)]
        kept = tuple(file for file in files if file.file.path in paths)
        if kept:
            entries.append(Entry(kept, newest_time))
    return entries


def worth_merging(
    entries: Sequence[Entry], *, fan_in: int, target_bytes: int
) -> list[TopicFile]:
    """Return neighbouring files that are worth to be rewritten as one; empty for none.

    As in a log-structured merge tree, about ``fan_in`` files of one level become one of
    the next, so that a row is rewritten a few times only, however long the topic is. A
    file of half the target's size or more is left as it is.
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
    """Yield the versions in order, and each segment in place of those that it covers."""
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
    entries: Sequence[Entry], level: int, fan_in: int, target_bytes: int
) -> Iterator[list[Entry]]:
    """Yield neighbours that are small, from one of this level to another of it.

    Those of lower levels between them come along, lest they stay small for ever.
    """

    def fits(entry: Entry) -> bool:
        return entry.level(fan_in) <= level and entry.size_bytes * 2 < target_bytes

    for small, run in groupby(entries, fits):
        members = list(run)
        ends = [n for n, entry in enumerate(members) if entry.level(fan_in) == level]
        if small and ends:
            yield members[ends[0] : ends[-1] + 1]


def _cut(run: Sequence[Entry], target_bytes: int) -> Iterator[list[Entry]]:
    chunk: list[Entry] = []
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
