"""Too many rejected records stop a task, over batches and restarts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.model import Counts, TaskId, ToleranceLimits, TooManyRejectedError
from headrace.sdk import Position
from headrace.store import Store
from headrace.worker import ToleranceGuard

TASK = TaskId("copy", 0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def counts(read: int, rejected: int) -> Counts:
    return Counts(read=read, written=read - rejected, rejected=rejected)


@pytest.fixture
def store(tmp_path: Path):
    made = Store(tmp_path / "store.db")
    yield made
    made.close()


def finish(store: Store, number: int, done: Counts, guard: ToleranceGuard) -> None:
    """Run a batch of the task, an hour after the one before, as after a restart."""
    epoch = store.lease(TASK, "w", NOW, timedelta(days=9)).epoch
    begun = NOW + timedelta(hours=number)
    guard.check(store, TASK, begun, done)
    end = Position.of({"t": "t"}, {"n": number})
    batch = store.begin_batch(TASK, epoch, store.position(TASK), end, begun)
    keep = guard.keep_since(begun)
    store.finish_batch(TASK, epoch, batch.id, done, begun, keep_since=keep)


def test_the_batch_that_crosses_the_count_is_refused_and_no_other(store) -> None:
    guard = ToleranceGuard(ToleranceLimits(count=5))
    for number in range(5):
        finish(store, number, counts(10, 1), guard)
    with pytest.raises(TooManyRejectedError, match=r"6 of 60.*allows 5"):
        finish(store, 5, counts(10, 1), guard)
    finish(store, 5, counts(10, 0), guard)
    assert store.totals(TASK).rejected == 5


def test_a_share_is_that_of_all_that_was_read(store) -> None:
    guard = ToleranceGuard(ToleranceLimits(share=0.1))
    finish(store, 0, counts(100, 0), guard)
    finish(store, 1, counts(10, 10), guard)
    with pytest.raises(TooManyRejectedError, match=r"12 of 112.*0.1"):
        finish(store, 2, counts(2, 2), guard)


def test_a_window_forgets_what_is_older(store, monkeypatch) -> None:
    monkeypatch.setattr("headrace.store.rows.HISTORY", 1)
    window = timedelta(hours=3)
    guard = ToleranceGuard(ToleranceLimits(count=3, window=window))
    for number in range(20):
        finish(store, number, counts(10, 1 if number % 2 else 0), guard)
    finish(store, 20, counts(10, 1), guard)
    with pytest.raises(TooManyRejectedError, match=r"4 of 40.*within 10800 s"):
        finish(store, 21, counts(10, 2), guard)
    finish(store, 24, counts(10, 3), guard)


def test_no_limit_never_stops_a_task(store) -> None:
    finish(store, 0, counts(10, 10), ToleranceGuard())
    none = ToleranceGuard(ToleranceLimits(count=0, share=0.0))
    finish(store, 1, counts(10, 0), none)
