"""The head of an Avro file, as its specification lays it down.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import io

from headrace.sdk import SourceError
from headrace.sdk.location import Location

__all__ = ["writer_schema"]

_MAGIC = b"Obj\x01"
_HEAD_BYTES = 1024 * 1024


def writer_schema(path: str) -> str:
    """Return the schema that an Avro file was written with, as its JSON text.

    Raises:
        SourceError: It is no Avro file.
    """
    with Location.of(path).open_input() as file:
        head = io.BytesIO(file.read(_HEAD_BYTES))
    try:
        if head.read(4) == _MAGIC:
            return _metadata(head)["avro.schema"].decode()
    except (KeyError, IndexError, UnicodeDecodeError):
        pass
    raise SourceError(problem=f"{path} is no Avro file.", fix="Mend or remove the file.")


def _metadata(head: io.BytesIO) -> dict[str, bytes]:
    """Read a map: blocks of pairs, the last of which is empty."""
    pairs: dict[str, bytes] = {}
    while (count := _long(head)) != 0:
        if count < 0:
            # A negative count is followed by the size of the block.
            _long(head)
        for _ in range(abs(count)):
            name = head.read(_long(head)).decode()
            pairs[name] = head.read(_long(head))
    return pairs


def _long(head: io.BytesIO) -> int:
    """Read a variable-length zig-zag number."""
    value = shift = 0
    while True:
        byte = head.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return (value >> 1) ^ -(value & 1)
        shift += 7
