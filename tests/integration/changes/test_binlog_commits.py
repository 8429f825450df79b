"""The log has a transaction before its tables show it: none is lost between the two."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from tests.integration.changes.binlog_reading import database_of, place_of
from tests.integration.changes.change_reading import Following
from tests.integration.databases.mysql_tables import run
from tests.mariadb_server import MariadbServer, connect
from tests.mysql_server import Mysql8Server
from tests.waiting import until

from headrace.sdk import RetriableError
from headrace_plugins.changes.log import Offset
from headrace_plugins.connectors.mysql import binary_log
from headrace_plugins.connectors.mysql.binary_log import await_commits
from headrace_plugins.connectors.mysql.binlog_settings import committed_place, in_log

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
SECONDS = 60
LOG = {"log_bin": "binlog", "server_id": "7", "binlog_row_metadata": "FULL"}


@pytest.fixture(scope="module")
def semi_sync(_no_leaked_process: None) -> Iterator[str]:
    """The URL of a server where a commit may wait for a replica that is not there."""
    options = {
        "wait_point": "AFTER_SYNC",
        "timeout": "60000",
        "wait_no_slave": "ON",
    }
    options = {f"rpl_semi_sync_master_{key}": text for key, text in options.items()}
    with MariadbServer.running(**LOG, binlog_format="ROW", **options) as server:
        url = server.url("shop")
        server.execute("CREATE DATABASE shop")
        run(url, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        yield url


@contextmanager
def committing(url: str, statement: str) -> Iterator[Offset]:
    """Give a place behind a statement that is in the log, and that no table shows yet."""
    before = place_of(url)
    run(url, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
    thread = threading.Thread(target=run, args=(url, statement))
    thread.start()
    try:
        until(lambda: in_log(place_of(url)) != in_log(before))
        yield place_of(url)
    finally:
        run(url, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")  # the commit is done
        thread.join()


def test_what_is_in_the_log_first_is_not_missing_in_a_snapshot(
    semi_sync: str, follow: Follow
) -> None:
    run(semi_sync, "DELETE FROM t", "INSERT INTO t VALUES (1, 0)")
    with committing(semi_sync, "INSERT INTO t VALUES (2, 0)"):
        following = follow(semi_sync)
        for _ in range(2):
            following.batch()
        assert run(semi_sync, "SELECT id FROM t") == [(1,)]
    run(semi_sync, "INSERT INTO t VALUES (3, 0)")
    following.new()
    assert [row["id"] for row in following.replica.rows("t")] == [1, 2, 3]


def test_a_table_that_is_read_again_is_not_older_than_the_log(
    semi_sync: str, follow: Follow
) -> None:
    run(semi_sync, "DELETE FROM t", "INSERT INTO t VALUES (1, 0)")
    following = follow(semi_sync)
    following.new()
    with committing(semi_sync, "UPDATE t SET n = 5"):
        following.new()  # the log gives it at once
        assert run(semi_sync, "SELECT n FROM t") == [(0,)]
        assert [row["n"] for row in following.replica.rows("t")] == [5]
        following.position = following.position.moved(
            {"table": f"{semi_sync.rpartition('/')[2]}.t"}, {"round": 0}
        )
        by = time.monotonic() + SECONDS
        while following.position.offset({"table": "shop.t"}) == {"round": 0}:
            assert time.monotonic() < by
            following.batch()
    following.new()
    assert [row["n"] for row in following.replica.rows("t")] == [5]


def test_a_commit_that_waits_for_long_is_told(
    semi_sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary_log, "_SHOWN_SECONDS", 0.2)
    with database_of(semi_sync).session() as session:
        with (
            committing(semi_sync, "INSERT INTO t VALUES (9, 0)") as place,
            pytest.raises(RetriableError, match="not yet visible in its tables"),
        ):
            await_commits(session, place, "it")
        await_commits(session, place, "it")


def test_a_server_at_rest_shows_all_of_its_log(semi_sync: str) -> None:
    with database_of(semi_sync).session() as session:
        for statement in (
            "DO 1",
            "FLUSH BINARY LOGS",
            "CREATE TABLE u (id INT)",
            "DROP TABLE u",
        ):
            run(semi_sync, statement)
            # MariaDB writes of its own accord that a new file of the log needs no older one.
            until(lambda: in_log(committed_place(session)) == in_log(place_of(semi_sync)))
            await_commits(session, place_of(semi_sync), "it")


def test_mysql_tells_what_it_is_about_to_commit(
    mysql8: Mysql8Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary_log, "_SHOWN_SECONDS", 0.2)
    with (
        mysql8.database() as url,
        database_of(url).session() as session,
        closing(connect(url)) as other,
        other.cursor() as cursor,
    ):
        run(url, "CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.execute("SET gtid_next = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1'")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(RetriableError, match="not yet visible in its tables"):
            await_commits(session, place_of(url), "it")
        cursor.execute("COMMIT")
        await_commits(session, place_of(url), "it")


def test_a_snapshot_is_one_of_the_server_that_is_followed(
    binlog_url: str, follow: Follow
) -> None:
    run(binlog_url, "CREATE TABLE t (id INT PRIMARY KEY)")
    source_log = follow(binlog_url).task._log
    with (
        pytest.raises(RetriableError, match="another server than the one"),
        source_log.snapshot({**place_of(binlog_url), "server": "8"}),
    ):
        pass


def test_a_table_is_not_read_while_its_rows_are_prepared(
    each_server: MariadbServer, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_plugins.connectors.mysql.binary_log._SHOWN_SECONDS", 0.3)
    with each_server.database() as url:
        run(url, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        run(url, "XA START 'x'", "INSERT INTO t VALUES (1, 1)", "XA END 'x'", "XA PREPARE 'x'")
        following = follow(url)
        try:
            with pytest.raises(RetriableError, match="not yet visible in its tables"):
                following.new()
        finally:
            run(url, "XA COMMIT 'x'")
        following.new()
        assert [row["id"] for row in following.replica.rows("t")] == [1]
