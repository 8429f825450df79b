"""The batch loop: moves a task from one position to the next, and recovers after a crash."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from headrace.model import (
    Batch,
    Counts,
    Lease,
    SparkMemoryError,
    TaskId,
    ToleranceExceededError,
    ToleranceLimits,
    TooManyRejectedError,
)
from headrace.sdk import (
    DataLostError,
    Lag,
    Position,
    ReadLimit,
    RetriableError,
    SinkError,
    SourceError,
    StateError,
)
from headrace.sdk.errors import RangeChangedError, StaleEpochError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.store import Store

log = structlog.get_logger(__name__)


_PART = 4
"""A batch that was too large is planned again with its rows divided by this."""
_GOOD = 10
"""After this many consecutive batches, the row count that was too large is tried again."""
_TRIES = 5
"""Consecutive attempts for a batch that cannot get smaller."""


@dataclass
class AdaptiveBatchSize:
    """An additional row limit for the batches of one task, reduced after failures.

    It outlives the loop, which is recreated when Spark restarts.
    """

    _configured: int | None = None
    _rows: int | None = None
    _too_many: int = 0
    _good: int = 0
    _failures: int = 0

    def begin(self, loop: BatchLoop) -> None:
        """Apply the limit to a new loop."""
        self._configured = loop.limit.rows
        self._bound(loop)

    def failed(self, loop: BatchLoop, error: RetriableError) -> None:
        """Reduce the limit below the failed batch, if no sink can have written any of it.

        Raises SinkError when a batch that cannot get smaller has failed too often.
        """
        had = loop.withdraw()
        if had is not None:
            self._rows, self._too_many = max(1, had // _PART), had
            self._good = self._failures = 0
            # The failure itself is logged by the task, unless everything is stopping.
            log.info("batch is planned again with fewer rows", rows=self._rows)
            self._bound(loop)
            return
        self._failures += 1
        if isinstance(error, SparkMemoryError) and self._failures >= _TRIES:
            self._failures = 0
            raise SinkError(error.problem, fix=error.fix) from error

    def finished(self, loop: BatchLoop) -> None:
        """Raise the limit after a success: double it, and finally remove it."""
        self._failures = 0
        if self._rows is None:
            return
        self._good += 1
        if self._rows >= self._too_many:
            # This row count was not too large: the JVM died for another reason. Remove the
            # limit, so the backlog can be read in one batch.
            self._rows = None
        elif 2 * self._rows < self._too_many or self._good >= _GOOD:
            self._rows = min(2 * self._rows, self._too_many)
        self._bound(loop)

    def _bound(self, loop: BatchLoop) -> None:
        rows = self._configured if self._rows is None else self._rows
        loop.limit = replace(loop.limit, rows=rows)


_PLANS = 5
"""How often a batch is planned again at once, when its range changes before it is read."""
LAG_INTERVAL = timedelta(seconds=1)
_LOOKS = 10
"""How often a batch is retried when an earlier attempt commits parts of it: each target can be
committed only once."""


class Reader(Protocol):
    """The part of a replayable source that the loop needs."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Return the end of the next batch, or ``start`` if there is no new data."""

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """Return the lag from ``start`` to the newest data, or to ``until``."""

    def ended(self, position: Position) -> bool:
        """Return whether no more data can follow ``position``."""

    def acknowledge(self, position: Position) -> None:
        """Accept that everything up to ``position`` is durable in the target."""


class BatchRunner(Protocol):
    """Moves the records of one batch from the source to every sink."""

    @property
    def untouched(self) -> bool:
        """Whether the newest run ended before any sink could have written part of it."""

    @property
    def routing(self) -> str:
        """A digest of the routing configuration; empty if all records go to one topic."""

    @property
    def columns(self) -> int | None:
        """The number of columns of the newest batch, once known. Any thread may read it."""

    def run(self, batch: Batch) -> Counts:
        """Move the batch and return when it is durable. Idempotent.

        Raises RangeChangedError only while no sink has committed any of it.
        """


@dataclass(kw_only=True)
class BatchLoop:
    """The batch loop of one task. Used by one thread at a time.

    Args:
        limit: The maximum size of a batch; the admission control.
        keep_since: Takes the current time and returns since when finished batches must be kept.
        at_end: Called when the task has reached the end of its input; possibly repeatedly.
    """

    store: Store
    lease: Lease
    reader: Reader
    flow: BatchRunner
    limit: ReadLimit
    clock: Callable[[], datetime]
    keep_since: Callable[[datetime], datetime | None] = lambda _: None
    at_end: Callable[[], None] = lambda: None
    measured_lag: Callable[[], Lag | None] = lambda: None
    """Returns the lag that the source measures itself, see ``ReplayableSource``."""
    lag: Lag | None = None
    """The lag from the start of the running batch; measured at most once per
    ``LAG_INTERVAL``, and read by other threads."""
    commit: timedelta | None = None
    """How long storing the newest batch's position and counts took."""
    _measured: datetime | None = None
    _running: Batch | None = None
    """The batch that is running, or whose run has failed."""
    _resumed: bool = True
    """Whether no batch has run since the task read its position from the store."""
    _known: Position | None = None
    """The task's position if certainly no batch is unfinished, else None. Only the holder of
    the lease moves it, so an idle poll need not read the store."""
    _finished: int | None = None
    """The id of the newest finished batch; None if not read from the store yet."""

    def step(self) -> Batch | None:
        """Move one batch and return it finished, or None if there is no new data.

        After a crash the first step retries the unfinished batch with the same id and bounds.
        """
        changed: RangeChangedError | None = None
        for _ in range(_PLANS):
            batch = self._unfinished() or self._next_batch()
            if batch is None:
                return None
            done = self._run(replace(batch, after=self._newest_finished()))
            if not isinstance(done, RangeChangedError):
                return self._finish(batch, done)
            changed = done
        assert changed is not None
        raise RetriableError(
            problem=f"The input changed during each attempt to read it: {changed.problem}",
            fix=changed.fix,
        ) from changed

    def withdraw(self) -> int | None:
        """Drop the failed batch, so that a smaller batch can be planned instead.

        Returns the approximate number of rows of the batch. Returns None if the batch must be
        retried unchanged, because a sink may have written it or its size is not known.
        """
        batch = self._running
        if batch is None or not self._wrote_nothing(batch):
            return None
        rows = [self.limit.rows, None if self.lag is None else self.lag.rows]
        most = min((each for each in rows if each), default=1)
        if most > 1:
            self._drop(batch)
            self._running = None
        return most if most > 1 else None

    def _run(self, batch: Batch) -> Counts | RangeChangedError:
        """Run a batch; return why it was dropped if its range must be replanned."""
        self._running = batch
        try:
            return self._moved(batch)
        except RangeChangedError as error:
            if batch.again:
                error.fix = f"{error.fix} {batch.way_out}"
                raise
            # Guarantee 2: this is the first attempt and it has read nothing, so no sink holds
            # any of it. The id is not reused.
            log.info("batch is planned again", batch=batch.id, why=error.problem)
            self._drop(batch)
            return error
        except Exception as error:
            corrected = bool(batch.routing) or isinstance(
                error, SourceError | ToleranceExceededError
            )
            if corrected and self._wrote_nothing(batch):
                # A retry would need the same chain and the same input, but one of these may be
                # what the user has to correct.
                self._drop(batch)
            elif isinstance(error, DataLostError | SourceError | StateError):
                error.fix = f"{error.fix} {batch.way_out}".lstrip()
            raise

    def _wrote_nothing(self, batch: Batch) -> bool:
        # Guarantee 2: this can only be known for the first attempt.
        return not batch.again and self.flow.untouched

    def _drop(self, batch: Batch) -> None:
        if self._known is None:  # withdraw may drop a batch that is already dropped
            self.store.abandon_batch(batch.task, self.lease.epoch, batch.id)
            self._known = batch.start

    def _finish(self, batch: Batch, counts: Counts) -> Batch:
        # Guarantee 1: flow.run has returned, so the data is durable; only now advance the
        # position.
        now, began = self.clock(), time.monotonic()
        done = self.store.finish_batch(
            batch.task,
            self.lease.epoch,
            batch.id,
            counts,
            now,
            keep_since=self.keep_since(now),
        )
        self.commit = timedelta(seconds=time.monotonic() - began)
        self.reader.acknowledge(done.end)
        self._known, self._resumed, self._running = done.end, False, None
        self._finished = done.id
        return done

    def _newest_finished(self) -> int:
        if self._finished is None:
            newest = self.store.batches(self.lease.task, 2)  # the first may be unfinished
            self._finished = next((each.id for each in newest if each.finished), 0)
        return self._finished

    def _moved(self, batch: Batch) -> Counts:
        for _ in range(_LOOKS):
            try:
                return self.flow.run(batch)
            except StaleEpochError:
                if not batch.again:
                    raise
                # A slow attempt of an earlier owner has committed between our check and our
                # commit: on the next check the target holds the batch. If this owner is stale
                # instead, the store refuses to finish the batch.
                log.info("an earlier attempt has committed", batch=batch.id)
        return self.flow.run(batch)

    def ended(self) -> bool:
        """Return whether the newest step found nothing and no more data can come."""
        return self._known is not None and self.reader.ended(self._known)

    def position(self) -> Position:
        """Return the task's position, after its unfinished batch if there is one."""
        batch = self.store.unfinished_batch(self.lease.task)
        return batch.end if batch else self.store.position(self.lease.task)

    def _unfinished(self) -> Batch | None:
        if self._known is not None:
            return None
        self._finished = None  # if the store's answer was lost, the batch may be finished
        # Guarantee 3: a worker that has lost the task must not run its new owner's batch.
        batch = self.store.unfinished_batch(self.lease.task, self.lease.epoch)
        return batch and replace(batch, epoch=self.lease.epoch, again=True)

    def _next_batch(self) -> Batch | None:
        task, epoch = self.lease.task, self.lease.epoch
        if self._known is None:
            # A crash may have happened between the last finish and its acknowledgement.
            start = self.store.position(task)
            self.reader.acknowledge(start)
            self._known, self._resumed = start, True
        end = self.reader.latest(self._known, self.limit)
        if end == self._known:
            self.lag = None
            return None
        # Read this before begin_batch: if the store failed after it, the first attempt would
        # count as a retry.
        self._newest_finished()
        start, self._known = self._known, None  # if begin_batch fails, check what was stored
        self._measure_lag(start)
        # Guarantee 2: store the intent, with its id and bounds, before data moves.
        batch = self.store.begin_batch(
            task, epoch, start, end, self.clock(), routing=self.flow.routing
        )
        return replace(batch, resumed=self._resumed)

    def _measure_lag(self, start: Position) -> None:
        now = self.clock()
        since = None if self._measured is None else now - self._measured
        # Negative if the clock was set back.
        if since is None or not timedelta() <= since < LAG_INTERVAL:
            self.lag, self._measured = self.reader.lag(start, self.limit.until), now


@dataclass(frozen=True, slots=True)
class ToleranceGuard:
    """Checks each batch together with the earlier batches in the store.

    So the limits apply across batches and restarts. A retried batch gets the same result as
    before, because the window ends at the time of its intent.
    """

    limits: ToleranceLimits = field(default_factory=ToleranceLimits)

    def check(self, store: Store, task: TaskId, begun: datetime, counts: Counts) -> None:
        """Raise TooManyRejectedError if a batch would exceed a limit.

        Called when the batch's counts are known and none of its data is visible yet.
        """
        if not self.limits.are_set or not counts.rejected:
            return
        window = self.limits.window
        before = store.counts_since(task, begun - window) if window else store.totals(task)
        problem = self.limits.exceeded(before.plus(counts))
        if problem is not None:
            fix = (
                "Fix the data or the definition, or raise the limit. No record of this batch "
                "was written or dead-lettered."
            )
            raise TooManyRejectedError(problem, fix=fix)

    def keep_since(self, now: datetime) -> datetime | None:
        """Return since when finished batches must be kept; None if none are needed."""
        window = self.limits.window
        return now - window if window and self.limits.are_set else None
