"""Files that hold what was read of a log until targets have it.

A file is Arrow's streams of record batches, one after the other. It is no more than a cache: a
process that starts again begins with no files, and reads the log again.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ipc

from headrace.sdk.errors import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace_plugins.changes.log import Offset, Run, Shape
    from headrace_plugins.databases.catalog import TableName

_FILE_BYTES = 64 << 20
"""A file of more bytes gets nothing more."""


@dataclass(frozen=True, slots=True)
class SpooledRun:
    """Where a run is.

    Args:
        file: The path of its file.
        start: Where it begins in the file.
        size_bytes: How long it is.
        rows: How many changes it has.
    """

    shape: Shape
    file: str
    start: int
    size_bytes: int
    rows: int

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield its rows, see ``Run``."""
        with Path(self.file).open("rb") as file:
            file.seek(self.start)
            data = file.read(self.size_bytes)
        with ipc.open_stream(data) as batches:
            yield from batches


@dataclass(frozen=True, slots=True)
class Entry:
    """Whole transactions, from the end of the entry before it to their own.

    Args:
        runs: Their changes, in the order of the log.
        end: The place behind the last transaction.
        ts_us: When that was committed; None if nothing was.
    """

    runs: Sequence[SpooledRun]
    end: Offset
    ts_us: int | None = None

    @property
    def rows(self) -> int:
        """How many changes it has."""
        return sum(run.rows for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """How many bytes of files it takes."""
        return sum(run.size_bytes for run in self.runs)


def taken(
    entries: Sequence[Entry],
    most: int | None,
    until: Offset | None,
    order: Callable[[Offset], tuple[int, ...]],
) -> Offset | None:
    """Return the end of the entries that the next batch takes; None for none.

    Args:
        entries: What was read.
        most: How many rows it takes; a first entry may have more. None for no limit.
        until: The place that it does not pass; None for any.
        order: Makes of a place what grows with the log.
    """
    shapes: dict[TableName, Shape] = {}
    rows, end = 0, None
    for entry in entries:
        if until is not None and order(entry.end) > order(until):
            break
        if end is not None and most is not None and rows + entry.rows > most:
            break
        # A batch ends before a table gets other columns, which the targets follow; and a
        # transaction that changes them itself is a batch of its own.
        seen = {**shapes}
        changes = any(
            seen.setdefault(run.shape.table, run.shape) != run.shape for run in entry.runs
        )
        if changes and end is not None:
            break
        shapes, rows, end = seen, rows + entry.rows, entry.end
        if changes:
            break
    return end


class SpoolFolder:
    """A folder that one life of a reader has for itself; it goes with it.

    Lives of one task may overlap, as when a worker gives one up that does not end. What a life
    has left that was killed goes when the next one begins.

    Args:
        parent: Where the folders are.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / "lock").open("w") as lock:  # until this folder has a lock of its own
            fcntl.flock(lock, fcntl.LOCK_EX)
            for each in parent.glob("*/lock"):
                _remove_unused(each)
            self.path = Path(tempfile.mkdtemp(dir=parent))
            self._lock = (self.path / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_unused(path: Path) -> None:
    """Remove a folder whose lock nobody has."""
    with path.open("r+") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path.parent, ignore_errors=True)


class SpoolWriter:
    """Writes runs to files in a folder. One process has a folder for itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._file: Any = None

    def write(self, run: Run) -> SpooledRun:
        """Write a run. Its rows can be read as soon as this returns."""
        try:
            if self._file is None or self._file.tell() > _FILE_BYTES:
                self.close()
                self._number += 1
                path = self._folder / f"{self._number:08}.arrow"
                self._file = path.open("wb", buffering=0)
            start = self._file.tell()
            data = pa.BufferOutputStream()
            with ipc.new_stream(data, run.rows.schema) as stream:
                stream.write_batch(run.rows)
            left = memoryview(data.getvalue())
            while left:  # a disk that is almost full takes a part, and then says so
                left = left[self._file.write(left) :]
            size = self._file.tell() - start
        except OSError as error:
            raise StorageUnavailableError(
                problem=f"{self._folder} takes no changes: {error.strerror}.",
                fix="Make space on its disk.",
            ) from error
        return SpooledRun(run.shape, str(self._file.name), start, size, run.rows.num_rows)

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def by_table(entries: Sequence[Entry]) -> dict[TableName, list[SpooledRun]]:
    """Return the runs of each table, in their order."""
    found: dict[TableName, list[SpooledRun]] = {}
    for entry in entries:
        for run in entry.runs:
            found.setdefault(run.shape.table, []).append(run)
    return found
