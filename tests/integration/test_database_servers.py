"""The database servers that other tests use do what their names say, each kind alike."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pytest
from tests import mariadb_server
from tests.database_server import DatabaseServer
from tests.mariadb_server import MariadbServer
from tests.postgresql_server import PostgresqlServer

Connect = Callable[..., Any]


def connect_postgresql(url: str, seconds: int = 60) -> Any:
    return psycopg.connect(url, autocommit=True, connect_timeout=seconds)


def connect_mariadb(url: str, seconds: int = 60) -> Any:
    return mariadb_server.connect(url, read_timeout=seconds)


CONNECT: dict[type[DatabaseServer], Connect] = {
    PostgresqlServer: connect_postgresql,
    MariadbServer: connect_mariadb,
}


@pytest.fixture(params=CONNECT, ids=lambda kind: kind.title, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with request.param.running() as server:
        yield server


def run(server: DatabaseServer, url: str, *statements: str) -> Any:
    """Return what the last of the statements gives, over a connection of their own."""
    with closing(CONNECT[type(server)](url)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall() if statements[-1].startswith("SELECT") else None


def test_each_database_is_new_and_its_own(server: DatabaseServer) -> None:
    with server.database() as one, server.database() as other:
        run(server, one, "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
        run(server, other, "CREATE TABLE t (a int)")
        assert run(server, other, "SELECT * FROM t") in ([], ())


def test_a_database_goes_away_though_a_transaction_is_open_in_it(
    server: DatabaseServer,
) -> None:
    with server.database() as url:
        run(server, url, "CREATE TABLE t (a int)")
        connection = CONNECT[type(server)](url)
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM t")
    with pytest.raises((psycopg.OperationalError, pymysql.OperationalError)):
        cursor.execute("SELECT * FROM t")
    with closing(connection), pytest.raises((psycopg.OperationalError, pymysql.Error)):
        CONNECT[type(server)](url)


def test_what_was_committed_outlives_a_kill(server: DatabaseServer) -> None:
    with server.database() as url:
        run(server, url, "CREATE TABLE t (a int)")
        for _ in range(3):
            run(server, url, "INSERT INTO t VALUES (1)")
            with (
                server.killed(),
                pytest.raises((psycopg.OperationalError, pymysql.OperationalError)),
            ):
                run(server, url, "SELECT 1")
        [[rows]] = run(server, url, "SELECT count(*) FROM t")
        assert rows == 3


def test_what_was_committed_outlives_a_stop(server: DatabaseServer) -> None:
    with server.database() as url:
        run(server, url, "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
        with (
            server.paused(),
            pytest.raises((psycopg.OperationalError, pymysql.OperationalError)),
        ):
            run(server, url, "SELECT 1")
        assert len(run(server, url, "SELECT * FROM t")) == 1


def test_a_read_only_server_refuses_open_connections_too(server: DatabaseServer) -> None:
    with server.database() as url:
        run(server, url, "CREATE TABLE t (a int)")
        with closing(CONNECT[type(server)](url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM t")
            with (
                server.read_only(),
                pytest.raises((psycopg.errors.ReadOnlySqlTransaction, pymysql.Error)),
            ):
                cursor.execute("INSERT INTO t VALUES (1)")
            cursor.execute("INSERT INTO t VALUES (2)")
        assert [tuple(row) for row in run(server, url, "SELECT * FROM t")] == [(2,)]


def test_a_suspended_server_says_nothing_and_then_goes_on(server: DatabaseServer) -> None:
    with server.database() as url:
        with (
            server.suspended(),
            pytest.raises((psycopg.OperationalError, pymysql.OperationalError)),
        ):
            CONNECT[type(server)](url, 2).cursor().execute("SELECT 1")
        assert len(run(server, url, "SELECT 1")) == 1
