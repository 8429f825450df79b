"""The files that a path, a folder or a glob matches, and how they are grouped for Spark."""

from __future__ import annotations

import glob
import re
import zlib
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import structlog
from typing_extensions import override

from headrace.sdk import SourceError
from headrace.sdk.location import Location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.sdk import Schema
    from headrace.sdk.location import Entry

log = structlog.get_logger(__name__)

HIDDEN = ("_", ".")
"""Name prefixes of files that are being written, by convention of Hadoop and rsync."""


def is_hidden(name: str, *, is_folder: bool) -> bool:
    """Return whether a file or folder is not read; ``_name=value`` is a partition's folder."""
    return name.startswith(HIDDEN) and not (is_folder and name[0] == "_" and "=" in name)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was when it was found; its path is a location as text."""

    path: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int = field(default=0, compare=False)
    """The file system's change time, which programs cannot set."""

    @classmethod
    def from_item(cls, item: Mapping[str, str | int]) -> FoundFile:
        """Parse the result of ``to_item``."""
        return cls(str(item["path"]), int(item["size"]), int(item["mtime_ns"]))

    def to_item(self) -> dict[str, str | int]:
        """Return the ledger entry."""
        return {"path": self.path, "size": self.size_bytes, "mtime_ns": self.mtime_ns}

    def changed_ns(self, now_ns: int) -> int:
        """Return the mtime, or the ctime if the mtime is in the future."""
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
        """Parse the result of ``str``."""
        number, _, of = text.partition("/")
        return cls(int(number), int(of))

    @override
    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, path: str) -> bool:
        """Return whether the file is in this share; the same on every machine, always."""
        return self.of == 1 or zlib.crc32(path.encode()) % self.of == self.number


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that a configured path matches: a file, a folder, or a glob.

    ``**`` matches all subfolders, also those behind links unless the links form a cycle.
    """

    location: Location
    recursive: bool = False
    """Whether subfolders of folders are searched too."""
    _warned: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Folders for which a warning was logged."""
    _missing: set[Location] = field(default_factory=set, init=False, repr=False, compare=False)
    """The location or a glob's root, after a warning that it does not exist."""

    @property
    def path(self) -> str:
        """Return the location as text."""
        return str(self.location)

    @property
    def is_glob(self) -> bool:
        """Return whether the path is a pattern and does not exist literally."""
        return glob.has_magic(self.location.path) and not self.location.exists()

    @property
    def is_file(self) -> bool:
        """Return whether the path is an existing file."""
        found = self.location.info()
        return found is not None and not found.is_folder

    @property
    def root(self) -> Location:
        """Return the folder that contains all files."""
        if not self.is_glob:
            return self.location if self.location.is_folder() else self.location.parent
        parts = self._parts
        depth = next(n for n, part in enumerate(parts) if glob.has_magic(part))
        return replace(self.location, path="/" + "/".join(parts[:depth]))

    @property
    def is_single(self) -> bool:
        """Return whether the path is that of one file, which need not exist yet."""
        return not self.is_glob and not self.location.is_folder()

    def warn_if_missing(self) -> None:
        """Log once, until it is there again, that the file or folder does not exist."""
        root = self.root if self.is_glob else self.location
        if root.exists():
            if self._missing:
                self._missing.clear()
                log.info("path exists again", path=str(root))
        elif not self._missing:
            self._missing.add(root)
            log.warning("path does not exist; waiting for it", path=str(root))

    @property
    def has_only_folders(self) -> bool:
        """Return whether the path is a folder with subfolders, not searched, and no files."""
        if self.recursive or self.is_glob or not self.location.is_folder():
            return False
        found = [e for e in self.location.list() if not _is_hidden(e)]
        return bool(found) and all(entry.is_folder for entry in found)

    def _warn_if_only_folders(self) -> None:
        if self.path not in self._warned and self.has_only_folders:
            self._warned.add(self.path)
            log.warning(
                "no files in the folder; set recursive: true to read its subfolders",
                path=self.path,
            )

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files, in no order; a file may vanish in the meantime."""
        if self.is_glob:
            root = self.root
            pattern = self._parts[len(_parts(root)) :]
            for found in self._matches(root, pattern, (root.resolved(),)):
                yield from _under(found, recursive=self.recursive)
        else:
            yield from _under(self.location, recursive=self.recursive)

    def _matches(
        self, folder: Location, pattern: Sequence[str], real: tuple[Location, ...]
    ) -> Iterator[Location]:
        """Yield the files and folders below ``folder`` that match a glob and are not hidden.

        ``real`` contains the resolved locations of ``folder`` and its parents up to the root.
        """
        is_root = len(real) == 1
        if not pattern:
            yield folder
            return
        first, rest = pattern[0], pattern[1:]
        if first == "**" and rest:
            yield from self._matches(folder, rest, real)
        elif not glob.has_magic(first):
            try:
                hidden = is_hidden(first, is_folder=bool(rest) or (folder / first).is_folder())
                exists = not hidden and (folder / first).exists()
            except PermissionError as error:
                exists = self._pass_over(folder, error, is_root=is_root)
            if exists:
                yield from self._matches(folder / first, rest, (*real, real[-1] / first))
            return
        for entry in self._entries(folder, is_root=is_root):
            if first != "**" and not fnmatchcase(entry.name, first):
                continue
            if not entry.is_folder:
                if not rest:
                    yield entry.location
                continue
            place = entry.location.resolved() if entry.is_link else real[-1] / entry.name
            if first != "**":
                yield from self._matches(entry.location, rest, (*real, place))
            elif place not in real:
                yield from self._matches(entry.location, pattern, (*real, place))

    def _entries(self, folder: Location, *, is_root: bool) -> Iterator[Entry]:
        try:
            for entry in folder.list():
                if not _is_hidden(entry):
                    yield entry
        except PermissionError as error:
            self._pass_over(folder, error, is_root=is_root)

    def _pass_over(self, folder: Location, error: PermissionError, *, is_root: bool) -> bool:
        """Log once that a folder, such as lost+found, may not be read; raise for the root."""
        if is_root:
            raise error
        if str(folder) not in self._warned:
            self._warned.add(str(folder))
            log.warning("no permission to read a folder; skipping it", folder=str(folder))
        return False

    def covers(self, path: str) -> bool:
        """Return whether a file of that path would be listed if it existed."""
        if self.is_single:
            return path == self.path
        place = Location.of(path)
        if not self.is_glob:
            return place.parent == self.location or (
                self.recursive and place.parent.is_below(self.location)
            )
        pattern, parts = self._parts, _parts(place)
        least = 0 if self.recursive else len(parts) - 1
        return any(_fits(pattern, parts[:end]) for end in range(len(parts), least - 1, -1))

    @property
    def _parts(self) -> Sequence[str]:
        return _parts(self.location)

    def new(self, known: Collection[str], *, share: Share) -> list[FoundFile]:
        """Return the new files of a share that are not empty, sorted by mtime and path.

        Only files whose paths are not ``known`` are examined, so that an idle call costs only
        a listing. An empty file has nothing to read, but may be about to be written.
        """
        self.warn_if_missing()
        paths = {path for path in self.paths() if path not in known and share.has(path)}
        if not paths and not known:
            self._warn_if_only_folders()
        files = [file for file in map(_found, paths) if file is not None and file.size_bytes]
        return sorted(files, key=lambda file: (file.mtime_ns, file.path))


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether a path matches a glob, part by part."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(pattern[1:], parts[skip:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _fits(pattern[1:], parts[1:])


def _parts(place: Location) -> Sequence[str]:
    return PurePosixPath(place.path).parts[1:]


def _under(place: Location, *, recursive: bool) -> Iterator[str]:
    found = place.info()
    if found is not None and not found.is_folder:
        yield str(place)
        return
    yield from _files(place, (place.resolved(),) if recursive else ())


def _files(folder: Location, real: Sequence[Location]) -> Iterator[str]:
    """Yield the files of a folder.

    ``real`` contains the resolved locations of the folder and its parents, to end cycles of
    links; it is empty if subfolders are not searched.
    """
    for entry in folder.list():
        if _is_hidden(entry):
            continue
        if not entry.is_folder:
            yield str(entry.location)
        elif real:
            below = entry.location.resolved() if entry.is_link else real[-1] / entry.name
            if below not in real:
                yield from _files(entry.location, (*real, below))


def _is_hidden(entry: Entry) -> bool:
    return is_hidden(entry.name, is_folder=entry.is_folder)


def _found(path: str) -> FoundFile | None:
    found = Location.of(path).info()
    if found is None or found.is_folder:
        return None
    return FoundFile(path, found.size_bytes, found.mtime_ns, found.ctime_ns)


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
    """Files that are read with the same schema: the columns in the files, in their order.

    Args:
        schema: The columns; a column that a file lacks is null.
        files: In the order of their numbers.
        by_arrow: Whether Arrow reads the files, as Spark cannot read some column correctly.
        may_use_arrow: Whether Arrow may read the files as well as Spark.
        avro: The Avro schema that Spark uses instead of the writer's schema.
        absent: The Avro fields that are null in all records.
        millis: The Avro fields in milliseconds, where the schema has microseconds.
        folders: The values that are in the names of a file's folders, as a row, by its number.
    """

    schema: Schema
    files: tuple[NumberedFile, ...]
    by_arrow: bool = False
    may_use_arrow: bool = False
    avro: str | None = None
    absent: frozenset[str] = frozenset()
    millis: frozenset[str] = frozenset()
    folders: Mapping[int, pa.RecordBatch] = field(default_factory=dict)


def has_colon(path: str) -> bool:
    """Return whether a file's name has a colon, which Hadoop takes for the end of a scheme."""
    return ":" in PurePosixPath(path).name


def spark_path(path: str) -> str:
    """Return the path with Spark's glob characters escaped.

    Raises SourceError for a file that Spark cannot open.
    """
    if has_colon(path):
        problem = f"Spark cannot read {path}, because its name contains a colon."
        fix = "Rename the file, or exclude it by the pattern in path."
        raise SourceError(problem, fix=fix, field="path")
    return _GLOB.sub(r"\\\1", Location.of(path).spark_path)
