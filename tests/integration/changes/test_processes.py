"""The process that reads a log: its memory, its files, and when it ends."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.changes.change_reading import Following, run
from tests.waiting import until

from headrace.sdk import ReadLimit, RetriableError
from headrace_plugins.changes import source
from headrace_plugins.changes.process import LogProcess

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, v text)"
MANY = 1_000_000
PARENT = """
import pickle, sys, time
make, order, folder, after = pickle.load(sys.stdin.buffer)
from headrace_plugins.changes.process import LogProcess
process = LogProcess(make, order, folder, 1 << 30)
process.follow(after)
while not process.is_ready:
    process.raise_error()
    process.wait(1)
print(process._process.pid, flush=True)
time.sleep(600)
"""


def child(following: Following) -> psutil.Process:
    process = following.task._process
    assert process is not None
    assert process._process is not None
    return psutil.Process(process._process.pid)


def gone(process: psutil.Process, seconds: float = 120) -> bool:
    by = time.monotonic() + seconds
    while time.monotonic() < by:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def following(url: str, follow: Follow) -> Iterator[Following]:
    run(url, TABLE)
    made = follow(url)
    made.new()
    yield made
    made.task.stop()


def test_it_ends_with_its_task(following: Following) -> None:
    process = child(following)
    following.task.stop()
    assert gone(process)


def test_it_ends_when_its_parent_is_killed(
    url: str, following: Following, tmp_path: Path
) -> None:
    place = following.position.offset({"slot": "s"})
    following.task._stop_reading()
    task, folder = following.task, tmp_path / "log"
    told = (task._log.reader(task._selection.takes), task._log.order, folder, place)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(pickle.dumps(told))
        parent.stdin.flush()
        reading = psutil.Process(int(parent.stdout.readline()))
        assert reading.is_running()
        parent.send_signal(signal.SIGKILL)
    assert gone(reading)
    # And the slot is free for another life.
    run(url, "INSERT INTO t VALUES (1, 'x')")
    assert len(following.new()) == 1


def test_it_is_not_ended_by_an_interrupt_of_the_terminal(following: Following) -> None:
    process = child(following)
    os.kill(process.pid, signal.SIGINT)
    run(following.url, "INSERT INTO t VALUES (1, 'x')")
    assert len(following.new()) == 1
    assert child(following).pid == process.pid


def test_its_end_is_told_with_a_reason_and_another_one_is_started(
    following: Following,
) -> None:
    process = following.task._process
    assert isinstance(process, LogProcess)
    child(following).kill()
    until(lambda: process._error is not None)
    with pytest.raises(RetriableError, match="log reader process has ended"):
        process.entries()
    run(following.url, "INSERT INTO t VALUES (1, 'x')")
    assert len(following.new()) == 1


def test_files_go_when_their_changes_are_in_the_target(following: Following) -> None:
    process = following.task._process
    assert process is not None
    insert = "INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series({}, {}) n"
    sizes = []
    for number in range(6):
        first = number * 30_000 + 1
        run(following.url, insert.format(first, first + 29_999))
        assert len(following.new()) == 30_000
        sizes.append(sum(f.stat().st_size for f in process._files()))
    assert sum(sizes) > 0
    assert max(sizes[3:]) < 140 << 20  # of the files only the newest is left


def test_it_reads_ahead_no_more_than_is_allowed(url: str, follow: Follow) -> None:
    run(url, TABLE)
    following = follow(url, max_queue_size_in_bytes=str(1 << 20))
    following.new()
    insert = "INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series({}, {}) n"
    for number in range(30):
        first = number * 1000 + 1
        run(url, insert.format(first, first + 999))
    end = following.plan(rows=1)
    time.sleep(2)
    process = following.task._process
    assert process is not None
    assert sum(entry.size_bytes for entry in process.entries()) < 10 << 20
    following.read(end)
    following.commit(end)
    following.new()
    assert len(following.replica.rows("t")) == 30_000
    # It did not lose its connection by waiting.
    assert following.slot["active"]


def test_one_that_stands_still_is_ended_and_another_one_is_started(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = following.task._process
    assert process is not None
    still = child(following)
    heard = process._heard
    until(lambda: process.entries() or process._heard > heard)
    assert process.entries() == []  # it only told that it goes on
    with monkeypatch.context() as patched:
        still.suspend()
        patched.setattr("headrace_plugins.changes.process._STILL_SECONDS", 2)
        run(following.url, "INSERT INTO t VALUES (1, 'x')")
        with pytest.raises(RetriableError, match="does not respond"):
            following.new()
    assert gone(still)
    following.new()
    assert following.replica.rows("t") == [{"id": 1, "v": "x"}]


def test_a_server_that_stands_still_is_told_of(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = following.task
    task._stop_reading()
    place = following.position.offset({"slot": "s"})
    assert place is not None
    reader = task._log.reader(task._selection.takes)()
    reader.start(place, None)
    by, walsender = time.monotonic() + 1.5, psutil.Process(following.slot["active_pid"])
    while time.monotonic() < by:
        reader.read(0.1)
    walsender.suspend()
    monkeypatch.setattr("headrace_plugins.connectors.postgres.wal._SILENT_SECONDS", 1)
    try:
        with pytest.raises(RetriableError, match="has sent nothing"):
            deque(iter(lambda: reader.read(0.1), reader), maxlen=0)
    finally:
        walsender.resume()
        reader.stop()


def test_traces_are_kept_up_to_a_size(following: Following) -> None:
    process = following.task._process
    assert process is not None
    trace, before = process._parent / "reader.log", process._parent / "reader.log.1"
    trace.write_text("first\n")
    following.task._stop_reading()
    following.new()
    assert trace.read_text() == "first\n"
    trace.write_text("x" * (2 << 20))
    following.task._stop_reading()
    following.new()
    assert trace.read_text() == ""
    assert before.read_text() == "x" * (2 << 20)


def test_a_batch_of_more_than_may_be_read_ahead_is_read_again(url: str, follow: Follow) -> None:
    run(url, TABLE)
    following = follow(url)
    following.new()
    insert = "INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series({}, {}) n"
    for number in range(8):
        run(url, insert.format(number * 1000, number * 1000 + 999))
    while len(first := following.read(end := following.plan())) < 8000:
        pass
    following.restart(max_queue_size_in_bytes=str(1 << 20))
    assert following.read(end) == first
    following.commit(end)
    run(url, insert.format(10_000, 14_999))  # a transaction of more than that
    assert len(following.new()) == 5000


@pytest.mark.long
def test_a_transaction_of_a_million_rows_takes_no_more_memory(following: Following) -> None:
    run(following.url, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 10000) n")
    following.new()
    process, most = child(following), 0
    before = process.memory_info().rss
    insert = "INSERT INTO t SELECT n, md5(n::text) FROM generate_series({}, {}) n"
    run(following.url, insert.format(10_001, MANY))
    found = 0
    while not found:  # while it is not read, the place moves with the log
        end = following.plan()
        most = max(most, process.memory_info().rss)
        found = len(following.read(end))
        following.commit(end)
    assert found == MANY - 10_000
    assert most < before + (150 << 20)


def test_all_that_is_there_is_told_though_it_takes_long_to_read(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_CONNECT_SECONDS", 0.01)
    run(following.url, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 200000) n")
    following.restart()
    assert following.task.latest(following.position, ReadLimit()) != following.position
