"""A sink made of the base for databases passes the acceptance kit, on PostgreSQL."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import dict_row
from tests.postgresql_server import PostgresqlServer
from typing_extensions import override

from headrace.sdk import (
    DeliveryGuarantee,
    Mark,
    Schema,
    SinkBatch,
    SinkConnector,
    SqlSink,
)
from headrace.sdk.config import Config, Settings, setting
from headrace.sdk.testing import BadConfig, Row, SinkAcceptance, SinkDriver

_databases = count()


class TableSettings(Settings):
    url: str = setting("The database.")
    table: str = setting("The table.", default="copied")


class TableWriter(SqlSink):
    settings: TableSettings
    placeholder = "%s"
    busy = (psycopg.OperationalError,)

    @override
    def connect(self) -> Any:
        return psycopg.connect(self.settings.url)

    @override
    def table(self, topic: str) -> str:
        return self.settings.table

    @override
    def column_type(self, schema: Schema) -> str:
        found = super().column_type(schema)
        return {"BLOB": "BYTEA", "TIMESTAMP": "TIMESTAMPTZ"}.get(found, found)


class TableSink(SinkConnector):
    """Appends to a table of PostgreSQL."""

    delivery = DeliveryGuarantee.EXACTLY_ONCE
    settings: TableSettings

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        settings = TableSettings.from_config(config)
        return f"{settings.url} {settings.table}"

    @override
    @classmethod
    def task(cls, config: Config) -> SqlSink:
        return TableWriter(config)


class TableDriver(SinkDriver):
    """Reads the table with psycopg; an outage is a database that lets nobody in."""

    connector = TableSink

    def __init__(self, server: PostgresqlServer) -> None:
        self._server, self._name = server, f"sink_{next(_databases)}"
        server.execute(f"CREATE DATABASE {self._name}")

    @override
    def config(self) -> Mapping[str, str]:
        return {"url": self._server.url(self._name)}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return []

    @override
    def read_back(self) -> list[Row]:
        with psycopg.connect(self._server.url(self._name), row_factory=dict_row) as database:
            try:
                return list(database.execute("SELECT * FROM copied").fetchall())
            except psycopg.errors.UndefinedTable:
                return []

    @override
    def break_target(self) -> None:
        self._server.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")

    @override
    def repair_target(self) -> None:
        self._server.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")


def test_tasks_that_start_and_commit_together_share_their_tables(
    postgresql: PostgresqlServer,
) -> None:
    driver = TableDriver(postgresql)
    config = TableSink.config_def().parse(driver.config())
    context: Any = None  # the base needs nothing of it
    schema = Schema.struct({"id": Schema.int64(), "text": Schema.string(optional=True)})

    def run(number: int) -> None:
        sink = TableSink.task(config)
        sink.start(context)
        batch = SinkBatch(Mark(f"task-{number}", 1, 1), "t", schema)
        rows = pa.RecordBatch.from_pydict({"id": [number], "text": ["x"]})
        message = sink.write(iter([rows]), batch, "part")
        sink.commit([message], batch, batch.mark.receipt({}))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run, range(8)))
    assert sorted(row["id"] for row in driver.read_back()) == list(range(8))


class TestSqlSink(SinkAcceptance):
    cannot_refuse = "Constraints are checked in the commit, where it is too late to refuse."
    kinds = (
        *("boolean", "int8", "int16", "int32", "int64", "float32", "float64"),
        *("string", "bytes", "date", "time", "timestamp", "decimal"),
    )
    why_not_all_kinds = "The base has no types for values with parts."

    @pytest.fixture(autouse=True)
    def _given_a_server(self, postgresql: PostgresqlServer) -> None:
        self.server = postgresql

    @override
    def driver(self, tmp_path: Path) -> TableDriver:
        return TableDriver(self.server)
