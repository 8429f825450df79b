"""How far behind a task says it is."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace.model import Batch, Counts, TaskId
from headrace.sdk import Lag, Position, ReadLimit
from headrace.store import Store
from headrace.worker import BatchLoop

TASK = TaskId("copy", 0)
PARTITION = {"log": "a"}


def at(position: Position) -> int:
    offset = position.offset(PARTITION)
    return int(offset["row"]) if offset else 0


@dataclass
class Rows:
    """A source of so many rows."""

    count: int
    asked: int = 0

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = self.count if limit.until is None else min(self.count, at(limit.until))
        if limit.rows is not None:
            end = min(end, at(start) + limit.rows)
        return start if end == at(start) else Position.of(PARTITION, {"row": end})

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        self.asked += 1
        return Lag(rows=at(self.latest(start, ReadLimit(until=until))) - at(start))

    def ended(self, position: Position) -> bool:
        return False

    def acknowledge(self, position: Position) -> None:
        """Keep nothing."""


class Copy:
    """A flow that moves at once."""

    untouched = True
    routing = ""
    columns = None

    def run(self, batch: Batch) -> Counts:
        rows = at(batch.end) - at(batch.start)
        return Counts(read=rows, written=rows)


def loop_over(rows: Rows, times: list[datetime], limit: ReadLimit) -> BatchLoop:
    store = Store()
    store.register(TASK.connector)
    lease = store.lease(TASK, "w1", times[-1], timedelta(minutes=1))
    return BatchLoop(
        store=store,
        lease=lease,
        reader=rows,
        flow=Copy(),
        limit=limit,
        clock=lambda: times[-1],
    )


def test_lag_is_what_was_there_when_the_batch_began_and_none_when_all_is_moved() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC)]
    loop = loop_over(Rows(10), times, ReadLimit(rows=6))
    assert loop.lag is None
    lags: list[Lag | None] = []
    while loop.step() is not None:
        lags.append(loop.lag)
        times.append(times[-1] + timedelta(seconds=2))
    assert lags == [Lag(rows=10), Lag(rows=4)]
    assert loop.lag is None


def test_lag_counts_to_the_end_of_the_window() -> None:
    until = Position.of(PARTITION, {"row": 7})
    loop = loop_over(Rows(10), [datetime(2026, 1, 1, tzinfo=UTC)], ReadLimit(until=until))
    loop.step()
    assert loop.lag == Lag(rows=7)


def test_quick_batches_do_not_measure_their_lag_each_time() -> None:
    rows = Rows(100)
    loop = loop_over(rows, [datetime(2026, 1, 1, tzinfo=UTC)], ReadLimit(rows=1))
    for _ in range(50):
        loop.step()
    assert rows.asked == 1


def test_lag_is_measured_again_after_the_clock_was_put_back() -> None:
    rows, times = Rows(100), [datetime(2026, 1, 1, tzinfo=UTC)]
    loop = loop_over(rows, times, ReadLimit(rows=1))
    loop.step()
    times.append(times[0] - timedelta(hours=1))
    loop.step()
    assert loop.lag == Lag(rows=99)
