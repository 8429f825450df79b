"""A batch that is too large for the memory that there is comes in smaller pieces."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import Batch, Counts, Lease, SparkMemoryError, SparkUnavailableError, TaskId
from headrace.sdk import Lag, Position, ReadLimit, RetriableError, SinkError
from headrace.store import Store
from headrace.worker import BatchLoop, BatchTask

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


class Jobs:
    """Jobs that run here."""

    def run(self, task, work):
        return work()

    def cancel(self, task) -> None:
        """Nothing runs."""

    def activity(self, task) -> None:
        """Nothing runs."""

    def lost(self, error=None) -> bool:
        return isinstance(error, SparkUnavailableError)


def started(system: System, task: BatchTask) -> None:
    lease = system.store.lease(TASK, "w", now(), timedelta(minutes=1))
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


def test_what_a_source_measures_by_itself_is_shown_first() -> None:
    system = System(memory=MANY)
    task = system.task()
    started(system, task)
    moved(system, task)
    assert task.lag is None
    system.loop.measured_lag = lambda: Lag(rows=2)
    assert task.lag == Lag(rows=2)
