"""Databases of the kinds that a copy has on its two sides, and ends of them."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pymysql
from tests.database_server import DatabaseServer
from tests.mariadb_server import MariadbServer, connect
from tests.postgresql_server import PostgresqlServer
from typing_extensions import override

SECONDS = 20
DATABASE = "shop"


class Side(ABC):
    """A database that is read or written, and that may be ended and started again."""

    sink: ClassVar[str]
    """The connector that writes it."""
    number: ClassVar[str]
    """The type of a key that grows by itself."""
    time: ClassVar[str]
    now: ClassVar[str]
    errors: ClassVar[type[Exception]]

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is."""

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def end(self, seconds: float) -> None:
        """Be away for some time, after the most sudden end that there is."""

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]


@dataclass
class _Served(Side):
    server: DatabaseServer

    @property
    @override
    def url(self) -> str:
        return self.server.url(DATABASE)

    @override
    def end(self, seconds: float) -> None:
        with self.server.killed():
            time.sleep(seconds)


class PostgresqlSide(_Served):
    """A database of a PostgreSQL server."""

    sink = "postgres"
    number = "bigserial"
    time = "timestamptz(6)"
    now = "clock_timestamp()"
    errors = psycopg.Error

    @override
    def _connect(self) -> Any:
        return psycopg.connect(self.url)


class MariadbSide(_Served):
    """A database of a MariaDB server."""

    sink = "mysql"
    number = "bigint AUTO_INCREMENT"
    time = "timestamp(6)"
    now = "sysdate(6)"
    errors = pymysql.Error

    @override
    def _connect(self) -> Any:
        connection = connect(self.url, read_timeout=SECONDS)
        connection.autocommit(False)
        return connection


@dataclass
class SqliteSide(Side):
    """A file: it has no server, and its end is that somebody else keeps it locked."""

    sink = "sqlite"
    number = "INTEGER"
    time = "timestamp"
    now = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    errors = sqlite3.Error

    file: Path

    @property
    @override
    def url(self) -> str:
        return f"sqlite:{self.file}"

    @override
    def _connect(self) -> Any:
        return sqlite3.connect(self.file, timeout=SECONDS)

    @override
    def end(self, seconds: float) -> None:
        with closing(self._connect()) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)


@contextmanager
def _served(
    kind: type[DatabaseServer], side: Callable[[DatabaseServer], Side]
) -> Iterator[Side]:
    with kind.running() as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
        yield side(server)


@contextmanager
def _file(folder: Path) -> Iterator[Side]:
    file = folder / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    yield SqliteSide(file)


def side(kind: str, folder: Path) -> AbstractContextManager[Side]:
    """Give a database of a kind for as long as this lasts: postgresql, mariadb or sqlite."""
    if kind == "postgresql":
        return _served(PostgresqlServer, PostgresqlSide)
    return _served(MariadbServer, MariadbSide) if kind == "mariadb" else _file(folder)
