"""What a server moves during the soak, how it grows, and whether all of it arrived once."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

BAD_EVERY = 40
"""Every so many rows one has an amount that is no number."""
_LINES = 5
_ROWS = 20


@dataclass
class Feeder:
    """Adds lines to a log and files to a folder without pause, and knows what it made.

    Args:
        folder: Where both are.
        chance: Decides sizes and moments.
    """

    folder: Path
    chance: random.Random
    lines: int = 0
    rows: int = 0
    files: int = 0
    rotations: int = 0
    _go: threading.Event = field(default_factory=threading.Event)
    _end: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Make the folders, and begin the log."""
        self.log = self.folder / "app.log"
        self.sets = self.folder / "sets"
        self.drafts = self.folder / "drafts"
        for folder in (self.sets, self.drafts):
            folder.mkdir(parents=True)
        self._out = self.log.open("a")
        self._thread = threading.Thread(target=self._run, name="feeder")

    def start(self) -> None:
        self._go.set()
        self._thread.start()

    def pause(self) -> None:
        """Make nothing more until ``resume``."""
        self._go.clear()
        with self._lock:
            self._out.flush()

    def resume(self) -> None:
        self._go.set()

    def end(self) -> None:
        self._end.set()
        self._go.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._out.close()

    def rotate(self, late: float) -> None:
        """Rotate the log as logrotate does; the writer reopens it ``late`` seconds later."""
        self.rotations += 1
        self.log.rename(self.folder / f"app.log.{self.rotations}")
        self.log.touch()
        self._end.wait(late)
        with self._lock:
            self._out.close()
            self._out = self.log.open("a")
        # The oldest go, as logrotate's do; they were read long before.
        (self.folder / f"app.log.{self.rotations - 6}").unlink(missing_ok=True)

    def _run(self) -> None:
        turn = 0
        while not self._end.is_set():
            self._go.wait()
            with self._lock:
                self._write_lines()
                if turn % 10 == 0:
                    self._write_file()
            turn += 1
            self._end.wait(0.2)

    def _write_lines(self) -> None:
        for _ in range(_LINES):
            self._out.write(f"line {self.lines}\n")
            self.lines += 1
        self._out.flush()

    def _write_file(self) -> None:
        draft = self.drafts / f"{self.files:06d}.json"
        with draft.open("w") as out:
            for _ in range(_ROWS):
                amount = "broken" if is_bad(self.rows) else str(self.rows % 97)
                row = {"id": self.rows, "part": f"p{self.rows % 3}", "amount": amount}
                out.write(json.dumps(row) + "\n")
                self.rows += 1
        draft.rename(self.sets / draft.name)
        self.files += 1


def is_bad(row: int) -> bool:
    """Return whether a row cannot pass the chain."""
    return row % BAD_EVERY == BAD_EVERY - 1


@dataclass(frozen=True)
class Target:
    """A place that has to hold certain ids, each once.

    Args:
        name: What it is called in reports.
        read: Reads all ids that it holds.
        expected: Gives the ids that it must hold.
    """

    name: str
    read: Callable[[], Iterable[object]]
    expected: Callable[[], set[object]]

    def difference(self) -> str:
        """Return what is wrong with it; nothing if it is as it must be."""
        found = Counter(self.read())
        expected = self.expected()
        missing = sorted(expected - found.keys(), key=str)
        strange = sorted(found.keys() - expected, key=str)
        twice = sorted((each for each, n in found.items() if n > 1), key=str)
        told = []
        for what, some in (("missing", missing), ("not made", strange), ("twice", twice)):
            if some:
                told.append(f"{len(some)} {what} ({some[0]} .. {some[-1]})")
        return f"{self.name}: {', '.join(told)}" if told else ""

    def is_behind(self) -> bool:
        """Return whether something is still to come."""
        return bool(self.expected() - set(self.read()))


def delta_ids(folder: Path, column: str) -> list[object]:
    """Read one column of a Delta table."""
    if not DeltaTable.is_deltatable(str(folder)):
        return []
    table = DeltaTable(folder).to_pyarrow_table(columns=[column])
    return list(table.column(column).to_pylist())


def topic_ids(folder: Path, column: str = "value", part: str | None = None) -> list[object]:
    """Read one column of a topic, or one field of it."""
    values = delta_ids(folder, column)
    return values if part is None else [value[part] for value in values]  # type: ignore[index]


def line_ids(file: Path) -> list[object]:
    """Read the lines of a file."""
    return list(file.read_text().splitlines()) if file.exists() else []


def folder_lines(folder: Path) -> list[object]:
    """Read the lines of all text files of a folder that a sink fills."""
    found: list[object] = []
    for file in _parts(folder):
        found += file.read_text().splitlines()
    return found


def folder_json_ids(folder: Path, column: str = "id") -> list[object]:
    """Read a field of all JSON files of a folder that a sink fills."""
    return [json.loads(str(line))[column] for line in folder_lines(folder)]


def folder_parquet_ids(folder: Path, column: str = "id") -> list[object]:
    """Read a column of all Parquet files of a folder that a sink fills."""
    found: list[object] = []
    for file in _parts(folder):
        found += pq.read_table(file, columns=[column]).column(column).to_pylist()
    return found


def _parts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [
        path
        for path in sorted(folder.rglob("part-*"))
        if "_headrace" not in path.parts and not path.name.endswith(".crc")
    ]


__all__ = [
    "BAD_EVERY",
    "Feeder",
    "Target",
    "delta_ids",
    "folder_json_ids",
    "folder_lines",
    "folder_parquet_ids",
    "is_bad",
    "line_ids",
    "topic_ids",
]
