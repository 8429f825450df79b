"""What is wanted is settled to the last word, whatever fails or hangs in between."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from tests.unit.worker.reconciled import Opened, Reconciled
from tests.unit.worker.scripts import SOON
from tests.waiting import until

from headrace.model import (
    ConnectorKind,
    ConnectorState,
    RestartPolicy,
    Stamp,
    TargetState,
    TaskId,
    TaskState,
)
from headrace.sdk import SourceError
from headrace.store import ConnectorStore, StoreUnavailableError
from headrace.worker import Restarts

ANN = Stamp(datetime(2026, 1, 1, tzinfo=UTC), "ann")
HOUR = timedelta(hours=1)
RUNNING, PAUSED, STOPPED = TargetState.RUNNING, TargetState.PAUSED, TargetState.STOPPED
pytestmark = pytest.mark.timeout(300)


class Flaky:
    """A store that gives no answer to one of the calls that come to it.

    Those that come all the time, whether or not anything is to be done, are not counted.
    """

    def __init__(self, store: Any, call: int, *, made: bool) -> None:
        self.store, self.left, self.made = store, call, made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(self.store, name)
        if name == "last_event":
            return real

        def called(*args: Any, **values: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                if self.made:
                    real(*args, **values)
                raise StoreUnavailableError
            return real(*args, **values)

        return called


class Bench(Reconciled):
    """One connector, and questions after it."""

    def create(self, tasks: int = 2) -> None:
        config = {"tasks.max": str(tasks)}
        self.wanted.create("c", ConnectorKind.SOURCE, config, RUNNING, ANN)

    def shown(self) -> tuple[str, list[str], list[int], list[str]]:
        """How it is shown: its state, those of its tasks, which it has, and which run."""
        found = self.wanted.connector("c")
        assert found is not None
        states = [str(each.state) for each in self.state_store.statuses("c").values()]
        planned = [task.number for task in self.wanted.tasks("c")]
        runs = sorted(str(lease.task) for lease in self.state_store.leases())
        return str(found.status.state), states, planned, runs


@contextmanager
def running(bench: Bench) -> Iterator[None]:
    work = [threading.Thread(target=bench.worker.run, daemon=True)]
    work += [threading.Thread(target=bench.reconciler.run, daemon=True)]
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        bench.reconciler.stop()
        bench.worker.stop(SOON)
        for thread in work:
            thread.join(20)
            assert not thread.is_alive()


def check(bench: Bench) -> None:
    """Change what is wanted, and see that it is what is shown."""

    def settles(*wanted: object) -> None:
        until(lambda: bench.shown() == wanted)

    run2 = "RUNNING", ["RUNNING"] * 2, [0, 1], ["c-0", "c-1"]
    bench.create()
    settles(*run2)
    bench.wanted.set_target("c", PAUSED, ANN)
    settles("PAUSED", ["PAUSED"] * 2, [0, 1], [])
    bench.wanted.set_target("c", RUNNING, ANN)
    settles(*run2)
    bench.wanted.configure("c", ConnectorKind.SOURCE, {"tasks.max": "1", "topic": "u"}, ANN)
    settles("RUNNING", ["RUNNING", "RESTARTING"], [0], ["c-0"])
    until(lambda: set(bench.wanted.topics("c")) == {"t", "u"})
    bench.wanted.set_target("c", STOPPED, ANN)
    settles("STOPPED", ["STOPPED", "RESTARTING"], [], [])


@pytest.mark.parametrize("made", [False, True])
def test_no_call_to_the_store_that_gets_no_answer_leaves_anything_undone(made: bool) -> None:
    for call in itertools.count():
        bench = Bench()
        flaky = Flaky(bench.wanted, call, made=made)
        bench.reconciler.store = cast("ConnectorStore", flaky)
        with running(bench):
            check(bench)
        if flaky.left >= 0:
            break  # that many calls do not come any more
    assert call > 20


def test_an_unexpected_failure_of_a_look_is_not_the_last_look() -> None:
    bench, real = Bench(), Bench.shown
    asked: list[int] = []
    last_event = bench.wanted.last_event

    def broken() -> int:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError(asked)
        return last_event()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench.wanted, "last_event", broken)
        bench.create()
        with running(bench):
            until(lambda: real(bench)[0] == "RUNNING")


def test_a_connector_that_does_not_stop_holds_up_neither_others_nor_the_end() -> None:
    may = threading.Event()

    class Hanging(Opened):
        def close(self) -> None:
            may.wait(60)

    bench = Bench()
    bench.reconciler.open_plan = lambda each: Hanging(bench, each)
    bench.reconciler.grace = SOON
    bench.create(1)
    with running(bench):
        until(lambda: bench.shown()[0] == "RUNNING")
        bench.wanted.set_target("c", PAUSED, ANN)
        until(lambda: bench.shown()[0] == "PAUSED")
        bench.wanted.create("d", ConnectorKind.SOURCE, {}, RUNNING, ANN)
        until(lambda: bench.worker.lags().keys() == {TaskId("d", 0)})
    may.set()


def test_a_connector_whose_task_cannot_be_made_has_failed() -> None:
    bench = Bench()

    def make(connector: str, number: int) -> Any:
        problem = f"{connector} {number}"
        raise SourceError(problem)

    bench.make = make  # type: ignore[method-assign]  # as a plugin would raise it
    bench.create(1)
    bench.step()
    found = bench.wanted.connector("c")
    assert found is not None
    assert found.status.state is ConnectorState.FAILED
    assert "c 0" in str(found.status.trace)


def test_a_task_that_is_replaced_is_not_restarted_for_a_failure_of_the_old_one() -> None:
    seconds = 0.0
    bench = Bench(policy=RestartPolicy(enabled=True, first=HOUR, longest=HOUR))
    bench.worker.restarts = Restarts(clock=lambda: seconds)
    with running(bench):
        bench.create(1)
        until(lambda: bench.made and bench.made[0].calls)
        bench.made[0].steps = [SourceError("broken")]
        until(lambda: bench.shown()[1] == [TaskState.FAILED])
        bench.wanted.configure("c", ConnectorKind.SOURCE, {"tasks.max": "1", "a": "b"}, ANN)
        until(lambda: bench.shown()[1] == [TaskState.RUNNING])
        seconds += 7200
        assert bench.worker.restarts.due() == []


@pytest.mark.timeout(60)
def test_a_stop_between_two_steps_does_not_wait_for_the_interval() -> None:
    class Racing(threading.Event):
        """Is set by a stop that comes right after it was looked at."""

        def is_set(self) -> bool:
            found = super().is_set()
            if not found:
                bench.reconciler.stop()
            return found

    bench = Bench()
    bench.reconciler.interval = HOUR
    bench.reconciler._stopping = Racing()
    bench.reconciler.run()
