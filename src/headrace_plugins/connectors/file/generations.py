"""The files of a log, oldest first: the rotated files and the current one."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from headrace_plugins.connectors.file.logfile import FileOffset, LogFile, ReplacedFileError
from headrace_plugins.connectors.file.rotation import (
    Generation,
    Look,
    Remembered,
    has_content,
    is_packed,
    oldest_first,
    without_packed_twins,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace_plugins.connectors.file.logfile import Descriptors
    from headrace_plugins.connectors.file.rotation import Siblings


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
        """Load an offset that ``to_json`` returned for a path, also in earlier versions."""
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
