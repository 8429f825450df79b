"""Tables are read, and what changes them meanwhile is neither lost nor doubled."""

# ruff: noqa: S608 - tests write their own SQL

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from tests.integration.changes.change_reading import Following, rows, run, transact
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import HeadraceError, Position, ReadLimit, RetriableError
from headrace.sdk.sources import ArrowParts
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
KEYED = (
    "CREATE TABLE t (id bigint PRIMARY KEY, v int)",
    "INSERT INTO t SELECT n, n FROM generate_series(1, 1000) n",
    "ANALYZE t",
)
KEYLESS = (
    "CREATE TABLE t (id bigint, v int)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "INSERT INTO t SELECT n, n FROM generate_series(1, 1000) n",
)
SMALL = {"snapshot_batch_rows": "100"}


def of_table(url: str) -> list[dict[str, Any]]:
    return [{"id": a, "v": b} for a, b in rows(url, "SELECT id, v FROM t ORDER BY id")]


def compare(following: Following) -> None:
    """Check that a replica has what the table has."""
    expected = of_table(following.url)
    if following.replica.tables["t"] or not expected:
        assert following.replica.rows("t") == expected
    else:
        texts = Counter(f'{{"id": {row["id"]}, "v": {row["v"]}}}' for row in expected)
        assert following.replica.counts("t") == dict(texts)


@pytest.mark.parametrize("statements", [KEYED, KEYLESS])
def test_a_snapshot_is_the_table(url: str, follow: Follow, statements: tuple[str, ...]) -> None:
    run(url, *statements)
    following = follow(url)
    found = following.new()
    assert [record["op"] for _, record in found] == ["r"] * 1000
    compare(following)


def test_only_rows_that_are_read_once_are_inserts(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url)
    inserts = list[bool]()
    for conditions in ((), ("id > 900",), ("id > 900", "id > 950")):
        for each in conditions:
            asked = {"table": "public.t", "where": each}
            following.position = following.position.moved(asked, {"round": 0})
        found = list[bool]()
        while not found:
            end = following.plan()
            found = [stream.inserts for stream in following.streams(end)]
            following.commit(end)
        inserts += found
    assert inserts == [True, True, False]


@pytest.mark.parametrize("statements", [KEYED, KEYLESS])
def test_changes_while_it_is_planned_and_read_come_once(
    url: str, follow: Follow, statements: tuple[str, ...]
) -> None:
    run(url, *statements)
    following = follow(url)
    end = following.plan()
    transact(
        url,
        "INSERT INTO t VALUES (2000, 1)",
        "UPDATE t SET v = -v WHERE id = 5",
        "DELETE FROM t WHERE id = 6",
    )
    first = following.read(end)
    following.commit(end)
    assert len(first) == 1000
    assert [op for op, _, _ in following.changes()] == ["c", "u", "d"]
    compare(following)


def test_a_transaction_that_is_open_at_the_snapshot_comes_in_the_log(
    url: str, follow: Follow
) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    following.batch()
    with psycopg.connect(url) as open_one:
        open_one.execute("INSERT INTO t VALUES (2000, 1)")
        while len(following.batch() or ()):
            pass
        open_one.commit()
    assert [after["id"] for _, _, after in following.changes()] == [2000]
    compare(following)


def test_a_snapshot_waits_for_who_may_have_written_before_the_log_has_the_table(
    url: str, follow: Follow
) -> None:
    run(url, *KEYED, "CREATE PUBLICATION s FOR TABLE t")
    run(url, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    following = follow(url)
    with psycopg.connect(url) as open_one:
        open_one.execute("INSERT INTO t VALUES (2000, 1)")
        with pytest.raises(RetriableError, match="before the table was published"):
            following.batch()
        open_one.commit()
    assert len(following.batch() or ()) == 1001
    following.changes()
    compare(following)


@pytest.mark.parametrize("once", [False, True])
def test_a_snapshot_alone_leaves_no_slot_and_needs_no_log(follow: Follow, once: bool) -> None:
    with PostgresqlServer.running(wal_level="replica") as server, server.database() as url:
        run(url, *KEYED)
        following = follow(url, snapshot_mode="initial_only", **SMALL)
        config = PostgresSource.config_def().parse(following.props)
        assert not list(PostgresSource.check(config))
        until = following.task.latest(Position(), ReadLimit()) if once else None
        for _ in range(5):
            end = following.task.latest(following.position, ReadLimit(until=until))
            following.read(end)
            following.commit(end)
        following.restart()
        run(url, "UPDATE t SET v = -1 WHERE id = 1", "CREATE TABLE other (id int PRIMARY KEY)")
        while following.batch() is not None:
            pass
        assert following.task.ended(following.position)
        assert len(following.replica.rows("t")) == 1000
        assert rows(
            url,
            "SELECT (SELECT count(*) FROM pg_replication_slots), "
            "(SELECT count(*) FROM pg_publication)",
        ) == [(0, 0)]
        following.task.stop()


def test_a_large_table_is_read_in_batches(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    sizes = []
    while (batch := following.batch()) is not None:
        sizes.append(len(batch))
    assert sum(sizes) == 1000
    assert len([size for size in sizes if size]) == 10
    compare(following)


def test_batches_say_whether_they_go_on_with_a_table(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    found = []
    for _ in range(12):
        end = following.plan()
        found += [each.continues for each in following.streams(end)]
        following.commit(end)
    run(url, "UPDATE t SET v = 1 WHERE id = 1")
    while not (streams := following.streams(end := following.planned())):
        following.commit(end)
    assert [each.continues for each in streams] == [True]
    assert found == [False, *[True] * 9]


def test_a_table_that_is_read_is_not_locked_between_batches(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    for _ in range(3):
        end = following.plan()
        following.read(end)
        run(url, "SET lock_timeout = '5s'; ALTER TABLE t SET (fillfactor = 90)")
        following.commit(end)
    run(url, "SET lock_timeout = '5s'; TRUNCATE t")
    following.new()
    compare(following)


_OURS = "FROM pg_stat_activity WHERE application_name = 'headrace'"
REWRITES = {
    "truncated": ["TRUNCATE t", "INSERT INTO t VALUES (500, 1), (3000, 1)"],
    "rewritten": ["ALTER TABLE t ALTER COLUMN v TYPE bigint", "UPDATE t SET v = -v"],
    "made anew": ["DROP TABLE t", *KEYED[:2], "DELETE FROM t WHERE id % 2 = 0"],
    "disconnected": [
        f"SELECT pg_terminate_backend(pid) {_OURS}",
        "UPDATE t SET v = -v",
    ],
}


@pytest.mark.parametrize("kind", REWRITES)
def test_a_batch_is_read_again_of_a_table_that_was_written_anew(
    url: str, follow: Follow, kind: str
) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    for _ in range(3):
        following.batch()
    end = following.plan()
    streams = following.streams(end)
    run(url, *REWRITES[kind])
    rows = streams[0].rows
    assert isinstance(rows, ArrowParts)
    with pytest.raises(HeadraceError):
        list(rows.read(rows.parts[0]))
    with suppress(RetriableError):  # of a session that was ended
        following.streams(end)
    following.read(end)
    following.commit(end)
    following.new()
    if kind != "made anew":  # that is not in the log
        compare(following)


def test_it_goes_on_between_batches_after_a_restart(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    for n in range(12):
        following.batch()
        run(
            url,
            f"UPDATE t SET v = v + 1000 WHERE id % 20 = {n}",
            f"DELETE FROM t WHERE id % 100 = {n}",
            f"INSERT INTO t VALUES ({2000 + n}, 1), ({-n}, 1)",
            f"UPDATE t SET id = id + 5000 WHERE id % 50 = {n}",
        )
        following.restart()
    following.new()
    compare(following)


def test_a_batch_that_runs_again_ends_with_the_same_rows(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    for n in range(12):
        end = following.plan()
        following.read(end)
        run(
            url,
            f"UPDATE t SET v = v + 1000 WHERE id % 20 = {n}",
            f"DELETE FROM t WHERE id % 100 = {n}",
            f"UPDATE t SET id = id + 5000 WHERE id % 50 = {n}",
        )
        following.restart()
        following.read(end)
        following.commit(end)
    following.new()
    compare(following)


def test_batches_of_the_log_that_run_again_are_the_same(url: str, follow: Follow) -> None:
    run(url, *KEYED)
    following = follow(url)
    following.new()
    for n in range(30):
        run(url, f"INSERT INTO t VALUES ({2000 + n}, 1), ({3000 + n}, 1)")
    end = following.plan(rows=4)
    first = following.read(end)
    following.restart()
    run(url, "INSERT INTO t VALUES (9000, 1)")
    assert following.read(end) == first
    following.commit(end)
    following.new(rows=4)
    compare(following)


# --- writers all the time ---------------------------------------------------------------


@contextmanager
def writers(url: str, seed: int, *, count: int = 3, key: bool = True) -> Iterator[None]:
    """Change rows of a table for as long as this lasts, with some transactions undone."""
    stopping = threading.Event()
    failures: list[Exception] = []

    def write(number: int) -> None:
        drawn = random.Random(seed * 100 + number)  # noqa: S311 - not for secrets
        with psycopg.connect(url) as database:
            while not stopping.is_set():
                for _ in range(drawn.randint(1, 5)):
                    _write(database, drawn, number, key=key)
                    stopping.wait(drawn.random() / 500)
                if drawn.random() < 0.2:
                    database.rollback()
                else:
                    database.commit()

    def guarded(number: int) -> None:
        try:
            write(number)
        except Exception as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert not failures


def _write(database: Any, drawn: random.Random, number: int, *, key: bool) -> None:
    # Each writer has rows of its own, so that none waits for another.
    own = drawn.randrange(number, 1200, 3)
    kind = drawn.random()
    if kind < 0.4:
        database.execute("UPDATE t SET v = v + 1 WHERE id = %s", [own])
    elif kind < 0.6:
        database.execute("DELETE FROM t WHERE id = %s", [own])
    elif kind < 0.7:
        moved = drawn.randrange(number, 1200, 3)
        database.execute(
            "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)",
            [moved, own, moved],
        )
    elif key:
        database.execute(
            "INSERT INTO t VALUES (%s, 0) ON CONFLICT (id) DO UPDATE SET v = -t.v", [own]
        )
    else:
        database.execute("INSERT INTO t VALUES (%s, 0)", [own])


@pytest.mark.parametrize(("seed", "restarts"), [(0, False), (1, True), (2, True)])
def test_a_replica_is_the_table_whatever_writers_do(
    url: str, follow: Follow, seed: int, restarts: bool
) -> None:
    run(url, *KEYED)
    following = follow(url, **SMALL)
    drawn = random.Random(seed)  # noqa: S311 - not for secrets
    with writers(url, seed):
        for _ in range(25):
            end = following.plan(rows=drawn.choice([20, 100, 1000]))
            following.read(end)
            if restarts and drawn.random() < 0.3:
                following.restart()
                following.read(end)
            following.commit(end)
    following.new()
    compare(following)


@pytest.mark.parametrize("seed", range(2))
def test_no_row_without_a_key_is_lost_or_doubled(url: str, follow: Follow, seed: int) -> None:
    run(url, *KEYLESS)
    following = follow(url)
    drawn = random.Random(seed)  # noqa: S311 - not for secrets
    with writers(url, seed, key=False):
        for _ in range(15):
            following.batch(rows=drawn.choice([20, 100, 1000]))
            if following.position.offset({"table": "public.t"}) and drawn.random() < 0.3:
                following.restart()
    following.new()
    compare(following)
