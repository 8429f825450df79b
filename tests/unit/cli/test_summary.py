"""The end of a run."""

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rich.console import Console
from tests.unit.cli.conftest import FakeClock

from headrace.cli.progress import Scoreboard, Summary
from headrace.model import Batch, TaskId, TaskState
from headrace.sdk import ConfigError, ConfigErrors

MakeBatch = Callable[..., Batch]
TASK = TaskId("flights", 0)


def _tasks(shown: dict[str, Any]) -> list[dict[str, Any]]:
    return list(shown["tasks"])


def _run(clock: FakeClock, batch: MakeBatch, state: TaskState) -> Scoreboard:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.RUNNING, None)
    made = batch(read=1000, filters={"noNulls": 90, "onlyUs": 10}, rejected=3, size_bytes=5)
    board.batch_finished(made, timedelta(seconds=4))
    board.state_changed(TASK, state, None)
    return board


def test_every_record_is_accounted_for_in_the_table(clock: FakeClock, batch: MakeBatch) -> None:
    board = _run(clock, batch, TaskState.COMPLETED)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(Summary(board.scores(), 9.0, stopped=False).to_table())
    text = console.export_text()
    row = next(line for line in text.splitlines() if "flights-0" in line)
    figures = ["flights-0", "1,000", "897", "100", "3", "1", "4.0", "250", "COMPLETED"]
    assert row.split() == figures
    assert "noNulls 90" in text
    assert "onlyUs 10" in text


def test_sinks_that_differ_are_shown_one_by_one(clock: FakeClock, batch: MakeBatch) -> None:
    board = Scoreboard(clock)
    shares = {"0": {"written": 996, "rejected": 4}, "1": {"written": 1000, "rejected": 0}}
    board.batch_finished(batch(read=1000, rejected=4, sinks=shares), timedelta(seconds=4))
    board.batch_finished(batch(batch_id=2, read=5), timedelta(seconds=1))
    summary = Summary(board.scores(), 9.0, stopped=False)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(summary.to_table())
    text = console.export_text()
    assert "sink 0 1,001" in text
    assert "sink 1 1,005" in text
    (task,) = _tasks(summary.to_json())
    assert task["sinks"] == {
        "0": {"written": 1001, "rejected": 4},
        "1": {"written": 1005, "rejected": 0},
    }


def test_the_json_has_totals_and_tasks(clock: FakeClock, batch: MakeBatch) -> None:
    board = _run(clock, batch, TaskState.COMPLETED)
    shown = Summary(board.scores(), 9.0, stopped=False).to_json()
    assert shown["event"] == "summary"
    assert shown["state"] == "completed"
    assert shown["read"] == 1000
    assert shown["filters"] == {"noNulls": 90, "onlyUs": 10}
    (task,) = _tasks(shown)
    assert task["connector"] == "flights"
    assert task["rows_per_second"] == 250
    assert task["errors"] == []


def test_one_failed_task_fails_the_run(clock: FakeClock, batch: MakeBatch) -> None:
    board = _run(clock, batch, TaskState.COMPLETED)
    several = ConfigErrors([ConfigError("One."), ConfigError("Two.")])
    board.state_changed(TaskId("other", 0), TaskState.FAILED, several)
    summary = Summary(board.scores(), 9.0, stopped=True)
    assert summary.state == "failed"
    assert summary.last_line().startswith("failed: 1 of 2 tasks, 1,000 rows read, 897 written")
    failed = _tasks(summary.to_json())[1]
    assert [error["problem"] for error in failed["errors"]] == ["One.", "Two."]


def test_a_run_that_was_stopped_says_so(clock: FakeClock, batch: MakeBatch) -> None:
    board = _run(clock, batch, TaskState.STOPPED)
    summary = Summary(board.scores(), 9.0, stopped=True)
    assert summary.state == "stopped"
    assert summary.last_line().startswith("stopped: 1 task")


def test_a_run_that_found_nothing_new_explains_itself(clock: FakeClock) -> None:
    board = Scoreboard(clock)
    board.state_changed(TASK, TaskState.COMPLETED, None)
    line = Summary(board.scores(), 2.0, stopped=False).last_line()
    assert line.endswith("no source had new records")
