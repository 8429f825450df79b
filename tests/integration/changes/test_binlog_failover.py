"""A connector goes on at the server that has taken over, or says why it cannot."""

# ruff: noqa: S608 - names are made here

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.changes.binlog_reading import database_of
from tests.integration.changes.change_reading import Following
from tests.integration.databases.mysql_tables import run
from tests.mariadb_server import MariadbServer
from tests.mysql_server import Mysql8Server
from tests.task_doubles import Context
from typing_extensions import override

from headrace.sdk import DataLostError, Position, RetriableError
from headrace_plugins.connectors.mysql import binary_log
from headrace_plugins.connectors.mysql.binlog_settings import current_place
from headrace_plugins.connectors.mysql.source import MysqlSource, MysqlTask

SECONDS = 60
PARTITION = {"server": "shop"}


class MysqlFollowing(Following):
    """A source of MySQL, which knows its position only when it begins again."""

    @override
    def _started(self) -> MysqlTask:
        props = {key: text for key, text in self.props.items() if key != "slot.name"}
        task = MysqlSource.task(MysqlSource.config_def().parse(props))
        assert isinstance(task, MysqlTask)
        scratch = self.folder / f"scratch-{time.monotonic_ns()}"
        scratch.mkdir()
        task.start(Context(scratch))
        return task

    def go_on(self, url: str = "") -> None:
        """Take all that is committed by now."""
        if url:
            self.url = url
            self.restart(connection_url=url)
        with database_of(self.url).session() as session:
            goal = current_place(session)
        by = time.monotonic() + SECONDS
        while True:
            is_nothing = self.batch() is None
            at = self.place
            has_come = at.get("server") == goal["server"] and at["file"] and "initial" not in at
            if is_nothing and has_come and self.ids() == ids(self.url):
                return
            assert time.monotonic() < by, f"it stands at {at}, not at {goal}"

    @property
    def place(self) -> dict[str, object]:
        return dict(self.position.offset(PARTITION) or {})

    def ids(self) -> list[int]:
        [stream] = self.replica.tables or [""]
        return [row["id"] for row in self.replica.rows(stream)] if stream else []


def ids(url: str) -> list[int]:
    return [row[0] for row in run(url, "SELECT id FROM t ORDER BY id")]


Pair = tuple[MariadbServer, MariadbServer]


@pytest.fixture(params=["mariadb", "mysql"])
def pair(request: pytest.FixtureRequest, _no_leaked_process: None) -> Iterator[Pair]:
    """A server and its replica, whose logs have files of the same names."""
    with ExitStack() as running:
        log = {"log_bin": "binlog", "binlog_row_metadata": "FULL", "binlog_format": "ROW"}
        if request.param == "mariadb":
            log["log_slave_updates"] = "ON"
            one, other = (
                running.enter_context(MariadbServer.running(**log, server_id=number))
                for number in "12"
            )
        else:
            log |= {"gtid_mode": "ON", "enforce_gtid_consistency": "ON"}
            one, other = (
                running.enter_context(Mysql8Server.running(**log, server_id=number))
                for number in "12"
            )
            other.execute("RESET MASTER")
            one.execute("RESET MASTER")
        replicate(other, one)
        yield one, other
        for server in (one, other):
            server.kill()  # a replica without its source takes its time to stop


def replicate(replica: MariadbServer, source: MariadbServer) -> None:
    place = f"MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port}, MASTER_USER = 'root'"
    how = "MASTER_USE_GTID = slave_pos"
    if isinstance(replica, Mysql8Server):
        how = "MASTER_AUTO_POSITION = 1"
    replica.execute(f"CHANGE MASTER TO {place}, {how}")
    replica.execute("START SLAVE")


def await_replica(one: str, other: str) -> None:
    by = time.monotonic() + SECONDS
    while True:
        try:
            if ids(one) == ids(other):
                return
        except Exception:  # noqa: BLE001 - there is no such table yet
            assert time.monotonic() < by
        assert time.monotonic() < by
        time.sleep(0.1)


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., MysqlFollowing]]:
    started: list[MysqlFollowing] = []

    def start(url: str, **texts: str) -> MysqlFollowing:
        started.append(MysqlFollowing(url, tmp_path, topic_prefix="shop", **texts))
        return started[-1]

    yield start
    for each in started:
        each.task.stop()


def shop(pair: Pair) -> tuple[str, str]:
    one, other = pair
    one.execute("CREATE DATABASE shop")
    urls = one.url("shop"), other.url("shop")
    run(urls[0], "CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 0)")
    await_replica(*urls)
    return urls


def test_a_promoted_replica_is_followed_on(
    pair: Pair, follow: Callable[..., MysqlFollowing]
) -> None:
    old, new = shop(pair)
    following = follow(old)
    following.go_on()
    for number in range(2, 30):
        run(old, f"INSERT INTO t VALUES ({number}, 0)")
        if number % 9 == 0:
            run(old, "FLUSH BINARY LOGS", "UPDATE t SET n = n + 1")
    following.go_on()
    run(old, "INSERT INTO t VALUES (30, 0)")  # not read before the server dies
    planned = following.planned()
    await_replica(old, new)
    pair[0].kill()
    pair[1].execute("STOP SLAVE")
    run(new, "INSERT INTO t VALUES (31, 0)", "DELETE FROM t WHERE id = 3")
    following.url = new
    following.restart(connection_url=new)
    # The batch that was begun on the server of before has the same changes on the new one.
    assert [record["after"]["id"] for _, record in following.read(planned)] == [30]
    following.commit(planned)
    end = following.plan()
    assert following.read(end) == []
    following.commit(end)
    assert following.place["failovers"] == 1
    assert following.place["file"] == ""
    following.restart()
    found: list[tuple[str, object]] = []
    by = time.monotonic() + SECONDS
    while len(found) < 2 and time.monotonic() < by:
        found += [
            (record["op"], (record["after"] or record["before"])["id"])
            for _, record in following.batch() or []
        ]
    assert found == [("c", 31), ("d", 3)]
    assert following.ids() == ids(new)
    run(new, "INSERT INTO t VALUES (32, 0)")
    following.go_on(new)
    assert following.place["failovers"] == 1


def follow_on(following: MysqlFollowing) -> None:
    by = time.monotonic() + SECONDS
    while time.monotonic() < by:
        following.batch()


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_a_server_that_lacks_what_was_read_is_refused(
    pair: Pair, follow: Callable[..., MysqlFollowing], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = shop(pair)
    following = follow(old)
    following.go_on()
    pair[1].execute("STOP SLAVE")
    run(old, "INSERT INTO t VALUES (2, 0)")
    following.go_on()
    pair[0].kill()
    following.restart(connection_url=new)
    with pytest.raises(RetriableError, match="lacks transactions"):
        following.plan()  # it may be a replica that catches up
    monkeypatch.setattr(binary_log, "_LACKING_SECONDS", 0)
    with pytest.raises(DataLostError, match=r"lacks transactions[^$]*snapshot\.mode"):
        following.plan()
    # Another transaction of the same number does not hide that one is missing.
    run(new, "INSERT INTO t VALUES (9, 9)", "INSERT INTO t VALUES (10, 9)")
    with pytest.raises(DataLostError):
        follow_on(following)
    following.url = new
    following.restart(connection_url=new, snapshot_mode="when_needed")
    by = time.monotonic() + SECONDS
    while not {1, 9, 10} <= set(following.ids()) and time.monotonic() < by:
        following.batch()
    assert set(ids(new)) <= set(following.ids())


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_a_batch_whose_end_another_server_lacks_is_told(
    pair: Pair, follow: Callable[..., MysqlFollowing], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = shop(pair)
    following = follow(old)
    following.go_on()
    await_replica(old, new)
    pair[1].execute("STOP SLAVE")
    run(old, "INSERT INTO t VALUES (2, 0)")
    planned = following.planned()
    pair[0].kill()
    following.restart(connection_url=new)
    with pytest.raises(RetriableError, match="lacks transactions"):
        following.read(planned)
    monkeypatch.setattr(binary_log, "_LACKING_SECONDS", 0)
    with pytest.raises(DataLostError, match="lacks transactions"):
        following.read(planned)


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_tables_whose_changes_are_being_sent_again_are_read(
    pair: Pair, follow: Callable[..., MysqlFollowing]
) -> None:
    old, new = shop(pair)
    following = follow(old)
    following.go_on()
    at = {key: value for key, value in following.place.items() if key != "gtid"}
    run(old, "INSERT INTO t VALUES (2, 0)")
    following.go_on()
    run(old, "UPDATE t SET n = 1", "INSERT INTO t VALUES (3, 0)")
    await_replica(old, new)
    since = {"since": "2026-11-21T10:00:00+00:00"}
    following.position = following.position.moved(since, {"tables": ["shop.t"], "at": at})
    pair[0].kill()
    pair[1].execute("STOP SLAVE")
    run(new, "UPDATE t SET n = 7 WHERE id = 1")
    following.go_on(new)
    assert following.position.offset(since) is None
    [stream] = following.replica.tables
    found = [(row["id"], row["n"]) for row in following.replica.rows(stream)]
    assert found == [(1, 7), (2, 1), (3, 0)]


@pytest.mark.parametrize("pair", ["mysql"], indirect=True)
def test_a_server_that_has_purged_what_is_needed_is_refused(
    pair: Pair, follow: Callable[..., MysqlFollowing]
) -> None:
    old, new = shop(pair)
    following = follow(old)
    following.go_on()
    run(old, "INSERT INTO t VALUES (2, 0)")
    await_replica(old, new)
    pair[0].kill()
    pair[1].execute("STOP SLAVE")
    run(new, "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 0)", "FLUSH BINARY LOGS")
    [*_, last] = run(new, "SHOW BINARY LOGS")
    run(new, f"PURGE BINARY LOGS TO '{last[0]}'")
    following.restart(connection_url=new)
    with pytest.raises(DataLostError, match="purged"):
        follow_on(following)


def test_a_place_of_another_server_without_gtids_is_refused(
    binlog_server: MariadbServer, follow: Callable[..., MysqlFollowing]
) -> None:
    with binlog_server.database() as url:
        run(url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        following = follow(url)
        following.go_on()
        place = following.place
        bare = {key: place[key] for key in ("file", "pos")}
        others = following.position
        following.position = others.moved(PARTITION, {**bare, "server": "8"})
        with pytest.raises(DataLostError, match="has no GTIDs"):
            following.plan()
        # An offset of before servers were in it is taken as it is.
        following.position = others.moved(PARTITION, bare)
        following.restart()
        run(url, "INSERT INTO t VALUES (2)")
        following.go_on()
        assert following.place["server"] == "7"


def test_a_server_of_the_same_number_with_another_log_is_not_the_same(
    binlog_server: MariadbServer,
    follow: Callable[..., MysqlFollowing],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binary_log, "_LACKING_SECONDS", 0)
    with binlog_server.database() as url:
        run(url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        following = follow(url)
        following.go_on()
        place = {**following.place, "gtid": "0-7-999999999"}
        following.position = Position.of(PARTITION, place)
        following.restart()
        with pytest.raises(DataLostError, match="lacks transactions"):
            following.plan()
