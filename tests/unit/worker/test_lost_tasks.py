"""Tasks that the store shows as running, and that nobody runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from tests.unit.worker.reconciled import ANN, Reconciled
from tests.unit.worker.scripts import now
from tests.waiting import until

from headrace.model import TaskId, TaskState, TaskStatus
from headrace.sdk.errors import StaleEpochError

pytestmark = pytest.mark.timeout(60)
TASK = TaskId("c", 0)
SHORT = timedelta(milliseconds=20)


@contextmanager
def running(bench: Reconciled) -> Iterator[None]:
    bench.reconciler.lost_interval = SHORT
    work = [threading.Thread(target=each.run) for each in (bench.worker, bench.reconciler)]
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        bench.reconciler.stop()
        bench.worker.stop(SHORT)
        for thread in work:
            thread.join()


def state(bench: Reconciled) -> TaskState:
    found = bench.state_store.statuses().get(TASK, TaskStatus(TaskState.UNASSIGNED))
    return found.state


def test_a_task_that_was_taken_by_a_worker_that_died_is_started_anew() -> None:
    bench = Reconciled()
    bench.want()
    with running(bench):
        until(lambda: bench.made and bench.newest("c", 0).calls)
        first = bench.newest("c", 0)
        store, status = bench.state_store, TaskStatus(TaskState.RUNNING)
        later = now() + timedelta(hours=1)
        store.lease(TASK, "another", later, timedelta(hours=-1) + timedelta(seconds=1), status)
        first.steps = [StaleEpochError("another worker has taken the task")]
        until(lambda: bench.newest("c", 0) is not first and bench.newest("c", 0).calls)
        assert store.leases()[0].owner == bench.worker.owner
        assert state(bench) is TaskState.RUNNING


def test_a_task_that_another_worker_runs_is_left_to_it() -> None:
    bench = Reconciled()
    bench.want()
    with running(bench):
        until(lambda: bench.made and bench.newest("c", 0).calls)
        status = TaskStatus(TaskState.RUNNING)
        later = now() + timedelta(hours=1)
        bench.state_store.lease(TASK, "another", later, timedelta(hours=1), status)
        bench.newest("c", 0).steps = [StaleEpochError("another worker has taken the task")]
        until(lambda: (TASK, TaskState.FAILED) in bench.told.states)
        looked = bench.reconciler._lost_at
        until(lambda: bench.reconciler._lost_at > looked + 0.1)
        assert len(bench.made) == 1


def test_nobody_is_said_to_have_taken_tasks_that_were_deleted() -> None:
    bench = Reconciled()
    names = [f"c{n}" for n in range(20)]
    for name in names:
        bench.want(name)
    with capture_logs() as said, running(bench):
        until(lambda: len(bench.state_store.leases()) == len(names))
        for name in names:
            bench.wanted.delete(name, ANN)
        until(lambda: not bench.opened)
    assert [line["event"] for line in said if line["log_level"] == "warning"] == []
