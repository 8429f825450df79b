"""Names of rotated log files, and matching of the files found with the known ones."""

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
"""A folder that changed this recently may change again within the same clock tick."""
TIMES_AS_LONG = 20
"""A folder or file is looked at again after this many times the duration of the last look."""


def base_names(name: str) -> list[str]:
    """Return the names that a file may have had before it was rotated.

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
    """Return the path of the log that a possibly rotated file belongs to."""
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
    """A file of a log, as found by a look."""

    path: str
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def at(cls, path: str) -> Generation | None:
        """Return the file at a path; None if there is none."""
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of files may be looked at
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def is_packed(self) -> bool:
        """Return whether the file is compressed."""
        return is_packed(self.path)


def is_packed(path: str) -> bool:
    """Return whether the name is that of a compressed file."""
    return _COMPRESSION.search(path) is not None


def oldest_first(files: Iterable[Generation]) -> list[Generation]:
    """Return rotated files in order: by number, or else by modification time."""
    orders = {each: rotation_order(each.path.rpartition("/")[2]) for each in files}
    if all(number < 0 for number, _ in orders.values()):
        return sorted(orders, key=lambda each: (orders[each], each.mtime_ns))
    return sorted(orders, key=lambda each: (each.mtime_ns, orders[each]))


def without_packed_twins(files: Sequence[Generation]) -> list[Generation]:
    """Return the files without compressed ones whose originals still exist."""
    names = {each.path for each in files}
    return [
        each
        for each in files
        if not each.is_packed or each.path.rpartition(".")[0] not in names
    ]


class Siblings:
    """Finds the rotated files of logs; lists a folder again only if it has changed."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    def of(self, path: str, *, fresh: bool = False) -> list[str]:
        """Return the paths of the log's rotated files, in no order.

        If ``fresh``, changes of the last milliseconds are seen too.
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
    until = float("inf") if settled else begun + took * TIMES_AS_LONG
    return _Folder(changed_ns, until, found)


_SECOND_NS = 1_000_000_000


@dataclass
class Remembered:
    """Cached results of earlier looks."""

    passed_over: set[Generation] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    """The inodes of copies of the current file."""
    unlike: set[tuple[Generation, LogFile]] = field(default_factory=set)
    """Pairs of a found file and a known file whose content it does not have."""

    def forget(self, found: Iterable[Generation]) -> None:
        """Forget all but these files."""
        here = set(found)
        self.passed_over &= here
        self.copies &= {each.inode for each in here}
        self.unlike = {each for each in self.unlike if each[0] in here}


@dataclass(kw_only=True)
class Look:
    """Pairs the files found with the known files, and creates the new ones."""

    path: str
    """The log."""
    files: Sequence[LogFile]
    """The known files, oldest first."""
    rotated: Sequence[Generation]
    """The files found under rotated names, oldest first."""
    current: Generation | None
    """The file found at the log's path."""
    since_ns: int
    """Rotated files that have not changed since then are not new."""
    descriptors: Descriptors
    remembered: Remembered
    """Cached results of earlier looks."""
    has_current: bool
    """Whether the log has a current file, at its path."""
    pairs: dict[int, LogFile] = field(default_factory=dict)
    """The known and new files, by their inodes now."""
    former: LogFile | None = None
    """The known file that had the current file's inode but has other content."""
    emptied: LogFile | None = None
    """``former``, if it was the current file and so was emptied; else the inode was reused."""

    def pair(self) -> None:
        """Fill the pairs; otherwise change only the copy flags of files."""
        self._by_inode()
        current = self.current
        known = current is not None and current.inode in self.pairs
        if current is not None and current.inode not in self.pairs:
            self.former = next((f for f in self.files if f.offset.inode == current.inode), None)
            newest = next((f for f in reversed(self.files) if not f.offset.done), None)
            self.emptied = self.former if self.former is newest else None
        elif current is not None:
            self._notice_refilled(current)
        # If the current file stays, a new file next to it is a copy of it.
        copies = any(file.offset.copy for file in self.files[-2:])
        stays = known or self.emptied is not None or copies
        present = self.pairs.get(current.inode) if current is not None else None
        # The inode of a file that is not open may have been reused for another file: that the
        # current file stays is then likely, but not certain.
        held = present or self.emptied
        certain = held is not None and held.is_open
        self._by_content(certain=certain)
        self._take_shorter_copy()
        self._take_restored()
        self._take_current()
        self._take_rotated(copied=stays, certain=certain)

    def _notice_refilled(self, current: Generation) -> None:
        """Detect by its copy that a file was emptied, although it begins as before."""
        file = self.pairs[current.inode]
        if not file.offset.by_content:
            return
        # The compressed copy of a longer file may begin as the current file does.
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
                file = known.get(None)  # a user set the position
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
            offset = replace(offset, position=0, last="")  # avoids decompressing the whole file
        if not offset.head_bytes:
            # A compressed file may have reused the inode of a file that was not started.
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
        """Return whether a file is open that no longer has a name."""
        return file.is_open and not file.is_packed and file is not self.former

    def _by_content(self, *, certain: bool) -> None:
        """Recognize copied or compressed files by the content that was read."""
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
                    # Lines may have been appended before the file was compressed.
                    file.offset = replace(file.offset, done=False)

    def _is_copy(self, found: Generation, file: LogFile) -> bool:
        if (found, file) in self.remembered.unlike:
            return False
        changed, read = _seconds(found.mtime_ns), _seconds(file.offset.mtime_ns)
        # logrotate sets the mtime of a compressed file to the log's mtime before the rotation,
        # not to that of the lines that the writer appended before it switched to the new file.
        if changed < read and not (can_unpack(found.path) and self._is_new(found)):
            return False  # unchanged since before the other file was read
        if found.is_packed and not can_unpack(found.path):
            return changed == read  # compression programs preserve the mtime
        offsets = [file.offset]
        if self._is_held(file):
            offsets.append(file.whole())  # the file may not be started yet
        known = [offset for offset in offsets if offset.by_content]  # an empty one matches any
        if any(has_content(found, offset, self.descriptors) for offset in known):
            return True
        self.remembered.unlike.add((found, file))
        return False

    def _take_shorter_copy(self) -> None:
        """Find the copy of a file that was read further after it was copied."""
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
        """Recognize the current file if it was restored from a copy."""
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
                self.remembered.copies.add(each.inode)  # until the current file is emptied
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
        """Return whether a file is a copy of the current file, which is emptied next."""
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
                "skipping a rotated file: it was compressed before it was read, in an "
                "unsupported format; logrotate's delaycompress prevents that",
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
        with suppress(ReplacedFileError):  # the next look handles this
            file.skip_hole()
        if emptied not in self.pairs.values() and emptied.offset.head_bytes:
            log.warning(
                "the file was truncated or rewritten: reading it from its beginning; no copy "
                "of its former content was found next to it",
                file=self.path,
                position=emptied.offset.position,
            )


def has_content(found: Generation, offset: FileOffset, descriptors: Descriptors) -> bool:
    """Return whether a file has all data that was read up to ``offset``."""
    probe = LogFile(found.path, FileOffset(inode=found.inode), descriptors)
    try:
        return probe.matches(offset)
    except (ReplacedFileError, UnreadableFileError, PermissionError):
        return False
    finally:
        probe.close()


def _seconds(time_ns: int) -> int:
    return time_ns // _SECOND_NS
