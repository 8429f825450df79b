"""What the worker runs: a task that is asked for one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Protocol

import structlog

from headrace.model import (
    Backoff,
    Batch,
    Counts,
    Lease,
    SparkMemoryError,
    SparkUnavailableError,
    TaskId,
)
from headrace.sdk import Lag, ReadLimit
from headrace.worker.batch_loop import AdaptiveBatchSize, BatchLoop, BatchRunner

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did.

    Args:
        batch: The batch it finished; None when nothing new was there.
        ended: Whether the task's source has an end and the task has reached it.
        took: How long the batch took, where the step only tells of it.
        commit: How long its position and counts took to store, where that is known.
    """

    batch: Batch | None = None
    ended: bool = False
    took: timedelta | None = None
    commit: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running task is doing."""

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

    @property
    def lag(self) -> Lag | None:
        """How far it was behind when its newest batch began; None when nothing was new."""

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        """Get ready to run under ``lease``. Raises RetriableError to be called again later.

        With ``once`` the task stops at what is available. ``bounded`` says that nothing
        in this process writes what it reads, so that it can tell the end at once.
        """

    def step(self) -> Step:
        """Do a bounded piece of work. Raises RetriableError to be called again later."""

    def cancel(self) -> None:
        """Make a running ``step`` end soon. Any thread may call it."""

    def activity(self) -> object | None:
        """Return something that differs when its Spark jobs have got on; None without one.

        Any thread may call it; it may hang where Spark does.
        """

    def columns(self) -> int | None:
        """Return how many columns the batch that it moves has; None while it moves none.

        0 is what is not known yet. Any thread may call it.
        """

    def stop(self) -> None:
        """Let go of everything. Called once after ``start``, also when that failed."""


def feeds(writer: Task, reader: Task) -> bool:
    """Return whether one task may write what the other reads."""
    if reader.reads is None or writer is reader:
        return False
    # Two tasks that route and read topics would wait for each other's end for ever.
    return writer.writes == reader.reads or (writer.routes and not reader.routes)


class Assembled(Protocol):
    """A task's running parts, made under a lease."""

    loop: BatchLoop

    def close(self) -> None:
        """Stop the plugins."""


class Jobs(Protocol):
    """The task's Spark jobs."""

    def run(self, task: TaskId, work: Callable[[], Counts]) -> Counts:
        """Run ``work`` with its jobs tagged and pooled for the task."""

    def cancel(self, task: TaskId) -> None:
        """Cancel the task's jobs."""

    def activity(self, task: TaskId) -> object | None:
        """Return something that differs when the task's jobs have got on; None without any."""

    def lost(self, error: BaseException | None = None) -> bool:
        """Return whether what runs them has ended, perhaps as an error tells."""


@dataclass
class _TaggedFlow:
    """A flow whose jobs are the task's.

    Only what moves a batch is passed to Spark: that takes ten calls to the JVM, which a look
    for new data can do without.
    """

    flow: BatchRunner
    jobs: Jobs
    runs: bool = False

    @property
    def untouched(self) -> bool:
        return self.flow.untouched

    @property
    def routing(self) -> str:
        return self.flow.routing

    @property
    def columns(self) -> int | None:
        # What commits is planned no more.
        return (self.flow.columns or 0) if self.runs and self.flow.untouched else None

    def run(self, batch: Batch) -> Counts:
        self.runs = True
        try:
            return self.jobs.run(batch.task, lambda: self.flow.run(batch))
        finally:
            self.runs = False


@contextmanager
def _on(jobs: Jobs) -> Iterator[None]:
    """Raise SparkUnavailableError for whatever the end of the session has caused."""
    if jobs.lost():
        raise SparkUnavailableError
    try:
        yield
    except Exception as error:
        if jobs.lost(error):
            raise SparkUnavailableError from error
        raise


@dataclass(eq=False)
class BatchTask:
    """A task that is a loop of batches.

    Args:
        assemble: Makes its parts once it has its lease.
        open_jobs: Gives its jobs on the session that lives then.
        routes: Whether it may write any other topic as well.
    """

    id: TaskId
    assemble: Callable[[Lease], Assembled]
    open_jobs: Callable[[], Jobs]
    _: KW_ONLY
    reads: str | None = None
    writes: str | None = None
    routes: bool = False
    poll_interval: timedelta = timedelta(seconds=1)
    backoff: Backoff = field(default_factory=Backoff)
    _jobs: Jobs | None = field(default=None, init=False)
    _parts: Assembled | None = field(default=None, init=False)
    _once: bool = field(default=False, init=False)
    _pieces: AdaptiveBatchSize = field(default_factory=AdaptiveBatchSize, init=False)

    @property
    def lag(self) -> Lag | None:
        """Return how far the task is behind, or was when its batch began."""
        parts = self._parts
        return None if parts is None else parts.loop.measured_lag() or parts.loop.lag

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        self.stop()  # parts of a start that failed, or of a session that has ended
        jobs = self._jobs = self.open_jobs()
        self._once = once
        with _on(jobs):
            self._parts = self.assemble(lease)
            loop = self._parts.loop
            loop.flow = _TaggedFlow(loop.flow, jobs)
            self._pieces.begin(loop)
            if once and bounded:
                end = loop.reader.latest(loop.position(), ReadLimit())
                loop.limit = replace(loop.limit, until=end)

    def step(self) -> Step:
        assert self._parts is not None
        assert self._jobs is not None
        loop = self._parts.loop
        try:
            with _on(self._jobs):
                batch = loop.step()
                ended = batch is None and (self._once or loop.ended())
                if ended:
                    loop.at_end()
        except (SparkMemoryError, SparkUnavailableError) as error:
            self._pieces.failed(loop, error)
            raise
        if batch is not None:
            self._pieces.finished(loop)
        return Step(batch, ended=ended, commit=loop.commit)

    def cancel(self) -> None:
        if self._jobs is not None and not self._jobs.lost():
            self._jobs.cancel(self.id)

    def activity(self) -> object | None:
        jobs = self._jobs
        return None if jobs is None or jobs.lost() else jobs.activity(self.id)

    def columns(self) -> int | None:
        parts = self._parts
        return None if parts is None else parts.loop.flow.columns

    def stop(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        try:
            parts.close()
        except Exception:
            if self._jobs is None or not self._jobs.lost():
                raise
            log.debug("parts of a session that has ended were released", exc_info=True)
