"""How a worker comes to run what is wanted, however that was changed."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.worker.reconciled import ANN, Reconciled
from tests.unit.worker.scripts import working
from tests.waiting import until

from headrace.model import (
    Connector,
    ConnectorKind,
    ConnectorState,
    TargetState,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import SourceError
from headrace.store import StoreUnavailableError

pytestmark = pytest.mark.timeout(30)


class Bench(Reconciled):
    """What is wanted, and questions after what runs."""

    def runs(self) -> list[str]:
        """The tasks that have a lease."""
        return sorted(str(lease.task) for lease in self.state_store.leases())

    def state(self, name: str = "c") -> ConnectorState | None:
        found = self.wanted.connector(name)
        return None if found is None else found.status.state

    def task_states(self, name: str = "c") -> list[TaskState]:
        return [status.state for status in self.state_store.statuses(name).values()]

    def worker_told(self, state: TaskState) -> bool:
        return state in [told for _, told in self.told.states]

    def settle(self, *tasks: str) -> None:
        """Look once, and wait until exactly these tasks run."""
        self.step()
        until(lambda: self.runs() == list(tasks))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    with working(made.worker):
        yield made


def test_what_is_wanted_runs_and_is_told(bench: Bench) -> None:
    bench.want(tasks=2)
    bench.settle("c-0", "c-1")
    assert bench.state() is ConnectorState.RUNNING
    assert [task.config for task in bench.wanted.tasks("c")] == [
        {"task.class": "Script", "part": str(number)} for number in range(2)
    ]
    assert bench.wanted.topics("c") == ["t"]
    found = bench.wanted.connector("c")
    assert found is not None
    assert found.status.worker == "w1:8083"


def test_what_was_wanted_before_the_worker_came_runs_too(bench: Bench) -> None:
    for number in range(3):
        bench.want(f"c{number}")
    bench.wanted.set_target("c1", TargetState.PAUSED, ANN)
    bench.settle("c0-0", "c2-0")
    assert bench.state("c1") is ConnectorState.PAUSED


def test_nothing_is_done_while_nothing_changes(bench: Bench) -> None:
    bench.want()
    bench.settle("c-0")
    for _ in range(5):
        bench.step()
    assert bench.plans == 1
    assert len(bench.made[0].started) == 1


def test_a_paused_connector_keeps_its_tasks_and_a_stopped_one_has_none(bench: Bench) -> None:
    bench.want(tasks=2)
    bench.settle("c-0", "c-1")
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    bench.settle()
    assert bench.state() is ConnectorState.PAUSED
    assert bench.task_states() == [TaskState.PAUSED] * 2
    assert len(bench.wanted.tasks("c")) == 2
    bench.wanted.set_target("c", TargetState.STOPPED, ANN)
    bench.settle()
    assert bench.state() is ConnectorState.STOPPED
    assert bench.wanted.tasks("c") == []
    bench.wanted.set_target("c", TargetState.RUNNING, ANN)
    bench.settle("c-0", "c-1")
    assert bench.state() is ConnectorState.RUNNING


def test_a_task_that_a_dead_server_left_is_shown_as_paused_with_its_connector(
    bench: Bench,
) -> None:
    bench.want()
    made = bench.wanted.connector("c")
    assert made is not None
    bench.wanted.plan(made, {0: {}, 1: {}, 2: {}}, ANN.at)
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    told = [(0, TaskState.UNASSIGNED), (1, TaskState.FAILED), (2, TaskState.PAUSED)]
    for number, state in told:
        lease = bench.state_store.lease(
            TaskId("c", number), "dead", ANN.at, timedelta(seconds=1)
        )
        bench.state_store.end(lease, TaskStatus(state), ANN.at)
    bench.settle()
    assert bench.task_states() == [TaskState.PAUSED, TaskState.FAILED, TaskState.PAUSED]


def test_a_task_that_never_ran_is_shown_as_paused_with_its_connector(bench: Bench) -> None:
    bench.want()
    made = bench.wanted.connector("c")
    assert made is not None
    bench.wanted.plan(made, {0: {}}, ANN.at)
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    bench.settle()
    assert bench.task_states() == [TaskState.PAUSED]


def test_a_task_whose_owner_has_just_died_is_paused_when_its_lease_ends(bench: Bench) -> None:
    bench.want()
    made = bench.wanted.connector("c")
    assert made is not None
    bench.wanted.plan(made, {0: {}}, ANN.at)
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    now = bench.state_store.now()
    lease = bench.state_store.lease(TaskId("c", 0), "dead", now, timedelta(minutes=1))
    bench.step()
    assert bench.task_states() != [TaskState.PAUSED]
    bench.state_store.fence(lease, TaskStatus(TaskState.UNASSIGNED), now)
    bench.settle()
    assert bench.task_states() == [TaskState.PAUSED]


def test_a_new_configuration_replaces_the_tasks(bench: Bench) -> None:
    bench.want(tasks=2)
    bench.settle("c-0", "c-1")
    bench.wanted.configure("c", ConnectorKind.SOURCE, {"tasks.max": "1"}, ANN)
    bench.settle("c-0")
    assert [task.stopped for task in bench.made] == [1, 1, 0]


def leases_at_plans(bench: Bench) -> list[list[str]]:
    """Write down, at each plan, which tasks hold a lease."""
    found: list[list[str]] = []
    plan = bench.plan

    def noting(connector: Connector) -> Any:
        found.append(bench.runs())
        return plan(connector)

    bench.plan = noting  # type: ignore[method-assign]
    return found


def test_a_new_configuration_is_planned_when_the_tasks_of_the_old_one_have_ended(
    bench: Bench,
) -> None:
    bench.want(tasks=2)
    bench.settle("c-0", "c-1")
    running = leases_at_plans(bench)
    bench.wanted.configure("c", ConnectorKind.SOURCE, {"tasks.max": "1"}, ANN)
    bench.settle("c-0")
    assert running == [[]]


def test_a_task_that_changes_ends_before_its_new_plan_and_the_others_run_on(
    bench: Bench,
) -> None:
    bench.want(tasks=2)
    bench.settle("c-0", "c-1")
    running = leases_at_plans(bench)
    bench.parts["c"] = {1: "other"}
    bench.counts["c"] = 3
    bench.reconciler.reconfigure("c")
    bench.settle("c-0", "c-1", "c-2")
    assert running == [["c-0", "c-1"], ["c-0"]]
    assert [task.stopped for task in bench.made] == [0, 1, 0, 0]


def test_a_sink_that_finds_a_topic_is_planned_once_and_its_tasks_run_on(bench: Bench) -> None:
    bench.want(tasks=2)
    bench.settle("c-0", "c-1")
    running = leases_at_plans(bench)
    bench.counts["c"] = 3
    bench.reconciler.reconfigure("c")
    bench.settle("c-0", "c-1", "c-2")
    assert running == [["c-0", "c-1"]]
    assert [task.stopped for task in bench.made] == [0, 0, 0]


def test_tasks_that_ended_for_a_plan_that_failed_are_shown_as_unassigned(bench: Bench) -> None:
    bench.want()
    bench.settle("c-0")
    bench.broken["c"] = SourceError("away")
    bench.wanted.configure("c", ConnectorKind.SOURCE, {"tasks.max": "2"}, ANN)
    bench.settle()
    assert bench.state() is ConnectorState.FAILED
    assert bench.task_states() == [TaskState.UNASSIGNED]


def test_of_many_changes_at_once_the_last_one_counts(bench: Bench) -> None:
    bench.want()
    for target in [TargetState.PAUSED, TargetState.STOPPED] * 5:
        bench.wanted.set_target("c", target, ANN)
    bench.wanted.set_target("c", TargetState.RUNNING, ANN)
    bench.settle("c-0")
    assert bench.plans == 1


def test_a_restarted_connector_leaves_tasks_alone_whose_configuration_stays(
    bench: Bench,
) -> None:
    bench.want()
    bench.settle("c-0")
    bench.wanted.request_restart("c", [], ANN, connector=True)
    bench.settle("c-0")
    assert bench.plans == 2
    assert [task.stopped for task in bench.made] == [0]


def test_a_restarted_task_starts_anew_and_the_others_run_on(bench: Bench) -> None:
    bench.want(tasks=3)
    bench.settle("c-0", "c-1", "c-2")
    bench.wanted.request_restart("c", [1], ANN, connector=False)
    bench.settle("c-0", "c-1", "c-2")
    assert [task.stopped for task in bench.made] == [0, 1, 0, 0]
    until(lambda: len(bench.newest("c", 1).started) == 1)


def test_a_deleted_connector_runs_no_more_and_one_of_its_name_is_another(bench: Bench) -> None:
    bench.want()
    bench.settle("c-0")
    bench.wanted.delete("c", ANN)
    bench.want()
    bench.settle("c-0")
    assert [task.stopped for task in bench.made] == [1, 0]
    bench.wanted.delete("c", ANN)
    bench.settle()
    assert bench.state() is None


def test_a_connector_that_cannot_be_planned_fails_alone_and_can_be_restarted(
    bench: Bench,
) -> None:
    bench.want("good")
    bench.settle("good-0")
    bench.broken["c"] = SourceError("no such table")
    bench.want()
    bench.settle("good-0")
    assert bench.state() is ConnectorState.FAILED
    found = bench.wanted.connector("c")
    assert found is not None
    assert "no such table" in str(found.status.trace)
    del bench.broken["c"]
    bench.wanted.request_restart("c", [], ANN, connector=True)
    bench.settle("c-0", "good-0")
    assert bench.state() is ConnectorState.RUNNING


def test_a_failed_task_is_restarted_on_request(bench: Bench) -> None:
    bench.want()
    bench.settle("c-0")
    bench.made[0].steps = [SourceError("broken")]
    until(lambda: bench.task_states() == [TaskState.FAILED])
    bench.wanted.request_restart("c", [0], ANN, connector=False)
    bench.settle("c-0")
    until(lambda: bench.task_states() == [TaskState.RUNNING])


def test_a_store_that_is_away_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real: Callable[[], int] = bench.wanted.last_event

    def last_event() -> int:
        asked.append(1)
        if len(asked) < 4:
            raise StoreUnavailableError
        return real()

    monkeypatch.setattr(bench.wanted, "last_event", last_event)
    bench.want()
    thread = threading.Thread(target=bench.reconciler.run)
    thread.start()
    until(lambda: bench.runs() == ["c-0"])
    bench.reconciler.stop()
    thread.join()


def test_a_connector_that_is_deleted_while_it_starts_leaves_nothing_behind(
    bench: Bench,
) -> None:
    bench.want()
    real = bench.wanted.plan

    def plan(connector: Connector, *more: Any) -> bool:
        planned = real(connector, *more)
        bench.wanted.delete("c", ANN)
        return planned

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench.wanted, "plan", plan)
        bench.step()
        until(lambda: bench.worker_told(TaskState.FAILED))
    assert bench.task_states() == []
    bench.want()
    bench.settle("c-0")
    assert bench.task_states() == [TaskState.RUNNING]


def test_a_connector_that_cannot_be_settled_keeps_no_other_from_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bench.wanted.plan
    broken = True

    def plan(connector: Connector, *more: Any) -> bool:
        if connector.name == "a" and broken:
            raise ValueError(connector)
        return real(connector, *more)

    monkeypatch.setattr(bench.wanted, "plan", plan)
    bench.want("a")
    bench.want("b")
    bench.settle("b-0")
    broken = False
    bench.settle("a-0", "b-0")
