"""Where data is: a URL, with a file system behind it.

Topics, staged files, dead letters, and the targets and sources of the file and Delta
connectors are at a ``Location``. What they need of a file system for their guarantees is the
Protocol ``FileSystem``: an object store or HDFS is another implementation of it, held to the
same contract by ``tests/contract/test_file_systems.py``.

What belongs to one machine stays a ``pathlib.Path``: a worker's home, logs, sockets, the cache
of jars, temporary files, files whose lines are followed or appended to.
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
"""A scheme has two letters or more, as one may be a drive's."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}\.draft\Z", re.DOTALL)
_HERE = ("", "localhost")
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file or a folder, as it was when it was looked at.

    Args:
        mtime_ns: When its content changed, in nanoseconds since 1970; a copy may have the time
            of the original.
        ctime_ns: When the file system saw it change; it cannot be set.
        identity: Tells it from another that is at the same place later.
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
        is_folder: Whether it is a folder, or a link to one; not if a link leads nowhere, in a
            circle or to where this process may not look.
        info: Looks at it; returns None if it is gone. Costs a call where listing a folder
            tells names only.
    """

    location: Location
    is_folder: bool
    is_link: bool
    info: Callable[[], FileInfo | None]

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return self.location.name


class FileSystem(Protocol):
    """What the guarantees need of a file system. Any thread and process may use it at once.

    Folders come and go with their files where a file system has none of its own. What
    fails raises OSError; FileNotFoundError where a file is missing that is needed.
    """

    scheme: str

    def info(self, at: Location) -> FileInfo | None:
        """Look at a file or a folder; None if there is neither."""

    def list(self, at: Location) -> Iterator[Entry]:
        """Yield the entries of a folder, in no order; none if there is no such folder.

        What a ``put`` that has not ended, or crashed, has written is not among them.
        """

    def read(self, at: Location) -> bytes:
        """Return the content of a small file."""

    def open_input(self, at: Location) -> Any:
        """Open a file for pyarrow to read at any place."""

    def open_output(self, at: Location) -> Any:
        """Open a new file for pyarrow to write; it is durable after ``sync`` only."""

    def put(self, at: Location, data: bytes, *, up_to: Location | None = None) -> None:
        """Write a small file as a whole, durably: readers see the old or the new.

        Missing folders are made; ``up_to`` is as for ``sync``.
        """

    def put_new(self, at: Location, data: bytes) -> bool:
        """Write a file as ``put`` does, unless there is one; return whether it was written.

        Of several callers, on any machines, exactly one is the first. Raises FileNotFoundError
        where a file system has folders and the file's is missing: a table that was removed
        does not begin again with a later commit.
        """

    def move(self, source: Location, target: Location) -> None:
        """Give a file another name, in place of a file that has it. Durable after ``sync``."""

    def delete(self, at: Location) -> None:
        """Delete a file, or a folder without entries; nothing happens if there is none."""

    def delete_folder(self, at: Location) -> bool:
        """Delete a folder with all that is in it, through no links; return whether it is gone.

        What cannot be deleted is passed by, and raises nothing: most callers clean up, and
        the next one to do so tries again. Those that go on to write there must look.
        """

    def make_folder(self, at: Location) -> None:
        """Make a folder and those above it, durably; nothing happens when it is there."""

    def touch(self, at: Location) -> None:
        """Give a file the present as its time of change."""

    def sync(self, files: Iterable[Location], *, up_to: Location | None = None) -> None:
        """Return when files and their names would survive a loss of power.

        Args:
            files: Files that were written or moved, or folders whose entries have changed.
            up_to: The folder up to which the names of folders are durable too, itself
                included; else only those in the files' own folders are.
        """

    def lock(self, at: Location) -> AbstractContextManager[None]:
        """Hold a lock that all processes which use the file system share.

        It ends with the process that holds it.
        """

    def resolve(self, at: Location) -> Location:
        """Return the place to which links lead."""

    def free_bytes(self, at: Location) -> int | None:
        """Return how much can still be written to a folder; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file system. It can be pickled, and is a plain path or a URL as text.

    Its methods that have the names of those of ``FileSystem`` do what these do.

    Args:
        scheme: The URL's scheme, which names the file system.
        path: The absolute path, as it is and not percent-encoded.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def of(cls, place: str | os.PathLike[str], *, field: str = "path") -> Location:
        """Return the location for a path, or for a URL such as ``file:///data``.

        A relative path is below the working folder, and ``~`` at the beginning of a text is the
        user's home. URLs are percent-encoded. Raises ConfigError: no file system has the URL's
        scheme; ``field`` is the setting.
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
                fix=f"Write file:///{authority}{path_text} for a path.",
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
        """Return the URL as Hadoop reads and writes it: not percent-encoded."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def local(self) -> Path:
        """Return the path on this machine. Raises ConfigError if it is not here."""
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
        """Return the path from a folder above. Raises ValueError if that is not above.

        So it does where ``..`` stands in between, as it may lead anywhere.
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
        """Return whether a folder is this place or above it."""
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
        """Return whether there is a folder."""
        found = self.file_system.info(self)
        return found is not None and found.is_folder

    def list(self) -> Iterator[Entry]:
        return self.file_system.list(self)

    def walk(self) -> Iterator[Entry]:
        """Yield the entries of the folder and of all folders below; links are not followed."""
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
        """Write a small file as a whole, durably; see ``FileSystem.put``."""
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
    """Return when files and their names would survive a loss of power; see ``FileSystem``.

    Called by sinks with all the files of an attempt at once: their syncs overlap, and each
    folder is synced once. All are in one file system.
    """
    locations = list(files)
    if locations:
        locations[0].file_system.sync(locations, up_to=up_to)


class LocalFileSystem:
    """The disks of this machine, and what is mounted like one (POSIX)."""

    scheme = "file"

    def info(self, at: Location) -> FileInfo | None:
        """What is neither a file nor a folder, such as a pipe, is not there."""
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
        import pyarrow as pa  # noqa: PLC0415 - takes long, and most locations are only named

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
        """Processes of this machine share it."""
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
        """Write a file durably under a name that no listing has, and remove that name."""
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
"""The file systems that locations may be in, by the schemes of their URLs."""
