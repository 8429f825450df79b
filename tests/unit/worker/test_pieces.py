"""A batch that is too large for the memory that there is comes in smaller pieces."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from headrace.model import (
    Batch,
    Counts,
    Lease,
    SparkCrashedError,
    SparkMemoryError,
    SparkUnavailableError,
    TaskId,
)
from headrace.sdk import Lag, Position, ReadLimit, RetriableError, SinkError
from headrace.store import Store
from headrace.worker import BatchLoop, BatchTask, CrashIsolation

TASK = TaskId("large", 0)
PARTITION = {"log": "a"}
MANY = 1000


def at(position: Position) -> int:
    offset = position.offset(PARTITION)
    return int(offset["row"]) if offset else 0


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class System:
    """A source of rows, a target of ranges, and memory for so many rows of a batch."""

    memory: int
    rows: int = MANY
    error: type[RetriableError] = SparkMemoryError
    untouched: bool = True
    routing: str = ""
    columns: int | None = None
    store: Store = field(default_factory=Store)
    tried: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    loop: BatchLoop = field(init=False)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = min(self.rows, at(start) + (limit.rows or self.rows))
        return Position.of(PARTITION, {"row": end}) if end else start

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag(rows=self.rows - at(start))

    def ended(self, position: Position) -> bool:
        return True

    def acknowledge(self, position: Position) -> None:
        """Keep nothing."""

    def run(self, batch: Batch) -> Counts:
        rows = range(at(batch.start), at(batch.end))
        self.tried.append(len(rows))
        self.meanwhile()
        if len(rows) > self.memory:
            raise self.error
        self.arrived += rows
        return Counts(read=len(rows), written=len(rows))

    def close(self) -> None:
        """Hold nothing."""

    def assemble(self, lease: Lease) -> "System":
        self.loop = BatchLoop(
            store=self.store,
            lease=lease,
            reader=self,
            flow=self,
            limit=ReadLimit(rows=10**6),
            clock=now,
        )
        return self

    def task(self) -> BatchTask:
        return BatchTask(TASK, self.assemble, Jobs)


@dataclass
class Jobs:
    """Jobs that run here."""

    is_crashed: bool = False

    def run(self, task, work):
        return work()

    def cancel(self, task) -> None:
        """Nothing runs."""

    def activity(self, task) -> None:
        """Nothing runs."""

    def lost(self, error=None) -> bool:
        return isinstance(error, SparkUnavailableError)

    def crashed(self) -> bool:
        return self.is_crashed


def started(system: System, task: BatchTask) -> None:
    lease = system.store.lease(task.id, "w", now(), timedelta(minutes=1))
    task.start(lease, once=False, bounded=False)


def moved(system: System, task: BatchTask, *, restarts: bool = False) -> None:
    """Let a task do all that there is, as a worker does: again after each failure."""
    for _ in range(200):
        try:
            if task.step().batch is None:
                return
        except RetriableError:
            if restarts:
                started(system, task)
    pytest.fail("it does not come to an end")


@pytest.mark.parametrize("error", [SparkMemoryError, SparkUnavailableError])
def test_what_is_too_large_arrives_once_in_smaller_batches(
    error: type[RetriableError],
) -> None:
    system = System(memory=100, error=error)
    task = system.task()
    started(system, task)
    moved(system, task, restarts=error is SparkUnavailableError)
    assert system.arrived == [*range(MANY)]
    assert system.tried[:3] == [1000, 250, 62]


def test_batches_grow_again_when_they_go_well() -> None:
    system = System(memory=MANY - 1)
    task = system.task()
    started(system, task)
    with pytest.raises(SparkMemoryError):
        task.step()
    system.memory, system.rows = 10**6, 100 * MANY
    moved(system, task)
    assert system.arrived == [*range(100 * MANY)]
    assert system.tried == [MANY, 250, *[500] * 9, MANY, 100 * MANY - 5750]


def test_a_batch_that_may_be_written_in_part_runs_again_as_it_is() -> None:
    system = System(memory=100, untouched=False)
    task = system.task()
    started(system, task)
    with pytest.raises(SparkMemoryError):
        task.step()
    system.memory = MANY
    moved(system, task)
    assert system.tried == [MANY, MANY]


def test_a_batch_of_an_earlier_process_runs_again_as_it_is() -> None:
    system = System(memory=100)
    lease = system.store.lease(TASK, "dead", now(), timedelta(minutes=1))
    end = Position.of(PARTITION, {"row": 500})
    system.store.begin_batch(TASK, lease.epoch, Position(), end, now())
    system.store.release(lease)
    task = system.task()
    started(system, task)
    with pytest.raises(SparkMemoryError, match="memory"):
        task.step()
    system.memory = MANY
    moved(system, task)
    assert system.tried == [500, 500, 500]


def test_a_batch_that_gets_no_smaller_fails_its_task_after_some_tries() -> None:
    system = System(memory=0, rows=1)
    task = system.task()
    started(system, task)
    for _ in range(4):
        with pytest.raises(SparkMemoryError):
            task.step()
    with pytest.raises(SinkError, match="memory") as failed:
        task.step()
    assert "batch.max.rows" in failed.value.fix


def of(isolation: CrashIsolation, name: str, *, memory: int = 0) -> tuple[System, BatchTask]:
    """Return a task whose batches crash the JVM if they do not fit in the memory."""
    system = System(memory, error=SparkUnavailableError)
    jobs = partial(Jobs, is_crashed=True)
    task = BatchTask(TaskId(name, 0), system.assemble, jobs, isolation=isolation)
    started(system, task)
    return system, task


def crash(system: System, task: BatchTask) -> None:
    with pytest.raises(SparkUnavailableError):
        task.step()
    started(system, task)


def test_a_batch_that_crashes_the_jvm_repeatedly_fails_its_task() -> None:
    attributed: list[None] = []
    system, task = of(CrashIsolation(attributed=lambda: attributed.append(None)), "cause")
    for _ in range(4):
        crash(system, task)
    with pytest.raises(SparkCrashedError, match="crashed 5 times") as failed:
        task.step()
    assert "batch.max.rows" in failed.value.fix
    assert system.tried == [1000, 250, 62, 15, 3]
    assert len(attributed) == 5


def test_tasks_that_ran_when_the_jvm_crashed_take_turns_and_only_the_cause_fails() -> None:
    isolation = CrashIsolation()
    cause, guilty = of(isolation, "cause")
    other, beside = of(isolation, "other")
    third, idle = of(isolation, "third", memory=MANY)
    cause.meanwhile = partial(crash, other, beside)  # both run when the JVM crashes
    crash(cause, guilty)

    def none_runs_beside() -> None:
        assert beside.step().waits
        assert idle.step().waits

    cause.meanwhile = none_runs_beside
    crash(cause, guilty)
    other.memory = MANY
    moved(other, beside)
    for _ in range(3):
        crash(cause, guilty)
    with pytest.raises(SparkCrashedError):
        guilty.step()
    moved(third, idle)
    assert other.arrived == third.arrived == [*range(MANY)]


def test_a_crash_while_another_task_runs_counts_against_neither() -> None:
    isolation = CrashIsolation(patience=timedelta())
    system, task = of(isolation, "suspect")
    other = object()

    def run_beside() -> None:
        assert isolation.enter(other, is_suspect=False)

    system.meanwhile = run_beside
    for _ in range(10):
        crash(system, task)


def test_a_crash_while_a_preview_or_replay_runs_counts_against_no_task() -> None:
    isolation = CrashIsolation()
    system, task = of(isolation, "one")

    def preview() -> None:
        with isolation.beside():
            pass

    system.meanwhile = preview
    for _ in range(10):
        crash(system, task)


def test_a_fault_of_the_machine_fails_no_task() -> None:
    attributed: list[None] = []
    isolation = CrashIsolation(attributed=lambda: attributed.append(None))
    all_of = [of(isolation, f"task{number}") for number in range(5)]
    for _ in range(2):
        for system, task in all_of:
            crash(system, task)
    assert len(attributed) == 2  # the others count against the limit of the process
    healthy, beside = of(isolation, "healthy", memory=MANY)
    moved(healthy, beside)
    crash(*all_of[1])
    assert len(attributed) == 3


def test_waiting_suspects_take_turns_beside_a_task_that_hangs() -> None:
    time = 0.0
    isolation = CrashIsolation(patience=timedelta(minutes=1), clock=lambda: time)
    assert isolation.enter(object(), is_suspect=False)
    waiting = [object() for _ in range(5)]
    while waiting and time < 600:
        entered = [each for each in waiting if isolation.enter(each, is_suspect=True)]
        for each in entered:
            isolation.leave(each)
            waiting.remove(each)
        time += 0.5
    assert time < 61 * 5


def test_a_task_that_hangs_delays_others_no_longer_than_the_patience() -> None:
    time = 0.0
    isolation = CrashIsolation(patience=timedelta(minutes=1), clock=lambda: time)
    suspect, hanging, other = object(), object(), object()
    assert isolation.enter(hanging, is_suspect=False)
    assert not isolation.enter(suspect, is_suspect=True)
    assert not isolation.enter(other, is_suspect=False)
    time = 61.0
    assert isolation.enter(suspect, is_suspect=True)
    assert not isolation.blame(suspect)
    assert not isolation.enter(other, is_suspect=False)
    time = 122.0
    assert isolation.enter(other, is_suspect=False)


def test_a_task_that_is_stopped_while_it_waits_keeps_no_other_waiting() -> None:
    isolation = CrashIsolation()
    system, task = of(isolation, "suspect")
    crash(system, task)
    running = object()
    assert isolation.enter(running, is_suspect=False)
    assert task.step().waits
    assert not isolation.enter(object(), is_suspect=False)
    task.stop()
    isolation.leave(running)
    assert isolation.enter(object(), is_suspect=False)


def test_a_jvm_that_is_killed_fails_no_task() -> None:
    system = System(memory=0, error=SparkUnavailableError)
    task = system.task()
    for _ in range(20):
        started(system, task)
        with pytest.raises(SparkUnavailableError):
            task.step()


def test_what_a_source_measures_by_itself_is_shown_first() -> None:
    system = System(memory=MANY)
    task = system.task()
    started(system, task)
    moved(system, task)
    assert task.lag is None
    system.loop.measured_lag = lambda: Lag(rows=2)
    assert task.lag == Lag(rows=2)
