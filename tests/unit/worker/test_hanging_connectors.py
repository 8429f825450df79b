"""A connector that hangs fails alone: whatever is wanted of others is done meanwhile."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.unit.worker.reconciled import ANN, Opened, Reconciled
from tests.unit.worker.scripts import IDLE, SOON, working
from tests.waiting import until

from headrace.model import ConnectorState, TargetState
from headrace.worker import Planned, Step

pytestmark = pytest.mark.timeout(60)
LONG = timedelta(minutes=5)


class Hanging(Opened):
    """A connector whose first plan does not end before it may."""

    may = threading.Event()

    def plan(self) -> Planned:
        if self.connector.name == "hanging":
            assert self.may.wait(60)
        return super().plan()


class Bench(Reconciled):
    """A connector that hangs, and questions after others."""

    def runs(self, *tasks: str) -> None:
        """Wait until exactly these tasks run."""

        def found() -> bool:
            self.reconciler.step()
            return sorted(str(lease.task) for lease in self.state_store.leases()) == [*tasks]

        until(found)

    def is_(self, name: str, state: ConnectorState) -> bool:
        self.reconciler.step()
        found = self.wanted.connector(name)
        return found is not None and found.status.state is state


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    Hanging.may = threading.Event()
    made.reconciler.open_plan = lambda each: Hanging(made, each)
    made.reconciler.limit = LONG
    with working(made.worker):
        made.want("hanging")
        yield made
        Hanging.may.set()


def test_others_are_started_paused_and_removed_while_one_plans(bench: Bench) -> None:
    bench.want("b")
    bench.want("c")
    bench.runs("b-0", "c-0")
    bench.wanted.set_target("b", TargetState.PAUSED, ANN)
    bench.wanted.delete("c", ANN)
    bench.runs()
    until(lambda: bench.is_("b", ConnectorState.PAUSED))
    assert bench.is_("hanging", ConnectorState.UNASSIGNED)
    Hanging.may.set()
    bench.runs("hanging-0")


def test_it_fails_after_a_while_and_can_be_restarted(bench: Bench) -> None:
    bench.reconciler.limit = SOON
    until(lambda: bench.is_("hanging", ConnectorState.FAILED))
    found = bench.wanted.connector("hanging")
    assert found is not None
    assert "plugin.timeout" in str(found.status.trace)
    Hanging.may.set()
    until(lambda: bench.opened == [])  # what was left behind is stopped when it ends
    bench.reconciler.limit = LONG
    bench.wanted.request_restart("hanging", [], ANN, connector=True)
    bench.runs("hanging-0")


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_it_can_be_paused_and_stopped_while_it_plans(bench: Bench, target: TargetState) -> None:
    bench.reconciler.step()
    bench.wanted.set_target("hanging", target, ANN)
    until(lambda: bench.is_("hanging", ConnectorState(target.value)))
    Hanging.may.set()
    until(lambda: bench.opened == [])
    bench.runs()
    bench.wanted.set_target("hanging", TargetState.RUNNING, ANN)
    bench.runs("hanging-0")


def test_it_can_be_removed_while_it_plans_and_one_of_its_name_runs(bench: Bench) -> None:
    bench.reconciler.step()
    bench.wanted.delete("hanging", ANN)
    bench.want("hanging")
    bench.runs()
    Hanging.may.set()
    bench.runs("hanging-0")
    until(lambda: bench.opened == ["hanging"])  # what is removed is closed when its plan ends
    assert len(bench.made) == 1


def test_the_end_of_the_server_does_not_wait_for_it(bench: Bench) -> None:
    thread = threading.Thread(target=bench.reconciler.run)
    thread.start()
    until(lambda: bench.opened == ["hanging"])
    bench.reconciler.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_task_that_does_not_end_holds_up_only_its_connector(bench: Bench) -> None:
    bench.reconciler.grace = timedelta(seconds=20)
    may = threading.Event()
    bench.want("b")
    bench.want("c")
    bench.runs("b-0", "c-0")
    inside = threading.Event()

    def hang() -> Step:
        inside.set()
        may.wait(60)
        return IDLE

    bench.newest("b", 0).steps = [hang, IDLE]
    assert inside.wait(15)
    bench.wanted.set_target("b", TargetState.PAUSED, ANN)
    bench.wanted.set_target("c", TargetState.PAUSED, ANN)
    until(lambda: bench.is_("c", ConnectorState.PAUSED))
    assert bench.is_("b", ConnectorState.RUNNING)
    may.set()
    until(lambda: bench.is_("b", ConnectorState.PAUSED))
