"""Files that are compressed as a whole, as the ends of their names say."""

from __future__ import annotations

import zlib
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OF_ARROW = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
COMPRESSED = frozenset({*_OF_ARROW, ".lz4", ".snappy", ".deflate"})
_READ_BYTES = 1024 * 1024
_SEVEN_BITS = 0x7F
_SIZE_BYTES = 4
_BROKEN = "It is not as Hadoop compresses it, or ends too early"
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_BUFFER = 256 * 1024
_LZ4_MOST = _LZ4_BUFFER - _LZ4_BUFFER // 255 - 16
"""How much of a text Hadoop's codec compresses at once, with the settings that it has."""


class Readable(Protocol):
    """What gives bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""


def is_compressed(name: str) -> bool:
    """Return whether the name says that the whole file is compressed."""
    return PurePath(name).suffix.lower() in COMPRESSED


def unpacked(file: pa.NativeFile, name: str) -> pa.NativeFile | Readable:
    """Return what reads the contents of a file of that name.

    What Spark and Hadoop write as lz4 and snappy are blocks of their own form; lz4 may have
    its own form too. Reading raises OSError if it is not so compressed.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix in _OF_ARROW:
        return pa.CompressedInputStream(file, _OF_ARROW[suffix])
    if suffix == ".deflate":
        return _Unpacked(_inflated(file))
    if suffix == ".snappy":
        return _Unpacked(_hadoop_blocks(file, _snappy_block))
    if suffix == ".lz4":
        is_frame = bytes(file.read(len(_LZ4_FRAME))) == _LZ4_FRAME
        file.seek(0)
        if is_frame:
            return pa.CompressedInputStream(file, "lz4")
        return _Unpacked(_hadoop_blocks(file, _lz4_block))
    return file


class _Unpacked:
    """Reads from parts of any size."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        found, have = [self._rest], len(self._rest)
        while have < size and (part := next(self._parts, b"")):
            found.append(part)
            have += len(part)
        data = b"".join(found)
        self._rest = data[size:]
        return data[:size]


def _inflated(file: pa.NativeFile) -> Iterator[bytes]:
    # There may be several streams, one behind the other.
    stream, is_begun = zlib.decompressobj(), False
    try:
        while data := bytes(file.read(_READ_BYTES)):
            while data:
                if stream.eof:
                    stream = zlib.decompressobj()
                is_begun = True
                if part := stream.decompress(data):
                    yield part
                data = stream.unused_data
    except zlib.error as error:
        raise OSError(str(error)) from error
    if is_begun and not stream.eof:
        message = "It ends too early"
        raise OSError(message)


def _hadoop_blocks(
    file: pa.NativeFile, block: Callable[[bytes, int], bytes]
) -> Iterator[bytes]:
    """Yield what blocks hold: the size of each and then its parts, each after its own size."""
    while header := file.read(_SIZE_BYTES):
        left = int.from_bytes(header, "big")
        if len(header) < _SIZE_BYTES or (not left and file.read(1)):
            raise OSError(_BROKEN)
        while left > 0:
            size = int.from_bytes(file.read(_SIZE_BYTES), "big")
            data = bytes(file.read(size))
            part = block(data, left) if data and len(data) == size else b""
            if not part:
                raise OSError(_BROKEN)
            yield part
            left -= len(part)


def _snappy_block(data: bytes, most: int) -> bytes:
    # It begins with its size, seven bits a byte, the last of which has no high bit.
    size, shift = 0, 0
    for byte in data:
        size |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if byte <= _SEVEN_BITS:
            break
    if not 0 < size <= most:
        return b""
    return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))


def _lz4_block(data: bytes, most: int) -> bytes:
    codec, size = pa.Codec("lz4_raw"), min(most, _LZ4_MOST)
    part = bytes(codec.decompress(data, size, asbytes=True))
    try:
        # The codec fills with zeros what it is asked for more than there is.
        codec.decompress(data, size - 1)
    except OSError:
        return part
    return b""
