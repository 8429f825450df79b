"""Follows a log that lines are appended to, across rotation and truncation."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from headrace_plugins.connectors.file.generations import Generations
from headrace_plugins.connectors.file.logfile import (
    Descriptors,
    ReplacedFileError,
    TooManyOpenFilesError,
    UnreadableFileError,
)
from headrace_plugins.connectors.file.record_ends import LineEnds
from headrace_plugins.connectors.file.rotation import TIMES_AS_LONG, Siblings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace_plugins.connectors.file.logfile import LogFile
    from headrace_plugins.connectors.file.record_ends import RecordEnds


log = structlog.get_logger(__name__)
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
