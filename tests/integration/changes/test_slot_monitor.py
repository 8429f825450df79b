"""What a server keeps for a slot while nobody takes it: measured, warned of, and given up."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs
from tests.integration.changes.change_reading import Following, rows, run
from tests.integration.changes.test_slots import followed, of_table
from tests.waiting import until

from headrace.sdk import DataLostError, Lag
from headrace_plugins.connectors.postgres.slot_log import SlotLog
from headrace_plugins.connectors.postgres.slot_monitor import SlotMonitor

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
UNMADE = """
SELECT 1 FROM pg_replication_slots
WHERE slot_name = 'later' AND restart_lsn IS NOT NULL AND confirmed_flush_lsn IS NULL"""
FILL = "SELECT pg_logical_emit_message(false, 'x', repeat('x', 4 << 20))"


def awaited(following: Following, holds: Callable[[Lag], bool]) -> Lag:
    """Return the lag that the source measures once it is so; nobody asks for batches."""
    by = time.monotonic() + 30
    while True:
        lag = following.task.measured_lag()
        if lag is not None and holds(lag):
            return lag
        assert time.monotonic() < by, lag
        time.sleep(0.1)


def test_lag_and_retained_log_are_measured_while_a_batch_waits_for_its_sinks(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow)
    idle = awaited(following, lambda lag: lag.rows == 0)
    assert idle.age == timedelta()
    run(url, "INSERT INTO t SELECT n, 0 FROM generate_series(10, 19) n")
    end = following.planned()
    following.read(end)  # and the sinks take nothing
    run(url, "UPDATE t SET v = 1", FILL)
    held = awaited(following, lambda lag: (lag.retained_bytes or 0) >= 4 << 20)
    assert (held.size_bytes or 0) >= 4 << 20
    held = awaited(following, lambda lag: lag.rows is not None and lag.rows >= 20)
    assert held.rows == 21
    age = held.age
    assert age is not None
    older = awaited(following, lambda lag: lag.age is not None and lag.age > age)
    assert older.rows == 21
    following.commit(end)
    following.new()
    awaited(following, lambda lag: lag.rows == 0 and (lag.size_bytes or 0) < 1 << 20)


def test_much_retained_log_is_warned_of_once(url: str, follow: Follow) -> None:
    with capture_logs() as logs:
        following = followed(url, follow, slot_warn_retained_bytes=str(3 << 20))
        awaited(following, lambda lag: True)
        assert not [each for each in logs if each["log_level"] == "warning"]
        run(url, FILL)
        awaited(following, lambda lag: (lag.retained_bytes or 0) >= 4 << 20)
        time.sleep(5)
    [warning] = [each for each in logs if each["log_level"] == "warning"]
    assert warning["slot"] == "s"
    assert warning["retained_bytes"] >= 4 << 20


def test_a_slot_beyond_its_limit_is_dropped_while_the_sinks_stand_still(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow, slot_max_retained_bytes=str(3 << 20))
    run(url, "INSERT INTO t VALUES (2, 2)")
    end = following.planned()
    following.read(end)
    assert rows(url, "SELECT active FROM pg_replication_slots WHERE slot_name = 's'")
    run(url, FILL)
    by = time.monotonic() + 30
    while rows(url, "SELECT 1 FROM pg_replication_slots WHERE slot_name = 's'"):
        assert time.monotonic() < by
        time.sleep(0.1)
    task: Any = following.task
    until(lambda: task._monitor._error)
    with pytest.raises(DataLostError, match=r"slot\.max\.retained\.bytes") as raised:
        following.read(end)
    assert "snapshot.mode=when_needed" in raised.value.fix
    for _ in range(2):
        following.restart()
        with pytest.raises(DataLostError, match="no replication slot"):
            following.new()

    following.restart(snapshot_mode="when_needed")
    following.new()
    assert following.replica.rows("t") == of_table(url)
    run(url, "UPDATE t SET v = 3")
    assert list(map(itemgetter(0), following.changes())) == ["u", "u"]


def test_a_server_that_was_away_is_looked_at_again(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    awaited(following, lambda lag: True)
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    run(url, FILL)
    awaited(following, lambda lag: (lag.retained_bytes or 0) >= 4 << 20)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_lag_grows_while_the_reader_stands_still(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    awaited(following, lambda lag: lag.rows == 0 and lag.age == timedelta())
    process = following.task._process
    assert process is not None
    assert process._process is not None
    with standing_still(process._process.pid):
        run(url, "INSERT INTO t VALUES (2, 2)")
        held = awaited(following, lambda lag: (lag.age or timedelta()) > timedelta(seconds=3))
        assert held.rows is None
        assert held.size_bytes
    following.new()
    awaited(following, lambda lag: lag.rows == 0 and lag.age == timedelta())


def test_the_lag_of_a_server_at_rest_stays_at_zero(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    run(url, "CHECKPOINT", "SELECT pg_switch_wal()", "CREATE TABLE other (id int)")
    awaited(following, lambda lag: lag.rows == 0)
    ages, by = set[timedelta | None](), time.monotonic() + 7
    while time.monotonic() < by:
        lag = following.task.measured_lag()
        ages.add(None if lag is None else lag.age)
        time.sleep(0.1)
    assert ages == {timedelta()}


def test_a_server_that_does_not_answer_has_no_lag_of_zero(
    url: str, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_plugins.connectors.postgres.slot_monitor._STALE_SECONDS", 3)
    following = followed(url, follow)
    awaited(following, lambda lag: lag.rows == 0)
    run(url, "INSERT INTO t VALUES (2, 2)")
    following.plan()
    awaited(following, lambda lag: lag.rows == 1)
    pids = rows(
        url,
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )
    with ExitStack() as still, capture_logs() as logs:
        for [pid] in pids:
            still.enter_context(standing_still(pid))
        silent = awaited(following, lambda lag: lag.rows is None)
        assert (silent.size_bytes, silent.retained_bytes) == (None, None)
        age = silent.age
        assert age is not None
        awaited(following, lambda lag: lag.age is not None and lag.age > age)
    assert [each["slot"] for each in logs if each["event"] == "server does not answer"] == ["s"]
    awaited(following, lambda lag: lag.rows == 1)


def test_a_slot_that_is_still_being_made_is_looked_at_until_it_is_there(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow)
    log = following.task._log
    assert isinstance(log, SlotLog)
    monitor = SlotMonitor(replace(log, slot="later"), lambda: None)
    make = "SELECT pg_create_logical_replication_slot('later', 'pgoutput')"
    making = threading.Thread(target=run, args=(url, make))
    try:
        with psycopg.connect(url) as writer:
            writer.execute("SELECT pg_current_xact_id()")  # a slot waits for who writes
            making.start()
            seen = monitor._looked
            by = time.monotonic() + 30
            while not rows(url, UNMADE) or monitor._looked == seen:
                assert time.monotonic() < by
                time.sleep(0.1)
            seen = monitor._looked
            while monitor._looked == seen:  # and it goes on
                assert time.monotonic() < by
                time.sleep(0.1)
            lag = monitor.lag
            assert lag == Lag()
        making.join()
        while lag is None or lag.retained_bytes is None:
            assert time.monotonic() < by
            time.sleep(0.1)
            lag = monitor.lag
    finally:
        monitor.stop()
        making.join()
        run(url, "SELECT pg_drop_replication_slot('later')")
