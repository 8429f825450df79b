"""Follows a log that lines are appended to, across rotation and truncation.

The files of a log, oldest first, are the rotated files and the current one.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from headrace_plugins.connectors.file.logfile import (
    Descriptors,
    FileOffset,
    LogFile,
    ReplacedFileError,
    TooManyOpenFilesError,
    UnreadableFileError,
)
from headrace_plugins.connectors.file.record_ends import LineEnds
from headrace_plugins.connectors.file.rotation import (
    TIMES_AS_LONG,
    Generation,
    Look,
    Remembered,
    Siblings,
    has_content,
    is_packed,
    oldest_first,
    without_packed_twins,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace_plugins.connectors.file.record_ends import RecordEnds


log = structlog.get_logger(__name__)

_REMEMBERED = 8
"""How many files that were read to their end are still remembered individually."""
_FORGET_SECONDS = 3600.0
"""How long a vanished file is remembered: it may reappear under another name."""
_LOOKS = 5


@dataclass(kw_only=True)
class Generations:
    """Finds the files of a log again after rotations.

    A file is identified by its inode and its content; an unknown file that was modified later
    than the known ones is new. The name only determines whether a file belongs to the log.
    """

    path: str
    """The log."""
    descriptors: Descriptors
    siblings: Siblings
    clock: Callable[[], float]
    begins_with: Callable[[str], bool] = lambda _: False
    """Whether to read a rotated file that existed before the first look."""
    has_current: bool = True
    """Whether the log has a current file, at its path. If not, all files are treated alike,
    and none is ever known to be finished."""
    files: list[LogFile] = field(default_factory=list)
    since_ns: int | None = None
    """Rotated files last modified until then are read, or existed before the first look."""
    seen: frozenset[tuple[str, int]] = frozenset()
    """The names and inodes found by the last look."""
    _remembered: Remembered = field(default_factory=Remembered)
    _folder_ns: int = 0
    _lost: dict[LogFile, float] = field(default_factory=dict)

    def load(self, offset: Mapping[str, Any], path: str) -> None:
        """Load an offset that ``to_json`` returned for a path, or that a user set."""
        if "since_ns" in offset:
            self.since_ns = int(offset["since_ns"])
        for part in [*offset.get("earlier", ()), offset]:
            stored = FileOffset.from_json(part)
            self.files.append(LogFile(path, stored, self.descriptors, present=False))

    def to_json(self) -> dict[str, Mapping[str, Any]]:
        """Return the log's offset, by path; empty if nothing was read."""
        begun = [file for file in self.files if file.offset.head_bytes]
        if not self.has_current:
            there = [*(f for f in begun if not f.present), *(f for f in begun if f.present)]
            return {file.path: file.offset.to_json() for file in there}
        if not begun:
            return {}
        newest = begun[-1]
        # Files that were not started are found again, as they are newer than ``since_ns``.
        others = [
            file.offset.to_json()
            for file in self.files
            if file is not newest
            and (
                file.offset.head_bytes
                or (file.offset.inode and file.mtime_ns <= (self.since_ns or 0))
            )
        ]
        more: dict[str, Any] = {"since_ns": self.since_ns or 0}
        if others:
            more["earlier"] = others
        return {self.path: {**newest.offset.to_json(), **more}}

    def begin_current(self) -> None:
        """Treat the log's own file as the current one from now on."""
        self.has_current = True
        self.since_ns = None

    @property
    def unfinished(self) -> list[LogFile]:
        """Return the files that are not read to their end, oldest first."""
        return [f for f in self.files if not f.offset.done and (f.present or f.is_open)]

    @property
    def may_have_predecessors(self) -> bool:
        """Return whether new files may exist that must be read before the current one.

        If enough of a file was read, its content shows whether it was emptied.
        """
        last = self.files[-1] if self.files else None
        if last is None or not last.is_current or last.offset.is_long:
            return False
        with suppress(ReplacedFileError):
            grown = last.status().st_size > last.offset.position
            return grown and self._folder_ns != self._folder_time()
        return False

    def _folder_time(self) -> int:
        return Path(self.path).parent.stat().st_mtime_ns

    def finish(self, file: LogFile) -> None:
        """Record that a file is read to its end and will not grow."""
        file.close()
        file.offset = replace(file.offset, done=True)
        if file.twin is not None:
            (file.path, inode), file.twin = file.twin, None
            file.offset = replace(file.offset, inode=inode)
            file.present = True
        self._fold()

    def look(self, *, fresh: bool) -> None:
        """Find the files again by inode, and copied or compressed ones by content.

        If ``fresh``, changes of the last milliseconds are seen too.
        """
        with suppress(FileNotFoundError):
            self._folder_ns = self._folder_time()
        found = self._stable(fresh=fresh)
        self.seen = frozenset((each.path, each.inode) for each in found)
        rotated = without_packed_twins([each for each in found if each.path != self.path])
        current = next((each for each in found if each.path == self.path), None)
        if self.since_ns is None:
            self.since_ns = self._begin(rotated)
        look = Look(
            path=self.path,
            files=self.files,
            rotated=rotated,
            current=current,
            since_ns=self.since_ns,
            descriptors=self.descriptors,
            remembered=self._remembered,
            has_current=self.has_current,
        )
        look.pair()
        former = look.former
        if former is not None:
            former.close()
            former.offset = replace(former.offset, inode=0)
            if former is look.emptied and former not in look.pairs.values():
                self.files.remove(former)
        self._apply(rotated, current, look.pairs)
        self._miss(look.pairs)
        self._remembered.forget(found)

    def _stable(self, *, fresh: bool) -> list[Generation]:
        """Repeat the look until no file is renamed during it."""
        before = self._find(fresh=fresh)
        for _ in range(_LOOKS):
            names = {(each.path, each.inode) for each in before}
            if names == self.seen:
                break
            after = self._find(fresh=fresh)
            if names == {(each.path, each.inode) for each in after}:
                return after
            before = after
        return before

    def _find(self, *, fresh: bool) -> list[Generation]:
        paths = self.siblings.of(self.path, fresh=fresh)
        if not self.has_current:
            paths = [path for path in paths if self.begins_with(path) or is_packed(path)]
        by_inode = {each.inode: each for each in map(Generation.at, paths) if each is not None}
        current = Generation.at(self.path) if self.has_current else None
        if current is not None:
            by_inode.pop(current.inode, None)
        found = oldest_first(by_inode.values())
        return found if current is None else [*found, current]

    def _begin(self, rotated: Sequence[Generation]) -> int:
        """Return the first look's ``since_ns``: only rotated files modified later are read."""
        if not self.has_current:
            return -1
        known = [file.offset for file in self.files if file.offset.inode is not None]
        if known:
            return self._begin_of_earlier_version(rotated, known)
        read = [
            each
            for each in rotated
            if not self.files and self.begins_with(each.path) and not each.is_packed
        ]
        first = rotated.index(read[0]) if read else len(rotated)
        left = rotated[:first]
        if left:
            names = [each.path for each in left]
            log.info("rotated files from before the first start are not read", files=names)
        since = max((each.mtime_ns for each in left), default=-1)
        return min([since, *(each.mtime_ns - 1 for each in read)])

    def _begin_of_earlier_version(
        self, rotated: Sequence[Generation], known: Sequence[FileOffset]
    ) -> int:
        inodes = {offset.inode for offset in known}
        there = [each for each in rotated if each.inode in inodes]
        if there:
            older = rotated[: rotated.index(there[0])]
            return max((each.mtime_ns for each in older), default=-1)
        if any(self.begins_with(each.path) for each in rotated):
            return -1
        return max((each.mtime_ns for each in rotated), default=-1)

    def _apply(
        self,
        rotated: Sequence[Generation],
        current: Generation | None,
        pairs: Mapping[int, LogFile],
    ) -> None:
        """Update the name and the order of each file."""
        order: list[LogFile] = []
        placed: set[LogFile] = set()
        for each in [*rotated, *([current] if current else ())]:
            file = pairs.get(each.inode)
            if file is None or file in placed:
                continue
            order.append(file)
            placed.add(file)
            self._lost.pop(file, None)
            if file.is_open and file.offset.inode != each.inode:
                file.twin = each.path, each.inode  # the open original may still grow
                self._unname(file)
                continue
            self._place(file, each, is_current=each is current)
        for number, file in enumerate(self.files):
            if file not in placed:
                after = next((f for f in self.files[number + 1 :] if f in placed), None)
                place = order.index(after) if after else len(order) - bool(current)
                order.insert(place, file)
                placed.add(file)
        self.files = order

    def _place(self, file: LogFile, found: Generation, *, is_current: bool) -> None:
        now = self.clock()
        if file.is_current != is_current or file.offset.inode not in (None, found.inode):
            file.changed_at = now
        if file.seen_bytes != found.size_bytes and not file.is_packed:
            file.changed_at, file.seen_bytes = now, found.size_bytes
        file.path, file.present, file.is_current = found.path, True, is_current
        file.mtime_ns = found.mtime_ns
        file.complete = file.is_copy or found.is_packed
        file.offset = replace(file.offset, inode=found.inode)
        if found.is_packed and not file.is_packed:
            file.offset = replace(file.offset, done=True)  # its mtime shows that it was read
        grown = found.size_bytes > file.offset.position and not file.complete
        if file.offset.done and grown:
            file.offset = replace(file.offset, done=False)
            file.changed_at = now

    def _miss(self, pairs: Mapping[int, LogFile]) -> None:
        """Record which files are gone, and forget those that have been gone for long."""
        now = self.clock()
        there = set(pairs.values())
        for file in [f for f in self.files if f not in there and f.offset.inode is not None]:
            self._unname(file)
            if file.is_open:
                continue
            if file not in self._lost and not file.offset.done and self._is_found(file):
                continue
            gone_at = self._lost.setdefault(file, now)
            if now - gone_at >= _FORGET_SECONDS and self._is_mounted:
                self._drop(file)
        self._fold()

    def _unname(self, file: LogFile) -> None:
        """Record that a file has no name: it is finished once it no longer changes."""
        if file.present or file.is_current:
            file.present = file.is_current = False
            file.changed_at = self.clock()

    def _is_found(self, file: LogFile) -> bool:
        """Open a file that got a name that is not a rotation's; else log its loss."""
        if file.caught_up:
            return False
        moved = self._anywhere(file)
        if moved is not None:
            file.path = moved
            file.open()
            return True
        log.warning(
            "a followed file vanished, and no file next to it has its content: lines after "
            "this position are not read",
            log=self.path,
            file=file.path or self.path,
            position=file.offset.position,
        )
        return False

    def _anywhere(self, file: LogFile) -> str | None:
        """Return the path of a file that got a name that is not a rotation's."""
        try:
            with os.scandir(Path(self.path).parent) as entries:
                paths = [e.path for e in entries if e.inode() == file.offset.inode]
        except OSError:
            return None
        for found in filter(None, map(Generation.at, paths)):
            if file.offset.head_bytes and has_content(found, file.offset, self.descriptors):
                return found.path
        return None

    def _fold(self) -> None:
        """Forget all but the newest of the files that are read to their end."""
        done = [file for file in self.files if file.offset.done]
        if self.has_current:
            done = done[:-_REMEMBERED]
        else:
            done = [file for file in done if is_packed(file.path)]  # these are never started
        for file in done:
            self._drop(file)

    @property
    def _is_mounted(self) -> bool:
        """Return whether the folder has files; an unmounted folder is empty."""
        try:
            return any(Path(self.path).parent.iterdir())
        except OSError:
            return False

    def _drop(self, file: LogFile) -> None:
        file.close()
        self.files.remove(file)
        self._lost.pop(file, None)
        if self.has_current:
            self.since_ns = max(self.since_ns or 0, file.offset.mtime_ns, file.mtime_ns)


_LOOK_SECONDS = 1.0
_TRIES = 4
_SEVERAL_WRITERS = 2
"""After this many times the wait, a new file is read while its predecessor still changes."""


@dataclass(frozen=True, slots=True)
class Block:
    """Complete records of a file."""

    lines: bytes
    """The last byte is a line feed."""
    begins: bool
    """Whether the records are the first of the file."""
    header: bytes
    """The first line of the file."""
    offsets: Mapping[str, Mapping[str, Any]]
    """The log's offsets after the records; see ``Tail.offsets``."""


class Tail:
    """Reads what was appended to a log since an offset, one block of lines at a time.

    A rotated file is read to its end before the next file: until the file is unchanged for
    ``rotate_wait``, as its writer switches to the new file some time after the rotation. Files
    that were rotated while nothing read them are read in order, compressed files too. A last
    line without a line feed is held back until the line feed comes, or until its file is
    finished. If the log does not exist, the tail waits for it.

    Args:
        path: The log.
        stored: A result of ``offsets``: ``position``, in bytes, in the file that was read last,
            fields that identify this file, and the offsets of the files before it.
        rotate_wait: How many seconds a rotated file must be unchanged to be finished.
        begins_with: Whether to read a rotated file that exists at the first start.
        has_current: Whether there is a file at the path; see ``Generations``.
        ends: Where records end.
    """

    def __init__(
        self,
        path: str,
        stored: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        rotate_wait: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        descriptors: Descriptors | None = None,
        siblings: Siblings | None = None,
        begins_with: Callable[[str], bool] = lambda _: False,
        has_current: bool = True,
        ends: RecordEnds | None = None,
    ) -> None:
        self.path = path
        self.generations = Generations(
            path=path,
            descriptors=Descriptors() if descriptors is None else descriptors,
            siblings=siblings or Siblings(),
            clock=clock,
            begins_with=begins_with,
            has_current=has_current,
        )
        self._stored = dict(stored or {})
        # The offset of the log itself is newer than those under names of rotated files.
        for each in sorted(self._stored, key=lambda each: each == path):
            self.generations.load(self._stored[each], each)
        reads = [int(offset.get("reads", 0)) for offset in self._stored.values()]
        self._reads = max(reads, default=0)
        self._wait = rotate_wait
        self._ends = ends or LineEnds()
        self._clock = clock
        self._look_at: float | None = None
        self._beside_at: float | None = None
        self._turn = 0

    @property
    def offsets(self) -> dict[str, Mapping[str, Any]]:
        """Return the log's offset after the last block, by path.

        If the log has no current file, each of its files has its own offset.
        """
        found = self.generations.to_json()
        if not found and self.generations.files:
            return self._stored  # nothing was read since
        return {path: {**offset, "reads": self._reads} for path, offset in found.items()}

    @property
    def is_gone(self) -> bool:
        """Return whether no file of the log exists or is remembered."""
        return not self.generations.files

    def begin_current(self) -> None:
        """Follow the log's own file too, which appeared after files with rotated names."""
        if not self.generations.has_current:
            self.generations.begin_current()
            self._look_at = None

    def read(self, size_bytes: int, max_lines: int | None = None) -> Block | None:
        """Return the next lines, or None if there are none, which takes microseconds.

        The block has at most ``size_bytes``, except for a single longer line.
        """
        if self._look_at is None or self._clock() >= self._look_at:
            self._look(fresh=False)
        elif self.generations.may_have_predecessors:
            self._look(fresh=True)
        for _ in range(_TRIES):
            try:
                block = self._next(size_bytes, max_lines)
            except TooManyOpenFilesError as error:
                log.warning("cannot open more files", file=self.path, why=str(error))
                return None
            except ReplacedFileError:
                self._look(fresh=True)
                continue
            if block is not None or not self._is_rotated():
                return block
            self._look(fresh=True)
        return None

    def close(self) -> None:
        """Close all files."""
        for file in self.generations.files:
            file.close()

    def _look(self, *, fresh: bool) -> None:
        begun = time.monotonic()
        try:
            self.generations.look(fresh=fresh)
        except (ReplacedFileError, TooManyOpenFilesError) as error:
            log.debug("files changed while they were looked at", file=self.path, why=str(error))
            self._look_at = self._clock()
            return
        took = time.monotonic() - begun
        self._look_at = self._clock() + max(_LOOK_SECONDS, took * TIMES_AS_LONG)
        for number, file in enumerate(self.generations.unfinished):
            # A file that waits to be read may be rotated and compressed before that.
            waits = number or not file.is_current
            if waits and not file.is_open and not file.is_packed:
                with suppress(
                    ReplacedFileError, TooManyOpenFilesError
                ):  # found by the next look
                    file.open()

    def _is_rotated(self) -> bool:
        """Return whether the log has another current file than at the last look."""
        generations = self.generations
        if not generations.has_current:
            return False
        current = next((f for f in generations.files if f.is_current), None)
        try:
            inode = Path(self.path).stat().st_ino
        except FileNotFoundError:
            return current is not None
        return current is None or current.offset.inode != inode

    def _next(self, size_bytes: int, max_lines: int | None) -> Block | None:
        files = self.generations.unfinished
        if not self.generations.has_current:
            return self._next_of_any(files, size_bytes, max_lines)
        while files:
            file, *later = files
            block, finished = self._of(file, later, size_bytes, max_lines)
            if finished:
                self._beside_at = None
            if block is not None:
                return block
            if not finished:
                return self._beside(later, size_bytes, max_lines)
            files = self.generations.unfinished
        return None

    def _next_of_any(
        self, files: list[LogFile], size_bytes: int, max_lines: int | None
    ) -> Block | None:
        """Return the next lines of unordered files, round-robin."""
        for number in range(len(files)):
            file = files[(self._turn + number) % len(files)]
            block, _ = self._of(file, [], size_bytes, max_lines)
            if block is not None:
                self._turn += number + 1
                return block
        return None

    def _beside(
        self, later: list[LogFile], size_bytes: int, max_lines: int | None
    ) -> Block | None:
        """Return lines of later files if an earlier file keeps changing for too long."""
        if not any(file.status().st_size > file.offset.position for file in later):
            self._beside_at = None
            return None
        now = self._clock()
        if self._beside_at is None:
            self._beside_at = now
        if now - self._beside_at < _SEVERAL_WRITERS * self._wait:
            return None
        found = (self._of(file, [], size_bytes, max_lines)[0] for file in later)
        return next((block for block in found if block is not None), None)

    def _of(
        self, file: LogFile, later: list[LogFile], size_bytes: int, max_lines: int | None
    ) -> tuple[Block | None, bool]:
        """Return the next lines of a file, and whether the file is finished."""
        before = file.seen_bytes
        try:
            lines = file.lines(size_bytes, max_lines, self._ends)
            if file.seen_bytes != before:
                file.changed_at = self._clock()
            if lines:
                return self._block([(file, lines)]), False
            if not self._is_final(file, later):
                return None, False
            if file.offset.copy and later:
                return self._joined(file, later, size_bytes, max_lines)
            rest = file.rest()
        except UnreadableFileError as error:
            if not self._is_quiet(file):
                return None, False  # the file is still being compressed
            self._pass_over(file, error)
            return None, True
        block = self._block([(file, rest)], last=file) if rest else None
        self.generations.finish(file)
        return block, True

    def _pass_over(self, file: LogFile, error: Exception) -> None:
        log.error(
            "skipping the rest of a rotated file: the compressed file is broken",
            file=file.path,
            position=file.offset.position,
            why=str(error),
        )
        self.generations.finish(file)

    def _joined(
        self, file: LogFile, later: list[LogFile], size_bytes: int, max_lines: int | None
    ) -> tuple[Block | None, bool]:
        """Return the line that was split in two when its file was copied and emptied."""
        rest = file.rest()
        if not rest:
            self.generations.finish(file)
            return None, True
        parts = [(file, rest)]
        for number, each in enumerate(later, start=1):
            lines = each.lines(size_bytes, max_lines, self._ends)
            if lines:
                return self._block([*parts, (each, lines)]), True
            if not self._is_final(each, later[number:]):
                return None, False
            parts.append((each, each.rest()))
            if not (each.offset.copy and later[number:]):
                return self._block(parts, last=each), True
        return None, False

    def _block(self, parts: list[tuple[LogFile, bytes]], last: LogFile | None = None) -> Block:
        """Move past the data that was read; all files but the last one are finished."""
        first = parts[0][0]
        begins = first.offset.position == 0
        lines = b"".join(data for _, data in parts)
        if last is not None and not lines.endswith(b"\n"):
            lines += b"\n"
        header = lines[: self._ends.first_end(lines)] if begins else first.header(self._ends)
        for file, data in parts:
            file.advance(data)
        ended = [file for file, _ in parts[:-1]]
        for file in ended if last is None else [*ended, last]:
            self.generations.finish(file)
        self._reads += 1
        return Block(lines, begins, header, self.offsets)

    def _is_final(self, file: LogFile, later: list[LogFile]) -> bool:
        """Return whether a file that is read to its last line will not grow."""
        if file.complete:
            return True
        if file.is_current or (file.present and not later):
            return False
        return self._is_quiet(file)

    def _is_quiet(self, file: LogFile) -> bool:
        if self._clock() - file.changed_at >= self._wait:
            return True
        status = file.status()
        # A rotation changes at least the status change time.
        return time.time() - max(status.st_mtime, status.st_ctime) >= self._wait
