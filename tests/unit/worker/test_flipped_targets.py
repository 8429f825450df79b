"""Targets that change and change back before a reconciler has looked."""

import threading

import pytest
from tests.unit.worker.reconciled import ANN, Reconciled
from tests.waiting import until

from headrace.model import TargetState


@pytest.mark.parametrize("rest", [TargetState.STOPPED, TargetState.PAUSED])
def test_a_rest_that_was_called_off_and_wanted_again_is_shown(rest: TargetState) -> None:
    bench = Reconciled()
    bench.want()

    def state() -> str:
        bench.step()
        found = bench.wanted.connector("c")
        assert found is not None
        return found.status.state.value

    thread = threading.Thread(target=bench.worker.run, daemon=True)
    thread.start()
    until(lambda: state() == TargetState.RUNNING.value)
    bench.wanted.set_target("c", rest, ANN)
    until(lambda: state() == rest.value)
    bench.wanted.set_target("c", TargetState.RUNNING, ANN)
    bench.wanted.set_target("c", rest, ANN)
    until(lambda: state() == rest.value)
    bench.worker.stop()
    thread.join()
