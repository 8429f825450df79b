"""Spool files for log data until it is durable in the targets.

A file is a sequence of Arrow IPC streams. The files are only a cache: after a restart the
process begins without files and reads the log again.
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
"""The size of a file at which a new file begins."""


@dataclass(frozen=True, slots=True)
class SpooledRun:
    """The location of a run in a spool file.

    Args:
        file: The path of the file.
        start: The byte offset in the file.
        size_bytes: The size in bytes.
        rows: The number of changes.
    """

    shape: Shape
    file: str
    start: int
    size_bytes: int
    rows: int

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the run, see ``Run``."""
        with Path(self.file).open("rb") as file:
            file.seek(self.start)
            data = file.read(self.size_bytes)
        with ipc.open_stream(data) as batches:
            yield from batches


@dataclass(frozen=True, slots=True)
class Entry:
    """One or more whole transactions, from the end of the previous entry.

    Args:
        runs: The changes, in the order of the log.
        end: The place after the last transaction.
        ts_us: The commit time of the last transaction; None without transactions.
    """

    runs: Sequence[SpooledRun]
    end: Offset
    ts_us: int | None = None

    @property
    def rows(self) -> int:
        """The number of changes."""
        return sum(run.rows for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """The size in the spool files."""
        return sum(run.size_bytes for run in self.runs)


def taken(
    entries: Sequence[Entry],
    most: int | None,
    until: Offset | None,
    order: Callable[[Offset], tuple[int, ...]],
) -> Offset | None:
    """Return the end of the entries for the next batch; None if there are none.

    Args:
        entries: The entries that were read.
        most: The maximum rows, which only the first entry may exceed. None for no limit.
        until: The last possible end; None for no limit.
        order: Returns the sort key of a place in the log.
    """
    shapes: dict[TableName, Shape] = {}
    rows, end = 0, None
    for entry in entries:
        if until is not None and order(entry.end) > order(until):
            break
        if end is not None and most is not None and rows + entry.rows > most:
            break
        # A batch ends before a table's columns change, as the targets must evolve first. A
        # transaction that changes columns itself is a separate batch.
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
    """A folder owned by one instance of a reader, and removed with it.

    Instances of one task may overlap, for example if a worker gives up on a hanging one. The
    folder of a killed instance is removed when the next one starts.

    Args:
        parent: The parent of the folders.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / "lock").open("w") as lock:  # until the new folder has its own lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            for each in parent.glob("*/lock"):
                _remove_unused(each)
            self.path = Path(tempfile.mkdtemp(dir=parent))
            self._lock = (self.path / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder and its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_unused(path: Path) -> None:
    """Remove a folder if its lock is free."""
    with path.open("r+") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path.parent, ignore_errors=True)


class SpoolWriter:
    """Writes runs to files in a folder, which only one process may use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._file: Any = None

    def write(self, run: Run) -> SpooledRun:
        """Write a run. The rows are readable when this returns."""
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
            while left:  # an almost full disk writes a part, and then fails
                left = left[self._file.write(left) :]
            size = self._file.tell() - start
        except OSError as error:
            raise StorageUnavailableError(
                problem=f"Cannot write changes to {self._folder}: {error.strerror}.",
                fix="Free space on its disk.",
            ) from error
        return SpooledRun(run.shape, str(self._file.name), start, size, run.rows.num_rows)

    def close(self) -> None:
        """Close the current file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def by_table(entries: Sequence[Entry]) -> dict[TableName, list[SpooledRun]]:
    """Return the runs of each table, in order."""
    found: dict[TableName, list[SpooledRun]] = {}
    for entry in entries:
        for run in entry.runs:
            found.setdefault(run.shape.table, []).append(run)
    return found
