"""Files on their way to Spark: numbered, and grouped by how they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk.location import Location

if TYPE_CHECKING:
    from headrace.sdk import Schema
    from headrace_plugins.connectors.file.listing import FoundFile

__all__ = ["Group", "NumberedFile", "spark_path"]

_GLOB = re.compile(r"([\\*?\[\]{}])")


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A file and its place in the ledger."""

    number: int
    file: FoundFile

    @property
    def path(self) -> str:
        """Return the file's path."""
        return self.file.path


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are read with the same schema.

    Args:
        schema: The columns as they are in the files, in their order.
        files: The files.
    """

    schema: Schema
    files: tuple[NumberedFile, ...]


def spark_path(path: str) -> str:
    """Return the path with what Spark would take for a pattern escaped."""
    return _GLOB.sub(r"\\\1", Location.of(path).spark_path)
