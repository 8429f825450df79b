"""Reads a process's own log: JSON lines in a rotated file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_LOOK_BACK_BYTES = 4 * 1024 * 1024
"""How far back to search for the newest lines: many thousands of lines."""
_AT_ONCE_BYTES = 1024 * 1024
_OWN = {"timestamp", "level", "logger", "event", "connector", "task", "exception"}
_TASK = "task"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log.

    Args:
        at: The time in ISO 8601.
        connector: The connector that the line is about; None for the process itself.
    """

    at: str
    level: str
    logger: str
    text: str
    connector: str | None
    task: int | None
    detail: Mapping[str, Any]
    trace: str | None

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> LogLine:
        task = value.get(_TASK)
        trace = value.get("exception")
        return cls(
            at=str(value.get("timestamp", "")),
            level=str(value.get("level", "info")),
            logger=str(value.get("logger", "")),
            text=str(value.get("event", "")),
            connector=str(value["connector"]) if value.get("connector") is not None else None,
            task=int(str(task)) if str(task).isdecimal() else None,
            detail={key: each for key, each in value.items() if key not in _OWN},
            trace=None if trace is None else str(trace),
        )


@dataclass(frozen=True, slots=True)
class LogChoice:
    """A filter for lines; None matches all.

    Args:
        level: The minimum level.
    """

    connector: str | None = None
    task: int | None = None
    level: str = "debug"

    def takes(self, line: LogLine) -> bool:
        return (
            (self.connector is None or line.connector == self.connector)
            and (self.task is None or line.task == self.task)
            and _rank(line.level) >= _rank(self.level)
        )


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place in the log: the file's inode, which survives a rename, and the byte offset."""

    file: int
    offset: int


@dataclass(frozen=True)
class ServerLog:
    """The log in a file. Thread-safe.

    Args:
        path: The file; when it is full, it is rotated to a name that ends in ``.1``.
    """

    path: Path

    def newest(self, choice: LogChoice, limit: int) -> tuple[Sequence[LogLine], LogPlace]:
        """Return the newest matching lines, oldest first, and the place after them."""
        with _opened(self.path) as file:
            if file is None:
                return [], LogPlace(0, 0)
            status = os.fstat(file.fileno())
            start = max(0, status.st_size - _LOOK_BACK_BYTES)
            found, end = _chosen(file, start, status.st_size, choice)
            return found[-limit:], LogPlace(status.st_ino, end)

    def after(self, place: LogPlace, choice: LogChoice) -> tuple[Sequence[LogLine], LogPlace]:
        """Return matching lines after a place, oldest first, and the place after them.

        There may be more: call it again with the new place. If the file has been rotated more
        than once since, the lines in between are missing.
        """
        found: list[LogLine] = []
        for path in (self.path.with_name(f"{self.path.name}.1"), self.path):
            with _opened(path) as file:
                if file is None:
                    continue
                status = os.fstat(file.fileno())
                if path != self.path and status.st_ino != place.file:
                    continue
                start = place.offset if status.st_ino == place.file else 0
                up_to = min(status.st_size, start + _AT_ONCE_BYTES)
                more, end = _chosen(file, start, up_to, choice)
                found += more
                place = LogPlace(status.st_ino, end)
                if path != self.path and end < status.st_size:
                    return found, place  # the rest of the renamed file comes first
        return found, place


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | None]:
    """Open the log, or yield None; it may be renamed at any time, also while it is read."""
    try:
        file = path.open("rb")
    except OSError:
        yield None
        return
    with file:
        yield file


def _chosen(
    file: BinaryIO, start: int, end: int, choice: LogChoice
) -> tuple[list[LogLine], int]:
    """Return the matching complete lines between two offsets, and the offset after them.

    A partial first line, and lines that are not JSON, are skipped.
    """
    file.seek(start)
    found, place = [], start
    for raw in file:
        if not raw.endswith(b"\n"):
            break  # it is still being written
        place += len(raw)
        with suppress(ValueError):
            value = json.loads(raw)
            if isinstance(value, dict) and choice.takes(line := LogLine.of(value)):
                found.append(line)
        if place >= end:
            break
    return found, place


def _rank(level: str) -> int:
    return logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
