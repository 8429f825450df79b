"""Servers whose logs are followed."""

from collections.abc import Iterator

import pytest
from tests.mariadb_server import MariadbServer


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
