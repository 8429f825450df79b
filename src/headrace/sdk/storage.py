"""Recognizes errors of the storage below us: no space, over quota, read-only, I/O errors."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.sdk.errors import StorageUnavailableError

__all__ = ["causes", "naming", "storage_error", "storage_error_of_text"]

_NUMBERS = {
    errno.ENOSPC: "There is no space left",
    errno.EDQUOT: "The disk quota is used up",
    errno.EROFS: "The file system is read-only",
    errno.EIO: "The device has an input/output error",
}
_TEXTS = {os.strerror(number).lower(): number for number in _NUMBERS}
_RUST = re.compile(r"\(os error (\d+)\)")
"""How libraries that are written in Rust, as deltalake is, say which error it was."""
_LIBRARIES = ("deltalake", "_internal", "arro3", "pyarrow")
_PATH = re.compile(r"(/[^\s'\"`:,()]+)")
_LITTLE_BYTES = 100 * 1024 * 1024
"""Where more is free, it is another place that is full."""
_MAX_CAUSES = 50


def storage_error(
    error: BaseException, places: Sequence[Path] = ()
) -> StorageUnavailableError | None:
    """Return what to raise for an error whose cause is the storage; None for any other.

    Such an error passes when there is space again, so the batch is tried again until then.
    It is looked for among the error's causes, too.

    Args:
        error: What was raised.
        places: Folders that are written to: where the error does not say which it was, that
            with the least space is named.
    """
    if isinstance(error, StorageUnavailableError):
        return _placed(error, places)
    for cause in causes(error):
        number, path = None, None
        if isinstance(cause, OSError):
            number, path = cause.errno, cause.filename
        if number is None and type(cause).__module__.partition(".")[0] in _LIBRARIES:
            found = _RUST.search(str(cause))
            number = None if found is None else int(found[1])
        if number in _NUMBERS:
            return _placed(_unavailable(number, path or _path_in(str(cause))), places)
    return None


def storage_error_of_text(text: str, around: str = "") -> StorageUnavailableError | None:
    """Return the same for what the system says of an error, as Java and Spark pass it on.

    Args:
        text: The message of an error of files; one of anything else may end in such words
            by chance.
        around: What may hold the path, if the message does not.
    """
    plain = text.strip().rstrip(").").lower()
    for said, number in _TEXTS.items():
        if plain.endswith(said):
            return _unavailable(number, _path_in(text) or _path_in(around))
    return None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file in the errors that its writes raise, which the system leaves out."""
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
        free = "" if size is None else f" ({size:,} bytes are free)"
    return StorageUnavailableError(
        f"{_NUMBERS[number]}{place}{free}.",
        fix="Free space or repair the file system; the task goes on by itself then.",
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


def _free_bytes(path: Path) -> int | None:
    for place in (path, *path.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None


def _path_in(text: str) -> str | None:
    found = _PATH.search(text)
    return None if found is None else found[1]
