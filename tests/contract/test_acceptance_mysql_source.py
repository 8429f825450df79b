"""The source of MariaDB's changes passes the acceptance kit: its tables first, then the log."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.mariadb_server import MariadbServer, connect
from typing_extensions import override

from headrace.acceptance.harness import SourceBench
from headrace.sdk.sources import ReplayableSource
from headrace.sdk.testing import Arrived, BadConfig, Row, SourceAcceptance, SourceDriver
from headrace.sdk.testing.sources import append_chunks, require_once, stop, wait_for
from headrace_plugins.connectors.mysql.source import MysqlSource

_databases = count()


class ChangesDriver(SourceDriver):
    """Inserts rows into a table, in a transaction."""

    connector = MysqlSource

    def __init__(self, server: MariadbServer) -> None:
        name = f"followed_{next(_databases)}"
        self._url = server.url(name)
        server.execute(f"CREATE DATABASE {name}")
        with connect(self._url) as database, database.cursor() as cursor:
            cursor.execute("CREATE TABLE `rows` (id bigint PRIMARY KEY, text text)")

    @override
    def config(self) -> Mapping[str, str]:
        return {"connection.url": self._url}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"connection.url": "nowhere"}, "connection.url"),
            BadConfig({"connection.url": "postgresql://h/d"}, "connection.url"),
            BadConfig({"database.server.id": "0"}, "database.server.id"),
            BadConfig({"snapshot.mode": "sometimes"}, "snapshot.mode"),
            BadConfig({"table.include.list": "rosw"}, "table.include.list"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        with connect(self._url) as database, database.cursor() as cursor:
            for row in rows:
                cursor.execute("INSERT INTO `rows` VALUES (%s, %s)", (row["id"], row["text"]))
            database.commit()

    @override
    def seen(self, record: Arrived) -> Row:
        row: Row = record.value["after"]
        return row


@pytest.fixture(scope="session")
def logging_mariadb(_no_leaked_process: None) -> Iterator[MariadbServer]:
    """A server that writes a binary log."""
    settings = {"log_bin": "log", "binlog_format": "ROW", "binlog_row_metadata": "FULL"}
    with MariadbServer.running(**settings, server_id="1") as server:
        yield server


class TestChanges(SourceAcceptance):
    unlimited = "Transactions that were committed within a moment are taken together."
    cannot_replay = "A table is read as it is, which may be newer."

    @pytest.fixture(autouse=True)
    def _given_a_server(self, logging_mariadb: MariadbServer) -> None:
        self.server = logging_mariadb

    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return ChangesDriver(self.server)

    @override
    def test_an_empty_system_gives_no_batch_and_no_error(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """That an empty table was read has to be known: the batch has no rows."""
        opened = bench.open()
        moved = opened.step()
        opened.close()
        assert moved is not None
        assert moved.rows == 0

    @override
    def test_real_time_reads_what_is_appended_meanwhile(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """What is written while a table is read may come as it is, and again as a change."""
        rows = [made.row(0)]
        made.append(rows)
        running = bench.start()
        wait_for(bench, running, 1)
        for _ in range(2):
            rows += append_chunks(made, first=len(rows))
            wait_for(bench, running, len(rows), self.patience_seconds)
        stop(running)
        promise = "In real time, everything appended is read, once."
        require_once(bench, made, rows, promise, ReplayableSource.latest)
