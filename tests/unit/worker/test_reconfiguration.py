"""How a connector on a server plans anew while its tasks run."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.unit.worker.reconciled import ANN, Reconciled
from tests.unit.worker.scripts import working
from tests.waiting import until

from headrace.model import (
    ConnectorState,
    RestartPolicy,
    TargetState,
)
from headrace.sdk import SourceError

pytestmark = pytest.mark.timeout(60)


class Bench(Reconciled):
    """One connector of two tasks, and questions after it."""

    def create(self, name: str = "c") -> None:
        self.want(name, tasks=2)
        self.step()

    def runs(self, *tasks: str) -> None:
        until(lambda: sorted(str(each.task) for each in self.state_store.leases()) == [*tasks])

    def states(self) -> list[ConnectorState]:
        """What was told of the connector itself, in order."""
        events = [event for event in self.wanted.events() if event.kind == "state"]
        own = [event for event in events if event.task is None]
        return [ConnectorState(str(event.detail["state"])) for event in own]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    with working(made.worker):
        made.create()
        made.runs("c-0", "c-1")
        yield made


def test_a_new_task_comes_while_the_others_run_on(bench: Bench) -> None:
    bench.counts["c"] = 3
    bench.reconciler.reconfigure("c")
    bench.step()
    bench.runs("c-0", "c-1", "c-2")
    assert [(str(t.id), t.stopped) for t in bench.made] == [("c-0", 0), ("c-1", 0), ("c-2", 0)]
    assert [task.number for task in bench.wanted.tasks("c")] == [0, 1, 2]
    assert bench.opened == ["c"]


def test_only_tasks_whose_configuration_changed_are_started_anew(bench: Bench) -> None:
    bench.parts["c"] = {1: "other"}
    bench.reconciler.reconfigure("c")
    bench.step()
    bench.runs("c-0", "c-1")
    assert [(str(t.id), t.stopped) for t in bench.made] == [("c-0", 0), ("c-1", 1), ("c-1", 0)]
    assert bench.wanted.tasks("c")[1].config["part"] == "other"


def test_a_task_that_is_planned_no_more_ends(bench: Bench) -> None:
    bench.counts["c"] = 1
    bench.reconciler.reconfigure("c")
    bench.step()
    bench.runs("c-0")
    assert [task.stopped for task in bench.made] == [0, 1]


def test_a_plan_like_the_last_one_changes_and_tells_nothing(bench: Bench) -> None:
    told = bench.states()
    for _ in range(3):
        bench.reconciler.reconfigure("c")
        bench.step()
    assert bench.plans == 4
    assert len(bench.made) == 2
    assert bench.states() == told


def test_what_may_have_changed_is_looked_for_without_being_told(bench: Bench) -> None:
    bench.counts["c"] = 3
    bench.noticed.add("c")
    bench.step()
    bench.runs("c-0", "c-1", "c-2")


def test_a_connector_that_cannot_plan_anew_fails_and_its_tasks_run_on(bench: Bench) -> None:
    bench.policy = RestartPolicy(enabled=True, first=timedelta(milliseconds=1))
    bench.broken["c"] = SourceError("away")
    bench.reconciler.reconfigure("c")
    bench.step()
    assert bench.states()[-1] is ConnectorState.FAILED
    bench.runs("c-0", "c-1")
    del bench.broken["c"]

    def mended() -> bool:
        bench.step()
        return bench.states()[-1] is ConnectorState.RUNNING

    until(mended)
    assert [task.stopped for task in bench.made] == [0, 0]


def test_a_connector_that_says_that_it_fails_is_shown_so_until_it_is_restarted(
    bench: Bench,
) -> None:
    bench.reconciler.reconfigure("c", SourceError("lost the server"))
    bench.step()
    found = bench.wanted.connector("c")
    assert found is not None
    assert found.status.state is ConnectorState.FAILED
    assert "lost the server" in str(found.status.trace)
    bench.runs("c-0", "c-1")
    bench.wanted.request_restart("c", [], ANN, connector=True)
    bench.step()
    assert bench.states()[-1] is ConnectorState.RUNNING
    assert [task.stopped for task in bench.made] == [0, 0]


def test_a_connector_lives_as_long_as_it_is_to_run(bench: Bench) -> None:
    assert bench.opened == ["c"]
    for target, opened in [("PAUSED", []), ("RUNNING", ["c"]), ("STOPPED", [])]:
        bench.wanted.set_target("c", TargetState(target), ANN)
        bench.step()
        assert bench.opened == opened
    bench.wanted.set_target("c", TargetState.RUNNING, ANN)
    bench.create("d")
    assert bench.opened == ["c", "d"]
    bench.wanted.delete("c", ANN)
    bench.step()
    assert bench.opened == ["d"]
    bench.reconciler.stop()
    bench.reconciler.run()
    assert bench.opened == []


def test_a_request_of_a_connector_that_is_paused_waits_for_nothing(bench: Bench) -> None:
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    bench.step()
    bench.reconciler.reconfigure("c")
    bench.step()
    assert bench.plans == 1
