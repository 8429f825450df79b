"""The names that a rotation gives to log files."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Generation",
    "Siblings",
    "base_names",
    "base_path",
    "is_packed",
    "oldest_first",
    "rotation_order",
    "without_packed_twins",
]

_COMPRESSION = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|snappy|deflate|Z)$")
_DATE = (
    r"(?:\d{2}[.-]\d{2}[.-]\d{4}|\d{4}-\d{2}(?:-\d{2}(?:[T_.-]?\d{2}(?:[-:.]?\d{2}(?:[-:.]?\d{2})?)?)?)?|\d{8,14})"
    r"(?:[-_.T]\d{1,10})?"
)
_SUFFIX = re.compile(rf"^(?P<base>.+?)(?P<mark>\.\d{{1,5}}|[-_.]{_DATE}|\.old)$")
_BEFORE_EXTENSION = re.compile(
    rf"^(?P<base>.+?)(?P<mark>\.\d{{1,5}}|[-_.]{_DATE})(?P<extension>\.[A-Za-z]\w{{0,15}})$"
)
_SETTLED_NS = 50_000_000
"""A folder whose last change is as recent may have another within the same clock tick."""
_TIMES_AS_LONG = 20
"""Such a folder is listed again after as many times as long as it took to list it."""


def base_names(name: str) -> list[str]:
    """Return the names that a file may have had before rotations gave it this one.

    The last one is the name of the log itself: ``app.log`` for ``app.log.2.gz``,
    ``app.log-20260131`` and ``app-20260131.log``.
    """
    names = []
    plain = _COMPRESSION.sub("", name)
    if plain not in (name, ""):
        names.append(plain)
    if (found := _SUFFIX.match(plain)) is not None:
        names.append(found["base"])
    elif (found := _BEFORE_EXTENSION.match(plain)) is not None:
        names.append(found["base"] + found["extension"])
    return names


def base_path(path: str) -> str:
    """Return the path of the log that a file belongs to, whatever rotations called it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, (base_names(name) or [name])[-1])  # noqa: PTH118 - pathlib would normalize it


def _all_bases(name: str) -> set[str]:
    bases = set(base_names(name))
    plain = _COMPRESSION.sub("", name)
    for sign in re.finditer(r"[-_.](?=\d)", plain):
        rest = plain[sign.end() :]
        if sign.start() and re.fullmatch(r"[\dT:_.\-Z+]+", rest):
            bases.add(plain[: sign.start()])
    return bases


def rotation_order(name: str) -> tuple[int, str]:
    """Return a key that sorts the names of one kind of rotation, oldest file first."""
    plain = _COMPRESSION.sub("", name)
    found = _SUFFIX.match(plain) or _BEFORE_EXTENSION.match(plain)
    mark = found["mark"] if found is not None else ""
    if re.fullmatch(r"\.\d{1,5}", mark):
        return -int(mark[1:]), ""
    return 0, mark


@dataclass(frozen=True, slots=True)
class Generation:
    """A file of a log, as a look found it."""

    path: str
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def at(cls, path: str) -> Generation | None:
        """Return the file of a path; None if there is none."""
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of files may be looked at
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        times = status.st_mtime_ns, status.st_ctime_ns
        return cls(path, status.st_ino, status.st_size, *times)

    @property
    def is_packed(self) -> bool:
        """Return whether it is compressed."""
        return is_packed(self.path)


def is_packed(path: str) -> bool:
    """Return whether the name is that of a compressed file."""
    return _COMPRESSION.search(path) is not None


def oldest_first(files: Iterable[Generation]) -> list[Generation]:
    """Return rotated files in their order: by their numbers, or else by their times."""
    orders = {each: rotation_order(each.path.rpartition("/")[2]) for each in files}
    if all(number < 0 for number, _ in orders.values()):
        return sorted(orders, key=lambda each: (orders[each], each.mtime_ns))
    return sorted(orders, key=lambda each: (each.mtime_ns, orders[each]))


def without_packed_twins(files: Sequence[Generation]) -> list[Generation]:
    """Leave out compressed files whose originals are there still."""
    names = {each.path for each in files}
    return [
        each
        for each in files
        if not each.is_packed or each.path.rpartition(".")[0] not in names
    ]


class Siblings:
    """Finds the rotated files of logs; a folder is listed again only when it has changed."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    def of(self, path: str, *, fresh: bool = False) -> list[str]:
        """Return the paths of the files that were rotated away from ``path``, in no order.

        Args:
            path: The log.
            fresh: Whether changes of the last milliseconds matter too.
        """
        folder, name = os.path.split(path)
        try:
            changed = Path(folder).stat().st_mtime_ns
            kept = None if fresh else self._folders.get(folder)
            if kept is None or kept.changed_ns != changed or time.monotonic() >= kept.until:
                kept = self._folders[folder] = _listed(folder, changed)
        except OSError:
            return []
        return [f"{folder}/{each}" for each in kept.by_base.get(name, [])]


@dataclass(frozen=True, slots=True)
class _Folder:
    changed_ns: int
    until: float
    by_base: dict[str, list[str]]


def _listed(folder: str, changed_ns: int) -> _Folder:
    begun = time.monotonic()
    found: dict[str, list[str]] = {}
    settled = time.time_ns() - changed_ns > _SETTLED_NS
    with os.scandir(folder) as entries:
        for entry in entries:
            for base in _all_bases(entry.name):
                found.setdefault(base, []).append(entry.name)
    took = time.monotonic() - begun
    until = float("inf") if settled else begun + took * _TIMES_AS_LONG
    return _Folder(changed_ns, until, found)
