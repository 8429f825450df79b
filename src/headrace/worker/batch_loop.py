"""The batch loop: how a task moves from one position to the next, and survives a crash."""

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
"""A batch that was too large is planned again with this part of its rows."""
_GOOD = 10
"""After so many batches in a row as many rows as those that were too many are tried."""
_TRIES = 5
"""How often in a row a batch is tried that can get no smaller."""


@dataclass
class AdaptiveBatchSize:
    """How many rows the batches of one task may have, beside what its configuration says.

    It outlives the loop, which is made again when Spark is.
    """

    _configured: int | None = None
    _rows: int | None = None
    _too_many: int = 0
    _good: int = 0
    _failures: int = 0

    def begin(self, loop: BatchLoop) -> None:
        """Bound the batches of a loop that begins."""
        self._configured = loop.limit.rows
        self._bound(loop)

    def failed(self, loop: BatchLoop, error: RetriableError) -> None:
        """Let less be planned than the batch that has failed, if none of it can be written.

        Raises SinkError when a batch that cannot get smaller has failed too often.
        """
        had = loop.withdraw()
        if had is not None:
            self._rows, self._too_many = max(1, had // _PART), had
            self._good = self._failures = 0
            log.warning("batch is planned again with fewer rows", rows=self._rows)
            self._bound(loop)
            return
        self._failures += 1
        if isinstance(error, SparkMemoryError) and self._failures >= _TRIES:
            self._failures = 0
            raise SinkError(error.problem, fix=error.fix) from error

    def finished(self, loop: BatchLoop) -> None:
        """Let more rows through again: twice as many, and in the end as many as before."""
        self._failures = 0
        if self._rows is None:
            return
        self._good += 1
        if self._rows >= self._too_many:
            # They were not too many: Java has died of something else. What has gathered
            # meanwhile may come at once.
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
"""How often a batch is tried again when others commit parts of it: each of its targets can be
committed to but once."""


class Reader(Protocol):
    """The part of a replayable source that the loop needs."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """Return the end of the next batch; ``start`` when nothing new is there."""

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """Return how much lies between ``start`` and all that is there, or ``until``."""

    def ended(self, position: Position) -> bool:
        """Return whether nothing can come after ``position`` any more."""

    def acknowledge(self, position: Position) -> None:
        """Learn that everything up to ``position`` is durable in the target."""


class BatchRunner(Protocol):
    """Carries the records of one batch from the source into every sink."""

    @property
    def untouched(self) -> bool:
        """Whether the newest run came to its end before any sink could hold some of it."""

    @property
    def routing(self) -> str:
        """What decides which topic each record goes to, as a digest; nothing for one topic."""

    @property
    def columns(self) -> int | None:
        """How many columns the newest batch has, once that is known. Any thread may ask."""

    def run(self, batch: Batch) -> Counts:
        """Move the batch; return only when it is durable. Running it again adds nothing.

        Raises RangeChangedError only while no sink has committed any of it.
        """


@dataclass(kw_only=True)
class BatchLoop:
    """One task's loop. Used by one thread at a time.

    Args:
        limit: The most a batch may hold; the admission control.
        keep_since: Gives, for the present, since when finished batches must be kept.
        at_end: Called when the task has come to the end of what it reads, and perhaps again.
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
    """What the source measures by itself, see ``ReplayableSource``."""
    lag: Lag | None = None
    """How much was there from the start of the running batch on; measured at most once in
    ``LAG_INTERVAL``, and read by other threads."""
    commit: timedelta | None = None
    """How long the newest batch's position and counts took to store."""
    _measured: datetime | None = None
    _running: Batch | None = None
    """The batch that runs, or whose run has failed."""
    _resumed: bool = True
    """Whether no batch has run since the task has looked where its store says it stands."""
    _known: Position | None = None
    """Where the task stands, when it is certain that no batch is unfinished. Only the
    holder of the lease moves it, so that an idle poll needs no look into the store."""
    _finished: int | None = None
    """The id of the newest finished batch; None until the store was asked."""

    def step(self) -> Batch | None:
        """Move one batch and return it finished, or None when nothing new is there.

        After a crash the first step runs the unfinished batch again, with the same id
        and the same bounds.
        """
        for _ in range(_PLANS):
            batch = self._unfinished() or self._next_batch()
            if batch is None:
                return None
            counts = self._run(replace(batch, after=self._newest_finished()))
            if counts is not None:
                return self._finish(batch, counts)
        problem = "The input changed during each attempt to read it."
        raise RetriableError(problem)

    def withdraw(self) -> int | None:
        """Drop the batch whose run has failed, so that less may be planned in its place.

        Returns about how many rows it had; None where it has to run again as it is, since
        some sink may hold it, or where that number is not known.
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

    def _run(self, batch: Batch) -> Counts | None:
        """Run a batch; None when it was dropped, as its range is to be planned again."""
        self._running = batch
        try:
            return self._moved(batch)
        except RangeChangedError as error:
            if batch.again:
                error.fix = f"{error.fix} {batch.way_out}"
                raise
            # Guarantee 2: this is the first attempt and it has read nothing, so that no sink
            # holds any of it. The id stays used.
            log.info("batch is planned again", batch=batch.id, why=error.problem)
            self._drop(batch)
            return None
        except Exception as error:
            corrected = bool(batch.routing) or isinstance(error, SourceError)
            if corrected and self._wrote_nothing(batch):
                # It could be run by its own chain and of the same input only, which may be
                # what is to be corrected.
                self._drop(batch)
            elif isinstance(error, DataLostError | SourceError | StateError):
                error.fix = f"{error.fix} {batch.way_out}".lstrip()
            raise

    def _wrote_nothing(self, batch: Batch) -> bool:
        # Guarantee 2: only of the first attempt can that be known.
        return not batch.again and self.flow.untouched

    def _drop(self, batch: Batch) -> None:
        if self._known is None:  # one that has failed may be withdrawn, too
            self.store.abandon_batch(batch.task, self.lease.epoch, batch.id)
            self._known = batch.start

    def _finish(self, batch: Batch, counts: Counts) -> Batch:
        # Guarantee 1: flow.run has returned, so the data is durable; only now the
        # position moves.
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
                # The attempt of an owner before this one was slow, and has committed between
                # our look and our commit: looked at again, the target holds the batch. If it
                # is this owner that is stale, the store refuses to finish the batch.
                log.info("an earlier attempt has committed", batch=batch.id)
        return self.flow.run(batch)

    def ended(self) -> bool:
        """Return whether nothing can come any more, where the newest step found nothing."""
        return self._known is not None and self.reader.ended(self._known)

    def position(self) -> Position:
        """Return where the task stands, or will after its unfinished batch."""
        batch = self.store.unfinished_batch(self.lease.task)
        return batch.end if batch else self.store.position(self.lease.task)

    def _unfinished(self) -> Batch | None:
        if self._known is not None:
            return None
        self._finished = None  # whoever got no answer does not know whether it was finished
        # Guarantee 3: who has lost the task must not run what its new owner has just begun.
        batch = self.store.unfinished_batch(self.lease.task, self.lease.epoch)
        return batch and replace(batch, epoch=self.lease.epoch, again=True)

    def _next_batch(self) -> Batch | None:
        task, epoch = self.lease.task, self.lease.epoch
        if self._known is None:
            # A crash may have come between the last finish and its acknowledgement.
            start = self.store.position(task)
            self.reader.acknowledge(start)
            self._known, self._resumed = start, True
        end = self.reader.latest(self._known, self.limit)
        if end == self._known:
            self.lag = None
            return None
        # A store that is away only here would make the first attempt one that ran before.
        self._newest_finished()
        start, self._known = self._known, None  # who gets no answer must look what was stored
        self._measure_lag(start)
        # Guarantee 2: the intent, with its id and bounds, is stored before data moves.
        batch = self.store.begin_batch(
            task, epoch, start, end, self.clock(), routing=self.flow.routing
        )
        return replace(batch, resumed=self._resumed)

    def _measure_lag(self, start: Position) -> None:
        now = self.clock()
        since = None if self._measured is None else now - self._measured
        # It is negative when the clock was put back.
        if since is None or not timedelta() <= since < LAG_INTERVAL:
            self.lag, self._measured = self.reader.lag(start, self.limit.until), now


@dataclass(frozen=True, slots=True)
class ToleranceGuard:
    """Judges each batch with those before it, as the store keeps them.

    So the limits hold over batches and restarts, and a batch that runs again is judged
    as it was before: by the time of its intent.
    """

    limits: ToleranceLimits = field(default_factory=ToleranceLimits)

    def check(self, store: Store, task: TaskId, begun: datetime, counts: Counts) -> None:
        """Raise TooManyRejectedError when a batch would exceed a limit.

        Called when the batch's counts are known and nothing of it is visible yet.
        """
        if not self.limits.are_set or not counts.rejected:
            return
        window = self.limits.window
        before = store.counts_since(task, begun - window) if window else store.totals(task)
        problem = self.limits.exceeded(before.plus(counts))
        if problem is not None:
            fix = (
                "Fix the data or the definition, or raise the limit. Nothing of this batch "
                "was written, and none of its records dead-lettered."
            )
            raise TooManyRejectedError(problem, fix=fix)

    def keep_since(self, now: datetime) -> datetime | None:
        """Return since when finished batches must be kept; None for as few as you like."""
        window = self.limits.window
        return now - window if window and self.limits.are_set else None
