"""Changes are sent again from an earlier place in the log, beside those that come."""

# ruff: noqa: S608 - tests write their own SQL

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from tests.integration.changes.change_reading import Following, Record
from tests.integration.changes.change_reading import run as run_postgres
from tests.integration.databases.mysql_tables import run

from headrace.sdk import ConfigError, Position, ReadLimit
from headrace_plugins.changes.replay import asked
from headrace_plugins.connectors.mysql.source import MysqlSource
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "CREATE TABLE u (id int PRIMARY KEY, v int)",
    "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)",
    "INSERT INTO u VALUES (1, 0)",
)


def now(url: str) -> datetime:
    """Return a time that what is committed from now on has, and nothing before."""
    [[before]] = run(url, "SELECT unix_timestamp()")
    while run(url, "SELECT unix_timestamp()") == [(before,)]:
        time.sleep(0.02)
    return datetime.fromtimestamp(int(before) + 1, UTC)


def schema(url: str) -> str:
    return url.rpartition("/")[2]


def ask(following: Following, since: datetime, *tables: str) -> None:
    """Ask for changes of tables again, as the command does."""
    names = [f"{schema(following.url)}.{table}" for table in tables]
    partition, offset = {"since": since.isoformat()}, {"tables": names}
    config = following.connector.config_def().parse(following.props)
    following.connector.alter_offsets(config, Position.of(partition, offset))
    following.commit(following.position.moved(partition, offset))


def require_equal(following: Following) -> None:
    for table in "tu":
        found = [tuple(row.values()) for row in following.replica.rows(table)]
        assert found == sorted(run(following.url, f"SELECT * FROM {table}"))


def finish(following: Following, rows: int | None = 1_000_000) -> list[tuple[str, Record]]:
    """Go on until nothing is sent again."""
    found, by = [], time.monotonic() + 60
    while asked(following.position) is not None:
        found += following.batch(rows) or []
        assert time.monotonic() < by
    return found


@pytest.fixture
def following(binlog_url: str, follow: Follow) -> Following:
    """A source that has read two tables."""
    run(binlog_url, *TABLES)
    made = follow(binlog_url)
    made.new()
    return made


def test_changes_since_a_time_come_again_of_the_table_that_is_named(
    following: Following,
) -> None:
    url = following.url
    run(url, "UPDATE t SET v = 1")
    since = now(url)
    run(
        url,
        "UPDATE t SET v = 2 WHERE id < 3",
        "UPDATE u SET v = 2",
        "DELETE FROM t WHERE id = 1",
    )
    following.new()
    ask(following, since, "t")
    again = finish(following)
    assert [(stream, each["op"]) for stream, each in again] == [
        ("t", "u"),
        ("t", "u"),
        ("t", "d"),
    ]
    require_equal(following)
    run(url, "UPDATE t SET v = 3", "UPDATE u SET v = 3")
    assert len(following.new()) == 3
    require_equal(following)


def test_the_others_go_on_meanwhile_and_the_newest_change_comes_last(
    following: Following,
) -> None:
    url = following.url
    since = now(url)
    run(url, *(f"UPDATE t SET v = {n}" for n in range(1, 20)))
    following.new()
    ask(following, since, "t")
    following.batch()
    asked_for = asked(following.position)
    assert asked_for is not None
    reader = following.task._replays.follow(*asked_for)._process
    assert reader is not None
    reader.send_signal(signal.SIGSTOP)  # it is slow
    for n in range(20, 25):
        run(url, f"UPDATE t SET v = {n}", f"INSERT INTO u VALUES ({n}, {n})")
        began, found = time.monotonic(), list[tuple[str, Record]]()
        while not found:
            found = following.batch() or []
        assert [(stream, each["after"]["id"]) for stream, each in found] == [("u", n)]
        assert time.monotonic() < began + 20
    reader.send_signal(signal.SIGCONT)
    order = [each["after"]["v"] for stream, each in finish(following) if stream == "t"]
    run(url, "UPDATE t SET v = 25")
    order += [each["after"]["v"] for stream, each in following.new() if stream == "t"]
    assert order == [n for n in range(1, 26) for _ in range(3)]
    require_equal(following)


@contextmanager
def writer(url: str, seed: int) -> Iterator[None]:
    """Change both tables for as long as this lasts."""
    stopping = threading.Event()

    def write() -> None:
        drawn = random.Random(seed)  # noqa: S311 - not for secrets
        while not stopping.wait(0.1):  # a reader has to come to the end, too
            table, number = drawn.choice("tu"), drawn.randrange(200)
            statements = [
                f"REPLACE INTO {table} VALUES ({number}, {drawn.randrange(1000)})",
                f"DELETE FROM {table} WHERE id % 50 = {number % 50}",
                f"UPDATE IGNORE {table} SET id = id + 1000 WHERE id = {number}",
                f"UPDATE {table} SET v = v + 1 WHERE id % 7 = {number % 7}",
            ]
            run(url, "START TRANSACTION", *drawn.choices(statements, k=3), "COMMIT")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.mark.parametrize("seed", range(1))
def test_the_target_is_the_source_whatever_is_killed_meanwhile(
    following: Following, seed: int
) -> None:
    url, drawn = following.url, random.Random(seed)  # noqa: S311 - not for secrets
    since = now(url)
    with writer(url, seed):
        time.sleep(1)
        following.new()
        ask(following, since, "t")
        batches = 0
        while asked(following.position) is not None or batches < 8:
            batches += 1
            end = following.plan(rows=drawn.choice([50, 500, 5000]))
            first = following.read(end)
            kind = drawn.random()
            if kind < 0.15:
                following.restart()
                assert following.read(end) == first
            elif kind < 0.25 and following.task._replays._process is not None:
                process = following.task._replays._process._process
                assert process is not None
                process.kill()
                following.restart()
            following.commit(end)
            assert batches < 100, "the second reader does not come to the first"
    following.new()
    require_equal(following)


def test_a_run_to_an_end_sends_all_again_before_it_ends(following: Following) -> None:
    url = following.url
    since = now(url)
    run(url, *(f"UPDATE t SET v = {n}" for n in range(1, 20)))
    following.new()
    ask(following, since, "t", "u")
    run(url, "UPDATE u SET v = 9")
    until = following.task.latest(following.position, ReadLimit())
    limit, found = ReadLimit(rows=10, until=until), []
    while (end := following.task.latest(following.position, limit)) != following.position:
        found += following.read(end)
        following.commit(end)
    assert len([stream for stream, _ in found if stream == "t"]) == 57
    assert asked(following.position) is None
    require_equal(following)


def test_several_times_are_taken_one_after_the_other(following: Following) -> None:
    url = following.url
    first = now(url)
    run(url, "UPDATE t SET v = 1 WHERE id = 1")
    second = now(url)
    run(url, "UPDATE t SET v = 2 WHERE id = 1", "UPDATE u SET v = 5")
    following.new()
    ask(following, first, "t")
    ask(following, second, "t", "u")
    found = [(stream, each["after"]["v"]) for stream, each in finish(following)]
    assert [v for stream, v in found if stream == "t"] == [1, 2, 2]
    assert [v for stream, v in found if stream == "u"] == [5]
    require_equal(following)


def test_a_time_is_found_in_any_file_of_the_log(following: Following) -> None:
    url, times = following.url, []
    for n in range(1, 3):
        times.append(now(url))
        run(url, f"UPDATE t SET v = {n} WHERE id = 1", "FLUSH BINARY LOGS")
        times.append(now(url))
        run(url, f"UPDATE t SET v = {n} WHERE id = 2")
    following.new()
    for count, since in zip(range(4, 0, -1), times, strict=True):
        ask(following, since, "t")
        assert len(finish(following)) == count
    ask(following, now(url), "t")
    assert finish(following) == []
    require_equal(following)


def test_columns_that_change_come_as_they_were(following: Following) -> None:
    url = following.url
    since = now(url)
    run(
        url,
        "UPDATE t SET v = 1 WHERE id = 1",
        "ALTER TABLE t ADD COLUMN w int",
        "UPDATE t SET w = 2 WHERE id = 1",
    )
    following.new()
    ask(following, since, "t")
    assert [each["after"] for _, each in finish(following)] == [
        {"id": 1, "v": 1},
        {"id": 1, "v": 1, "w": 2},
    ]


def test_a_time_before_the_log_is_refused(following: Following) -> None:
    with pytest.raises(ConfigError, match="begins at"):
        ask(following, datetime(2020, 1, 1, tzinfo=UTC), "t")
    assert asked(following.position) is None


def test_tables_are_read_where_the_log_of_a_replay_was_purged(following: Following) -> None:
    url, since = following.url, {"since": "2026-11-21T10:00:00+00:00"}
    run(url, "UPDATE t SET v = 4")
    name, place = f"{schema(url)}.t", {"file": "binlog.000000", "pos": 4}
    following.commit(following.position.moved(since, {"tables": [name], "at": place}))
    finish(following)
    again = following.new()
    assert [each["op"] for _, each in again if each["op"] == "r"] == ["r"] * 3
    require_equal(following)


@pytest.mark.parametrize(
    ("since", "offset"),
    [
        ("yesterday", {"tables": ["d.t"]}),
        ("2024-01-01T00:00:00", {"tables": ["d.t"]}),
        ("2024-01-01T00:00:00Z", {"tables": []}),
        ("2024-01-01T00:00:00Z", {"tables": "d.t"}),
        ("2024-01-01T00:00:00Z", {"tables": ["d.t"], "round": 0}),
    ],
)
def test_what_is_no_replay_is_refused(
    binlog_url: str, since: str, offset: dict[str, object]
) -> None:
    config = MysqlSource.config_def().parse({"connection.url": binlog_url})
    with pytest.raises(ConfigError, match="Invalid replay"):
        MysqlSource.alter_offsets(config, Position.of({"since": since}, offset))


def test_postgresql_refuses_with_what_it_has_instead(url: str) -> None:
    run_postgres(url, "CREATE TABLE t (id int PRIMARY KEY)")
    config = PostgresSource.config_def().parse({"connection.url": url})
    asked_for = Position.of({"since": "2024-01-01T00:00:00Z"}, {"tables": ["public.t"]})
    with pytest.raises(ConfigError, match="slot only moves forward") as raised:
        PostgresSource.alter_offsets(config, asked_for)
    assert "tables resync" in raised.value.fix
