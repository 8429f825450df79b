"""The names that a rotation gives to log files, and one look at which of them are known."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from headrace_plugins.connectors.file.logfile import (
    FileOffset,
    LogFile,
    ReplacedFileError,
    UnreadableFileError,
    can_unpack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace_plugins.connectors.file.logfile import Descriptors


log = structlog.get_logger(__name__)


_COMPRESSION = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|snappy|deflate|Z)$")
_DATE = (
    r"(?:\d{2}[.-]\d{2}[.-]\d{4}|\d{4}-\d{2}(?:-\d{2}(?:[T_.-]?\d{2}(?:[-:.]?\d{2}(?:[-:.]?\d{2})?)?)?)?|\d{8,14})"
    r"(?:[-_.T]\d{1,10})?"
)
_SUFFIX = re.compile(rf"^(?P<base>.+?)(?P<mark>\.\d{{1,5}}|[-_.]{_DATE}|\.old)$")
_BEFORE_EXTENSION = re.compile(
    rf"^(?P<base>.+?)(?P<mark>\.\d{{1,5}}|[-_.]{_DATE})(?P<extension>\.[A-Za-z]\w{{0,15}})$"
)
_SETTLED_NS = 50_000_000
"""A folder whose last change is as recent may have another within the same clock tick."""
_TIMES_AS_LONG = 20
"""Such a folder is listed again after as many times as long as it took to list it."""


def base_names(name: str) -> list[str]:
    """Return the names that a file may have had before rotations gave it this one.

    The last one is the name of the log itself: ``app.log`` for ``app.log.2.gz``,
    ``app.log-20260131`` and ``app-20260131.log``.
    """
    names = []
    plain = _COMPRESSION.sub("", name)
    if plain not in (name, ""):
        names.append(plain)
    if (found := _SUFFIX.match(plain)) is not None:
        names.append(found["base"])
    elif (found := _BEFORE_EXTENSION.match(plain)) is not None:
        names.append(found["base"] + found["extension"])
    return names


def base_path(path: str) -> str:
    """Return the path of the log that a file belongs to, whatever rotations called it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, (base_names(name) or [name])[-1])  # noqa: PTH118 - pathlib would normalize it


def _all_bases(name: str) -> set[str]:
    bases = set(base_names(name))
    plain = _COMPRESSION.sub("", name)
    for sign in re.finditer(r"[-_.](?=\d)", plain):
        rest = plain[sign.end() :]
        if sign.start() and re.fullmatch(r"[\dT:_.\-Z+]+", rest):
            bases.add(plain[: sign.start()])
    return bases


def rotation_order(name: str) -> tuple[int, str]:
    """Return a key that sorts the names of one kind of rotation, oldest file first."""
    plain = _COMPRESSION.sub("", name)
    found = _SUFFIX.match(plain) or _BEFORE_EXTENSION.match(plain)
    mark = found["mark"] if found is not None else ""
    if re.fullmatch(r"\.\d{1,5}", mark):
        return -int(mark[1:]), ""
    return 0, mark


@dataclass(frozen=True, slots=True)
class Generation:
    """A file of a log, as a look found it."""

    path: str
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def at(cls, path: str) -> Generation | None:
        """Return the file of a path; None if there is none."""
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of files may be looked at
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def is_packed(self) -> bool:
        """Return whether it is compressed."""
        return is_packed(self.path)


def is_packed(path: str) -> bool:
    """Return whether the name is that of a compressed file."""
    return _COMPRESSION.search(path) is not None


def oldest_first(files: Iterable[Generation]) -> list[Generation]:
    """Return rotated files in their order: by their numbers, or else by their times."""
    orders = {each: rotation_order(each.path.rpartition("/")[2]) for each in files}
    if all(number < 0 for number, _ in orders.values()):
        return sorted(orders, key=lambda each: (orders[each], each.mtime_ns))
    return sorted(orders, key=lambda each: (each.mtime_ns, orders[each]))


def without_packed_twins(files: Sequence[Generation]) -> list[Generation]:
    """Leave out compressed files whose originals are there still."""
    names = {each.path for each in files}
    return [
        each
        for each in files
        if not each.is_packed or each.path.rpartition(".")[0] not in names
    ]


class Siblings:
    """Finds the rotated files of logs; a folder is listed again only when it has changed."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    def of(self, path: str, *, fresh: bool = False) -> list[str]:
        """Return the paths of the files that were rotated away from the log, in no order.

        If ``fresh``, changes of the last milliseconds matter too.
        """
        folder, name = os.path.split(path)
        try:
            changed = Path(folder).stat().st_mtime_ns
            known = None if fresh else self._folders.get(folder)
            if known is None or known.changed_ns != changed or time.monotonic() >= known.until:
                known = self._folders[folder] = _listed(folder, changed)
        except OSError:
            return []
        return [f"{folder}/{each}" for each in known.by_base.get(name, [])]


@dataclass(frozen=True, slots=True)
class _Folder:
    changed_ns: int
    until: float
    by_base: dict[str, list[str]]


def _listed(folder: str, changed_ns: int) -> _Folder:
    begun = time.monotonic()
    found: dict[str, list[str]] = {}
    settled = time.time_ns() - changed_ns > _SETTLED_NS
    with os.scandir(folder) as entries:
        for entry in entries:
            for base in _all_bases(entry.name):
                found.setdefault(base, []).append(entry.name)
    took = time.monotonic() - begun
    until = float("inf") if settled else begun + took * _TIMES_AS_LONG
    return _Folder(changed_ns, until, found)


_SECOND_NS = 1_000_000_000


@dataclass
class Remembered:
    """What a look need not find out again."""

    passed_over: set[Generation] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    """The inodes of copies of the present file."""
    unlike: set[tuple[Generation, LogFile]] = field(default_factory=set)
    """Files with others whose content they do not have."""

    def forget(self, found: Iterable[Generation]) -> None:
        """Forget all but these files."""
        here = set(found)
        self.passed_over &= here
        self.copies &= {each.inode for each in here}
        self.unlike = {each for each in self.unlike if each[0] in here}


@dataclass(kw_only=True)
class Look:
    """Pairs the files that are there with those that are known; makes those that are new."""

    path: str
    """The log."""
    files: Sequence[LogFile]
    """Those that are known, oldest first."""
    rotated: Sequence[Generation]
    """Those that are there under names of a rotation, oldest first."""
    current: Generation | None
    """The one that is at the log's path."""
    since_ns: int
    """Rotated files that have not changed since are not new."""
    descriptors: Descriptors
    remembered: Remembered
    """What earlier looks have found out."""
    has_current: bool
    """Whether the log has a present file."""
    pairs: dict[int, LogFile] = field(default_factory=dict)
    """The files by their inodes now."""
    former: LogFile | None = None
    """The file whose inode the present one has, but not its content."""
    emptied: LogFile | None = None
    """The same, if it was the present one and so was emptied; else its inode is used again."""

    def pair(self) -> None:
        """Fill the pairs, and nothing else but the marks of copies."""
        self._by_inode()
        current = self.current
        known = current is not None and current.inode in self.pairs
        if current is not None and current.inode not in self.pairs:
            self.former = next((f for f in self.files if f.offset.inode == current.inode), None)
            newest = next((f for f in reversed(self.files) if not f.offset.done), None)
            self.emptied = self.former if self.former is newest else None
        elif current is not None:
            self._notice_refilled(current)
        # Where the present file stays, what is new beside it was copied from it.
        copies = any(file.offset.copy for file in self.files[-2:])
        stays = known or self.emptied is not None or copies
        present = self.pairs.get(current.inode) if current is not None else None
        # An inode that nobody holds open may be another file's meanwhile: that the present
        # file stays is then likely, and not certain.
        held = present or self.emptied
        certain = held is not None and held.is_open
        self._by_content(certain=certain)
        self._take_shorter_copy()
        self._take_restored()
        self._take_current()
        self._take_rotated(copied=stays, certain=certain)

    def _notice_refilled(self, current: Generation) -> None:
        """Notice that a file was emptied which begins as before: there is a copy of it."""
        file = self.pairs[current.inode]
        if not file.offset.by_content:
            return
        # What one that is longer was compressed to may begin as the present file does.
        longer = [f for f in self._missing if f.offset.position > file.offset.position]
        for each in self.rotated:
            if each.inode in self.pairs or not self._is_new(each):
                continue
            if any(self._is_copy(each, other) for other in longer):
                continue
            if self._is_copy(each, file) and not self._is_copy_of_current(each):
                self.former = self.emptied = self.pairs.pop(current.inode)
                return

    def _by_inode(self) -> None:
        known = {file.offset.inode: file for file in self.files}
        known |= {file.twin[1]: file for file in self.files if file.twin is not None}
        for each in [*self.rotated, *([self.current] if self.current else ())]:
            file = known.get(each.inode)
            if file is None and each is self.current:
                file = known.get(None)  # a person said where to go on
            if file is not None and self._is_same(file, each):
                self.pairs[each.inode] = file

    def _is_same(self, file: LogFile, found: Generation) -> bool:
        if file.offset.inode is None or file.twin == (found.path, found.inode):
            return True
        if file.is_open and not file.is_packed:
            return file.continues()
        seen = (found.inode, found.size_bytes, found.mtime_ns)
        if file.verified != seen and self._has_same(found, file.offset):
            file.verified = seen
        return file.verified == seen

    def _has_same(self, found: Generation, offset: FileOffset) -> bool:
        if found.is_packed and _seconds(found.mtime_ns) == _seconds(offset.mtime_ns):
            offset = replace(offset, position=0, last="")  # no need to unpack it all
        if not offset.head_bytes:
            # A compressed file may have got the inode of one that was not begun.
            return not found.is_packed or found.mtime_ns == offset.mtime_ns
        return has_content(found, offset, self.descriptors)

    @property
    def _missing(self) -> list[LogFile]:
        taken = set(self.pairs.values())
        return [
            file
            for file in self.files
            if file not in taken and (file.offset.by_content or self._is_held(file))
        ]

    def _is_held(self, file: LogFile) -> bool:
        """Return whether a file is open that has no name any more."""
        return file.is_open and not file.is_packed and file is not self.former

    def _by_content(self, *, certain: bool) -> None:
        """Recognize what was copied or compressed by what was read of it."""
        missing = self._missing
        for each in reversed(self.rotated):
            if each.inode in self.pairs or not each.size_bytes:
                continue
            file = next((f for f in missing if self._is_copy(each, f)), None)
            if file is not None:
                self.pairs[each.inode] = file
                missing.remove(file)
                if file is self.emptied:
                    file.offset = replace(file.offset, copy=True)
                    file.is_copy = certain
                if can_unpack(each.path):
                    # More may have come before it was compressed.
                    file.offset = replace(file.offset, done=False)

    def _is_copy(self, found: Generation, file: LogFile) -> bool:
        if (found, file) in self.remembered.unlike:
            return False
        changed, read = _seconds(found.mtime_ns), _seconds(file.offset.mtime_ns)
        # logrotate gives a compressed file the time that the log had before its rotation, and
        # not that of the lines which its writer added until it went on to the new file.
        if changed < read and not (can_unpack(found.path) and self._is_new(found)):
            return False  # it has not changed since before the other was read
        if found.is_packed and not can_unpack(found.path):
            return changed == read  # whoever compresses a file gives the result its time
        offsets = [file.offset]
        if self._is_held(file):
            offsets.append(file.whole())  # it may not be begun yet
        known = [offset for offset in offsets if offset.by_content]  # an empty one is like any
        if any(has_content(found, offset, self.descriptors) for offset in known):
            return True
        self.remembered.unlike.add((found, file))
        return False

    def _take_shorter_copy(self) -> None:
        """Find the copy of a file that was read on after it was copied."""
        emptied = self.emptied
        if emptied is None or emptied in self.pairs.values():
            return
        for each in self.rotated:
            if each.inode not in self.pairs and self._is_shorter_copy(each, emptied):
                self.pairs[each.inode] = emptied
                emptied.offset = replace(emptied.offset, copy=True, done=True)
                return

    def _is_shorter_copy(self, found: Generation, emptied: LogFile) -> bool:
        if found.size_bytes > emptied.offset.position:
            return False
        if found.inode in self.remembered.copies:
            return True
        offset = replace(emptied.offset, position=0, last="")
        return (
            emptied.is_current
            and 0 < offset.head_bytes <= found.size_bytes
            and _seconds(found.mtime_ns) >= _seconds(emptied.offset.mtime_ns)
            and has_content(found, offset, self.descriptors)
        )

    def _take_restored(self) -> None:
        """Recognize the present file if somebody put back a copy of it."""
        current = self.current
        if current is None or current.inode in self.pairs or self.emptied is not None:
            return
        long = [file for file in self._missing if file.offset.is_long]
        if not long or long[-1].is_open:
            return
        if has_content(current, long[-1].offset, self.descriptors):
            self.pairs[current.inode] = long[-1]

    def _take_rotated(self, *, copied: bool, certain: bool) -> None:
        for each in self.rotated:
            if each.inode in self.pairs or not self._is_new(each):
                continue
            if copied and self._is_copy_of_current(each):
                self.remembered.copies.add(each.inode)  # until the present file is emptied
                continue
            if each.is_packed and not can_unpack(each.path):
                self._pass_over(each)
            elif self.has_current or not each.is_packed:
                offset = FileOffset(inode=each.inode, mtime_ns=each.mtime_ns, copy=copied)
                file = LogFile(each.path, offset, self.descriptors)
                file.is_copy = copied and certain
                self.pairs[each.inode] = file

    def _is_new(self, found: Generation) -> bool:
        if found.mtime_ns <= self.since_ns or not found.size_bytes:
            return False
        return found not in self.remembered.passed_over

    def _is_copy_of_current(self, found: Generation) -> bool:
        """Return whether a file is a copy of the present one, which is emptied next."""
        current = self.current
        file = None if current is None else self.pairs.get(current.inode)
        if file is None or current is None or found.is_packed:
            return False
        if file not in self.files and found is not self.rotated[-1]:
            return False
        if found.size_bytes > current.size_bytes:
            return False
        probe = LogFile(found.path, FileOffset(inode=found.inode), self.descriptors)
        with suppress(ReplacedFileError, PermissionError):
            try:
                return probe.is_beginning_of(file)
            finally:
                probe.close()
        return False

    def _pass_over(self, found: Generation) -> None:
        self.remembered.passed_over.add(found)
        if self.has_current:
            log.error(
                "a rotated file is passed over: it was compressed before it was read, in a "
                "format that cannot be read here; logrotate's delaycompress prevents that",
                file=found.path,
            )

    def _take_current(self) -> None:
        current, emptied = self.current, self.emptied
        if current is None or current.inode in self.pairs:
            return
        file = LogFile(current.path, FileOffset(inode=current.inode), self.descriptors)
        self.pairs[current.inode] = file
        if emptied is None:
            return
        with suppress(ReplacedFileError):  # the next look knows more
            file.skip_hole()
        if emptied not in self.pairs.values() and emptied.offset.head_bytes:
            log.warning(
                "the file was truncated or rewritten: it is read from its beginning; no "
                "copy of what it had was found beside it",
                file=self.path,
                position=emptied.offset.position,
            )


def has_content(found: Generation, offset: FileOffset, descriptors: Descriptors) -> bool:
    """Return whether a file has what was read of one, and perhaps more."""
    probe = LogFile(found.path, FileOffset(inode=found.inode), descriptors)
    try:
        return probe.matches(offset)
    except (ReplacedFileError, UnreadableFileError, PermissionError):
        return False
    finally:
        probe.close()


def _seconds(time_ns: int) -> int:
    return time_ns // _SECOND_NS
