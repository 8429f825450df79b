"""When Spark is started again, and when not, after its JVM has ended."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.waiting import until

from headrace.model import SparkLostError, SparkUnavailableError
from headrace.sdk.errors import SetupError
from headrace.spark import supervisor
from headrace.spark.supervisor import DeathLimit, SparkSupervisor


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Start sessions whose JVM is any process."""
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(supervisor, "gateway_of", lambda session: session)

    def session() -> Any:
        started.append(subprocess.Popen(["/bin/sleep", "60"]))
        return SimpleNamespace(proc=started[-1])

    yield session
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_spark_is_restarted_whatever_ended_its_jvm(
    start: Callable[[], Any], number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_STOP_SECONDS", 0.2)
    spark = SparkSupervisor(start)
    with capture_logs() as logs, spark.watching():
        session: Any = spark.session()
        session.proc.send_signal(number)
        until(lambda: spark.starts == 2)
    assert [entry["log_level"] for entry in logs] == ["error", "info"]


@pytest.mark.parametrize(
    ("error", "is_traced"), [(SetupError("Java was killed."), False), (ValueError("new"), True)]
)
def test_only_an_unknown_error_of_a_start_is_logged_with_its_traceback(
    start: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    is_traced: bool,
) -> None:
    monkeypatch.setattr(supervisor, "_STOP_SECONDS", 0.2)
    failing: list[Exception] = []

    def session() -> Any:
        if failing:
            raise failing.pop()
        return start()

    spark = SparkSupervisor(session)
    with capture_logs() as logs, spark.watching():
        first: Any = spark.session()
        failing.append(error)
        first.proc.kill()
        until(lambda: spark.starts == 2)
    [failed] = [entry for entry in logs if entry["event"] == "Spark could not be started"]
    assert failed.get("exc_info", False) is is_traced
    # A traceback ends with the error's words: they are logged once.
    assert failed.get("why") == (None if is_traced else str(error))


def test_a_jvm_that_is_terminated_with_its_process_is_no_failure(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_STOP_SECONDS", 60)
    spark = SparkSupervisor(start)
    with capture_logs() as logs, spark.watching():
        session: Any = spark.session()
        session.proc.terminate()
        session.proc.wait()
        until(lambda: spark._session is None)
        spark.end()  # the process handles the signal later
    assert spark.starts == 1
    assert [entry["log_level"] for entry in logs] == ["info"]


def test_a_jvm_in_which_spark_has_stopped_is_lost_though_it_responds(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "answers", lambda _: True)
    monkeypatch.setattr(supervisor, "_has_stopped", lambda session: session.stopped)
    monkeypatch.setattr(supervisor, "_REAP_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "_kill", lambda session: session.proc.kill())
    spark = SparkSupervisor(start)
    error = RuntimeError("Job 16 cancelled because SparkContext was shut down")
    with spark.watching():
        session: Any = spark.session()
        session.stopped = False
        assert not spark.is_lost(session, error)
        session.stopped = True
        assert spark.is_lost(session, error)
        until(lambda: spark.starts == 2)


def test_spark_that_user_code_has_stopped_is_lost(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "answers", lambda _: True)
    monkeypatch.setattr(supervisor, "_REAP_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "_kill", lambda session: session.proc.kill())
    spark = SparkSupervisor(start)
    with spark.watching():
        session: Any = spark.session()
        session.sparkContext = SimpleNamespace(_jsc=None)
        assert spark.is_lost(session, RuntimeError("not connected"))
        until(lambda: spark.starts == 2)


def test_a_process_that_is_stopping_starts_no_spark(start: Callable[[], Any]) -> None:
    spark = SparkSupervisor(start)
    with capture_logs() as logs, spark.watching():
        session: Any = spark.session()
        spark.end()
        session.proc.kill()
        session.proc.wait()
        time.sleep(2 * supervisor._LOOK_SECONDS)
    assert spark.starts == 1
    assert not logs


def test_a_process_that_begins_to_stop_during_a_look_starts_no_spark(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended = supervisor._has_ended
    stopping = threading.Event()

    def look(session: Any) -> bool:
        if threading.current_thread().name == "headrace-spark":
            spark.end()
            session.proc.kill()
            session.proc.wait()
            stopping.set()
        return has_ended(session)

    monkeypatch.setattr(supervisor, "_has_ended", look)
    spark = SparkSupervisor(start)
    with capture_logs() as logs, spark.watching():
        assert stopping.wait(60)
    assert spark.starts == 1
    assert not logs


def test_a_process_that_begins_to_stop_after_a_crash_starts_no_spark(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = SparkSupervisor(start)

    def died(code: int | None) -> None:
        spark.end()
        stopping.set()

    stopping = threading.Event()
    monkeypatch.setattr(spark, "_died", died)
    with spark.watching():
        session: Any = spark.session()
        session.proc.kill()
        assert stopping.wait(60)
    assert spark.starts == 1


def test_a_process_that_has_stopped_starts_no_spark(start: Callable[[], Any]) -> None:
    spark = SparkSupervisor(start)
    with spark.watching():
        pass
    spark.forget()
    with pytest.raises(SparkUnavailableError):
        spark.session()
    assert spark.starts == 1
    with spark.watching():  # another run in the same process
        spark.session()
    assert spark.starts == 2


def test_a_crash_while_the_process_stops_is_not_one_too_many(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = threading.Event()

    def has_crashed(_: int | None) -> bool:
        crashed.set()
        return True

    monkeypatch.setattr(supervisor, "_ATTRIBUTION_SECONDS", 60)
    monkeypatch.setattr(supervisor, "has_crashed", has_crashed)
    spark = SparkSupervisor(start, DeathLimit(count=1))
    with spark.watching(lost=lambda: pytest.fail("lost")):
        session: Any = spark.session()
        session.proc.kill()
        assert crashed.wait(60)
    assert spark.failure is None


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Start sessions whose JVM is out of memory at once."""
    monkeypatch.setattr(supervisor, "gateway_of", lambda session: session)
    monkeypatch.setattr(supervisor, "_ATTRIBUTION_SECONDS", 0.2)

    def session() -> Any:
        return SimpleNamespace(proc=subprocess.Popen(["/bin/sh", "-c", "sleep 0.1; exit 3"]))

    return session


def test_a_jvm_that_crashes_too_often_is_not_restarted(crashing: Callable[[], Any]) -> None:
    spark = SparkSupervisor(crashing, DeathLimit(count=3))
    with pytest.raises(SparkLostError, match="ended 3 times"), spark.watching():
        until(lambda: spark.failure is not None)
    assert spark.starts == 3


def test_crashes_that_count_against_a_task_count_less_for_the_process(
    crashing: Callable[[], Any],
) -> None:
    spark = SparkSupervisor(crashing, DeathLimit(count=2))

    spark.session()
    spark.attribute()
    with (
        pytest.raises(SparkLostError, match="ended 10 times"),
        spark.watching(restarted=spark.attribute),
    ):
        until(lambda: spark.failure is not None)


def test_how_a_jvm_ended_is_known_after_the_next_one_has_started(
    start: Callable[[], Any],
) -> None:
    first = subprocess.Popen(["/bin/sh", "-c", "read _; exit 3"], stdin=subprocess.PIPE)

    def session() -> Any:
        return start() if spark.starts else SimpleNamespace(proc=first)

    spark = SparkSupervisor(session)
    with spark.watching():
        crashed = spark.jobs()
        assert not crashed.crashed()
        first.communicate()
        until(lambda: spark.starts == 2)
        assert crashed.crashed()
        killed: Any = spark.jobs()
        killed.spark.proc.kill()
        killed.spark.proc.wait()
        assert not killed.crashed()
