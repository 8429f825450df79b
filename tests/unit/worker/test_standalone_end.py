"""A server's end waits for nobody for ever."""

import threading

import pytest
from tests.unit.worker.reconciled import Reconciled
from tests.unit.worker.scripts import SOON

from headrace.capture import HostSupervisor
from headrace.runtime import server
from headrace.runtime.server import Standalone


@pytest.mark.timeout(60)
def test_a_server_ends_though_a_connector_hangs_while_it_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_END_SECONDS", 0.1)
    hangs, may = threading.Event(), threading.Event()
    bench = Reconciled()
    bench.reconciler.grace = SOON

    def step() -> None:
        hangs.set()
        may.wait(60)

    monkeypatch.setattr(bench.reconciler, "step", step)
    served = Standalone(
        worker=bench.worker,
        reconciler=bench.reconciler,
        hosts=HostSupervisor(),
    )
    with served:
        assert hangs.wait(30)
    assert [thread.name for thread in served._threads if thread.is_alive()] == [
        "headrace-reconciler"
    ]
    assert all(thread.daemon for thread in served._threads)
    may.set()
