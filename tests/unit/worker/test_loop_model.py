"""The batch loop under crashes at any point, stale owners, and failing systems.

A machine of hypothesis drives real loops over a real store; the source and the sink are
small models of outside systems that remember everything that was done to them.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.model import Batch, Counts, Lease, TaskId
from headrace.sdk import DataLostError, Lag, Position, ReadLimit, RetriableError
from headrace.sdk.errors import StaleEpochError
from headrace.store import Store, StoreUnavailableError
from headrace.worker import BatchLoop

TASK = TaskId("copy", 0)
PARTITION = {"log": "a"}
LEASE = timedelta(seconds=30)


def at(position: Position) -> int:
    offset = position.offset(PARTITION)
    return int(offset["row"]) if offset else 0


class CrashError(BaseException):
    """The process dies here."""


@dataclass
class Log:
    """A source that can be read again until it is trimmed."""

    rows: list[int] = field(default_factory=list)
    trimmed: int = 0
    acknowledged: int = 0

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = len(self.rows)
        if limit.rows is not None:
            end = min(end, at(start) + limit.rows)
        return start if end == at(start) else Position.of(PARTITION, {"row": end})

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        end = self.latest(start, ReadLimit(until=until))
        return Lag(rows=at(end) - at(start))

    def read(self, start: Position, end: Position) -> list[int]:
        if at(start) < self.trimmed:
            raise DataLostError
        return self.rows[at(start) : at(end)]

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        self.acknowledged = at(position)


@dataclass
class Table:
    """A sink that keeps the newest mark in the transaction that holds the data."""

    rows: list[int] = field(default_factory=list)
    mark: int = 0
    receipt: str = ""

    def write(self, batch: Batch, rows: list[int]) -> Counts:
        if batch.id < self.mark:
            raise StaleEpochError
        if batch.id == self.mark:
            return Counts.from_json(self.receipt)
        counts = Counts(read=len(rows), written=len(rows))
        self.rows += rows
        self.mark, self.receipt = batch.id, counts.to_json()
        return counts


@dataclass
class Trap:
    """Where the next crash or failure happens; empty for nowhere."""

    point: str = ""

    def spring(self, point: str) -> None:
        if self.point == point:
            self.point = ""
            if point.startswith("fail"):
                raise RetriableError
            if point.startswith("no answer"):
                raise StoreUnavailableError
            raise CrashError


@dataclass
class Copy:
    """The flow from the log to the table."""

    log: Log
    table: Table
    trap: Trap

    untouched = True
    routing = ""
    columns = None

    def run(self, batch: Batch) -> Counts:
        self.trap.spring("crash before reading")
        rows = self.log.read(batch.start, batch.end)
        self.trap.spring("fail half-way")
        self.trap.spring("crash before the commit")
        counts = self.table.write(batch, rows)
        self.trap.spring("crash after the commit")
        return counts


class TrappedStore(Store):
    """A store right before or right after whose writes its process may die, or its line.

    Whoever gets no answer does not know whether the write was made.
    """

    trap: Trap

    def begin_batch(self, *args, **values) -> Batch:
        self.trap.spring("crash before the intent")
        self.trap.spring("no answer before the intent")
        batch = super().begin_batch(*args, **values)
        self.trap.spring("crash after the intent")
        self.trap.spring("no answer after the intent")
        return batch

    def finish_batch(self, *args, **values) -> Batch:
        self.trap.spring("crash before finishing")
        self.trap.spring("no answer before finishing")
        batch = super().finish_batch(*args, **values)
        self.trap.spring("crash after finishing")
        self.trap.spring("no answer after finishing")
        return batch


POINTS = st.sampled_from(
    [
        "crash before the intent",
        "crash after the intent",
        "crash before reading",
        "fail half-way",
        "crash before the commit",
        "crash after the commit",
        "crash before finishing",
        "crash after finishing",
        "no answer before the intent",
        "no answer after the intent",
        "no answer before finishing",
        "no answer after finishing",
    ]
)


class LoopMachine(RuleBasedStateMachine):
    """Appends, steps, crashes and takes the task over, in any order."""

    @initialize(limit=st.integers(1, 4))
    def begin(self, limit: int) -> None:
        self.trap = Trap()
        self.store = TrappedStore()
        self.store.trap = self.trap
        self.log, self.table = Log(), Table()
        self.limit = limit
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.stale: list[BatchLoop] = []
        self.loop = self.take("w0")

    def take(self, owner: str) -> BatchLoop:
        lease: Lease = self.store.lease(TASK, owner, self.now, LEASE)
        return BatchLoop(
            store=self.store,
            lease=lease,
            reader=self.log,
            flow=Copy(self.log, self.table, self.trap),
            limit=ReadLimit(rows=self.limit),
            clock=lambda: self.now,
        )

    @rule(count=st.integers(0, 5))
    def append(self, count: int) -> None:
        first = len(self.log.rows)
        self.log.rows += range(first, first + count)

    @rule()
    def step(self) -> None:
        self.run_once(self.loop)

    @rule(point=POINTS)
    def step_into_a_trap(self, point: str) -> None:
        self.trap.point = point
        self.run_once(self.loop)
        self.trap.point = ""

    @rule(limit=st.integers(1, 4))
    def restart(self, limit: int) -> None:
        self.limit = limit
        self.loop = self.take(self.loop.lease.owner)

    @rule()
    def take_over_from_an_owner_that_lives_on(self) -> None:
        self.stale.append(self.loop)
        [held] = self.store.leases()
        self.now = max(self.now, held.expires)
        self.loop = self.take(f"w{len(self.stale)}")

    @rule(seconds=st.integers(-7200, 7200))
    def put_the_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def stale_owners_go_on(self) -> None:
        for loop in self.stale:
            before = list(self.table.rows), self.store.position(TASK)
            try:
                loop.step()
            except StaleEpochError:
                continue
            # It may have found nothing to do, but it must not have moved anything.
            assert (self.table.rows, self.store.position(TASK)) == before

    @rule()
    def trim_what_was_acknowledged(self) -> None:
        self.log.trimmed = self.log.acknowledged

    def run_once(self, loop: BatchLoop) -> None:
        try:
            loop.step()
        except CrashError:
            self.loop = self.take(loop.lease.owner)
        except RetriableError:
            pass

    @invariant()
    def nothing_is_doubled_lost_or_out_of_order(self) -> None:
        assert self.table.rows == self.log.rows[: len(self.table.rows)]

    @invariant()
    def a_position_is_never_ahead_of_the_target(self) -> None:
        assert at(self.store.position(TASK)) <= len(self.table.rows)

    @invariant()
    def only_durable_rows_are_acknowledged(self) -> None:
        assert self.log.acknowledged <= len(self.table.rows)

    @invariant()
    def ids_only_grow_and_counts_add_up(self) -> None:
        ids = [batch.id for batch in self.store.batches(TASK)]
        assert ids == sorted(set(ids), reverse=True)
        totals = self.store.totals(TASK)
        assert totals.balanced
        assert totals.written == at(self.store.position(TASK))

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.trap.point = ""
        self.loop = self.take(self.loop.lease.owner)
        while self.loop.step() is not None:
            pass
        assert self.table.rows == self.log.rows


LoopMachine.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestLoop = LoopMachine.TestCase
