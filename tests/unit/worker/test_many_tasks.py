"""What hundreds of tasks cost a server while nothing comes: threads, the store, Spark."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.statements import statements
from tests.unit.worker.reconciled import Reconciled
from tests.unit.worker.scripts import IDLE, Script, Told, now, working
from tests.waiting import until

from headrace.model import Batch, ConnectorKind, Counts, Lease, Stamp, TargetState, TaskId
from headrace.sdk import Lag, Position, ReadLimit
from headrace.store import ConnectorStore, Store
from headrace.worker import BatchLoop, BatchTask, Step, Worker

TASKS = 200
PARTITION = {"log": "a"}


@dataclass
class Jobs:
    """Counts what is told to Spark."""

    runs: int = 0

    def run(self, task: TaskId, work: Callable[[], Counts]) -> Counts:
        self.runs += 1
        return work()

    def cancel(self, task: TaskId) -> None:
        pass

    def activity(self, task: TaskId) -> None:
        pass

    def lost(self, error: BaseException | None = None) -> bool:
        return False

    def crashed(self) -> bool:
        return False


@dataclass
class Parts:
    """A loop over a log of numbers, which is its own reader and flow."""

    store: Store
    lease: Lease
    end: Position = field(default_factory=Position)
    looks: int = 0
    loop: BatchLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = BatchLoop(
            store=self.store,
            lease=self.lease,
            reader=self,
            flow=self,
            limit=ReadLimit(),
            clock=now,
        )

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        self.looks += 1
        return self.end

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag(rows=1)

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        pass

    untouched = True
    routing = ""
    columns = None

    def run(self, batch: Batch) -> Counts:
        return Counts(read=1, written=1)

    def close(self) -> None:
        pass


@pytest.mark.timeout(120)
def test_idle_tasks_cost_neither_statements_nor_threads_nor_calls_to_spark(
    tmp_path: Path,
) -> None:
    store, jobs, parts = Store(tmp_path / "store.db"), Jobs(), dict[TaskId, Parts]()

    def task(number: int) -> BatchTask:
        def assemble(lease: Lease) -> Parts:
            return parts.setdefault(lease.task, Parts(store, lease))

        name = TaskId(f"c{number}", 0)
        return BatchTask(
            name, assemble, lambda: jobs, poll_interval=timedelta(milliseconds=100)
        )

    before = threading.active_count()
    hour = timedelta(hours=1)
    run = Worker(store=store, owner="me", events=Told(), clock=now, lease=hour, serving=True)
    with working(run):
        run.add([task(number) for number in range(TASKS)])
        until(lambda: len(parts) == TASKS and all(each.looks > 1 for each in parts.values()))
        with statements() as seen:
            looks = {name: each.looks for name, each in parts.items()}
            until(lambda: all(each.looks > looks[name] + 2 for name, each in parts.items()))
        assert seen == []
        assert jobs.runs == 0
        assert threading.active_count() - before <= run.threads + 3
        one = parts[TaskId("c7", 0)]
        one.end = Position.of(PARTITION, {"row": 1})
        until(lambda: jobs.runs == 1)
        until(lambda: store.position(TaskId("c7", 0)) == one.end)
    store.close()


@pytest.mark.timeout(60)
def test_a_look_at_what_is_wanted_costs_one_statement_however_many_connectors_there_are(
    tmp_path: Path,
) -> None:
    place, stamp = tmp_path / "store.db", Stamp(now(), "me")
    state, wanted = Store(place), ConnectorStore(place)
    bench = Reconciled(state_store=state, wanted_store=wanted)
    for number in range(30):
        config = {"connector.class": "Script"}
        wanted.create(f"c{number}", ConnectorKind.SINK, config, TargetState.RUNNING, stamp)
    for _ in range(3):  # what it tells of the connectors are events, which it looks at too
        bench.step()
    assert len(bench.made) == 30
    with statements() as seen:
        bench.step()
    [asked] = [statement for statement in seen if statement != "BEGIN"]
    assert "max(events.id)" in asked
    wanted.close()
    state.close()


@pytest.mark.timeout(60)
def test_a_task_that_has_something_to_tell_is_asked_at_once() -> None:
    hour = timedelta(hours=1)
    slow, other = Script("a", IDLE, poll_interval=hour), Script("b", IDLE, poll_interval=hour)
    run = Worker(store=Store(), owner="me", events=Told(), clock=now, serving=True)
    with working(run):
        run.add([slow, other])
        until(lambda: slow.calls and other.calls)
        run.wake_task(slow.id)
        until(lambda: len(slow.calls) == 2)
        run.wake_task(TaskId("not here", 0))
        assert len(other.calls) == 1


@pytest.mark.timeout(60)
def test_of_tasks_that_are_ready_the_one_that_waits_longest_runs_first() -> None:
    order, begun, go = list[str](), threading.Event(), threading.Event()

    def step(name: str) -> Step:
        order.append(name)
        return IDLE

    def long_step() -> Step:
        begun.set()
        assert go.wait(30)
        return IDLE

    hour = timedelta(hours=1)
    names = ["a", "b", "c"]
    tasks = [Script(n, IDLE, partial(step, n), poll_interval=hour) for n in names]
    busy = Script("busy", IDLE, long_step, IDLE, poll_interval=hour)
    run = Worker(store=Store(), owner="me", events=Told(), clock=now, threads=1, serving=True)
    with working(run):
        run.add([*tasks, busy])
        until(lambda: all(each.calls for each in [*tasks, busy]))
        run.wake_task(busy.id)
        assert begun.wait(30)
        for number in (2, 0, 1, 2):
            run.wake_task(tasks[number].id)
            time.sleep(0.002)
        go.set()
        until(lambda: len(order) == 3)
    assert order == ["c", "a", "b"]
