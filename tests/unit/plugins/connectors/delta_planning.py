"""A Delta table for tests of a source's plans, and the rows of its batches, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from tests.task_doubles import Context

from headrace.plugins import Access
from headrace.sdk import Position, ReadLimit
from headrace_plugins.connectors.delta.reader import DeltaReader
from headrace_plugins.connectors.delta.source import DeltaSource

__all__ = ["SOME", "Table", "ids", "planned"]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SOME = ReadLimit(rows=1_000_000)


class Table:
    """A table whose version n was committed at second n of 1970, and has row n."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.versions = 0

    def create(self, **properties: str) -> None:
        settings = {f"delta.{name}": value for name, value in properties.items()}
        DeltaTable.create(self.path, SCHEMA, partition_by=["name"], configuration=settings)
        self.versions = 1
        self.date()

    def append(self, *ids: int) -> None:
        rows = {"id": pa.array(ids, pa.int64()), "name": [str(n) for n in ids]}
        write_deltalake(self.path, pa.table(rows), mode="append")
        self.date()

    def fill(self, versions: int) -> None:
        self.create()
        for number in range(1, versions + 1):
            self.append(number)

    def delete(self, condition: str) -> None:
        DeltaTable(self.path).delete(condition)
        self.date()

    def log(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    def date(self) -> None:
        self.versions = int(DeltaTable(self.path).version())
        os.utime(self.log(self.versions), (self.versions, self.versions))

    def read(self, *allowed: Path, **keys: str) -> DeltaReader:
        task = DeltaSource.task(self.config(**keys))
        assert isinstance(task, DeltaReader)
        task.start(Context(access=Access(paths=allowed or None)))
        return task

    def config(self, **keys: str) -> Any:
        props = {"path": str(self.path)} | {k.replace("_", "."): v for k, v in keys.items()}
        return DeltaSource.config_def().parse(props)

    def at(self, version: int, **more: Any) -> Position:
        return Position.of({"path": str(self.path)}, {"version": version, **more})


def ids(task: DeltaReader, start: Position, end: Position) -> list[int]:
    """Return the rows of a range; the name of a file's folder has them."""
    files = [file.path for piece in task._range(start, end) for file in piece.files]
    return [int(unquote(path).partition("name=")[2].partition("/")[0]) for path in files]


def planned(
    task: DeltaReader, at: Position | None = None, limit: ReadLimit = SOME
) -> tuple[list[list[int]], Position]:
    """Return the rows of each batch until nothing new is there, and where that is."""
    found, start = [], at or Position()
    while (end := task.latest(start, limit)) != start:
        found.append(ids(task, start, end))
        start = Position.from_json(end.to_json())
    return found, start
