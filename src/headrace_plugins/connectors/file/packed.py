"""Reads compressed files forwards."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

__all__ = ["EDGE_BYTES", "UnpackedFile", "UnreadableFileError", "can_unpack"]

EDGE_BYTES = 256
"""How much of a file's beginning, and of what was read last, tells it from others."""
HEADER_BYTES = 64 * 1024
_OPENERS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda raw: cast("IO[bytes]", gzip.GzipFile(fileobj=raw)),
    ".bz2": lambda raw: cast("IO[bytes]", bz2.BZ2File(raw)),
    ".xz": lambda raw: cast("IO[bytes]", lzma.LZMAFile(raw)),  # noqa: SIM115 - it is closed with its owner
}
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)


class UnreadableFileError(Exception):
    """A compressed file is incomplete or broken."""


def can_unpack(path: str) -> bool:
    """Return whether a file has the name of one that is compressed, and can be read."""
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
        """Close what unpacks the file."""
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
