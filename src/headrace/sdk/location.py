"""Locations of data: URLs with the file systems that serve them.

Topics, staged files, dead letters, and the targets and sources of the file and Delta
connectors use a ``Location``. The Protocol ``FileSystem`` defines what their guarantees require
from a file system: support for an object store or HDFS is another implementation, which must
pass the same contract, ``tests/contract/test_file_systems.py``.

Paths that belong to one machine are ``pathlib.Path``: a worker's home, logs, sockets, the jar
cache, temporary files, files whose lines are followed or appended to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import quote, unquote

from typing_extensions import override

from headrace.sdk.durability import flush, make_folder
from headrace.sdk.errors import ConfigError
from headrace.sdk.storage import naming

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)(?://([^/]*))?(.*)", re.DOTALL)
"""A scheme has two letters or more, because a single letter may be a drive."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}\.draft\Z", re.DOTALL)
_HERE = ("", "localhost")
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The attributes of a file or folder at the time of the call.

    Args:
        mtime_ns: When the content changed, in nanoseconds since 1970; a copy may have the time
            of the original.
        ctime_ns: When the file system recorded the change; programs cannot set it.
        identity: Distinguishes the file from a later one at the same path.
    """

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    identity: str
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder.

    Args:
        is_folder: Whether it is a folder, or a link to a folder; false for a link that is
            broken, circular or not accessible to this process.
        info: Returns the attributes; None if the entry is gone. Costs a call if the file
            system's listing returns only names.
    """

    location: Location
    is_folder: bool
    is_link: bool
    info: Callable[[], FileInfo | None]

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.location.name


class FileSystem(Protocol):
    """The file system operations that the guarantees require.

    Threads and processes may use it concurrently. If a file system has no folders of its own,
    they appear and disappear with their files. Failures raise OSError; FileNotFoundError if a
    required file is missing.
    """

    scheme: str

    def info(self, at: Location) -> FileInfo | None:
        """Return the attributes of a file or folder; None if there is neither."""

    def list(self, at: Location) -> Iterator[Entry]:
        """Yield the entries of a folder, in any order; none if the folder does not exist.

        Files of a ``put`` that has not finished, or crashed, are left out.
        """

    def read(self, at: Location) -> bytes:
        """Return the content of a small file."""

    def open_input(self, at: Location) -> Any:
        """Open a file for random reads by pyarrow."""

    def open_output(self, at: Location) -> Any:
        """Open a new file for pyarrow to write; it is durable only after ``sync``."""

    def put(self, at: Location, data: bytes, *, up_to: Location | None = None) -> None:
        """Write a small file atomically and durably: readers see the old or the new content.

        Missing folders are created; ``up_to`` is as for ``sync``.
        """

    def put_new(self, at: Location, data: bytes) -> bool:
        """Write a file like ``put``, unless it exists; return whether it was written.

        Exactly one of several concurrent callers, on any machines, succeeds. Raises
        FileNotFoundError if the file system has folders and the file's folder is missing, so
        that a later commit does not recreate a deleted table.
        """

    def move(self, source: Location, target: Location) -> None:
        """Rename a file, replacing an existing one. Durable after ``sync``."""

    def delete(self, at: Location) -> None:
        """Delete a file or an empty folder; do nothing if it does not exist."""

    def delete_folder(self, at: Location) -> bool:
        """Delete a folder and its contents, without following links; return whether it is gone.

        Entries that cannot be deleted are skipped without an error: most callers clean up, and
        the next cleanup tries again. Callers that write there afterwards must check the result.
        """

    def make_folder(self, at: Location) -> None:
        """Create a folder and its parents, durably; do nothing if it exists."""

    def touch(self, at: Location) -> None:
        """Set the modification time of a file to the current time."""

    def sync(self, files: Iterable[Location], *, up_to: Location | None = None) -> None:
        """Return when the files and their names would survive a power failure.

        Args:
            files: Files that were written or moved, or folders whose entries have changed.
            up_to: The folder up to which, inclusive, parent folders are flushed too; by default
                only the files' own folders are.
        """

    def lock(self, at: Location) -> AbstractContextManager[None]:
        """Hold a lock that is shared by all processes that use the file system.

        The lock ends with the process that holds it.
        """

    def resolve(self, at: Location) -> Location:
        """Return the location with all links resolved."""

    def free_bytes(self, at: Location) -> int | None:
        """Return the free space of a folder in bytes; None if unknown."""


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder in a file system. It can be pickled; its text is a plain path or a URL.

    Methods with the names of ``FileSystem`` methods do the same.

    Args:
        scheme: The URL's scheme, which selects the file system.
        path: The absolute path, not percent-encoded.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def of(cls, place: str | os.PathLike[str], *, field: str = "path") -> Location:
        """Return the location for a path, or for a URL such as ``file:///data``.

        A relative path is resolved from the working folder, and ``~`` at the beginning of a
        string is the user's home. URLs are percent-encoded. Raises ConfigError: the URL's
        scheme is not supported; ``field`` is the setting.
        """
        text = os.fspath(place)
        found = _URL.match(text) if isinstance(place, str) else None
        if "\0" in (text if found is None else unquote(text)):
            raise ConfigError(
                problem=f"Invalid path {text!r}: it contains a null character.",
                fix="Remove it.",
                field=field,
            )
        if found is None:
            path = Path(text)
            if isinstance(place, str) and path.parts[:1] == ("~",):
                path = path.expanduser()
            return cls("file", "", str(path.absolute()))
        scheme, authority, path_text = found[1].lower(), found[2] or "", unquote(found[3])
        if scheme not in FILE_SYSTEMS:
            raise ConfigError(
                problem=f"Unsupported scheme {scheme!r} in {text}; expected a plain path or a "
                f"URL that begins with {' or '.join(f'{each}://' for each in FILE_SYSTEMS)}.",
                fix="Use a local folder, or mount the remote one under the same path on every "
                "machine.",
                field=field,
            )
        if scheme == "file" and authority not in _HERE:
            raise ConfigError(
                problem=f"{text} names the host {authority!r}; files are read and written on "
                "this machine only.",
                fix=f"Use file:///{authority}{path_text} for a path.",
                field=field,
            )
        path_text = "/" + path_text.lstrip("/")
        return cls(scheme, "" if authority in _HERE else authority, str(Path(path_text)))

    @override
    def __str__(self) -> str:
        return self.path if self.is_local else self.url

    def __truediv__(self, name: str) -> Location:
        return Location(self.scheme, self.authority, str(PurePosixPath(self.path) / name))

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{quote(os.fsencode(self.path))}"

    @property
    def spark_path(self) -> str:
        """Return the URL in Hadoop's form: not percent-encoded."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def local(self) -> Path:
        """Return the local path. Raises ConfigError if the location is not on this machine."""
        if not self.is_local:
            raise ConfigError(
                problem=f"{self} is not on this machine.", fix="Use a path of this machine."
            )
        return Path(self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        above = self.path.rpartition("/")[0] or "/"
        return Location(self.scheme, self.authority, above)

    def relative_to(self, folder: Location) -> str:
        """Return the path relative to a parent folder.

        Raises ValueError: the folder is not a parent, or the relative path contains ``..``.
        """
        if (self.scheme, self.authority) != (folder.scheme, folder.authority):
            message = f"{self} is not below {folder}"
            raise ValueError(message)
        below = PurePosixPath(self.path).relative_to(folder.path)
        if ".." in below.parts:
            message = f"{self} may lead out of {folder}"
            raise ValueError(message)
        return below.as_posix()

    def is_below(self, folder: Location) -> bool:
        """Return whether a folder is this location or a parent of it."""
        with suppress(ValueError):
            self.relative_to(folder)
            return True
        return False

    def resolved(self) -> Location:
        return self.file_system.resolve(self)

    @property
    def file_system(self) -> FileSystem:
        return FILE_SYSTEMS[self.scheme]

    def info(self) -> FileInfo | None:
        return self.file_system.info(self)

    def exists(self) -> bool:
        return self.file_system.info(self) is not None

    def is_folder(self) -> bool:
        """Return whether this is an existing folder."""
        found = self.file_system.info(self)
        return found is not None and found.is_folder

    def list(self) -> Iterator[Entry]:
        return self.file_system.list(self)

    def walk(self) -> Iterator[Entry]:
        """Yield the entries of the folder and all subfolders; links are not followed."""
        for entry in self.list():
            yield entry
            if entry.is_folder and not entry.is_link:
                yield from entry.location.walk()

    def read_bytes(self) -> bytes:
        return self.file_system.read(self)

    def read_text(self) -> str:
        return self.file_system.read(self).decode()

    def open_input(self) -> Any:
        return self.file_system.open_input(self)

    def open_output(self) -> Any:
        return self.file_system.open_output(self)

    def put(self, text: str, *, up_to: Location | None = None) -> None:
        """Write a small file atomically and durably; see ``FileSystem.put``."""
        self.file_system.put(self, text.encode(), up_to=up_to)

    def put_new(self, text: str) -> bool:
        return self.file_system.put_new(self, text.encode())

    def move_to(self, target: Location) -> None:
        self.file_system.move(self, target)

    def delete(self) -> None:
        self.file_system.delete(self)

    def delete_folder(self) -> bool:
        return self.file_system.delete_folder(self)

    def make_folder(self) -> None:
        self.file_system.make_folder(self)

    def free_bytes(self) -> int | None:
        return self.file_system.free_bytes(self)

    def touch(self) -> None:
        self.file_system.touch(self)

    def lock(self) -> AbstractContextManager[None]:
        return self.file_system.lock(self)


def sync(files: Iterable[Location], *, up_to: Location | None = None) -> None:
    """Return when the files and their names would survive a power failure; see ``FileSystem``.

    Sinks call it with all files of an attempt at once: their syncs overlap, and each folder is
    synced once. All files must be in one file system.
    """
    locations = list(files)
    if locations:
        locations[0].file_system.sync(locations, up_to=up_to)


class LocalFileSystem:
    """The local disks, and file systems mounted with POSIX semantics."""

    scheme = "file"

    def info(self, at: Location) -> FileInfo | None:
        """Return None also for special files, such as pipes."""
        try:
            status = os.stat(at.path)  # noqa: PTH116 - called for each poll of each topic
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and not stat.S_ISREG(status.st_mode):
            return None
        return FileInfo(
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            str(status.st_ino),
            is_folder,
        )

    def list(self, at: Location) -> Iterator[Entry]:
        try:
            entries = os.scandir(at.path)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                if not _DRAFT.match(entry.name):
                    found = at / entry.name
                    yield Entry(found, _is_folder(entry), entry.is_symlink(), found.info)

    def read(self, at: Location) -> bytes:
        return Path(at.path).read_bytes()

    def open_input(self, at: Location) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - slow, and most locations are never opened

        return pa.OSFile(at.path, "rb")

    def open_output(self, at: Location) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - as above

        Path(at.path).parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(at.path, "wb")

    def put(self, at: Location, data: bytes, *, up_to: Location | None = None) -> None:
        path = Path(at.path)
        make_folder(path.parent)
        with self._draft(path, data) as draft:
            draft.replace(path)
        flush([path.parent], up_to=None if up_to is None else up_to.local)

    def put_new(self, at: Location, data: bytes) -> bool:
        path = Path(at.path)
        with self._draft(path, data) as draft:
            try:
                path.hardlink_to(draft)  # a link fails where the name exists
            except FileExistsError:
                return False
        flush([path.parent])
        return True

    def move(self, source: Location, target: Location) -> None:
        path = Path(target.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(source.path).replace(path)

    def delete(self, at: Location) -> None:
        path = Path(at.path)
        with suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()

    def delete_folder(self, at: Location) -> bool:
        shutil.rmtree(at.path, ignore_errors=True)
        return not os.path.lexists(at.path)

    def make_folder(self, at: Location) -> None:
        make_folder(Path(at.path))

    def touch(self, at: Location) -> None:
        os.utime(at.path)

    def sync(self, files: Iterable[Location], *, up_to: Location | None = None) -> None:
        paths = [Path(file.path) for file in files]
        flush(paths, up_to=None if up_to is None else up_to.local)

    @contextmanager
    def lock(self, at: Location) -> Iterator[None]:
        """The lock is shared only by processes of this machine."""
        path = Path(at.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with naming(path.parent):
                yield

    def resolve(self, at: Location) -> Location:
        return Location(at.scheme, at.authority, str(Path(at.path).resolve()))

    def free_bytes(self, at: Location) -> int | None:
        try:
            return shutil.disk_usage(at.path).free
        except OSError:
            return None

    @contextmanager
    def _draft(self, path: Path, data: bytes) -> Iterator[Path]:
        """Write a file durably under a temporary name that listings skip, and remove it."""
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.draft")
        try:
            draft.write_bytes(data)
            flush([draft], names=False)
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in _NOT_THERE or (entry.is_symlink() and error.errno == errno.EACCES):
            return False
        raise


FILE_SYSTEMS: dict[str, FileSystem] = {each.scheme: each for each in [LocalFileSystem()]}
"""The supported file systems, by URL scheme."""
