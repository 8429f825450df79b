"""Showing a run while it goes on."""

import io
import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from rich.console import Console
from tests.unit.cli.conftest import FakeClock
from typing_extensions import override

from headrace.cli.progress import JsonEvents, News, Pulses, Scoreboard, live
from headrace.cli.terminal import Terminal
from headrace.model import Batch, TaskId, TaskState
from headrace.sdk import RetriableError, SinkError
from headrace.worker import Progress

MakeBatch = Callable[..., Batch]
TASK = TaskId("flights", 0)
SECOND = timedelta(seconds=1)


@pytest.fixture
def board(clock: FakeClock) -> Scoreboard:
    return Scoreboard(clock)


def test_a_task_tells_of_its_start_and_its_end(
    board: Scoreboard, clock: FakeClock, batch: MakeBatch
) -> None:
    news = News()
    board.state_changed(TASK, TaskState.RUNNING, None)
    assert news.of(board.scores(), clock()) == ["flights-0: started"]
    board.batch_finished(batch(read=1000, filters={"f": 10}, rejected=1), SECOND)
    board.state_changed(TASK, TaskState.COMPLETED, None)
    assert news.of(board.scores(), clock()) == [
        "flights-0: completed, 1,000 read, 989 written, 10 filtered, 1 rejected"
    ]
    assert news.of(board.scores(), clock()) == []


def test_a_start_and_an_end_at_once_are_both_told(board: Scoreboard, clock: FakeClock) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    board.state_changed(TASK, TaskState.COMPLETED, None)
    lines = News().of(board.scores(), clock())
    assert lines == ["flights-0: started", "flights-0: completed, 0 read, 0 written"]


def test_a_task_that_moves_has_at_most_a_line_in_ten_seconds(
    board: Scoreboard, clock: FakeClock, batch: MakeBatch
) -> None:
    news = News()
    board.state_changed(TASK, TaskState.RUNNING, None)
    told = []
    for second in range(31):
        clock.pass_(1)
        board.batch_finished(batch(read=100), SECOND)
        told += [(second, line) for line in news.of(board.scores(), clock())]
    assert [second for second, _ in told] == [0, 10, 20, 30]
    assert told[1][1] == "flights-0: 1,100 read, 1,100 written, 100 rows/s"


def test_a_task_that_does_not_move_is_silent(board: Scoreboard, clock: FakeClock) -> None:
    news = News()
    board.state_changed(TASK, TaskState.RUNNING, None)
    news.of(board.scores(), clock())
    clock.pass_(100)
    assert news.of(board.scores(), clock()) == []


def test_a_failure_is_told_with_its_problem_in_one_line(
    board: Scoreboard, clock: FakeClock
) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    error = SinkError("The disk is full.\nIt has 0 bytes.", fix="Make room.")
    board.state_changed(TASK, TaskState.FAILED, error)
    lines = News().of(board.scores(), clock())
    assert lines[-1] == "flights-0: failed after 0 read, 0 written: The disk is full."


def test_a_retry_is_told_once(board: Scoreboard, clock: FakeClock) -> None:
    news = News()
    board.state_changed(TASK, TaskState.RUNNING, None)
    news.of(board.scores(), clock())
    board.retrying(TASK, RetriableError("busy"), timedelta(seconds=60))
    told = []
    for _ in range(50):
        clock.pass_(1)
        told += news.of(board.scores(), clock())
    assert told == ["flights-0: retries in 50.0 s: busy"]


def test_the_age_of_a_batch_begins_when_it_is_first_seen(
    board: Scoreboard, clock: FakeClock
) -> None:
    board.state_changed(TASK, TaskState.RUNNING, None)
    board.state_changed(TaskId("over", 0), TaskState.COMPLETED, None)
    asked: list[TaskId] = []
    running = {TASK: 1}

    def probe(task: TaskId) -> Progress | None:
        asked.append(task)
        return Progress(running[task], 0, 4)

    pulses = Pulses(board, probe)
    pulses.refresh()
    began = clock()
    clock.pass_(5)
    pulses.refresh()
    assert pulses.seen[TASK].since == began
    running[TASK] = 2
    pulses.refresh()
    assert pulses.seen[TASK].since == clock()
    assert set(asked) == {TASK}


def test_the_screen_goes_on_while_the_probe_hangs_and_while_batches_last() -> None:
    screen = io.StringIO()
    terminal = Terminal()
    console = Console(file=screen, force_terminal=True, width=100, height=20)
    vars(terminal)["err"] = console
    board = Scoreboard(time.monotonic)
    hanging, over = threading.Event(), threading.Event()

    def probe(_task: TaskId) -> Progress | None:
        hanging.set()
        over.wait(10)
        return None

    board.state_changed(TASK, TaskState.RUNNING, None)
    try:
        with live(board, terminal, probe, timedelta(milliseconds=20)):
            assert hanging.wait(10)
            drawn = screen.getvalue().count("flights-0")
            deadline = time.monotonic() + 10
            while screen.getvalue().count("flights-0") < drawn + 3:
                assert time.monotonic() < deadline, "the screen froze"
                time.sleep(0.01)
            over.set()
    finally:
        over.set()


def test_a_probe_that_raises_does_not_end_the_run() -> None:
    terminal = Terminal()
    vars(terminal)["err"] = Console(file=io.StringIO(), force_terminal=True, width=100)
    board = Scoreboard(time.monotonic)
    board.state_changed(TASK, TaskState.RUNNING, None)
    asked = threading.Semaphore(0)

    def probe(_task: TaskId) -> Progress | None:
        asked.release()
        raise OSError

    with live(board, terminal, probe, timedelta(milliseconds=10)):
        for _ in range(3):
            assert asked.acquire(timeout=10)


def test_events_are_json_lines_in_their_order(
    board: Scoreboard, batch: MakeBatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = JsonEvents(board, Terminal(as_json=True), unheard=lambda: None)
    with events.printing():
        events.state_changed(TASK, TaskState.RUNNING, None)
        events.retrying(TASK, RetriableError("busy"), 2 * SECOND)
        events.batch_finished(batch(batch_id=4, read=5, filters={"f": 2}), SECOND)
        events.state_changed(TASK, TaskState.FAILED, SinkError("full", fix="Make room."))
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in told] == ["state", "retry", "batch", "state"]
    assert {event["task"] for event in told} == {"flights-0"}
    assert told[1]["wait_seconds"] == 2
    assert told[2]["batch"] == 4
    assert told[2]["read"] == told[2]["written"] + told[2]["filtered"] + told[2]["rejected"]
    assert told[2]["filters"] == {"f": 2}
    assert told[3]["errors"][0]["code"] == "sink.failed"
    assert board.scores()[0].state is TaskState.FAILED


def test_a_reader_that_has_gone_stops_the_run(board: Scoreboard) -> None:
    class Gone(Terminal):
        @override
        def print_json(self, value: object) -> None:
            raise BrokenPipeError

    stopped = threading.Event()
    events = JsonEvents(board, Gone(), unheard=stopped.set)
    with events.printing():
        events.state_changed(TASK, TaskState.RUNNING, None)
        assert stopped.wait(10)
