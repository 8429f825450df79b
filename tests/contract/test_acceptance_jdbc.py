"""The source of databases passes the acceptance kit: tables, and the rows of a query."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import psycopg
import pytest
from tests.postgresql_server import PostgresqlServer
from typing_extensions import override

from headrace.sdk.testing import BadConfig, Row, SourceAcceptance, SourceDriver
from headrace_plugins.connectors.jdbc.source import JdbcSource

_databases = count()


class PostgresDriver(SourceDriver):
    """Inserts rows into a table, in a transaction."""

    connector = JdbcSource

    def __init__(self, server: PostgresqlServer, **more: str) -> None:
        self._server, self._name = server, f"read_{next(_databases)}"
        self._more = {key.replace("_", "."): value for key, value in more.items()}
        server.execute(f"CREATE DATABASE {self._name}")
        with psycopg.connect(self._server.url(self._name)) as database:
            database.execute("CREATE TABLE rows (id bigint PRIMARY KEY, text text)")

    @override
    def config(self) -> Mapping[str, str]:
        return {
            "connection.url": self._server.url(self._name),
            "mode": "incrementing",
            "incrementing.column.name": "id",
            **self._more,
        }

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"connection.url": "nowhere"}, "connection.url"),
            BadConfig({"connection.url": "postgresql://u:secret@h/d"}, "connection.url"),
            BadConfig({"mode": "sometimes"}, "mode"),
            BadConfig({"mode": "timestamp"}, "timestamp.column.name"),
            BadConfig({"mode": "bulk"}, "incrementing.column.name"),
            BadConfig({"incrementing.column.name": "number"}, "incrementing.column.name"),
            BadConfig({"query": "SELECT 1", "table.include.list": "rows"}, "query"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        with psycopg.connect(self._server.url(self._name)) as database:
            for row in rows:
                database.execute(
                    "INSERT INTO rows (id, text) VALUES (%s, %s)", (row["id"], row["text"])
                )


class _OnPostgresql(SourceAcceptance):
    unordered = "Rows are read in the order in which the database has them."

    @pytest.fixture(autouse=True)
    def _given_a_server(self, postgresql: PostgresqlServer) -> None:
        self.server = postgresql


class TestTables(_OnPostgresql):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return PostgresDriver(self.server)


@pytest.mark.long
class TestQuery(_OnPostgresql):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return PostgresDriver(self.server, query="SELECT id, text FROM rows")
