"""A Spark job that does not get on is told of, and cancelled where so configured."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
from structlog.testing import capture_logs
from tests.unit.worker.scripts import IDLE, Script, Told, worker, working
from tests.waiting import until

from headrace.model import Backoff, TaskState, TaskStatus
from headrace.sdk import HeadraceError, RetriableError
from headrace.worker import Stalls, Step, Worker
from headrace.worker.task_queue import TaskSlot

pytestmark = pytest.mark.timeout(60)
SHORT = timedelta(milliseconds=50)


class CancelledError(HeadraceError):
    """What a step raises whose job was cancelled."""

    code = "task.cancelled"


class Hanging(Script):
    """A task whose first step waits until it is cancelled, or may go on."""

    def __init__(self) -> None:
        super().__init__("hanging", self.hang, IDLE)
        self.doing = 1
        self.may = threading.Event()

    def hang(self) -> Step:
        while not self.may.wait(0.005):
            if self.cancelled.is_set():
                self.doing = None
                raise CancelledError
        self.doing = None
        return IDLE


@contextmanager
def running(task: Script, stalls: Stalls) -> Iterator[Worker]:
    made = worker(Told(), task, serving=True, stalls=stalls)
    with working(made):
        yield made


def status(of: Worker, task: Script) -> TaskStatus:
    none = TaskStatus(TaskState.UNASSIGNED)
    return of.store.statuses(task.id.connector).get(task.id, none)


def test_it_is_shown_until_it_gets_on_again() -> None:
    task = Hanging()
    with running(task, Stalls(after=SHORT, planned=SHORT)) as here:
        until(lambda: "spark.stalled" in str(status(here, task).trace))
        assert status(here, task).state is TaskState.RUNNING
        assert not task.cancelled.is_set()
        here.stalls.after = timedelta(hours=1)  # it is to stall once only
        task.doing = 2
        until(lambda: status(here, task).trace is None)
        task.may.set()
        until(lambda: len(task.calls) > 1)


def test_it_is_cancelled_and_tried_again_where_so_configured() -> None:
    task = Hanging()
    with running(task, Stalls(after=SHORT, cancel=True)) as here:
        until(lambda: len(task.calls) > 1)
        assert task.cancelled.is_set()
        until(lambda: status(here, task).trace is None)
        assert status(here, task).state is TaskState.RUNNING


def test_what_gets_on_slowly_is_left_alone() -> None:
    class Slow(Hanging):
        def activity(self) -> object | None:
            looked.add(self.doing)
            return self.doing

    looked: set[object] = set()
    task, clock = Slow(), [0.0]
    stalls = Stalls(
        after=timedelta(seconds=0.5), planned=SHORT, cancel=True, clock=lambda: clock[0]
    )
    with running(task, stalls):
        for number in range(2, 17):
            task.doing = number
            until(partial(looked.__contains__, number))
            clock[0] += 0.3
        assert not task.cancelled.is_set()
        task.may.set()


def test_short_batches_in_a_row_are_not_one_that_is_planned_for_long() -> None:
    shown: list[RetriableError | None] = []
    clock = [0.0]
    stalls = Stalls(
        planned=timedelta(seconds=10),
        clock=lambda: clock[0],
        report=lambda _slot, error: shown.append(error),
    )
    task = Script("short", IDLE)
    task.width = 3
    slot = TaskSlot(task, started=True, running=True)
    for _ in range(5):
        slot.step += 1
        stalls.look([slot])
        clock[0] += 5
    assert shown == []
    stalls.look([slot])
    clock[0] += 5
    stalls.look([slot])
    assert len(shown) == 1
    clock[0] += 60
    stalls.look([slot])
    assert len(shown) == 1  # it is told once


def test_a_batch_that_is_planned_for_long_is_told_of_until_its_job_runs() -> None:
    task = Hanging()
    task.doing, task.width = None, 5000
    with capture_logs() as logs, running(task, Stalls(planned=SHORT)) as here:
        until(lambda: "batch of 5000 columns has run no" in str(status(here, task).trace))
        assert status(here, task).state is TaskState.RUNNING
        task.doing = 1
        until(lambda: status(here, task).trace is None)
        task.may.set()
        until(lambda: len(task.calls) > 1)
    told = next(each for each in logs if each["event"] == "batch runs no Spark job")
    assert (told["log_level"], told["connector"], told["columns"]) == (
        "warning",
        "hanging",
        5000,
    )
    assert "source and target systems respond" in told["fix"]
    assert "select fewer columns" in told["fix"]


def test_a_batch_of_few_columns_that_runs_no_job_is_not_told_to_have_fewer() -> None:
    task = Hanging()
    task.doing, task.width = None, 3
    with capture_logs() as logs, running(task, Stalls(planned=SHORT)) as here:
        until(lambda: "batch of 3 columns has run no" in str(status(here, task).trace))
        task.may.set()
    assert not any("select fewer columns" in str(each) for each in logs)


def test_what_is_tried_again_is_still_shown_after_a_batch_was_planned_for_long() -> None:
    task = Hanging()
    task.doing, task.width = None, 5
    task.steps = [task.hang, RetriableError("busy", after=timedelta(hours=1))]
    task.backoff = Backoff(longest=timedelta(hours=1))
    with running(task, Stalls(planned=SHORT)) as here:
        until(lambda: "has run no Spark job" in str(status(here, task).trace))
        task.may.set()
        until(lambda: "busy" in str(status(here, task).trace))
        time.sleep(4 * SHORT.total_seconds())
        assert "busy" in str(status(here, task).trace)


def test_a_task_that_looks_for_data_plans_nothing() -> None:
    task = Hanging()
    task.doing = None
    with running(task, Stalls(planned=SHORT)) as here:
        until(lambda: status(here, task).state is TaskState.RUNNING)
        assert not task.cancelled.wait(0.3)
        assert status(here, task).trace is None
        task.may.set()
