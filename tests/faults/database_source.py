"""The numbers that a task moves as rows of a table, which the source `jdbc` reads."""

# ruff: noqa: S608 - names are made here
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.faults import database_targets
from tests.task_doubles import Context

from headrace.dataplane.sources import SourceFrame
from headrace.sdk import Lag, Position, ReadLimit
from headrace.sdk.sources import ArrowParts
from headrace_plugins.connectors.jdbc.reader import TablesTask
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.databases.database import database_of

_SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


@dataclass
class TableNumbers:
    """A source of so many rows as there are, in a table of a folder's own.

    Args:
        kind: The kind of its database, as `database_targets` has it.
        folder: Whose table it is.
        available: How many rows it has.
        reach: Called at steps of a batch.
    """

    kind: str
    folder: Path
    available: int
    reach: Callable[[str], None]
    _task: TablesTask = field(init=False)

    def __post_init__(self) -> None:
        """Add the rows that are not there yet, and start."""
        config = database_targets.config(self.kind, self.folder)
        table = config["table.name.format"] + "_read"
        keys = {"mode": "incrementing", "incrementing.column.name": "id"}
        props = {
            "connection.url": config["connection.url"],
            "table.include.list": table,
            **keys,
        }
        task = JdbcSource.task(JdbcSource.config_def().parse(props))
        assert isinstance(task, TablesTask)
        self._task = task
        self._fill(table)
        self._task.start(Context())

    def _fill(self, table: str) -> None:
        database_targets.make(self.kind, self.folder)
        with database_of(self._task.settings).session() as session:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (id bigint NOT NULL PRIMARY KEY)"
            )
            there = int(session.value(f"SELECT count(*) FROM {table}"))
            for number in range(there, self.available):
                session.execute(f"INSERT INTO {table} VALUES ({number})")
            session.commit()

    def ids(self, start: Position, end: Position) -> list[int]:
        """Return the numbers of a range, as they are read."""
        found: list[int] = []
        for stream in self._task.streams(_SPARK, start, end):
            assert isinstance(stream.rows, ArrowParts)
            for part in stream.rows.parts:
                for rows, rejected in stream.rows.read(part):
                    assert not rejected
                    found += rows.column("id").to_pylist()
        return sorted(found)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = self._task.latest(start, limit)
        self.reach("after plan")
        return end

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        self.reach("before acknowledge")
        self._task.acknowledge(position)

    def read(self, spark: Any, start: Position, end: Position) -> SourceFrame:
        return SourceFrame(None)

    def stop(self) -> None:
        """Let go of the database."""
        self._task.stop()
