"""The formats of files, told by their names."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath

__all__ = ["Format", "format_of", "is_compressed"]


class Format(StrEnum):
    """What is in a file."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    TEXT = "text"


_BY_SUFFIX = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".avro": Format.AVRO,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".log": Format.TEXT,
}
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate"})


def format_of(name: str) -> Format | None:
    """Return the format that a name or a pattern ends with, as in ``*.csv.gz``."""
    path = PurePath(name)
    if path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    return _BY_SUFFIX.get(path.suffix.lower())


def is_compressed(name: str) -> bool:
    """Return whether the name says that the whole file is compressed."""
    return PurePath(name).suffix.lower() in _COMPRESSED
