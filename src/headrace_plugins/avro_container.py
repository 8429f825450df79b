"""Reads the header of an Avro object container file, without Avro's library.

avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import io

CONTAINER = b"Obj\x01"
"""The first bytes of each file."""


def container_metadata(head: bytes) -> dict[str, bytes]:
    """Return the metadata at the beginning of a file. Raises ValueError if it has none."""
    file = io.BytesIO(head)
    pairs: dict[str, bytes] = {}
    try:
        if file.read(len(CONTAINER)) == CONTAINER:
            # A map is a sequence of blocks of pairs; an empty block ends it.
            while (count := _long(file)) != 0:
                if count < 0:
                    _long(file)  # the size of the block
                for _ in range(abs(count)):
                    name = file.read(_long(file)).decode()
                    pairs[name] = file.read(_long(file))
    except IndexError:
        pairs.clear()
    if not pairs:
        problem = "no header of an Avro object container file"
        raise ValueError(problem)
    return pairs


def _long(file: io.BytesIO) -> int:
    """Read a variable-length zig-zag number."""
    value = shift = 0
    while True:
        byte = file.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the high bit means that more bytes follow
            return (value >> 1) ^ -(value & 1)
        shift += 7
