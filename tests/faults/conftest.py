"""What the rooms of faults share."""

import os
from collections.abc import Iterator

import pytest
from tests.faults.database_targets import variable
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer


@pytest.fixture(scope="session")
def servers(postgresql: PostgresqlServer, mariadb: MariadbServer) -> Iterator[None]:
    """The servers that the sinks of databases write to, in this process and its children."""
    urls = {"postgres": postgresql.url(), "mysql": mariadb.url()}
    for kind, url in urls.items():
        os.environ[variable(kind)] = url
    yield
    for kind in urls:
        del os.environ[variable(kind)]
