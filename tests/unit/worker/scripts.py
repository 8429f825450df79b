"""Tasks whose steps are written down, and who is told what a worker does."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headrace.model import Backoff, Batch, Counts, Lease, TaskId, TaskState
from headrace.sdk import Lag, Position
from headrace.store import Store
from headrace.worker import Step, Worker

SOON = timedelta(milliseconds=5)


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
        starts: Sequence[Exception] = (),
    ) -> None:
        self.starts = list(starts)
        self.id = TaskId(name, 0)
        self.reads, self.writes, self.routes = reads, writes, routes
        self.poll_interval = poll_interval
        self.backoff = backoff or Backoff(longest=SOON)
        self.steps = list(steps)
        self.calls: list[float] = []
        self.started: list[tuple[bool, bool]] = []
        self.stopped = 0
        self.cancelled = threading.Event()
        self.lag: Lag | None = None
        self.doing: object | None = None
        self.width: int | None = None

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        self.started.append((once, bounded))
        if self.starts:
            raise self.starts.pop(0)

    def step(self) -> Step:
        self.calls.append(time.monotonic())
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    def cancel(self) -> None:
        self.cancelled.set()

    def activity(self) -> object | None:
        return self.doing

    def columns(self) -> int | None:
        return self.width

    def stop(self) -> None:
        self.stopped += 1

    def unreported(self) -> list[Batch]:
        return []


def moved(name: str = "t") -> Step:
    here = Position()
    return Step(Batch(TaskId(name, 0), 1, 1, here, here, now(), counts=Counts()))


IDLE = Step()
END = Step(ended=True)


def worker(told: Told, *tasks: Script, **values) -> Worker:
    made = Worker(store=Store(), owner="me", events=told, clock=now, **values)
    made.add(tasks)
    return made


@contextmanager
def working(run: Worker) -> Iterator[None]:
    """Let a worker run in a thread for as long as this lasts."""
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield
    finally:
        run.stop()
        thread.join()
