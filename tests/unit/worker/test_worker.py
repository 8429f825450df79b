"""How a worker runs many tasks: readiness, failures, retries, leases and the end."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial

import pytest
from tests.unit.worker.scripts import END, IDLE, SOON, Script, Told, moved, now, worker, working
from tests.waiting import until
from typing_extensions import override

from headrace.model import Backoff, Lease, SparkUnavailableError, TaskId, TaskState, TaskStatus
from headrace.sdk import HeadraceError, Position, RetriableError, SourceError
from headrace.store import Store, StoreUnavailableError
from headrace.worker import Step, Worker

LEASE = timedelta(seconds=30)


@pytest.mark.timeout(20)
def test_a_task_with_an_end_completes_and_is_stopped_once() -> None:
    told, task = Told(), Script("t", moved(), moved(), END)
    outcome = worker(told, task).run()
    assert outcome.states == {task.id: TaskState.COMPLETED}
    assert not outcome.failed
    assert len(told.batches) == 2
    assert task.stopped == 1
    states = [TaskState.UNASSIGNED, TaskState.RUNNING, TaskState.COMPLETED]
    assert told.states == [(task.id, state) for state in states]


@pytest.mark.timeout(20)
def test_one_failing_task_fails_alone() -> None:
    bad, good = Script("bad", SourceError("broken")), Script("good", moved(), moved(), END)
    run = worker(Told(), bad, good)
    outcome = run.run()
    assert outcome.states == {bad.id: TaskState.FAILED, good.id: TaskState.COMPLETED}
    assert list(outcome.errors) == [bad.id]
    assert run.store.statuses("bad")[bad.id].trace == "[source.failed] broken"
    assert bad.stopped == 1


@pytest.mark.timeout(20)
def test_an_unexpected_error_fails_the_task_too() -> None:
    task = Script("t", ValueError("oops"))
    assert worker(Told(), task).run().states == {task.id: TaskState.FAILED}


@pytest.mark.timeout(20)
def test_a_busy_system_is_tried_again_with_growing_waits() -> None:
    told = Told()
    waits = Backoff(longest=timedelta(seconds=10))
    task = Script("t", RetriableError("busy"), RetriableError("busy"), END, backoff=waits)
    outcome = worker(told, task).run()
    assert outcome.states == {task.id: TaskState.COMPLETED}
    assert told.retries == [timedelta(milliseconds=300), timedelta(milliseconds=600)]
    assert task.calls[1] - task.calls[0] >= 0.3
    assert task.calls[2] - task.calls[1] >= 0.6


@pytest.mark.timeout(20)
def test_a_busy_system_is_given_up_after_the_timeout() -> None:
    given_up = Backoff(longest=SOON, timeout=timedelta(milliseconds=30))
    task = Script("t", RetriableError("busy"), backoff=given_up)
    outcome = worker(Told(), task).run()
    assert outcome.states == {task.id: TaskState.FAILED}
    assert len(task.calls) > 1


@pytest.mark.timeout(20)
def test_a_start_that_met_a_busy_system_is_tried_again() -> None:
    told = Told()
    task = Script("t", moved(), END, starts=[RetriableError("busy"), RetriableError("busy")])
    outcome = worker(told, task).run()
    assert outcome.states == {task.id: TaskState.COMPLETED}
    assert len(task.started) == 3
    assert task.stopped == 1
    states = [TaskState.UNASSIGNED, TaskState.RUNNING, TaskState.COMPLETED]
    assert told.states == [(task.id, state) for state in states]


@pytest.mark.timeout(20)
def test_while_a_start_is_tried_again_the_status_says_why() -> None:
    traces: list[str | None] = []

    class Looking(Script):
        @override
        def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
            traces.append(run.store.statuses("t")[self.id].trace)
            super().start(lease, once=once, bounded=bounded)

    task = Looking("t", END, starts=[RetriableError("busy") for _ in range(3)])
    run = worker(Told(), task)
    run.run()
    assert traces[0] is None
    assert ["busy" in str(trace) for trace in traces[1:]] == [True] * 3


@pytest.mark.timeout(20)
@pytest.mark.parametrize("begun", [True, False])
def test_a_start_that_fails_tells_the_way_out_of_its_unfinished_batch(begun: bool) -> None:
    task = Script("t", END, starts=[SourceError("its table is gone", fix="Put it back.")])
    run = worker(Told(), task)
    if begun:
        lease = run.store.lease(task.id, "another", now(), timedelta())
        run.store.begin_batch(task.id, lease.epoch, Position(), Position(), now())
    outcome = run.run()
    error = outcome.errors[task.id]
    assert isinstance(error, HeadraceError)
    assert error.fix.startswith("Put it back.")
    assert ("headrace connector offsets give-up t --task 0 --batch 1" in error.fix) is begun


class Away(Store):
    """A store that does not answer while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    def renew(
        self, leases: Collection[Lease], now: datetime, duration: timedelta
    ) -> Mapping[TaskId, Lease]:
        self._check()
        return super().renew(leases, now, duration)

    def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        self._check()
        super().end(lease, status, now)

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailableError


@pytest.mark.timeout(20)
def test_the_time_that_the_store_was_away_is_none_in_which_a_system_was_tried() -> None:
    began = time.monotonic()

    def step() -> Step:
        if time.monotonic() - began < 0.5:
            raise StoreUnavailableError
        if not after:
            after.append(time.monotonic())
            raise RetriableError
        return END

    after: list[float] = []
    given_up = Backoff(longest=SOON, timeout=timedelta(milliseconds=400))
    task = Script("t", step, backoff=given_up)
    outcome = worker(Told(), task).run()
    assert outcome.states == {task.id: TaskState.COMPLETED}
    assert len(after) == 1


@pytest.mark.timeout(20)
def test_a_task_waits_for_its_store_longer_than_for_any_other_system() -> None:
    store = Away()
    given_up = Backoff(longest=SOON, timeout=timedelta(milliseconds=1))
    times: list[float] = []

    def step() -> Step:
        times.append(time.monotonic())
        store.away = times[-1] - times[0] < 0.3
        if store.away:
            raise StoreUnavailableError
        return END

    task = Script("t", step, backoff=given_up)
    short = timedelta(milliseconds=60)  # several renewals fail meanwhile
    run = Worker(store=store, owner="me", events=Told(), clock=now, lease=short)
    run.add([task])
    assert run.run().states == {task.id: TaskState.COMPLETED}
    assert store.statuses("t")[task.id].state is TaskState.COMPLETED


@pytest.mark.timeout(20)
def test_a_worker_ends_also_when_its_store_is_gone() -> None:
    store = Away()

    def step() -> Step:
        store.away = True
        return END

    task = Script("t", step)
    run = Worker(store=store, owner="me", events=Told(), clock=now)
    run.add([task])
    assert run.run().states == {task.id: TaskState.COMPLETED}


@pytest.mark.timeout(20)
def test_an_end_that_cannot_be_stored_for_whatever_reason_is_stored_later() -> None:
    class Broken(Store):
        refused = 0

        def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
            if lease.task.connector == "bad" and not self.refused:
                self.refused += 1
                raise ValueError(lease)
            super().end(lease, status, now)

    tasks = Script("bad", END), Script("a", moved("a"), END), Script("b", moved("b"), END)
    store = Broken()
    run = Worker(store=store, owner="me", events=Told(), clock=now, threads=1)
    run.add(tasks)
    outcome = run.run()
    assert {state.value for state in outcome.states.values()} == {"COMPLETED"}
    assert store.refused
    assert {each.state.value for each in store.statuses().values()} == {"COMPLETED"}
    assert store.leases() == []


def said_in(order: list[str], name: str, step: Step) -> Callable[[], Step]:
    """Return a step that says its name when it is done; one of a source takes longer."""

    def said() -> Step:
        order.append(name)
        time.sleep(0.05 if name == "source" else 0)
        return step

    return said


@pytest.mark.timeout(20)
def test_a_sink_ends_only_after_its_source_and_an_empty_look() -> None:
    order: list[str] = []
    say = partial(said_in, order)
    source = Script("source", say("source", moved()), say("source", END), writes="topic")
    sink = Script("sink", say("sink", END), reads="topic")
    outcome = worker(Told(), source, sink, threads=2, once=True).run()
    assert set(outcome.states.values()) == {TaskState.COMPLETED}
    assert order[-1] == "sink"
    assert sink.started == [(True, False)]
    assert source.started == [(True, True)]


@pytest.mark.timeout(20)
def test_a_sink_whose_source_failed_is_not_shown_as_complete() -> None:
    source = Script("source", moved(), ValueError("broken"), writes="topic")
    sink = Script("sink", END, reads="topic")
    outcome = worker(Told(), source, sink, threads=2, once=True).run()
    assert outcome.states == {source.id: TaskState.FAILED, sink.id: TaskState.STOPPED}


@pytest.mark.timeout(20)
def test_an_append_wakes_the_tasks_that_read_the_topic() -> None:
    told = Told()
    sleeper = Script("sleeper", IDLE, END, reads="topic", poll_interval=timedelta(hours=1))
    run = worker(told, sleeper)
    thread = threading.Thread(target=run.run)
    thread.start()
    while not sleeper.calls:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(sleeper.calls) == 1
    run.wake("another")
    time.sleep(0.05)
    assert len(sleeper.calls) == 1
    run.wake("topic")
    thread.join()
    assert len(sleeper.calls) == 2


class Slow(Backoff):
    """Waits an hour."""

    def wait(self, *_: object) -> timedelta:
        return timedelta(hours=1)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("error", [RetriableError("busy"), SparkUnavailableError()])
def test_an_append_does_not_shorten_the_wait_of_a_task_that_has_failed(
    error: Exception,
) -> None:
    def fail() -> Step:
        run.wake("topic")  # while it runs
        raise error

    waiting = Script("waiting", fail, END, reads="topic", backoff=Slow())
    run = worker(Told(), waiting)
    with working(run):
        until(lambda: waiting.calls)
        for _ in range(10):
            run.wake("topic")
            time.sleep(0.01)
        assert len(waiting.calls) == 1
        run.wake_all()  # Spark is back
        until(lambda: len(waiting.calls) == 2)


@pytest.mark.timeout(20)
def test_many_tasks_share_few_threads() -> None:
    most = 0
    running = 0
    lock = threading.Lock()
    three = threading.Barrier(3)  # passed only by three steps that run at once

    def busy() -> Step:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        three.wait(timeout=10)
        with lock:
            running -= 1
        return END

    tasks = [Script(f"t{n}", busy) for n in range(30)]
    outcome = worker(Told(), *tasks, threads=3).run()
    assert {task.stopped for task in tasks} == {1}
    assert len(outcome.states) == 30
    assert most == 3


@pytest.mark.timeout(20)
def test_stop_waits_for_the_running_step_and_leaves_the_lease_free() -> None:
    released = threading.Event()

    def slow() -> Step:
        released.wait(5)
        return moved()

    task = Script("t", slow)
    run = worker(Told(), task)
    thread = threading.Thread(target=run.run)
    thread.start()
    while not task.calls:
        time.sleep(0.005)
    run.stop(grace=timedelta(seconds=60))
    assert thread.is_alive()
    assert not task.cancelled.is_set()
    released.set()
    thread.join()
    assert task.stopped == 1
    assert list(run.store.leases()) == []
    assert run.store.statuses("t")[task.id].state is TaskState.STOPPED


@pytest.mark.timeout(20)
def test_a_step_that_outlasts_the_grace_period_is_cancelled() -> None:
    task = Script("t", IDLE)

    def long_step() -> Step:
        task.cancelled.wait(10)
        return IDLE

    task.steps = [long_step]
    run = worker(Told(), task)
    thread = threading.Thread(target=run.run)
    thread.start()
    while not task.calls:
        time.sleep(0.005)
    run.stop(grace=timedelta(milliseconds=20))
    thread.join()
    assert task.cancelled.is_set()


@pytest.mark.timeout(20)
def test_leases_are_renewed_while_a_step_runs() -> None:
    store = Store()
    seen: set[datetime] = set()

    def renewed() -> bool:
        seen.update(lease.expires for lease in store.leases())
        return len(seen) > 2

    def long_step() -> Step:
        until(renewed)
        return END

    task = Script("t", long_step)
    run = Worker(
        store=store, owner="me", events=Told(), clock=now, lease=timedelta(milliseconds=60)
    )
    run.add([task])
    outcome = run.run()
    assert outcome.states == {task.id: TaskState.COMPLETED}


@pytest.mark.timeout(20)
def test_a_task_held_by_another_worker_fails_with_its_name() -> None:
    task = Script("t", END)
    run = worker(Told(), task)
    run.store.lease(task.id, "other", now(), LEASE)
    outcome = run.run()
    assert "run by other" in str(outcome.errors[task.id])


@pytest.mark.timeout(20)
def test_whoever_reads_a_topic_waits_for_tasks_whose_records_choose_theirs() -> None:
    order: list[str] = []
    say = partial(said_in, order)
    steps = [say("source", moved()), say("source", END)]
    source = Script("source", *steps, reads="captured", writes="own", routes=True)
    other = Script("other", END, reads="captured too", writes="own", routes=True)
    sink = Script("sink", say("sink", END), reads="routed")
    outcome = worker(Told(), source, other, sink, threads=2, once=True).run()
    assert set(outcome.states.values()) == {TaskState.COMPLETED}
    assert order[-1] == "sink"
    assert sink.started == [(True, False)]
    assert source.started == [(True, True)]
