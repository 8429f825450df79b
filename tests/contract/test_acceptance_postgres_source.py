"""The source of PostgreSQL's changes passes the acceptance kit."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import psycopg
import pytest
from tests.postgresql_server import PostgresqlServer
from typing_extensions import override

from headrace.sdk.testing import Arrived, BadConfig, Row, SourceAcceptance, SourceDriver
from headrace_plugins.connectors.postgres.source import PostgresSource

_databases = count()


class ChangesDriver(SourceDriver):
    """Inserts rows into a table, in a transaction, behind the start of a slot."""

    connector = PostgresSource

    def __init__(self, server: PostgresqlServer) -> None:
        self._name = f"followed_{next(_databases)}"
        self._url = server.url(self._name)
        server.execute(f"CREATE DATABASE {self._name}")
        with psycopg.connect(self._url) as database:
            database.execute("CREATE TABLE rows (id bigint PRIMARY KEY, text text)")
            database.execute("CREATE PUBLICATION ours FOR TABLE rows")
        with psycopg.connect(self._url) as database:
            database.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._name]
            )

    @override
    def config(self) -> Mapping[str, str]:
        return {
            "connection.url": self._url,
            "snapshot.mode": "no_data",
            "slot.name": self._name,
            "publication.name": "ours",
            "publication.autocreate.mode": "disabled",
        }

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"connection.url": "nowhere"}, "connection.url"),
            BadConfig({"connection.url": "mysql://h/d"}, "connection.url"),
            BadConfig({"slot.name": "With Blanks"}, "slot.name"),
            BadConfig({"snapshot.mode": "sometimes"}, "snapshot.mode"),
            BadConfig({"publication.name": "theirs"}, "publication.name"),
            BadConfig({"table.include.list": "rosw"}, "table.include.list"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        with psycopg.connect(self._url) as database:
            for row in rows:
                database.execute(
                    "INSERT INTO rows (id, text) VALUES (%s, %s)", (row["id"], row["text"])
                )

    @override
    def seen(self, record: Arrived) -> Row:
        row: Row = record.value["after"]
        return row


class TestChanges(SourceAcceptance):
    unlimited = "Transactions that were committed within a moment are taken together."
    cannot_replay = "What was acknowledged the server forgets."

    @pytest.fixture(autouse=True)
    def _given_a_server(self, postgresql: PostgresqlServer) -> None:
        self.server = postgresql

    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return ChangesDriver(self.server)
