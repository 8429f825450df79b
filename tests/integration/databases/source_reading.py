"""Reads what is new in a database of any kind, batch by batch, as a connector does."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.mariadb_server import connect

from headrace.sdk import Position, ReadLimit
from headrace.sdk.sources import ArrowParts, StreamRows
from headrace_plugins.connectors.jdbc.reader import TablesTask
from headrace_plugins.connectors.jdbc.source import JdbcSource

KINDS = ["postgresql", "mariadb", "sqlite"]
_names = count()


def run(url: str, *statements: str) -> None:
    """Run statements by the driver of a database, each committed by itself."""
    with closing(open_database(url)) as database:
        for statement in statements:
            database.cursor().execute(statement)


def open_database(url: str, *, autocommit: bool = True) -> Any:
    """Return a connection of the driver's; a file of SQLite is locked by what is open on it."""
    if url.startswith("postgresql"):
        return psycopg.connect(url, autocommit=autocommit)
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    made = connect(url)
    made.autocommit(autocommit)
    return made


def databases(request: pytest.FixtureRequest, folder: Path) -> Any:
    """Return what makes a database of the fixture's kind, and gives its URL."""
    if request.param == "sqlite":
        return nullcontext(f"sqlite:///{folder}/{next(_names)}.db")
    return request.getfixturevalue(request.param).database()


def read(streams: Iterable[StreamRows]) -> list[dict[str, Any]]:
    """Return the rows of what a batch reads."""
    found = list[dict[str, Any]]()
    for each in streams:
        assert isinstance(each.rows, ArrowParts)
        for part in each.rows.parts:
            for batch, rejected in each.rows.read(part):
                assert not rejected
                found += batch.to_pylist()
    return found


class Following:
    """A source that goes on: what it reads, and where it stands.

    Args:
        spark: The session.
        url: The database.
        texts: More of the source's keys, with underscores.
    """

    def __init__(self, spark: SparkSession, url: str, **texts: str) -> None:
        props = {"connection.url": url, "table.poll.interval.ms": "0"}
        props |= {key.replace("_", "."): text for key, text in texts.items()}
        task = JdbcSource.task(JdbcSource.config_def().parse(props))
        assert isinstance(task, TablesTask)
        context: Any = None  # the source needs nothing of it
        task.start(context)
        self.spark, self.task, self.position = spark, task, Position()

    def rows(self, end: Position) -> list[dict[str, Any]]:
        """Return the rows from where it stands to a position."""
        return read(self.task.streams(self.spark, self.position, end))

    def new(self, rows: int | None = None) -> list[dict[str, Any]]:
        """Go on until nothing is new; return the rows in the order of their batches."""
        found, limit = list[dict[str, Any]](), ReadLimit(rows=rows)
        while (end := self.task.latest(self.position, limit)) != self.position:
            found += self.rows(end)
            self.task.acknowledge(end)
            self.position = end
        return found

    def ids(self) -> list[int]:
        """Go on until nothing is new; return the ids of the rows, sorted."""
        return sorted(row["id"] for row in self.new())
