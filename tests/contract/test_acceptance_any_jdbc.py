"""The source and the sink of any database pass the acceptance kit, on H2 in a file."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.jdbc_database import JdbcDatabase, drivers_load
from typing_extensions import override

from headrace.sdk.testing import (
    BadConfig,
    Row,
    SinkAcceptance,
    SinkDriver,
    SourceAcceptance,
    SourceDriver,
)
from headrace.sdk.testing.driver import ALL_KINDS
from headrace.settings import Settings
from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.jdbc.source import JdbcSource

_BAD = [
    BadConfig({"driver.coordinates": None, "driver.sha256": None}, "driver.coordinates"),
    BadConfig({"driver.coordinates": "h2"}, "driver.coordinates"),
    BadConfig({"connection.url": "jdbc:h2:mem:x;PASSWORD=secret"}, "connection.url"),
]


def _text(value: object) -> str:
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def _instant(value: object) -> object:
    # The type that Spark has for instants in H2 has no zone: it is UTC.
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


@pytest.fixture(autouse=True)
def _drivers(spark: SparkSession, session_settings: Settings) -> Iterator[None]:
    with drivers_load(spark, session_settings):
        yield


class H2Source(SourceDriver):
    """Inserts rows into a table in capitals, as who quotes no name makes one."""

    connector = JdbcSource

    def __init__(self, folder: Path, **more: str) -> None:
        self._database, self._more = JdbcDatabase.h2_file(folder), more
        self._database.run('CREATE TABLE NUMBERED ("id" BIGINT PRIMARY KEY, "text" CLOB)')

    @override
    def config(self) -> Mapping[str, str]:
        own = {"mode": "incrementing", "incrementing.column.name": "id"}
        return {**self._database.config, **own, **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            *_BAD,
            BadConfig({"incrementing.column.name": "ID"}, "incrementing.column.name"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        for row in rows:
            values = f"{row['id']}, {_text(row['text'])}"
            self._database.run(f"INSERT INTO NUMBERED VALUES ({values})")  # noqa: S608


class H2Sink(SinkDriver):
    """Reads the table by JDBC; an outage is a user that is no longer there."""

    connector = JdbcSink

    def __init__(self, folder: Path, **more: str) -> None:
        self._database, self._more = JdbcDatabase.h2_file(folder), more
        self._database.run("CREATE USER copier PASSWORD 'secret' ADMIN")

    @override
    def config(self) -> Mapping[str, str]:
        login = {"connection.user": "copier", "connection.password": "secret"}
        return {**self._database.config, **login, "table.name.format": "copied", **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            *_BAD,
            BadConfig({"insert.mode": "merge"}, "insert.mode"),
            BadConfig({"insert.mode": "insert", "delete.enabled": "true"}, "delete.enabled"),
        ]

    @override
    def read_back(self) -> list[Row]:
        if "copied" not in self._database.tables():
            return []
        found = self._database.named_rows('SELECT * FROM "copied"')
        return [{name: _instant(value) for name, value in row.items()} for row in found]

    @override
    def refused(self, number: int) -> Row:
        self._database.run(
            'CREATE TABLE IF NOT EXISTS "copied" '
            '("id" BIGINT PRIMARY KEY, "text" VARCHAR NOT NULL)'
        )
        return {"id": number, "text": None}

    @override
    def break_target(self) -> None:
        self._database.run('ALTER TABLE IF EXISTS "copied" RENAME TO "hidden"')
        self._database.run('CREATE VIEW "copied" AS SELECT 1 AS "id"')

    @override
    def repair_target(self) -> None:
        self._database.run('DROP VIEW "copied"', 'ALTER TABLE "hidden" RENAME TO "copied"')


class _SourceOnH2(SourceAcceptance):
    unordered = "Rows are read in the order in which the database has them."


class TestTables(_SourceOnH2):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return H2Source(tmp_path)


@pytest.mark.long
class TestQuery(_SourceOnH2):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return H2Source(tmp_path, query='SELECT "id", "text" FROM NUMBERED')


class _SinkOnH2(SinkAcceptance):
    kinds = tuple(
        kind for kind in ALL_KINDS if kind not in {"array", "map", "struct", "nested"}
    )
    why_not_all_kinds = "Values with parts are kept as JSON."


@pytest.mark.long
class TestInsert(_SinkOnH2):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return H2Sink(tmp_path)


class TestUpsert(_SinkOnH2):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return H2Sink(tmp_path, **{"insert.mode": "upsert", "key.fields": "id"})
