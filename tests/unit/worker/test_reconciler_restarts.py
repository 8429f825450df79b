"""How a server starts anew what has failed, and what it shows meanwhile."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.worker.reconciled import ANN, Numbered, Reconciled
from tests.unit.worker.scripts import working
from tests.waiting import until

from headrace.model import (
    ConnectorState,
    RestartPolicy,
    TargetState,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import ConfigError, RetriableError, SourceError
from headrace.worker import Restarts

SOON = RestartPolicy(enabled=True, first=timedelta(milliseconds=5), attempts=3)
HOUR = timedelta(hours=1)
LATE = RestartPolicy(enabled=True, first=HOUR, longest=HOUR)
pytestmark = pytest.mark.timeout(60)


class Bench(Reconciled):
    """One connector, and questions after it."""

    def create(self, tasks: int = 1) -> None:
        self.want(tasks=tasks)
        self.step()

    def status(self, number: int = 0) -> TaskStatus:
        none = TaskStatus(TaskState.UNASSIGNED)
        return self.state_store.statuses("c").get(TaskId("c", number), none)

    def state(self) -> ConnectorState:
        found = self.wanted.connector("c")
        assert found is not None
        return found.status.state

    def is_at(self, state: TaskState, restarts: int) -> bool:
        self.step()
        status = self.status()
        return (status.state, status.restarts) == (state, restarts)

    def break_(self, task: Numbered) -> None:
        task.steps = [SourceError("broken")]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    with working(made.worker):
        yield made


def test_a_failed_task_is_started_anew_and_the_others_run_on(bench: Bench) -> None:
    bench.policy = SOON
    bench.create(tasks=2)
    until(lambda: bench.is_at(TaskState.RUNNING, 0))
    bench.break_(bench.made[0])
    until(lambda: bench.is_at(TaskState.RUNNING, 1))
    assert [task.stopped for task in bench.made[:2]] == [1, 0]
    assert bench.status(1).restarts == 0


def test_a_task_that_fails_again_and_again_is_given_up(bench: Bench) -> None:
    bench.policy = SOON
    bench.failing = True
    bench.create()
    until(lambda: bench.is_at(TaskState.FAILED, 3))
    until(lambda: "stays failed after 3 consecutive restarts" in str(bench.status().trace))
    assert bench.status().next_try is None
    made = len(bench.made)
    bench.step()
    assert len(bench.made) == made


def test_its_state_says_why_it_failed_and_when_it_is_started_anew(bench: Bench) -> None:
    bench.policy = LATE
    bench.create()
    until(lambda: bench.is_at(TaskState.RUNNING, 0))
    before = datetime.now(UTC)
    bench.break_(bench.made[0])
    until(lambda: bench.is_at(TaskState.FAILED, 0))
    status = bench.status()
    assert status.next_try is not None
    assert before + timedelta(minutes=29) < status.next_try
    assert str(status.trace).startswith("[source.failed] broken\nRestart 1 of 10 is due at 20")


def test_a_restart_by_hand_does_not_wait_and_counts_from_the_first(bench: Bench) -> None:
    bench.policy = LATE
    bench.create()
    until(lambda: bench.is_at(TaskState.RUNNING, 0))
    bench.break_(bench.made[0])
    until(lambda: bench.is_at(TaskState.FAILED, 0))
    bench.wanted.request_restart("c", [0], ANN, connector=False)
    until(lambda: bench.is_at(TaskState.RUNNING, 1))
    bench.break_(bench.made[-1])
    until(lambda: bench.is_at(TaskState.FAILED, 1))
    assert "Restart 1 of 10" in str(bench.status().trace)


def test_what_was_paused_meanwhile_is_not_started(bench: Bench) -> None:
    seconds = 0.0
    bench.worker.restarts = Restarts(clock=lambda: seconds)
    bench.policy = LATE
    bench.create()
    until(lambda: bench.is_at(TaskState.RUNNING, 0))
    bench.break_(bench.made[0])
    until(lambda: bench.status().state is TaskState.FAILED)
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    bench.step()
    seconds += 7200
    bench.step()
    assert bench.status().state is TaskState.FAILED
    assert len(bench.made) == 1


def test_a_connector_that_cannot_be_planned_is_tried_again(bench: Bench) -> None:
    bench.policy = SOON
    bench.broken["c"] = SourceError("no such table")
    bench.create()
    assert bench.state() is ConnectorState.FAILED
    del bench.broken["c"]
    until(lambda: bench.is_at(TaskState.RUNNING, 0))
    assert bench.state() is ConnectorState.RUNNING


@pytest.mark.parametrize(
    ("error", "tried"), [(ConfigError("no"), False), (RetriableError("busy"), True)]
)
def test_a_busy_system_is_asked_again_and_a_mistake_is_not_made_again(
    bench: Bench, error: Exception, tried: bool
) -> None:
    bench.policy = RestartPolicy(first=timedelta(milliseconds=5))
    bench.broken["c"] = error
    bench.create()
    found = bench.wanted.connector("c")
    assert found is not None
    assert (found.status.next_try is not None) == tried
    del bench.broken["c"]
    if tried:
        until(lambda: bench.is_at(TaskState.RUNNING, 0))
    else:
        bench.step()
        assert bench.plans == 1


def test_tasks_are_restarted_with_their_connector_if_so_asked(bench: Bench) -> None:
    bench.create(tasks=2)
    until(lambda: bench.is_at(TaskState.RUNNING, 0))
    bench.wanted.request_restart("c", [1], ANN, connector=True)
    bench.step()
    assert [task.stopped for task in bench.made[:2]] == [0, 1]
    until(lambda: bench.made[-1].started)
