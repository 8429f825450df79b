"""Recognizes storage errors: no space, read-only, I/O errors, missing permissions."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.sdk.errors import HeadraceError, SinkError, StorageUnavailableError

_NUMBERS = {
    errno.ENOSPC: "There is no space left",
    errno.EDQUOT: "The disk quota is used up",
    errno.EROFS: "The file system is read-only",
    errno.EIO: "The device has an input/output error",
}
_OF_SPACE = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EPERM, errno.EACCES}
_TEXTS = {os.strerror(number).lower(): number for number in {*_NUMBERS, *_DENIED}}
_RUST = re.compile(r"\(os error (\d+)\)")
"""The error number in messages of Rust libraries such as deltalake."""
_NOT_MADE = re.compile(r"Mkdirs failed to create (?:file:)?(/.+?)(?: \(exists=|$)")
"""Hadoop's message for a folder that it could not create; it gives no reason."""
_LIBRARIES = ("deltalake", "_internal", "arro3", "pyarrow")
_PATH = re.compile(r"""'(/[^']+)'|"(/[^"]+)"|^(/.+) \([^()]+\)$|(/[^\s'"`:,()]+)""")
"""A path in quotes, one before Java's reason in parentheses, or one without blanks."""
_LITTLE_BYTES = 4 * 1024 * 1024
"""If more is free, a different place is full, such as a target."""
_MAX_CAUSES = 50


def storage_error(
    error: BaseException, places: Sequence[Path] = ()
) -> StorageUnavailableError | None:
    """Return the error to raise if the cause is the storage; None for other errors.

    A storage error is temporary, so the batch is retried until there is space again. The causes
    of the error are searched too. ``places`` are the folders that are written to: if the error
    has no path, the place with the least free space is named, if it is full.
    """
    if isinstance(error, StorageUnavailableError):
        return _placed(error, places)
    for number, path in _failed_calls(error):
        if number in _NUMBERS:
            return _placed(_unavailable(number, path), places)
    return None


def denied_error(error: BaseException) -> SinkError | None:
    """Return the error to raise if permission to read or write a file is missing; else None.

    A missing permission is not temporary.
    """
    for number, path in _failed_calls(error):
        if number in _DENIED and path:  # one of a socket, say, has no path
            return _denied(number, path)
    return None


def _failed_calls(error: BaseException) -> Iterator[tuple[int | None, object]]:
    """Yield the error number of each system error among the causes, and the path if known."""
    for cause in causes(error):
        number, path = None, None
        text = _text(cause)
        if isinstance(cause, OSError):
            number, path = cause.errno, cause.filename
        # deltalake raises some of its errors as plain OSErrors, without a number.
        library = type(cause).__module__.partition(".")[0] in _LIBRARIES
        ours = isinstance(cause, OSError) or library
        if number is None and ours and (found := _RUST.search(text)):
            number = int(found[1])
        yield number, path or path_in(text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the text of a Java error is in a JVM, which may be gone
        return ""


def storage_error_of_text(text: str, path: str | None = None) -> HeadraceError | None:
    """Return the storage or permission error for a system message from Java or Spark.

    Args:
        text: The message of a file error; a message about something else could end in the
            same words by chance.
        path: The path if the message has none.
    """
    if not_made := _NOT_MADE.search(text):
        number = _why_not_made(Path(not_made[1]))
        return None if number is None else _unavailable(number, not_made[1])
    plain = _RUST.sub("", text).strip().rstrip(").").lower()
    for said, number in _TEXTS.items():
        if plain.endswith(said):
            path = path_in(text) or path
            if number in _NUMBERS:
                return _unavailable(number, path)
            return _denied(number, path) if path else None
    return None


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Add the file name to errors of writes to a file, which the system leaves out."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that caused it, each once."""
    left: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while left and len(seen) < _MAX_CAUSES:
        each = left.pop(0)
        if each is None or any(each is one for one in seen):
            continue
        seen.append(each)
        yield each
        left += [each.__cause__, each.__context__]


def _unavailable(number: int, path: object) -> StorageUnavailableError:
    place, free = "", ""
    if isinstance(path, str | bytes | os.PathLike) and path:
        place = f" at {os.fsdecode(path)}"
        size = _free_bytes(Path(os.fsdecode(path)))
        if number in _OF_SPACE and size is not None:
            free = f" ({size:,} bytes are free now)"
    mend = "Free space" if number in _OF_SPACE else "Repair the file system"
    return StorageUnavailableError(
        f"{_NUMBERS[number]}{place}{free}.",
        fix=f"{mend}; the task then continues automatically.",
    )


def _denied(number: int, path: object) -> SinkError:
    place = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    doing, right = "written to", "write"
    folder = next((each for each in Path(place).parents if os.access(each, os.F_OK)), None)
    if folder is not None and not os.access(folder, os.X_OK):
        doing, right = "accessed", "read and write"
    elif os.access(place, os.F_OK) and not os.access(place, os.R_OK):
        doing, right = "read", "read"
    return SinkError(
        f"{place} cannot be {doing}: {os.strerror(number)}.",
        fix=f"Give the worker's user the right to {right} there, or choose another path.",
    )


def _placed(error: StorageUnavailableError, places: Sequence[Path]) -> StorageUnavailableError:
    sizes = {place: size for place in places if (size := _free_bytes(place)) is not None}
    if " at " in error.problem or not sizes:
        return error
    place = min(sizes, key=lambda place: sizes[place])
    if sizes[place] > _LITTLE_BYTES:
        return error
    problem = f"{error.problem} At {place} {sizes[place]:,} bytes are free."
    placed = StorageUnavailableError(problem, after=error.after, fix=error.fix)
    placed.__cause__ = error.__cause__
    return placed


def _why_not_made(path: Path) -> int | None:
    """Return the reason why a folder cannot be created, if the disk is local."""
    for place in path.parents:
        with suppress(OSError):
            disk = os.statvfs(place)
            if disk.f_flag & os.ST_RDONLY:
                return errno.EROFS
            return errno.ENOSPC if disk.f_bavail * disk.f_frsize < _LITTLE_BYTES else None
    return None


def _free_bytes(path: Path) -> int | None:
    for place in (path, *path.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None


def path_in(text: str) -> str | None:
    """Return the first absolute path in a message of the system."""
    found = _PATH.search(text)
    return None if found is None else found[found.lastindex or 0]
