"""One file of lines, plain or compressed, identified by its inode and its content."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import lzma
import os
import resource
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace_plugins.connectors.file.record_ends import RecordEnds


EDGE_BYTES = 256
"""How many bytes at a file's beginning, and before the position, identify the file."""
HEADER_BYTES = 64 * 1024
_LONGEST_QUOTED_BYTES = 1024 * 1024
"""The longest record for which the reader waits until its quote is closed."""
_OPENERS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda raw: cast("IO[bytes]", gzip.GzipFile(fileobj=raw)),
    ".bz2": lambda raw: cast("IO[bytes]", bz2.BZ2File(raw)),
    ".xz": lambda raw: cast("IO[bytes]", lzma.LZMAFile(raw)),  # noqa: SIM115 - it is closed with its file
}
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)


class UnreadableFileError(Exception):
    """A compressed file is incomplete or broken."""


def can_unpack(path: str) -> bool:
    """Return whether a file has the extension of a compression that can be read."""
    return path.endswith(tuple(_OPENERS))


class UnpackedFile:
    """The content of a compressed file, read forwards."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._opener = _OPENERS[Path(path).suffix]
        self._descriptor = descriptor
        self._raw: IO[bytes] | None = None
        self._rewind()

    def head(self, size_bytes: int) -> bytes:
        """Return the first bytes."""
        while len(self._head) < size_bytes and self._more(size_bytes):
            pass
        return self._head[:size_bytes]

    def at(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes at a position."""
        if position < self._begin:
            self._rewind()
        self._forward(position, size_bytes)
        skip = position - self._begin
        return self._data[skip : skip + size_bytes]

    def edges(self, position: int) -> tuple[bytes, bytes]:
        """Return the first bytes, and the last ones before a position."""
        length = min(position, EDGE_BYTES)
        return self.head(length), self.at(position - length, length)

    def close(self) -> None:
        """Close the decompressor."""
        self._file.close()
        if self._raw is not None:
            self._raw.close()

    def _rewind(self) -> None:
        if self._raw is not None:
            self.close()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._raw = os.fdopen(os.dup(self._descriptor), "rb")
        self._file = self._opener(self._raw)
        self._begin, self._data, self._head = 0, b"", b""

    def _forward(self, position: int, size_bytes: int) -> None:
        while self._begin + len(self._data) < position + size_bytes:
            missing = position + size_bytes - self._begin - len(self._data)
            if not self._more(missing):
                return
            keep = max(0, min(position, self._begin + len(self._data)) - EDGE_BYTES)
            if keep - self._begin > 1 << 20:
                self._data, self._begin = self._data[keep - self._begin :], keep

    def _more(self, size_bytes: int) -> bool:
        try:
            data = self._file.read(min(max(size_bytes, 1 << 16), 1 << 20))
        except _BROKEN as error:
            raise UnreadableFileError(str(error)) from error
        if self._begin == 0 and len(self._head) < HEADER_BYTES:
            self._head = (self._head + data)[:HEADER_BYTES]
        self._data += data
        return bool(data)


class ReplacedFileError(Exception):
    """The path now has another file, or the file no longer has the data that was read."""


@dataclass(frozen=True, slots=True)
class FileOffset:
    """The position in a file, and fields that identify the file.

    Args:
        position: In bytes, of the uncompressed content.
        inode: None if a user set the position.
        head: A digest of the first ``head_bytes``.
        head_bytes: At most as many as were read.
        last: A digest of the bytes before the position, empty in positions of version 0.1.
        mtime_ns: The modification time of the file when it was read.
        copy: Whether the file is a copy that ``copytruncate`` made before it emptied the log.
        done: Whether the file is read to its end.
    """

    position: int = 0
    inode: int | None = None
    head: str = ""
    head_bytes: int = 0
    last: str = ""
    mtime_ns: int = 0
    copy: bool = False
    done: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FileOffset:
        """Parse the result of ``to_json``, or what a user has set of it."""
        return cls(
            **{each.name: value[each.name] for each in fields(cls) if each.name in value}
        )

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        found: dict[str, Any] = {"position": self.position}
        if self.inode is not None:
            found |= {"inode": self.inode, "head": self.head, "head_bytes": self.head_bytes}
            found |= {"last": self.last, "mtime_ns": self.mtime_ns}
        if self.copy:
            found["copy"] = True
        if self.done:
            found["done"] = True
        return found

    @property
    def is_long(self) -> bool:
        """Return whether the beginning is long enough to identify the file by its content."""
        return self.head_bytes == EDGE_BYTES

    @property
    def by_content(self) -> bool:
        """Return whether enough is known to recognize a copy of the file."""
        return self.head_bytes > 0 and (self.last != "" or self.is_long)


@dataclass(eq=False)
class LogFile:
    """Reads a file from its offset; opened when needed, closed to free descriptors.

    The path is empty if the file's current path is unknown.
    """

    path: str
    offset: FileOffset
    descriptors: Descriptors
    present: bool = True
    """Whether the file has a name that belongs to its log."""
    complete: bool = False
    """Whether nothing more can be appended to the file."""
    is_current: bool = False
    """Whether the file has the log's own name."""
    is_copy: bool = False
    """Whether the file is certainly a copy, to which nothing is appended."""
    changed_at: float = 0.0
    """When the file was last seen to have grown or to have been renamed."""
    mtime_ns: int = 0
    """When the content last changed, by the file system's clock."""
    caught_up: bool = False
    """Whether the last read reached the end of the file."""
    twin: tuple[str, int] | None = None
    """The path and inode of a compressed copy, while the original is still open."""
    verified: tuple[int, int, int] | None = None
    """The inode, size and mtime with which the file was last recognized."""
    seen_bytes: int = -1
    """The file's size when it was last read."""
    _seen: tuple[int, int] | None = None
    """The file's size and mtime when it had no further complete line."""
    _partial: bytes = b""
    """The beginning of an incomplete line that was seen but is not read yet."""
    _unpacked: UnpackedFile | None = None

    @property
    def may_close(self) -> bool:
        """Return whether the file can be opened again by its path."""
        return self.present and not self.is_packed

    @property
    def is_open(self) -> bool:
        """Return whether the file is open, and so cannot be lost."""
        return self.descriptors.find(self) is not None

    @property
    def is_packed(self) -> bool:
        """Return whether the file is compressed."""
        return can_unpack(self.path)

    def open(self) -> int:
        """Open the file if needed. Raises ReplacedFileError if the path has another file."""
        if self.is_open:
            return self.descriptors.get(self)
        try:
            descriptor = self.descriptors.get(self)
        except FileNotFoundError as error:
            raise ReplacedFileError from error
        if self.offset.inode not in (None, os.fstat(descriptor).st_ino):
            self.close()
            raise ReplacedFileError
        self._seen, self._partial = None, b""
        return descriptor

    def close(self) -> None:
        """Close the file."""
        if self._unpacked is not None:
            self._unpacked.close()
            self._unpacked = None
        self.descriptors.close(self)

    def status(self) -> os.stat_result:
        """Return the file's current status, without opening the file.

        Raises ReplacedFileError if the file is not open and the path has another file now.
        """
        descriptor = self.descriptors.find(self)
        if descriptor is not None:
            return os.fstat(descriptor)
        try:
            status = Path(self.path).stat()
        except OSError as error:
            raise ReplacedFileError from error
        if self.offset.inode not in (None, status.st_ino):
            raise ReplacedFileError
        return status

    def lines(self, size_bytes: int, max_lines: int | None, ends: RecordEnds) -> bytes:
        """Return the next complete records, or nothing; ``advance`` moves past them.

        If a quote is not closed within 1 MiB, the first line of that record is returned.

        Raises:
            ReplacedFileError: The path has another file, or the file was emptied.
            UnreadableFileError: The file is compressed, and broken or incomplete.
        """
        status = self.status()
        self.seen_bytes = status.st_size
        if not self.is_packed:
            seen = (status.st_size, status.st_mtime_ns)
            self.caught_up = status.st_size == self.offset.position
            if seen == self._seen:
                return b""
            descriptor = self.open()
            if not self._continues(descriptor, status.st_size):
                raise ReplacedFileError
        length = size_bytes
        while True:
            data = self.peek(length)
            end = ends.whole(data)
            if not end and len(data) > _LONGEST_QUOTED_BYTES:
                end = data.find(b"\n") + 1
            if end or len(data) < length:
                break
            length *= 2
        if not end:
            self._seen = (status.st_size, status.st_mtime_ns)
            self._partial = data[:EDGE_BYTES]
            return b""
        if max_lines is None:
            return data[:end]
        return b"".join(ends.records(data[:end])[:max_lines])

    def peek(self, size_bytes: int) -> bytes:
        """Return the next bytes, whether or not they end a line."""
        descriptor = self.open()
        if self.is_packed:
            return self._unpack(descriptor).at(self.offset.position, size_bytes)
        return os.pread(descriptor, size_bytes, self.offset.position)

    def rest(self) -> bytes:
        """Return the rest of the file."""
        if self.is_packed:
            return self.peek(1 << 62)
        descriptor = self.open()
        size = os.fstat(descriptor).st_size
        return self.peek(max(0, size - self.offset.position))

    def header(self, ends: RecordEnds) -> bytes:
        """Return the first record."""
        head = self._head(self.open(), HEADER_BYTES)
        return head[: ends.first_end(head)]

    def advance(self, data: bytes) -> None:
        """Move the offset past ``data``, which was read from here."""
        self._seen, self._partial = None, b""
        self.offset = self._at(self.offset.position + len(data))

    def whole(self) -> FileOffset:
        """Return the offset at the file's current end."""
        return self._at(os.fstat(self.open()).st_size)

    def _at(self, position: int) -> FileOffset:
        descriptor = self.open()
        status = os.fstat(descriptor)
        head, last = self._edges(descriptor, position)
        return replace(
            self.offset,
            position=position,
            inode=status.st_ino,
            head=_digest(head),
            head_bytes=len(head),
            last=_digest(last),
            mtime_ns=status.st_mtime_ns,
        )

    def skip_hole(self) -> None:
        """Skip zero bytes at the beginning.

        A writer that does not open its file in append mode keeps its position when the file is
        emptied, which leaves a hole.
        """
        descriptor = self.open()
        if self.is_packed or self.offset.position or os.pread(descriptor, 1, 0) != b"\0":
            return
        try:
            begin = os.lseek(descriptor, 0, os.SEEK_DATA)
        except OSError:
            return  # the file is only a hole
        while (data := os.pread(descriptor, 1 << 20, begin)) and not data.strip(b"\0"):
            begin += len(data)
        begin += len(data) - len(data.lstrip(b"\0"))
        if data:
            self.offset = replace(self.offset, position=begin)

    def continues(self) -> bool:
        """Return whether the open file still has the data read; it may have been emptied."""
        descriptor = self.open()
        return self._continues(descriptor, os.fstat(descriptor).st_size)

    def matches(self, offset: FileOffset) -> bool:
        """Return whether this file has all data that was read from another file.

        Raises UnreadableFileError if this file is compressed, and broken or incomplete.
        """
        descriptor = self.open()
        if not self.is_packed and os.fstat(descriptor).st_size < offset.position:
            return False
        head = self._head(descriptor, offset.head_bytes)
        if len(head) < offset.head_bytes or _digest(head) != offset.head:
            return False
        return self._has_last(descriptor, offset)

    def _has_last(self, descriptor: int, offset: FileOffset) -> bool:
        if not offset.last:
            return True
        return _digest(self._edges(descriptor, offset.position)[1]) == offset.last

    def _head(self, descriptor: int, size_bytes: int) -> bytes:
        if self.is_packed:
            return self._unpack(descriptor).head(size_bytes)
        return os.pread(descriptor, size_bytes, 0)

    def is_beginning_of(self, other: LogFile) -> bool:
        """Return whether the other file begins with the whole content of this file."""
        mine, theirs = self.open(), other.open()
        size = os.fstat(mine).st_size
        length = min(size, EDGE_BYTES)
        return all(
            os.pread(mine, length, at) == os.pread(theirs, length, at)
            for at in (0, size - length)
        )

    def _continues(self, descriptor: int, size: int) -> bool:
        offset = self.offset
        if size < offset.position:
            return False
        if os.pread(descriptor, len(self._partial), offset.position) != self._partial:
            return False
        head = os.pread(descriptor, offset.head_bytes, 0)
        if offset.head_bytes and _digest(head) != offset.head:
            return False
        return self._has_last(descriptor, offset)

    def _edges(self, descriptor: int, position: int) -> tuple[bytes, bytes]:
        """Return the first bytes, and the last ones before a position."""
        length = min(position, EDGE_BYTES)
        if self.is_packed:
            return self._unpack(descriptor).edges(position)
        head = os.pread(descriptor, length, 0)
        return head, os.pread(descriptor, length, position - length)

    def _unpack(self, descriptor: int) -> UnpackedFile:
        if self._unpacked is None:
            self._unpacked = UnpackedFile(self.path, descriptor)
        return self._unpacked


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


_MOST = 512
_FULL = {errno.EMFILE, errno.ENFILE}


class TooManyOpenFilesError(OSError):
    """No further file can be opened, and none of the open files may be closed."""


class Descriptors:
    """Keeps the most recently used files open. Not thread-safe.

    By default at most a quarter of the process's limit, as the process opens other files too.
    """

    def __init__(self, most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = _MOST if soft == resource.RLIM_INFINITY else soft // 4
        self.most = most or max(8, min(_MOST, share))
        self._open: OrderedDict[LogFile, int] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of open files."""
        return len(self._open)

    def find(self, file: LogFile) -> int | None:
        """Return the descriptor of a file if it is open."""
        return self._open.get(file)

    def get(self, file: LogFile) -> int:
        """Return the descriptor of a file; open the file if needed.

        Raises FileNotFoundError, and TooManyOpenFilesError if the process's limit is reached.
        """
        descriptor = self._open.get(file)
        if descriptor is not None:
            self._open.move_to_end(file)
            return descriptor
        while len(self._open) >= self.most and self._close_one():
            pass
        descriptor = self._opened(file.path)
        self._open[file] = descriptor
        return descriptor

    def close(self, file: LogFile) -> None:
        """Close a file if it is open."""
        descriptor = self._open.pop(file, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        """Close all files."""
        for file in list(self._open):
            self.close(file)

    def _opened(self, path: str) -> int:
        while True:
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if not self._close_one():
                    raise TooManyOpenFilesError(error.errno, str(error), path) from error

    def _close_one(self) -> bool:
        file = next((file for file in self._open if file.may_close), None)
        if file is not None:
            self.close(file)
        return file is not None
