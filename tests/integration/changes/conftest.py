"""Servers whose logs are followed, and sources that stop with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.changes.change_reading import BinlogFollowing, Following
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer


@pytest.fixture(scope="session")
def binlog_server(_no_leaked_process: None) -> Iterator[MariadbServer]:
    """A MariaDB with a binary log that has all that may be in it."""
    with MariadbServer.running(
        log_bin="binlog",
        server_id="7",
        binlog_format="ROW",
        binlog_row_metadata="FULL",
    ) as server:
        yield server


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    """The URL of a database; its slots go with it."""
    with postgresql.database() as made:
        yield made


@pytest.fixture
def binlog_url(binlog_server: MariadbServer) -> Iterator[str]:
    """The URL of a database of MariaDB."""
    with binlog_server.database() as made:
        yield made


@pytest.fixture
def follow(postgresql: PostgresqlServer, tmp_path: Path) -> Iterator[Callable[..., Following]]:
    """Start a source: of the database of a URL, with keys that have underscores for dots."""
    started: list[Following] = []

    def start(url: str, **texts: str) -> Following:
        kind = BinlogFollowing if url.startswith("mysql") else Following
        started.append(kind(url, tmp_path, **texts))
        return started[-1]

    yield start
    for each in started:
        each.task.stop()
