"""How a worker serves: tasks come and end while it runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from tests.unit.worker.scripts import END, IDLE, SOON, Script, Told, moved, now, worker, working
from tests.waiting import until

from headrace.model import Backoff, TaskId, TaskState, TaskStatus
from headrace.sdk import Position, RetriableError, SourceError
from headrace.sdk.errors import StaleEpochError
from headrace.worker import Step, Worker

HERE = Position()


@contextmanager
def serving(told: Told, *tasks: Script, **values) -> Iterator[Worker]:
    run = worker(told, *tasks, serving=True, **values)
    with working(run):
        yield run


@pytest.mark.timeout(30)
def test_a_server_takes_tasks_at_any_time_and_never_takes_one_for_over() -> None:
    told, first, second = Told(), Script("a", END), Script("b", moved("b"), END)
    with serving(told) as run:
        run.add([first])
        until(lambda: len(first.calls) > 2)
        run.add([second])
        until(lambda: told.batches and len(second.calls) > 2)
        assert first.stopped == second.stopped == 0
    assert first.stopped == second.stopped == 1
    # They are wanted still, so whoever comes next runs them on.
    assert run.store.statuses("b")[second.id].state is TaskState.UNASSIGNED


@pytest.mark.timeout(30)
def test_a_task_is_ended_between_its_steps_and_others_run_on() -> None:
    told, one, other = Told(), Script("a", IDLE), Script("b", IDLE)
    with serving(told, one, other) as run:
        until(lambda: one.calls and other.calls)
        run.end({one.id: TaskState.PAUSED}, timedelta(seconds=5))
        assert run.store.statuses("a")[one.id].state is TaskState.PAUSED
        assert [lease.task for lease in run.store.leases()] == [other.id]
        assert (one.stopped, other.stopped) == (1, 0)
        calls = len(other.calls)
        until(lambda: len(other.calls) > calls)
        again = Script("a", IDLE)
        run.add([again])
        until(lambda: again.calls)


@pytest.mark.timeout(30)
def test_a_task_that_does_not_end_in_time_is_cancelled() -> None:
    told = Told()

    def stuck() -> Step:
        task.cancelled.wait()
        problem = "cancelled"
        raise CancelledError(problem)

    task = Script("a", stuck)
    with serving(told, task) as run:
        until(lambda: task.calls)
        run.end({task.id: TaskState.STOPPED}, timedelta(milliseconds=10))
        assert run.store.statuses("a")[task.id].state is TaskState.STOPPED
    assert task.stopped == 1


@pytest.mark.timeout(60)
def test_a_task_that_does_not_end_at_all_is_given_up_and_can_commit_nothing() -> None:
    told, go = Told(), threading.Event()
    refused: list[Exception] = []

    def stuck() -> Step:
        go.wait(30)
        try:
            run.store.begin_batch(task.id, lease.epoch, HERE, HERE, now())
        except StaleEpochError as error:
            refused.append(error)
        return IDLE

    task, other = Script("a", stuck), Script("b", IDLE)
    with serving(told, task, other, threads=1) as run:
        until(lambda: task.calls)
        [lease] = run.store.leases("a")
        run.end({task.id: TaskState.PAUSED}, SOON)
        assert run.store.statuses("a")[task.id].state is TaskState.PAUSED
        assert run.store.leases("a") == []
        calls = len(other.calls)
        until(lambda: len(other.calls) > calls)  # another thread has come in its place
        go.set()
        until(lambda: task.stopped)
    assert len(refused) == 1
    assert run.store.statuses("a")[task.id].state is TaskState.PAUSED


@pytest.mark.timeout(60)
def test_a_server_ends_though_a_task_does_not() -> None:
    told, go = Told(), threading.Event()
    task = Script("a", lambda: Step() if go.wait(30) else IDLE)
    run = worker(told, task, serving=True)
    thread = threading.Thread(target=run.run)
    thread.start()
    until(lambda: task.calls)
    [lease] = run.store.leases("a")
    run.stop(SOON)
    thread.join(30)
    assert not thread.is_alive()
    with pytest.raises(StaleEpochError):
        run.store.end(lease, TaskStatus(TaskState.PAUSED), now())
    assert run.store.statuses("a")[task.id].state is TaskState.UNASSIGNED
    go.set()


@pytest.mark.timeout(60)
def test_a_task_that_waits_for_a_busy_thread_is_ended_without_it() -> None:
    told, go = Told(), threading.Event()
    busy, idle = Script("a", lambda: Step() if go.wait(30) else IDLE), Script("b", IDLE)
    with serving(told, idle, threads=1) as run:
        until(lambda: idle.calls)
        run.add([busy])
        until(lambda: busy.calls)
        run.end({idle.id: TaskState.STOPPED}, SOON)
        assert run.store.statuses("b")[idle.id].state is TaskState.STOPPED
        assert idle.stopped == 1
        go.set()


@pytest.mark.timeout(60)
def test_a_task_that_another_process_runs_is_taken_when_it_is_free() -> None:
    told, task = Told(), Script("a", IDLE, backoff=Backoff(timeout=timedelta()))
    run = worker(told, serving=True, lease=timedelta(milliseconds=100))
    other = run.store.lease(task.id, "other", now(), timedelta(hours=1))
    with working(run):
        run.add([task])
        until(lambda: len(told.retries) > 1)
        run.store.end(other, TaskStatus(TaskState.STOPPED), now())
        until(lambda: task.calls)
    # The time-out for a busy system is over at once, and the store is not asked in a loop.
    assert all(wait >= timedelta(milliseconds=10) for wait in told.retries)


@pytest.mark.timeout(30)
def test_the_newest_cause_is_shown_until_the_task_works_again() -> None:
    go = threading.Event()

    def last() -> Step:
        if not go.is_set():
            raise RetriableError(problem="Connection refused")
        return IDLE

    task = Script("a", RetriableError("The server closed the connection"), last)
    with serving(Told(), task) as run:

        def trace() -> str:
            found = run.store.statuses("a").get(task.id)
            return "" if found is None else str(found.trace)

        until(lambda: "Connection refused" in trace())
        go.set()
        until(lambda: trace() == "None")


class CancelledError(SourceError):
    code = "task.cancelled"


@pytest.mark.timeout(30)
def test_a_task_that_waits_to_be_tried_again_is_ended_at_once() -> None:
    slow = Backoff(longest=timedelta(hours=1), timeout=timedelta(hours=2))
    task = Script("a", RetriableError("busy", after=timedelta(hours=1)), backoff=slow)
    told = Told()
    with serving(told, task) as run:
        until(lambda: told.retries)
        run.end({task.id: TaskState.STOPPED}, timedelta(seconds=5))
        assert task.stopped == 1


@pytest.mark.timeout(30)
def test_a_failed_task_keeps_its_state_when_it_is_ended() -> None:
    task = Script("a", SourceError("broken"))
    told = Told()
    with serving(told, task) as run:
        until(lambda: (task.id, TaskState.FAILED) in told.states)
        run.end({task.id: TaskState.STOPPED, TaskId("none", 0): TaskState.STOPPED}, SOON)
        assert run.store.statuses("a")[task.id].state is TaskState.FAILED
    assert task.stopped == 1
