"""Servers whose logs are followed, and sources that stop with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.changes.change_reading import BinlogFollowing, Following
from tests.mariadb_server import MariadbServer
from tests.mysql_server import Mysql8Server, NewestMysqlServer
from tests.postgresql_server import PostgresqlServer

from headrace.sdk.errors import SetupError

MYSQL_LOG = {
    "server_id": "7",
    "binlog_row_metadata": "FULL",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
}


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


@pytest.fixture(scope="session")
def mysql8(_no_leaked_process: None) -> Iterator[Mysql8Server]:
    """A MySQL 8 with a binary log that has all that may be in it."""
    with Mysql8Server.running(log_bin="binlog", **MYSQL_LOG) as server:
        yield server


@pytest.fixture(scope="session")
def newest_mysql(_no_leaked_process: None) -> Iterator[NewestMysqlServer]:
    """The same of the newest MySQL, which compresses transactions and makes keys of its own."""
    try:
        with NewestMysqlServer.running(
            **MYSQL_LOG, log_bin="binlog", binlog_transaction_compression="on"
        ) as server:
            yield server
    except SetupError as error:
        pytest.skip(f"Debian's newest MySQL cannot be had: {error}")


@pytest.fixture(scope="session", params=["binlog_server", "mysql8", "newest_mysql"])
def each_server(request: pytest.FixtureRequest) -> MariadbServer:
    """Every kind of server in turn."""
    server: MariadbServer = request.getfixturevalue(request.param)
    return server


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
