"""What the worker runs: a task that is asked for one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from headrace.sdk import ReadLimit
from headrace.worker.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model import Batch, Lease, TaskId
    from headrace.sdk import Lag
    from headrace.worker.loop import BatchLoop


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did.

    Args:
        batch: The batch it finished; None when nothing new was there.
        ended: Whether the task's source has an end and the task has reached it.
    """

    batch: Batch | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running task is doing.

    Args:
        batch: The batch that runs.
        spark_done: Spark tasks of its running stages that are done.
        spark_total: All Spark tasks of these.
        lag: How much was there when it began, where that is known.
    """

    batch: int
    spark_done: int = 0
    spark_total: int = 0
    lag: Lag | None = None


class Task(Protocol):
    """A task as the worker sees it. Its methods are called by one thread at a time."""

    id: TaskId
    reads: str | None
    """The topic it reads: the worker wakes it after each append."""
    writes: str | None
    """The topic it writes."""
    routes: bool
    """Whether it may write any other topic as well, as its records say."""
    poll_interval: timedelta
    backoff: Backoff

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        """Get ready to run under ``lease``.

        With ``once`` the task stops at what is available. ``bounded`` says that nothing
        in this process writes what it reads, so that it can tell the end at once.
        """

    def step(self) -> Step:
        """Do a bounded piece of work. Raises RetriableError to be called again later."""

    def cancel(self) -> None:
        """Make a running ``step`` end soon. Any thread may call it."""

    def stop(self) -> None:
        """Let go of everything. Called once after ``start``, also when that failed."""


class Assembled(Protocol):
    """A task's running parts, made under a lease."""

    loop: BatchLoop
    ends: bool
    """Whether its source has an end."""

    def close(self) -> None:
        """Stop the plugins."""


class Jobs(Protocol):
    """The task's Spark jobs."""

    def run(self, task: TaskId, work: Callable[[], Batch | None]) -> Batch | None:
        """Run ``work`` with its jobs tagged and pooled for the task."""

    def cancel(self, task: TaskId) -> None:
        """Cancel the task's jobs."""


class BatchTask:
    """A task that is a loop of batches."""

    def __init__(
        self,
        task: TaskId,
        assemble: Callable[[Lease], Assembled],
        jobs: Jobs,
        *,
        reads: str | None = None,
        writes: str | None = None,
        routes: bool = False,
        poll_interval: timedelta = timedelta(seconds=1),
        backoff: Backoff | None = None,
    ) -> None:
        """Describe the task; ``assemble`` makes its parts once it has its lease."""
        self.id = task
        self.reads = reads
        self.writes = writes
        self.routes = routes
        self.poll_interval = poll_interval
        self.backoff = backoff or Backoff()
        self._assemble = assemble
        self._jobs = jobs
        self._parts: Assembled | None = None
        self._once = False

    @property
    def lag(self) -> Lag | None:
        """Return how far the task was behind when its batch began, where that is known."""
        parts = self._parts
        return parts.loop.lag if parts is not None else None

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        """See Task."""
        self._parts = self._assemble(lease)
        self._once = once
        if once and bounded:
            loop = self._parts.loop
            end = loop.reader.latest(loop.position(), ReadLimit())
            loop.limit = replace(loop.limit, until=end)

    def step(self) -> Step:
        """See Task."""
        assert self._parts is not None
        batch = self._jobs.run(self.id, self._parts.loop.step)
        return Step(batch, ended=batch is None and (self._parts.ends or self._once))

    def cancel(self) -> None:
        """See Task."""
        self._jobs.cancel(self.id)

    def stop(self) -> None:
        """See Task."""
        if self._parts is not None:
            self._parts.close()
            self._parts = None
