"""The progress that is drawn on a screen."""

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console
from tests.unit.cli.conftest import FakeClock

from headrace.cli.progress import Pulse, Scoreboard, View, draw
from headrace.model import Batch, TaskId, TaskState
from headrace.sdk import Lag, RetriableError, SinkError
from headrace.worker import Progress

MakeBatch = Callable[..., Batch]
SECOND = timedelta(seconds=1)
TASK = TaskId("flights", 0)


def _drawn(view: View, *, width: int = 110, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    console.print(draw(view, width=width, height=height))
    return [line.rstrip() for line in console.export_text().splitlines()]


def _view(board: Scoreboard, pulses: dict[TaskId, Pulse] | None = None) -> View:
    return View(board.scores(), board.clock(), board.seconds(), pulses or {})


@pytest.fixture
def board(clock: FakeClock) -> Scoreboard:
    return Scoreboard(clock)


def test_before_any_task_the_start_of_spark_is_timed(
    board: Scoreboard, clock: FakeClock
) -> None:
    clock.pass_(4)
    assert _drawn(_view(board)) == ["starting Spark, 4.0 s"]


def test_a_task_has_a_line_with_its_figures(
    board: Scoreboard, clock: FakeClock, batch: MakeBatch
) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    clock.pass_(2)
    board.batch_finished(batch(read=1_200_000, size_bytes=34_500_000), 2 * SECOND)
    clock.pass_(3)
    pulse = Pulse(Progress(7, 3, 8), since=clock() - 3)
    head, line, total = _drawn(_view(board, {TASK: pulse}))
    assert head.split() == ["task", "state", "rows", "rows/s", "bytes", "batch"]
    assert line.split("  ")[0] == "flights-0"
    for figure in ("running", "1,200,000", "600,000", "34.5 MB", "#7 for 3.0 s, 3/8 parts"):
        assert figure in line
    assert total.startswith("1 task: 1 running")


def test_the_clock_moves_though_no_batch_ends(board: Scoreboard, clock: FakeClock) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    pulse = {TASK: Pulse(Progress(1), since=clock())}
    clock.pass_(1.0)
    first = _drawn(_view(board, pulse))
    clock.pass_(99)
    second = _drawn(_view(board, pulse))
    assert "#1 for 1.0 s" in first[1]
    assert "#1 for 1:40" in second[1]
    assert "1:40" in second[2]


def test_lag_and_eta_are_shown_where_they_are_known(
    board: Scoreboard, clock: FakeClock, batch: MakeBatch
) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    clock.pass_(1)
    board.batch_finished(batch(read=100), SECOND)
    pulse = Pulse(Progress(2, lag=Lag(rows=12_000)), clock())
    head, line, _ = _drawn(_view(board, {TASK: pulse}))
    assert "lag" in head
    assert "ETA" in head
    assert "12,000" in line
    assert "2:00" in line


def test_lag_is_shown_in_bytes_where_rows_are_not_known(
    board: Scoreboard, clock: FakeClock, batch: MakeBatch
) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    clock.pass_(1)
    board.batch_finished(batch(read=100, size_bytes=1_000_000), SECOND)
    pulse = Pulse(Progress(2, lag=Lag(size_bytes=60_000_000)), clock())
    _, line, _ = _drawn(_view(board, {TASK: pulse}))
    assert "60.0 MB" in line
    assert "1:00" in line


def test_a_retry_counts_down(board: Scoreboard, clock: FakeClock) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    board.retrying(TASK, RetriableError("busy"), timedelta(seconds=9))
    clock.pass_(2)
    assert "retry in 7 s" in _drawn(_view(board))[1]


@pytest.fixture
def hundred(board: Scoreboard, clock: FakeClock, batch: MakeBatch) -> Scoreboard:
    """A hundred tasks, of which those with a number that ends in 7 are busy."""
    for number in range(100):
        board.state_changed(TaskId("flights", number), TaskState.RUNNING, None)
    clock.pass_(1)
    for number in range(100):
        rows = 1000 + number if number % 10 == 7 else 1
        board.batch_finished(batch("flights", number, read=rows), SECOND)
    return board


@pytest.mark.parametrize("height", [8, 14, 24, 50])
def test_a_hundred_tasks_fit_on_the_screen(hundred: Scoreboard, height: int) -> None:
    lines = _drawn(_view(hundred), height=height)
    assert len(lines) < height
    assert len(lines) == height - 2  # the heading, the tasks and the total


def test_of_many_tasks_the_busiest_are_shown(hundred: Scoreboard) -> None:
    lines = _drawn(_view(hundred), height=14)
    shown = [line.split()[0] for line in lines[1:-1]]
    assert shown == [f"flights-{number}" for number in range(7, 100, 10)]
    assert lines[-1].startswith("100 tasks: 100 running")
    assert "10,610" in lines[-1]  # the rows of all, not only of those shown


def test_tasks_that_are_over_make_room_first(hundred: Scoreboard) -> None:
    hundred.state_changed(TaskId("flights", 97), TaskState.FAILED, SinkError("full"))
    lines = _drawn(_view(hundred), height=14)
    assert not any("flights-97" in line for line in lines)
    assert "99 running, 1 failed" in lines[-1]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_screen_or_broken(hundred: Scoreboard, width: int) -> None:
    pulses = {score.task: Pulse(Progress(12), hundred.clock()) for score in hundred.scores()}
    lines = _drawn(_view(hundred, pulses), width=width, height=20)
    assert len(lines) == 18
    assert max(map(len, lines)) <= width


def test_names_that_look_like_markup_are_shown_as_they_are(
    board: Scoreboard,
) -> None:
    task = TaskId("[red]a[/]", 0)
    board.state_changed(task, TaskState.RUNNING, None)
    assert "[red]a[/]-0" in _drawn(_view(board))[1]


def test_a_view_is_not_changed_by_drawing(hundred: Scoreboard) -> None:
    view = _view(hundred)
    again = replace(view)
    _drawn(view)
    assert view == again
