"""Finds the files that a path, a folder or a glob names."""

from __future__ import annotations

import glob
import os
import stat
import zlib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

__all__ = ["FoundFile", "Listing", "Share"]

_HIDDEN = ("_", ".")
"""Files that are being written begin so, by the custom of Hadoop and of rsync."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was when it was found."""

    path: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int = field(default=0, compare=False)
    """When the file system saw it change: nobody can set that."""

    @classmethod
    def from_item(cls, item: Mapping[str, str | int]) -> FoundFile:
        """Read what ``to_item`` wrote."""
        return cls(str(item["path"]), int(item["size"]), int(item["mtime_ns"]))

    def to_item(self) -> dict[str, str | int]:
        """Return the form kept in a ledger."""
        return {"path": self.path, "size": self.size_bytes, "mtime_ns": self.mtime_ns}

    def changed_ns(self, now_ns: int) -> int:
        """Return when it changed; its own time is not believed when that is to come."""
        return self.mtime_ns if self.mtime_ns <= now_ns else self.ctime_ns

    def now(self) -> FoundFile | None:
        """Return the file as it is at this moment; None when it is gone."""
        return _found(self.path)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the files that one of several tasks reads, by a hash of their paths."""

    number: int = 0
    of: int = 1

    @classmethod
    def from_text(cls, text: str) -> Share:
        """Read what ``str`` gave."""
        number, _, of = text.partition("/")
        return cls(int(number), int(of))

    @override
    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, path: str) -> bool:
        """Return whether the file belongs to this share, on every machine and for ever."""
        return self.of == 1 or zlib.crc32(path.encode()) % self.of == self.number


@dataclass(frozen=True, slots=True)
class Listing:
    """What a configured path stands for.

    Args:
        path: A file, a folder, or a glob in which ``**`` goes through all subfolders.
        recursive: Whether folders are searched to the depth.
    """

    path: str
    recursive: bool = False

    @property
    def is_glob(self) -> bool:
        """Return whether the path is a pattern and not the name of something."""
        return glob.has_magic(self.path) and not Path(self.path).exists()

    @property
    def root(self) -> Path:
        """Return the folder that all files are in."""
        path = Path(self.path)
        if not self.is_glob:
            return path if path.is_dir() else path.parent
        fixed = [part for part in path.parts if not glob.has_magic(part)]
        depth = next(n for n, part in enumerate(path.parts) if glob.has_magic(part))
        return Path(*fixed[:depth]) if depth else Path()

    @property
    def is_single(self) -> bool:
        """Return whether the path is that of one file, which need not exist yet."""
        return not self.is_glob and not Path(self.path).is_dir()

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files, in no order; one may vanish meanwhile."""
        if not self.is_glob:
            yield from _under(self.path, recursive=self.recursive)
            return
        start = len(self.root.parts)
        for path in glob.iglob(self.path, recursive=True):  # noqa: PTH207 - pathlib's has no pattern from the root
            if not any(part.startswith(_HIDDEN) for part in Path(path).parts[start:]):
                yield from _under(path, recursive=self.recursive)

    def covers(self, path: str) -> bool:
        """Return whether a file of that path would be listed if it existed."""
        if self.is_single:
            return path == self.path
        if not self.is_glob:
            folder = Path(path).parent
            return folder == Path(self.path) or (
                self.recursive and folder.is_relative_to(self.path)
            )
        pattern, parts = Path(self.path).parts, Path(path).parts
        least = 0 if self.recursive else len(parts) - 1
        return any(_fits(pattern, parts[:end]) for end in range(len(parts), least - 1, -1))

    def new(self, known: Container[str], *, share: Share) -> list[FoundFile]:
        """Return files that are not known yet and not empty, by time of change and path.

        Only unknown files are looked at, so that an idle call costs a listing. An empty file
        has nothing to read, but may be about to be written.

        Args:
            known: Paths found before.
            share: Files of other shares are left out.
        """
        paths = {path for path in self.paths() if path not in known and share.has(path)}
        files = [file for file in map(_found, paths) if file is not None and file.size_bytes]
        return sorted(files, key=lambda file: (file.mtime_ns, file.path))


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether a path matches a glob, part by part."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(pattern[1:], parts[skip:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _fits(pattern[1:], parts[1:])


def _under(path: str, *, recursive: bool) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith(_HIDDEN):
                    continue
                if not entry.is_dir():
                    yield entry.path
                elif recursive:
                    yield from _under(entry.path, recursive=True)
    except NotADirectoryError:
        yield path
    except FileNotFoundError:
        return


def _found(path: str) -> FoundFile | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FoundFile(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
