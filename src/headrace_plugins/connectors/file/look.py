"""One look at the files of a log: which of them are known, by inode or by content."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from headrace_plugins.connectors.file.logfile import FileOffset, LogFile, ReplacedFileError
from headrace_plugins.connectors.file.packed import UnreadableFileError, can_unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace_plugins.connectors.file.descriptors import Descriptors
    from headrace_plugins.connectors.file.rotation import Generation

__all__ = ["Look", "Remembered", "has_content"]

log = structlog.get_logger(__name__)
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
    """Pairs the files that are there with those that are known; makes those that are new.

    Args:
        path: The log.
        files: Those that are known, oldest first.
        rotated: Those that are there under names of a rotation, oldest first.
        current: The one that is at the log's path.
        since_ns: Rotated files that have not changed since are not new.
        descriptors: What opens files.
        remembered: What earlier looks have found out.
        has_current: Whether the log has a present file.
    """

    path: str
    files: Sequence[LogFile]
    rotated: Sequence[Generation]
    current: Generation | None
    since_ns: int
    descriptors: Descriptors
    remembered: Remembered
    has_current: bool
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
                "the file was truncated or written anew: it is read from its beginning; no "
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
