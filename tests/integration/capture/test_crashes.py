"""Processes that die: nothing is lost, nothing is there twice, nothing is left behind."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.capture import host_sources
from tests.integration.capture.host_bench import SOURCES, VARIABLES, Bench
from tests.waiting import until

from headrace.capture import CaptureSpec, Targets
from headrace.capture.capture_thread import Gathering
from headrace.capture.process import HostProcess
from headrace.capture.staging import Stager
from headrace.capture.targets import Addition
from headrace.model import Counts, TaskId
from headrace.sdk import Mark, Position, Schema
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location

pytestmark = pytest.mark.timeout(240)


def test_a_capture_runs_after_a_host_that_had_died_once_was_killed_for_hanging(
    bench: Bench,
) -> None:
    hung = bench.start(bench.spec("hung", config={"trouble": "hang"}))
    until(lambda: bench.hosts.pids)
    (first,) = bench.hosts.pids
    os.kill(first, signal.SIGKILL)
    until(lambda: bench.hosts.pids not in ([], [first]))
    bench.hosts.detach(hung, hung=True)
    bench.run(bench.spec(config={"limit": 5}))
    assert bench.numbers() == list(range(5))


def suspended_host() -> tuple[HostProcess, threading.Event]:
    """Return a host that was suspended when it served, and what is set when it has ended."""
    died = threading.Event()
    host = HostProcess(receive=lambda *_: None, gone=lambda _: died.set())
    until(lambda: host.ready)
    os.kill(host.pid, signal.SIGSTOP)
    return host, died


def test_a_host_that_reads_no_messages_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.capture.process._SEND_SECONDS", 1)
    host, died = suspended_host()
    while not died.is_set():
        host.send({"type": "stop", "capture": "x" * 1000, "discard": False})
    host.close(timedelta(seconds=1))


def test_a_host_that_starts_slowly_gets_all_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.capture.process._SEND_SECONDS", 1)
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 4\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    answers, died = list[Any](), threading.Event()
    host = HostProcess(
        str(slow),
        receive=lambda _, message: answers.append(message["capture"]),
        gone=lambda _: died.set(),
    )
    for number in range(300):  # more than the channel holds
        host.send({"type": "start", "capture": str(number), "spec": {"x": "y" * 2000}})
    until(lambda: len({*answers} - {None}) == 300)  # those without a capture are logs
    assert not died.is_set()
    host.close(timedelta(seconds=5))


def test_a_host_that_stands_still_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.capture.process._SEND_SECONDS", 3600)
    host, died = suspended_host()
    endless = {"type": "stop", "capture": "x" * 10**7, "discard": False}
    sending = threading.Thread(target=host.send, args=(endless,))
    sending.start()
    until(host._channel._sending.locked)
    host.close(timedelta(seconds=0.5))
    assert died.is_set()
    sending.join()


def test_no_host_is_started_in_a_process_that_stops(bench: Bench) -> None:
    bench.hosts.close()
    with pytest.raises(StaleEpochError):
        bench.start(bench.spec())
    assert bench.hosts.pids == []


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("batch", 6),
        pytest.param("batch", 40, marks=pytest.mark.long),
        ("spread", 4),
        pytest.param("spread", 20, marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_or_doubled_when_the_host_is_killed(
    bench: Bench, kind: str, kills: int
) -> None:
    limit = 200 * kills
    config = {"kind": kind, "limit": limit, "rows": 20, "pause": 0.01}
    task = bench.start(bench.spec(config=config), once=True)
    chance = random.Random(7)  # noqa: S311 - no secret
    for _ in range(kills):
        until(lambda: bool(bench.hosts.pids))
        batches = len(bench.appended)
        until(lambda seen=batches: len(bench.appended) > seen or task.completed)  # type: ignore[misc]  # a default in a lambda
        time.sleep(chance.random() / 25)
        for pid in bench.hosts.pids:
            os.kill(pid, signal.SIGKILL)
    until(lambda: task.completed or task.failure is not None)
    task.stop()
    assert task.failure is None
    bench.check_moved_once(task, kind, limit)


def test_an_unfinished_batch_that_is_in_the_topic_is_finished(bench: Bench) -> None:
    spec, task = half_done(bench, committed=True)
    bench.run(spec)
    assert bench.numbers() == list(range(30))
    first = bench.store.batches(task)[-1]
    assert (first.id, first.counts.written) == (1, 10)


def test_an_unfinished_batch_that_is_not_in_the_topic_is_polled_again(bench: Bench) -> None:
    spec, task = half_done(bench, committed=False)
    bench.run(spec)
    assert bench.numbers() == list(range(30))
    assert bench.store.batches(task)[-1].id == 2


def half_done(bench: Bench, *, committed: bool) -> tuple[CaptureSpec, TaskId]:
    """Leave a batch of ten numbers as a crash would."""
    spec = bench.spec(config={"limit": 30, "kind": "batch"})
    task = bench.task(spec)
    lease = bench.lease(task)
    end = Position.of({"counter": "a"}, {"next": 10})
    store, now = bench.store, datetime.now(UTC)
    batch = store.begin_batch(task.id, lease.epoch, Position(), end, now)
    targets, additions = staged(spec)
    if committed:
        mark = Mark(spec.application, batch.id, lease.epoch, batch.range)
        targets.commit(additions, mark, Counts(read=10, written=10))
    return spec, task.id


def staged(spec: CaptureSpec) -> tuple[Targets, list[Addition]]:
    """Stage the numbers 0 to 9, as a host does."""
    config = host_sources.Counter.config_def().parse({"kind": "batch"})
    gathering = Gathering(Position())
    gathering.add(host_sources.CounterTask(config).batch(range(10)))
    targets = Targets(Location.of(Path(spec.topics_dir)), spec.topic, spec.application)
    additions = list(Stager(spec, targets, NoSchemas()).stage(gathering).additions)
    targets.prepare(additions)
    return targets, additions


class NoSchemas:
    def get(self, stream: str) -> Schema | None:
        return None

    def put(self, stream: str, schema: Schema) -> None:
        raise AssertionError(stream)


@pytest.mark.parametrize("own", ["numbers", "another"])
def test_a_host_of_an_old_owner_cannot_append_what_was_given_up(bench: Bench, own: str) -> None:
    """The batch goes to ``numbers``; with another own topic, the journal decides it."""
    _, additions = staged(bench.spec())
    new = Targets(Location.of(bench.topics_dir), own, "counter-uid-0")
    old = Targets(Location.of(bench.topics_dir), own, "counter-uid-0")
    old.prepare(additions)
    assert new.settle(Mark("counter-uid-0", 1, 2)) is None
    with contextlib.suppress(StaleEpochError):
        old.commit(additions, Mark("counter-uid-0", 1, 1), Counts(read=10, written=10))
    assert bench.rows("numbers") == []


def test_a_decision_in_the_journal_is_carried_out_by_the_next_owner(bench: Bench) -> None:
    """The old host dies between the journal's transaction and the topic's."""
    _, additions = staged(bench.spec())
    old = Targets(Location.of(bench.topics_dir), "another", "counter-uid-0")
    old.prepare(additions)
    mark = Mark("counter-uid-0", 1, 1)
    old._roll_forward = lambda *_: None  # type: ignore[method-assign]  # the crash
    old.commit(additions, mark, Counts(read=10, written=10))
    assert bench.rows("numbers") == []
    new = Targets(Location.of(bench.topics_dir), "another", "counter-uid-0")
    for _ in range(2):
        assert new.settle(Mark("counter-uid-0", 1, 2)) == (
            Counts(read=10, written=10),
            ["numbers"],
        )
    assert bench.numbers() == list(range(10))


def test_the_host_of_a_task_that_was_taken_away_writes_no_more(bench: Bench) -> None:
    task = bench.start(bench.spec(config={"limit": 100_000, "pause": 0.01}))
    until(lambda: len(bench.appended) > 2)
    taken = bench.store.lease(task.id, "worker", datetime.now(UTC), timedelta(minutes=1))
    until(lambda: task.failure is not None)
    assert isinstance(task.failure, StaleEpochError)
    stands = bench.store.position(task.id)
    count = len(bench.numbers())
    # At most the one batch that was on its way is there, and the new owner settles it.
    task.stop()
    again = bench.task(bench.spec(config={"limit": count + 50}))
    again.start(taken, once=True, bounded=True)
    until(lambda: again.completed)
    again.stop()
    assert bench.numbers() == list(range(count + 50))
    assert stands != Position()


WORKER = """
import sys, time
from headrace.capture import HostProcess
host = HostProcess(receive=lambda process, message: None, gone=lambda process: None)
print(host.pid, flush=True)
time.sleep(60)
"""


def test_a_late_question_of_a_host_that_was_given_up_is_not_answered_to_its_successor(
    bench: Bench,
) -> None:
    environments = bench.hosts._environments
    hung = bench.start(bench.spec("hung", config={"limit": 5, "trouble": "hang"}))
    until(lambda: environments[hung.python].process is not None)
    former = environments[hung.python].process
    assert former is not None
    bench.hosts.detach(hung, hung=True)
    task = bench.start(bench.spec(config={"limit": 50, "rows": 5, "pause": 0.05}), once=True)
    until(lambda: bool(bench.appended))
    question = {"type": "call", "capture": "hung/1.1", "call": 999, "what": "begin"}
    former._receive(former, question)
    until(lambda: task.completed or task.failure is not None)
    task.stop()
    assert task.failure is None
    assert bench.numbers() == list(range(50))
    assert environments[task.python].failures == 0  # its host was not started again


def test_a_host_that_is_stopped_is_known_to_be_silent(bench: Bench) -> None:
    bench.start(bench.spec(config={"limit": 10}))
    until(lambda: bench.numbers() == list(range(10)))
    assert bench.hosts.silent() == []
    (host,) = bench.hosts.pids
    os.kill(host, signal.SIGSTOP)
    try:
        assert bench.hosts.silent() == [host]
        assert bench.hosts.silent() == [host]  # asked once only: its channel does not fill up
    finally:
        os.kill(host, signal.SIGCONT)
    until(lambda: bench.hosts.silent() == [])


def test_the_host_dies_with_its_worker(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdout=subprocess.PIPE, env=VARIABLES, text=True
    ) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert psutil.pid_exists(pid)
        worker.kill()
    until(lambda: not psutil.pid_exists(pid) or _dead(pid))


def _dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_nothing_is_left_behind(bench: Bench) -> None:
    process = psutil.Process()
    before = process.children()  # Spark's JVM, where other tests of the run have started it
    bench.run(bench.spec("warm", config={"limit": 10}))
    bench.hosts.close()
    files, threads = process.num_fds(), set(threading.enumerate())
    for number in range(3):
        hosts = type(bench.hosts)(variables=bench.hosts._variables)
        other = Bench(bench.folder, bench.store, hosts)
        other.run(other.spec(f"more{number}", config={"limit": 10}))
        hosts.close()
    assert set(threading.enumerate()) <= threads
    assert process.num_fds() <= files
    assert process.children() == before


def test_secrets_are_not_in_the_arguments_of_a_process(bench: Bench) -> None:
    task = bench.start(bench.spec(config={"secret": "hunter22"}))
    until(lambda: bool(bench.appended))
    for pid in bench.hosts.pids:
        host = psutil.Process(pid)
        assert "hunter22" not in " ".join(host.cmdline())
        assert "hunter22" not in str(host.environ())
    assert "hunter22" not in repr(bench.spec(config={"secret": "hunter22"}))
    task.stop()


def test_a_host_has_no_spark(bench: Bench) -> None:
    spec = bench.spec(class_path=f"{SOURCES}.Modules", config={})
    task = bench.run(spec)
    assert task.failure is None
    names = [row["value"]["name"] for row in bench.rows("numbers")]
    assert "deltalake" in names
    assert "pyspark" not in names
