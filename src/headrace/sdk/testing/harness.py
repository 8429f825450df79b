"""What the kit asks of the runtime, which lies above the SDK and is handed in.

Headrace's own is in ``headrace.acceptance``, and comes to tests as a pytest fixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.sdk.connector import Connector
    from headrace.sdk.errors import HeadraceError
    from headrace.sdk.position import Position, ReadLimit
    from headrace.sdk.schema import Schema
    from headrace.sdk.sink import SinkConnector, SinkTask
    from headrace.sdk.sources import SourceConnector, SourceTask
    from headrace.sdk.testing.driver import Arrived, DeadLetter, Row


Configs: TypeAlias = "Callable[[], Mapping[str, str]]"
"""Gives a configuration; asked at each start, as it may change."""


class Point(StrEnum):
    """A moment in a batch at which a check may do something, or end it as a kill does."""

    BEFORE_WRITE = "before the write"
    BEFORE_COMMIT = "between write and commit"
    AFTER_COMMIT = "between commit and finish"


class Killed(BaseException):
    """Ends a batch as the end of the process would: no plugin gets to clean up."""


@dataclass(frozen=True)
class Moved:
    """A finished batch: its bounds, and how many records it read."""

    start: Position
    end: Position
    rows: int


class OpenTask(Protocol):
    """A task with plugin objects of its own, as a new process would have them.

    The task's lease is taken over from whoever had it. Not closed, it is abandoned, and
    closed with its bench.
    """

    def step(self) -> Moved | None:
        """Run one batch; None when nothing new is there."""

    def close(self) -> None:
        """Stop the plugins."""


class OpenSource(OpenTask, Protocol):
    """A source's task, its positions moved by ``step`` only."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Ask the source."""

    def read(self, start: Position, end: Position) -> list[Arrived]:
        """Return what the range holds, in order; the task does not move."""

    def position(self) -> Position:
        """Return where the task stands."""


class Running(Protocol):
    """A worker that runs the connector in real time."""

    def stop(self, patience: float) -> float | None:
        """Stop it; return the seconds it took, or None when it did not in ``patience``."""

    def error(self) -> Exception | None:
        """Return why the task failed, if it did."""


class SourceBench(Protocol):
    """A source between its system and a target in memory, with one store.

    What arrived, and the store, outlive the tasks: they stand for a target and a disk.
    """

    def open(
        self,
        *,
        rows: int | None = None,
        task: int = 0,
        hook: Callable[[Point], None] | None = None,
    ) -> OpenSource:
        """Start a task; ``rows`` limits its batches."""

    def tasks(self, at_most: int) -> int:
        """Return into how many tasks the connector divides its work from now on."""

    def run(self) -> None:
        """Run the connector offline: to the end of what is there."""

    def start(self, *, rows: int | None = None) -> Running:
        """Run the connector in real time."""

    def arrived(self) -> list[Arrived]:
        """Return the records in the target, in order."""


class CaptureBench(Protocol):
    """A capture with the durable position that the runtime keeps for it."""

    def start(self) -> SourceTask:
        """Return a new task object, started where the last one was durable."""

    def position(self) -> Position:
        """Return the durable position."""

    def advance(self, position: Position) -> None:
        """Make a position durable."""


class SinkBench(Protocol):
    """A sink with a source in memory: what is fed at once is a batch."""

    def feed(self, rows: Sequence[Row], schema: Schema, *, task: int = 0) -> None:
        """Add a batch."""

    def open(self, *, task: int = 0, hook: Callable[[Point], None] | None = None) -> OpenTask:
        """Start a task."""

    def tolerate(self) -> None:
        """Dead-letter rejected records from the next start of a task on."""

    def dead_letters(self) -> list[DeadLetter]:
        """Return the records that were dead-lettered."""

    def copied(self) -> SinkBench:
        """Return a bench of the same tasks over a copy of their store.

        It goes on from where this one is, with batches of its own: what a store has of which
        another was set back, or a database server that lagged when it took over.
        """


class Harness(Protocol):
    """A runtime that runs connectors for the kit."""

    def problems(
        self, connector: type[Connector], config: Mapping[str, str]
    ) -> list[HeadraceError]:
        """Return what validation finds wrong with a configuration."""

    def source(
        self,
        connector: type[SourceConnector],
        config: Configs,
        home: Path,
    ) -> AbstractContextManager[SourceBench]:
        """Return a bench; ``config`` is asked at each start, ``home`` is for its state."""

    def capture(
        self,
        connector: type[SourceConnector],
        config: Configs,
        home: Path,
    ) -> AbstractContextManager[CaptureBench]:
        """Return a bench for a capture."""

    def sink(
        self,
        connector: type[SinkConnector],
        config: Configs,
        home: Path,
    ) -> AbstractContextManager[SinkBench]:
        """Return a bench; see ``source``."""

    def unstarted(
        self, connector: type[Connector], config: Mapping[str, str]
    ) -> SourceTask | SinkTask:
        """Return a task object that was made and not started."""
