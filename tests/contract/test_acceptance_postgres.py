"""The sink of PostgreSQL passes the acceptance kit, in its modes."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.postgresql_server import PostgresqlServer
from typing_extensions import override

from headrace.sdk.testing import BadConfig, Row, SinkAcceptance, SinkDriver
from headrace.sdk.testing.driver import ALL_KINDS
from headrace_plugins.connectors.postgres.sink import PostgresSink

_databases = count()


class PostgresDriver(SinkDriver):
    """Reads the table with psycopg; an outage is a database that lets nobody in."""

    connector = PostgresSink

    def __init__(self, server: PostgresqlServer, **more: str) -> None:
        self._server, self._name, self._more = server, f"accepted_{next(_databases)}", more
        server.execute(f"CREATE DATABASE {self._name}")

    @override
    def config(self) -> Mapping[str, str]:
        own = {"table.name.format": "copied", "connection.url": self._server.url(self._name)}
        return {**own, **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"connection.url": "nowhere"}, "connection.url"),
            BadConfig({"connection.url": "postgresql://u:secret@h/d"}, "connection.url"),
            BadConfig({"insert.mode": "merge"}, "insert.mode"),
            BadConfig({"insert.mode": "insert", "delete.enabled": "true"}, "delete.enabled"),
            BadConfig({"key.fields": "id", "pk.fields": "id"}, "pk.fields"),
        ]

    @override
    def read_back(self) -> list[Row]:
        with psycopg.connect(self._server.url(self._name), row_factory=dict_row) as database:
            try:
                return list(database.execute("SELECT * FROM copied").fetchall())
            except psycopg.errors.UndefinedTable:
                return []

    @override
    def refused(self, number: int) -> Row:
        with psycopg.connect(self._server.url(self._name)) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS copied (id bigint PRIMARY KEY, text text NOT NULL)"
            )
        return {"id": number, "text": None}

    @override
    def break_target(self) -> None:
        self._server.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")

    @override
    def repair_target(self) -> None:
        self._server.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")


class _OnPostgresql(SinkAcceptance):
    kinds = tuple(
        kind for kind in ALL_KINDS if kind not in {"array", "map", "struct", "nested"}
    )
    why_not_all_kinds = "Values with parts are kept as JSON."

    @pytest.fixture(autouse=True)
    def _given_a_server(self, postgresql: PostgresqlServer) -> None:
        self.server = postgresql


class TestInsert(_OnPostgresql):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return PostgresDriver(self.server)


class TestUpsert(_OnPostgresql):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return PostgresDriver(self.server, **{"insert.mode": "upsert", "key.fields": "id"})
