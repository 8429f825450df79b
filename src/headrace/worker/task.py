"""The task interface of the worker, and tasks that run a batch loop, isolated if they crash."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
    SparkCrashedError,
    SparkMemoryError,
    SparkUnavailableError,
    TaskId,
)
from headrace.sdk import Lag, ReadLimit
from headrace.worker.batch_loop import AdaptiveBatchSize, BatchLoop, BatchRunner


@dataclass
class CrashIsolation:
    """Lets a suspect, a task that ran when Spark's JVM crashed, run without others beside it.

    A crash counts against a task only if no other ran at any time meanwhile, so no task fails
    because of another one's batch, and not if it follows one of another task without a batch
    between them that succeeded: then the machine may be the cause. The tasks of one process
    share this object. Thread-safe.

    Args:
        patience: How long a suspect waits for tasks that run, and how long others wait for it,
            each time. So a task that hangs delays others, and does not stop them.
        attributed: Called for each crash that counts against a task, without a lock.
        clock: A monotonic clock in seconds.
    """

    patience: timedelta = timedelta(minutes=1)
    attributed: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: set[object] = field(default_factory=set)
    _alone: object | None = None
    _suspect: object | None = None
    _until: float = 0.0
    _blamed: object | None = None
    _works: bool = False
    """Whether another task has moved a batch since a crash counted against ``_blamed``."""

    def enter(self, task: object, *, is_suspect: bool) -> bool:
        """Return whether a task may run now; if so it has to ``leave``."""
        with self._lock:
            now = self.clock()
            if self._suspect not in {None, task} and now < self._until:
                return False
            if is_suspect:
                if self._suspect is None:
                    self._suspect, self._until = task, self._later(now)
                if self._running and now < self._until:
                    return False
                self._suspect, self._until = task, self._later(now)
            self._alone = None if self._running else task
            self._running.add(task)
            return True

    def blame(self, task: object) -> bool:
        """Return whether a crash while a task was running counts against it."""
        with self._lock:
            if self._alone is not task:
                return False
            if self._blamed not in {None, task} and not self._works:
                return False
            self._blamed, self._works = task, False
        self.attributed()
        return True

    def succeeded(self, task: object) -> None:
        """Record that a task has moved a batch."""
        with self._lock:
            self._works = self._works or task is not self._blamed

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Run work that never waits, such as a preview; no crash meanwhile counts."""
        work = object()
        with self._lock:
            self._alone = None
            self._running.add(work)
        try:
            yield
        finally:
            self.leave(work)

    def leave(self, task: object) -> None:
        """End the turn of a task, or its waiting for one."""
        with self._lock:
            self._running.discard(task)
            if self._suspect is task:
                self._suspect = None

    def _later(self, now: float) -> float:
        return now + self.patience.total_seconds()


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step.

    Args:
        batch: The finished batch; None if there was no new data.
        ended: Whether the task's source has an end and the task has reached it.
        took: How long the batch took, if it ran outside of the step.
        commit: How long storing the position and counts took, if known.
        waits: Whether the task did nothing, as it may not run beside other tasks now.
    """

    batch: Batch | None = None
    ended: bool = False
    took: timedelta | None = None
    commit: timedelta | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running task."""

    batch: int
    spark_done: int = 0
    spark_total: int = 0
    lag: Lag | None = None


class Task(Protocol):
    """A task as the worker sees it. One thread at a time calls its methods."""

    id: TaskId
    reads: str | None
    """The topic that the task reads; the worker wakes the task after each append."""
    writes: str | None
    """The topic that the task writes."""
    routes: bool
    """Whether the task may route records to any other topic as well."""
    poll_interval: timedelta
    backoff: Backoff

    @property
    def lag(self) -> Lag | None:
        """The lag when the newest batch began; None if there was no new data."""

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        """Prepare to run under ``lease``. Raises RetriableError to be called again later.

        With ``once`` the task ends when it has processed the available data. ``bounded`` means
        that nothing in this process writes the task's input, so its end is known at the start.
        """

    def step(self) -> Step:
        """Do a bounded amount of work. Raises RetriableError to be called again later."""

    def cancel(self) -> None:
        """Make a running ``step`` end soon. Any thread may call it."""

    def activity(self) -> object | None:
        """Return a value that changes when the task's Spark jobs progress; None without jobs.

        Any thread may call it. It may hang if Spark hangs.
        """

    def columns(self) -> int | None:
        """Return the number of columns of the running batch; None while no batch runs.

        0 means not known yet. Any thread may call it.
        """

    def stop(self) -> None:
        """Release all resources. Called once after ``start``, even if ``start`` failed."""

    def unreported(self) -> Sequence[Batch]:
        """Return the finished batches that no step has returned. Called after ``stop``."""


def feeds(writer: Task, reader: Task) -> bool:
    """Return whether one task may write what the other reads."""
    if reader.reads is None or writer is reader:
        return False
    # Otherwise two tasks that both route and read topics would wait for each other forever.
    return writer.writes == reader.reads or (writer.routes and not reader.routes)


class Assembled(Protocol):
    """The running parts of a task, created under a lease."""

    loop: BatchLoop

    def close(self) -> None:
        """Stop the plugins."""


class Jobs(Protocol):
    """The task's Spark jobs."""

    def run(self, task: TaskId, work: Callable[[], Counts]) -> Counts:
        """Run ``work`` with its jobs tagged for the task and in the task's scheduler pool."""

    def cancel(self, task: TaskId) -> None:
        """Cancel the task's jobs."""

    def activity(self, task: TaskId) -> object | None:
        """Return a value that changes when the task's jobs progress; None without jobs."""

    def lost(self, error: BaseException | None = None) -> bool:
        """Return whether the Spark session has ended, as ``error`` may indicate."""

    def crashed(self) -> bool:
        """Return whether the session's JVM ended by itself, and was not killed."""


@dataclass
class _TaggedFlow:
    """A flow whose Spark jobs are tagged for the task.

    Only moving a batch tags the jobs, which takes ten calls to the JVM; polling for new data
    does not need them.
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
        # A batch that is already committing is no longer being planned.
        return (self.flow.columns or 0) if self.runs and self.flow.untouched else None

    def run(self, batch: Batch) -> Counts:
        self.runs = True
        try:
            return self.jobs.run(batch.task, lambda: self.flow.run(batch))
        finally:
            self.runs = False


_CRASHES = 5
"""How often a batch may crash Spark's JVM without others beside it; it shrinks if it can."""


@contextmanager
def _on(jobs: Jobs) -> Iterator[None]:
    """Raise SparkUnavailableError in place of any error that the end of the session caused."""
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
    """A task that runs a batch loop.

    Args:
        assemble: Creates the task's parts under its lease.
        open_jobs: Returns the task's jobs on the current Spark session.
        routes: Whether the task may write any other topic as well.
        isolation: Shared by the tasks of a process.
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
    isolation: CrashIsolation = field(default_factory=CrashIsolation)
    _jobs: Jobs | None = field(default=None, init=False)
    _parts: Assembled | None = field(default=None, init=False)
    _once: bool = field(default=False, init=False)
    _pieces: AdaptiveBatchSize = field(default_factory=AdaptiveBatchSize, init=False)
    _suspect: bool = field(default=False, init=False)
    """Whether Spark's JVM crashed during the last step."""
    _crashes: int = field(default=0, init=False)
    """How often it crashed since this task last moved a batch, while no other ran."""

    @property
    def lag(self) -> Lag | None:
        """Return the current lag, or the lag when the newest batch began."""
        parts = self._parts
        return None if parts is None else parts.loop.measured_lag() or parts.loop.lag

    def start(self, lease: Lease, *, once: bool, bounded: bool) -> None:
        self.stop()  # release the parts of a failed start or an ended session
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
        assert self._jobs is not None
        if self._jobs.lost():
            raise SparkUnavailableError
        if not self.isolation.enter(self, is_suspect=self._suspect):
            return Step(waits=True)
        try:
            step = self._step()
        except SparkUnavailableError as error:
            self._count_crash(error)
            raise
        except Exception:
            self._suspect = False
            raise
        finally:
            self.isolation.leave(self)
        self._suspect = False
        if step.batch is not None:
            self._crashes = 0
            self.isolation.succeeded(self)
        return step

    def _count_crash(self, error: SparkUnavailableError) -> None:
        assert self._jobs is not None
        self._suspect = self._jobs.crashed()
        if self._suspect and self.isolation.blame(self):
            self._crashes += 1
            if self._crashes >= _CRASHES:
                raise SparkCrashedError(self._crashes) from error

    def _step(self) -> Step:
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
        self.isolation.leave(self)
        parts, self._parts = self._parts, None
        if parts is None:
            return
        try:
            parts.close()
        except Exception:
            if self._jobs is None or not self._jobs.lost():
                raise
            log.debug("task parts not closed cleanly: the session has ended", exc_info=True)

    def unreported(self) -> Sequence[Batch]:
        return ()
