"""Follows the changes of a database batch by batch, as a connector does, but without Spark."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from tests.integration.changes.binlog_reading import place_of
from tests.task_doubles import Context
from tests.waiting import until
from typing_extensions import override

from headrace.sdk import Position, ReadLimit, SourceConnector
from headrace.sdk.schema import PRIMARY_KEY
from headrace.sdk.sources import ArrowParts, StreamRows
from headrace_plugins.changes.source import ChangeTask
from headrace_plugins.connectors.mysql.source import MysqlSource
from headrace_plugins.connectors.postgres.source import PostgresSource

Record = Mapping[str, Any]
SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
SECONDS = 60
_folders = count()


def run(url: str, *statements: str) -> None:
    """Run statements, each committed by itself."""
    with psycopg.connect(url, autocommit=True) as database:
        for statement in statements:
            database.execute(statement.encode())


def transact(url: str, *statements: str) -> None:
    """Run statements in one transaction."""
    with psycopg.connect(url) as database:
        for statement in statements:
            database.execute(statement.encode())


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as database:
        return database.execute(query.encode()).fetchall()


class Replica:
    """What a target has that upserts by key, and deletes; without a key it counts rows."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Record]] = {}
        self.counted: dict[str, Counter[str]] = {}

    def apply(self, stream: str, key: Sequence[str], records: Sequence[Record]) -> None:
        table = self.tables.setdefault(stream, {})
        counted = self.counted.setdefault(stream, Counter())
        for record in records:
            before, after = record["before"], record["after"]
            if record["op"] == "t":
                table.clear()
                counted.clear()
            elif not key:
                counted.subtract([] if before is None else [_text(before)])
                counted.update([] if after is None else [_text(after)])
            elif record["op"] == "d":
                table.pop(tuple(before[name] for name in key), None)
            else:
                table[tuple(after[name] for name in key)] = after

    def rows(self, stream: str) -> list[Record]:
        """Return the rows of a table with a key, in its order."""
        return [row for _, row in sorted(self.tables[stream].items())]

    def counts(self, stream: str) -> dict[str, int]:
        """Return how often each row of a table without a key is there."""
        return {row: n for row, n in self.counted[stream].items() if n}


def _text(row: Record) -> str:
    return json.dumps(row, default=str)


class Following:
    """A source that goes on: what it has read, and where it stands.

    Args:
        url: The database.
        folder: For its files.
        texts: More of the source's keys, with underscores.
    """

    connector: ClassVar[type[SourceConnector]] = PostgresSource

    def __init__(self, url: str, folder: Path, **texts: str) -> None:
        props = {"connection.url": url, "table.poll.interval.ms": "0"}
        props |= {"slot.name": "s"} if self.connector is PostgresSource else {}
        props |= {key.replace("_", "."): text for key, text in texts.items()}
        self.url, self.folder, self.props = url, folder, props
        self.position = Position()
        self.replica = Replica()
        self.rejected: list[tuple[str, str]] = []
        self.schemas: dict[str, Any] = {}
        self.task = self._started()

    def _started(self) -> ChangeTask:
        task = self.connector.task(self.connector.config_def().parse(self.props))
        assert isinstance(task, ChangeTask)
        scratch = self.folder / str(next(_folders))
        scratch.mkdir()
        task.start(Context(scratch))
        return task

    def restart(self, **texts: str) -> None:
        """Begin another life, which knows the position only."""
        self.task.stop()
        self.props |= {key.replace("_", "."): text for key, text in texts.items()}
        self.task = self._started()

    def stop_reading(self) -> None:
        """Stop reading the log, until the server knows that the slot is free."""
        self.task._stop_reading()
        self.await_free_slot()

    def await_free_slot(self) -> None:
        """Wait until the server has seen the reader go."""
        until(lambda: not self.slot["active"])

    def streams(self, end: Position) -> Sequence[StreamRows]:
        return self.task.streams(SPARK, self.position, end)

    def read(self, end: Position) -> list[tuple[str, Record]]:
        """Return the records up to a position, and give them to the replica."""
        found: list[tuple[str, Record]] = []
        for stream in self.streams(end):
            assert isinstance(stream.rows, ArrowParts)
            schema, records = stream.rows.schema, list[Record]()
            self.schemas[stream.stream] = schema
            for part in stream.rows.parts:
                for batch, rejected in stream.rows.read(part):
                    records += batch.to_pylist()
                    self.rejected += rejected
            [row] = [each.schema for each in schema.fields if each.name == "after"]
            key = json.loads(row.parameters.get(PRIMARY_KEY, "[]"))
            self.replica.apply(stream.stream, key, records)
            found += [(stream.stream, record) for record in records]
        return found

    def commit(self, end: Position) -> None:
        self.position = end
        self.task.acknowledge(end)

    def plan(self, rows: int | None = 1_000_000) -> Position:
        """Return the end of the next batch, which is where it stands if there is none."""
        return self.task.latest(self.position, ReadLimit(rows=rows))

    def planned(self) -> Position:
        """Return the end of the next batch, once there is one."""
        by = time.monotonic() + SECONDS
        while (end := self.plan()) == self.position:
            assert time.monotonic() < by, "nothing more comes"
        return end

    def batch(self, rows: int | None = 1_000_000) -> list[tuple[str, Record]] | None:
        """Read the next batch; None if there is none yet."""
        end = self.plan(rows)
        if end == self.position:
            return None
        found = self.read(end)
        self.commit(end)
        return found

    def new(self, rows: int | None = 1_000_000) -> list[tuple[str, Record]]:
        """Go on until all has been read that is committed by now; return its records."""
        goal, by = self._goal(), time.monotonic() + SECONDS
        found: list[tuple[str, Record]] = []
        while True:
            batch = self.batch(rows)
            found += batch or []
            if batch is None and self._has_reached(goal):
                return found
            assert time.monotonic() < by, "nothing more comes"

    def _goal(self) -> Any:
        with closing(psycopg.connect(self.url, autocommit=True)) as database:
            # So that the log goes on behind what was committed.
            [row] = database.execute("SELECT pg_logical_emit_message(true, 't', '')").fetchall()
            [row] = database.execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchall()
            return int(row[0])

    def _has_reached(self, goal: Any) -> bool:
        process = self.task._process
        if process is None or not process.is_ready:
            return False
        return process.place.get("lsn", 0) >= goal and not process.entries()

    def changes(self, rows: int | None = 1_000_000) -> list[tuple[Any, Any, Any]]:
        """Go on like ``new``; return of each record op, before and after, of all tables."""
        return [(r["op"], r["before"], r["after"]) for _, r in self.new(rows)]

    @property
    def slot(self) -> Mapping[str, Any]:
        """What the server says of the slot."""
        with closing(psycopg.connect(self.url, row_factory=psycopg.rows.dict_row)) as database:
            [found] = database.execute(
                "SELECT *, confirmed_flush_lsn - '0/0' AS confirmed FROM pg_replication_slots "
                "WHERE slot_name = %s",
                [self.props["slot.name"]],
            ).fetchall()
            return found


class BinlogFollowing(Following):
    """The same of MariaDB."""

    connector = MysqlSource

    @override
    def _goal(self) -> Any:
        return place_of(self.url)

    @override
    def _has_reached(self, goal: Any) -> bool:
        process, order = self.task._process, self.task._log.order
        if process is None or not process.is_ready:
            return False
        return order(process.place) >= order(goal) and not process.entries()


def quoted(*names: str) -> str:
    """Return a name, or one with its schema, as SQL."""
    return sql.Identifier(*names).as_string(None)
