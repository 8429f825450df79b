"""Tables of databases as targets, each folder's own, written without Spark."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from tests.mariadb_server import connect
from typing_extensions import override

from headrace.sdk import FrameSink, SinkBatch, SinkConnector
from headrace.sdk.sink import StagedWrite
from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.connectors.postgres.sink import PostgresSink
from headrace_plugins.connectors.sqlite.sink import SqliteSink
from headrace_plugins.databases.sink_task import TableSinkTask

SERVERS: Mapping[str, type[SinkConnector]] = {"postgres": PostgresSink, "mysql": MysqlSink}
"""The sinks whose server has its address in the environment, see ``variable``."""


def variable(kind: str) -> str:
    """Return the name of the variable that has a server's URL, for all processes of a test."""
    return f"TEST_FAULTS_{kind.upper()}"


class _Rows(TableSinkTask):
    @override
    def write(self, frame: Any, batch: SinkBatch) -> StagedWrite:
        write = self.arrow_write(frame, batch)
        assert write is not None
        try:
            result = write.write(0, iter(frame.to_batches()))
            return write.staged([] if result is None else [result])
        except BaseException:
            write.abort()
            raise


def config(kind: str, folder: Path) -> dict[str, str]:
    """Return the configuration of a sink for the target that belongs to a folder."""
    if kind == "sqlite":
        return {"connection.url": f"sqlite:{folder / 'rows.db'}", "table.name.format": "rows"}
    schema = _schema(folder)
    if kind == "mysql":
        return {
            "connection.url": f"{_server(kind)}{schema}",
            "table.name.format": "rows_of_numbers",
        }
    return {"connection.url": _server(kind), "table.name.format": f"{schema}.rows_of_numbers"}


def connector(kind: str) -> type[SinkConnector]:
    """Return a kind's connector."""
    return SqliteSink if kind == "sqlite" else SERVERS[kind]


def make(kind: str, folder: Path) -> FrameSink:
    """Return a task of a sink; the place of its tables is there."""
    if kind == "postgres":
        with psycopg.connect(_server(kind), autocommit=True) as there:
            there.execute(f"CREATE SCHEMA IF NOT EXISTS {_schema(folder)}")
    elif kind == "mysql":
        with closing(connect(_server(kind))) as database, database.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {_schema(folder)}")
    return _Rows(connector(kind).config_def().parse(config(kind, folder)))


def read(kind: str, folder: Path) -> list[object]:
    """Return the ids that a target holds; none where it was not made yet."""
    query = f"SELECT id FROM {_schema(folder)}.rows_of_numbers"  # noqa: S608 - made here
    if kind == "postgres":
        with suppress(psycopg.errors.UndefinedTable), psycopg.connect(_server(kind)) as there:
            return [n for (n,) in there.execute(query).fetchall()]
        return []
    if kind == "mysql":
        with closing(connect(_server(kind))) as database, database.cursor() as cursor:
            with suppress(pymysql.err.ProgrammingError):
                cursor.execute(query)
            return [n for (n,) in cursor.fetchall()]
    with closing(sqlite3.connect(folder / "rows.db")) as file:
        with suppress(sqlite3.OperationalError):
            return [n for (n,) in file.execute("SELECT id FROM rows")]
        return []


def _server(kind: str) -> str:
    return os.environ[variable(kind)]


def _schema(folder: Path) -> str:
    return f"s_{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"
