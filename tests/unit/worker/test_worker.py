"""How a worker runs many tasks: readiness, failures, retries, leases and the end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import Batch, Counts, Lease, TaskId, TaskState
from headrace.sdk import Position, RetriableError, SourceError
from headrace.store import MemoryStore
from headrace.worker import Backoff, Step, Worker

SOON = timedelta(milliseconds=5)
LEASE = timedelta(seconds=30)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Told:
    """Remembers what the worker told."""

    batches: list[Batch] = field(default_factory=list)
    states: list[tuple[TaskId, TaskState]] = field(default_factory=list)
    retries: list[timedelta] = field(default_factory=list)

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        self.batches.append(batch)

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        self.states.append((task, state))

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        self.retries.append(wait)


class Script:
    """A task whose steps are written down; the last one is repeated."""

    def __init__(
        self,
        name: str,
        *steps: Step | Exception | Callable[[], Step],
        reads: str | None = None,
        writes: str | None = None,
        routes: bool = False,
        poll_interval: timedelta = SOON,
        backoff: Backoff | None = None,
    ) -> None:
        self.id = TaskId(name, 0)
        self.reads, self.writes, self.routes = reads, writes, routes
        self.poll_interval = poll_interval
        self.backoff = backoff or Backoff(longest=SOON)
        self.steps = list(steps)
        self.calls: list[float] = []
        self.started: list[tuple[bool, bool]] = []
        self.stopped = 0
        self.cancelled = threading.Event()

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        self.started.append((once, bounded))

    def step(self) -> Step:
        self.calls.append(time.monotonic())
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    def cancel(self) -> None:
        self.cancelled.set()

    def stop(self) -> None:
        self.stopped += 1


def moved(name: str = "t") -> Step:
    here = Position()
    return Step(Batch(TaskId(name, 0), 1, 1, here, here, now(), counts=Counts()))


IDLE = Step()
END = Step(ended=True)


def worker(told: Told, *tasks: Script, **values) -> Worker:
    made = Worker(store=MemoryStore(), owner="me", events=told, clock=now, **values)
    made.add(tasks)
    return made


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
    assert len(task.calls) > 2


@pytest.mark.timeout(20)
def test_a_sink_ends_only_after_its_source_and_an_empty_look() -> None:
    order: list[str] = []

    def say(name: str, step: Step) -> Callable[[], Step]:
        def said() -> Step:
            order.append(name)
            time.sleep(0.05 if name == "source" else 0)
            return step

        return said

    source = Script("source", say("source", moved()), say("source", END), writes="topic")
    sink = Script("sink", say("sink", END), reads="topic")
    outcome = worker(Told(), source, sink, threads=2, once=True).run()
    assert set(outcome.states.values()) == {TaskState.COMPLETED}
    assert order[-1] == "sink"
    assert sink.started == [(True, False)]
    assert source.started == [(True, True)]


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


@pytest.mark.timeout(20)
def test_many_tasks_share_few_threads() -> None:
    most = 0
    running = 0
    lock = threading.Lock()

    def busy() -> Step:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return END

    tasks = [Script(f"t{n}", busy) for n in range(30)]
    outcome = worker(Told(), *tasks, threads=3).run()
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
    store = MemoryStore()
    seen: list[datetime] = []

    def long_step() -> Step:
        for _ in range(20):
            seen.extend(lease.expires for lease in store.leases())
            time.sleep(0.01)
        return END

    task = Script("t", long_step)
    run = Worker(
        store=store, owner="me", events=Told(), clock=now, lease=timedelta(milliseconds=60)
    )
    run.add([task])
    run.run()
    assert len(set(seen)) > 2


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

    def say(name: str, step: Step) -> Callable[[], Step]:
        def said() -> Step:
            order.append(name)
            time.sleep(0.05 if name == "source" else 0)
            return step

        return said

    steps = [say("source", moved()), say("source", END)]
    source = Script("source", *steps, reads="captured", writes="own", routes=True)
    other = Script("other", END, reads="captured too", writes="own", routes=True)
    sink = Script("sink", say("sink", END), reads="routed")
    outcome = worker(Told(), source, other, sink, threads=2, once=True).run()
    assert set(outcome.states.values()) == {TaskState.COMPLETED}
    assert order[-1] == "sink"
    assert sink.started == [(True, False)]
    assert source.started == [(True, True)]
