"""What is kept of a run's events."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.conftest import START, FakeClock

from headrace.cli.progress import Scoreboard, TaskScore
from headrace.model import Batch, Counts, TaskId, TaskState
from headrace.sdk import Position, RetriableError, SinkError

MakeBatch = Callable[..., Batch]
TASK = TaskId("flights", 0)
SECOND = timedelta(seconds=1)


def _score(board: Scoreboard) -> TaskScore:
    (score,) = board.scores()
    return score


def test_batches_add_up(clock: FakeClock, batch: MakeBatch) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    board.batch_finished(batch(read=10, filters={"a": 2}), SECOND)
    board.batch_finished(batch(read=5, filters={"a": 1, "b": 1}, rejected=1), SECOND)
    score = _score(board)
    assert score.counts.read == 15
    assert score.counts.filters == {"a": 3, "b": 1}
    assert score.counts.rejected == 1
    assert score.batches == 2
    assert score.busy == 2 * SECOND


def test_the_rate_is_that_of_the_last_seconds(clock: FakeClock, batch: MakeBatch) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    for rows in (*[1_000_000] * 5, *[100] * 20):
        clock.pass_(1)
        board.batch_finished(batch(read=rows), SECOND)
    rows_per_second, _ = _score(board).rates(clock(), working=True)
    assert rows_per_second == pytest.approx(100)


def test_a_long_batch_counts_for_its_whole_time(clock: FakeClock, batch: MakeBatch) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    clock.pass_(60)
    board.batch_finished(batch(read=6000, size_bytes=600), timedelta(seconds=60))
    assert _score(board).rates(clock(), working=True) == pytest.approx((100, 10))


def test_the_rate_stays_while_a_batch_runs_and_falls_when_idle(
    clock: FakeClock, batch: MakeBatch
) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    clock.pass_(10)
    board.batch_finished(batch(read=1000), timedelta(seconds=10))
    clock.pass_(5)
    assert _score(board).rates(clock(), working=True)[0] == pytest.approx(100)
    assert _score(board).rates(clock(), working=False)[0] == pytest.approx(50)
    clock.pass_(6)
    assert _score(board).rates(clock(), working=False)[0] == 0


def test_a_task_that_is_over_has_no_rate(clock: FakeClock, batch: MakeBatch) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    clock.pass_(1)
    board.batch_finished(batch(read=10), SECOND)
    board.state_changed(TASK, TaskState.COMPLETED, None)
    assert _score(board).rates(clock(), working=False) == (0, 0)


def test_a_retry_is_known_until_the_next_batch(clock: FakeClock, batch: MakeBatch) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    board.retrying(TASK, RetriableError("busy\nsecond line"), timedelta(seconds=5))
    retry = _score(board).retry
    assert retry is not None
    assert retry.problem == "busy"
    assert retry.at == clock() + 5
    board.batch_finished(batch(read=1), SECOND)
    assert _score(board).retry is None


def test_a_failure_keeps_its_error(clock: FakeClock) -> None:
    board = Scoreboard(clock)
    error = SinkError("full")
    board.state_changed(TASK, TaskState.FAILED, error)
    assert _score(board).error is error
    assert _score(board).is_over


def test_tasks_are_in_their_order(clock: FakeClock) -> None:
    board = Scoreboard(clock)
    for number in (10, 2, 0):
        board.state_changed(TaskId("a", number), TaskState.RUNNING, None)
    assert [score.task.number for score in board.scores()] == [0, 2, 10]


@given(
    steps=st.lists(
        st.tuples(st.floats(0.01, 30), st.integers(0, 10**6), st.floats(0.01, 1.0)),
        min_size=1,
        max_size=20,
    )
)
def test_a_rate_lies_between_the_slowest_and_the_fastest_second(
    steps: list[tuple[float, int, float]],
) -> None:
    clock = FakeClock()
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    speeds = []
    for number, (wait, rows, share) in enumerate(steps):
        clock.pass_(wait)
        took = wait * share
        speeds.append(rows / took)
        counts = Counts(read=rows, written=rows)
        begun = Batch(TASK, number, 1, Position(), Position(), START)
        board.batch_finished(begun.done(counts, START), timedelta(seconds=took))
    rate, _ = _score(board).rates(clock(), working=True)
    # A duration is kept in whole microseconds, hence the tolerance.
    assert 0 <= rate <= max(speeds) * 1.01
