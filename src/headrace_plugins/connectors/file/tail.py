"""Follows one file that lines are added to, over rotation and truncation."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Block", "Tail"]

log = structlog.get_logger(__name__)
_HEAD_BYTES = 256
"""How much of a file's beginning tells it from another that got its name or its inode."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file.

    Args:
        lines: The bytes; the last one is a line feed.
        begins: Whether they are the first of the file.
        header: The first line of the file.
        offset: Where the file stands after them.
    """

    lines: bytes
    begins: bool
    header: bytes
    offset: Mapping[str, Any]


class Tail:
    """Reads what was added to a file since an offset, one block of lines at a time.

    A last line without its line feed is held back until that comes, or until the file is
    known to be finished, as another one has its name. A file that is not there is waited for.

    Args:
        path: The file.
        offset: ``position``, in bytes, and what tells the file from others of its name:
            ``inode``, and ``head``, a digest of its first ``head_bytes``. None to begin.
        alone: Whether to go on by itself with another file that got the name. If not,
            ``replaced`` tells of it, and the file may have another name that is followed too.
    """

    def __init__(
        self, path: str, offset: Mapping[str, Any] | None = None, *, alone: bool = True
    ) -> None:
        self.path = path
        self.replaced = False
        self._alone = alone
        self._offset = dict(offset or {"position": 0})
        self._file: int | None = None
        self._inode = 0
        self._position = 0
        self._head = b""
        self._partial_at = -1

    def open(self) -> None:
        """Open the file if it is there; ``read`` does it as well."""
        self._opened()

    def read(self, size_bytes: int, max_lines: int | None = None) -> Block | None:
        """Return the next lines, or None when there are none. Costs microseconds then.

        Args:
            size_bytes: The most bytes, but for a single line that is longer.
            max_lines: The most lines.
        """
        file = self._opened()
        if file is None:
            return None
        size = os.fstat(file).st_size
        if size not in (self._position, self._partial_at):
            self._notice_rewriting(file, size)
            data = self._lines(file, size, size_bytes, max_lines)
            if data:
                return self._block(file, data, len(data))
        if not self._is_replaced():
            return None
        if not self._alone:
            self.replaced = True
            return None
        rest = self.finish()
        self._offset = {"position": 0}
        return rest or self.read(size_bytes, max_lines)

    def finish(self) -> Block | None:
        """Close a file whose writer has gone on to another; return its last, partial line.

        The caller has read the file to its end, but for what was added meanwhile.
        """
        file = self._opened()
        if file is None:
            return None
        rest = os.pread(file, os.fstat(file).st_size - self._position, self._position)
        end = b"" if rest.endswith(b"\n") else b"\n"
        block = self._block(file, rest + end, len(rest)) if rest else None
        self.close()
        return block

    @property
    def offset(self) -> Mapping[str, Any]:
        """Return where the file stands after the last block."""
        return self._offset

    @property
    def inode(self) -> int | None:
        """Return the inode of the file that is followed, as far as it is known."""
        return self._offset.get("inode") if self._file is None else self._inode

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int | None:
        if self._file is None:
            try:
                self._open()
            except FileNotFoundError:
                return None
        return self._file

    def _open(self) -> None:
        """Open the file that the offset belongs to, whatever it is called by now."""
        self._file, status = _open(self.path)
        self._partial_at = -1
        expected = self._offset.get("inode")
        if expected is not None and not self._fits(self._file, status):
            self.close()
            self._file, status = self._moved() or self._anew()
        self._inode = status.st_ino
        self._position = int(self._offset["position"])
        self._head = os.pread(self._file, min(self._position, _HEAD_BYTES), 0)

    def _fits(self, file: int, status: os.stat_result) -> bool:
        """Return whether this is the file that the offset was taken from."""
        same = (
            bool(status.st_size >= self._offset["position"])
            and _digest(os.pread(file, int(self._offset["head_bytes"]), 0))
            == self._offset["head"]
        )
        # A restored copy has another inode; a long beginning tells it well enough.
        long = self._offset["head_bytes"] == _HEAD_BYTES
        return same and (status.st_ino == self._offset["inode"] or long)

    def _moved(self) -> tuple[int, os.stat_result] | None:
        """Find the file under the new name that a rotation gave it while nobody followed."""
        for path in Path(self.path).parent.iterdir():
            if not path.is_file() or path.stat().st_ino != self._offset["inode"]:
                continue
            file, status = _open(str(path))
            if self._fits(file, status):
                return file, status
            os.close(file)
        return None

    def _anew(self) -> tuple[int, os.stat_result]:
        log.warning(
            "another file has the name of the one that was followed, which is gone: the new "
            "one is read from its beginning, and what the old one got since is not read",
            file=self.path,
            position=self._offset["position"],
        )
        self._offset = {"position": 0}
        return _open(self.path)

    def _notice_rewriting(self, file: int, size: int) -> None:
        """Begin again when the file was emptied, or written anew in its place."""
        rewritten = os.pread(file, len(self._head), 0) != self._head
        if size >= self._position and not rewritten:
            return
        log.warning(
            "the file was truncated or written anew: it is read from its beginning",
            file=self.path,
            position=self._position,
            size_bytes=size,
        )
        self._position, self._head = 0, b""

    def _lines(self, file: int, size: int, size_bytes: int, max_lines: int | None) -> bytes:
        wanted = size_bytes
        while True:
            data = os.pread(file, min(wanted, size - self._position), self._position)
            end = data.rfind(b"\n") + 1
            if end or len(data) < wanted:
                break
            wanted *= 2
        if not end:
            self._partial_at = size
            return b""
        return data[: _end_of_lines(data, max_lines, end)]

    def _block(self, file: int, lines: bytes, length: int) -> Block:
        begins = self._position == 0
        header = lines if begins else os.pread(file, 64 * 1024, 0)
        self._position += length
        if len(self._head) < _HEAD_BYTES:
            self._head = os.pread(file, min(self._position, _HEAD_BYTES), 0)
        self._offset = {
            "position": self._position,
            "inode": self._inode,
            "head": _digest(self._head),
            "head_bytes": len(self._head),
        }
        return Block(lines, begins, header.partition(b"\n")[0] + b"\n", self._offset)

    def _is_replaced(self) -> bool:
        try:
            return Path(self.path).stat().st_ino != self._inode
        except FileNotFoundError:
            # Moved away, and the new one is not there yet: more may come to the old one.
            return False


def _open(path: str) -> tuple[int, os.stat_result]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return file, os.fstat(file)


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def _end_of_lines(data: bytes, max_lines: int | None, end: int) -> int:
    """Return where the last of so many lines ends."""
    if max_lines is None:
        return end
    place = 0
    for _ in range(max_lines):
        found = data.find(b"\n", place)
        if found < 0:
            return place
        place = found + 1
    return place
