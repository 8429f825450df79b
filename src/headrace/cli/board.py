"""Draws the progress of a run: a line a task, the busiest first to get one, and a total."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.cli.figures import count, size, span
from headrace.model import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from headrace.cli.scoreboard import TaskScore
    from headrace.model import TaskId
    from headrace.sdk import Lag
    from headrace.worker import Progress

_AROUND = 4
"""Lines that are not tasks: the heading, the rule below it, the total, the cursor."""
_WIDE = 90
_STYLES = {
    TaskState.RUNNING: "green",
    TaskState.COMPLETED: "cyan",
    TaskState.FAILED: "bold red",
    TaskState.STOPPED: "yellow",
}


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a running task is doing right now.

    Args:
        progress: What it says of itself.
        since: When its batch was first seen, in seconds of the scoreboard's clock.
    """

    progress: Progress
    since: float

    @property
    def lag(self) -> Lag | None:
        """Return how far the task is behind its source, where that is known."""
        return self.progress.lag


@dataclass(frozen=True)
class View:
    """What is to be drawn, at one moment.

    Args:
        scores: All tasks.
        now: The moment, in seconds of the scoreboard's clock.
        seconds: How long the run has lasted.
        pulses: What the running tasks do, where it is known.
    """

    scores: Sequence[TaskScore]
    now: float
    seconds: float
    pulses: Mapping[TaskId, Pulse] = field(default_factory=dict)

    def rates(self, score: TaskScore) -> tuple[float, float]:
        """Return a task's rows and bytes per second."""
        return score.rates(self.now, working=score.task in self.pulses)

    def shown(self, height: int) -> list[TaskScore]:
        """Return the tasks that get a line: all if they fit, else the busiest."""
        room = max(1, height - _AROUND)
        if len(self.scores) <= room:
            return list(self.scores)

        def busyness(score: TaskScore) -> tuple[bool, bool, float, int]:
            rows_per_second = self.rates(score)[0]
            working = score.task in self.pulses
            return not score.is_over, working, rows_per_second, score.counts.read

        busiest = sorted(self.scores, key=busyness, reverse=True)[:room]
        return sorted(busiest, key=lambda score: score.task)


def draw(view: View, *, width: int, height: int) -> RenderableType:
    """Return the picture for a screen of that many columns and lines."""
    from rich.table import Table
    from rich.text import Text

    if not view.scores:
        return Text(f"starting Spark, {span(view.seconds)}", style="dim")
    lag = any(pulse.lag is not None for pulse in view.pulses.values())
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim")
    total = _Total.of(view)
    table.add_column("task", total.states, no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("state", span(view.seconds), no_wrap=True)
    figures = {"rows": count(total.rows), "rows/s": count(total.rate)}
    if width >= _WIDE:
        figures["bytes"] = size(total.size_bytes)
    if lag:
        figures |= {"lag": "", "ETA": ""}
    for heading, footer in figures.items():
        table.add_column(heading, footer, justify="right", no_wrap=True)
    table.add_column("batch", no_wrap=True)
    for score in view.shown(height):
        cells = _cells(view, score)
        chosen = [cells[str(column.header)] for column in table.columns]
        table.add_row(*chosen)
    return table


@dataclass(frozen=True, slots=True)
class _Total:
    states: str
    rows: int
    rate: float
    size_bytes: int

    @classmethod
    def of(cls, view: View) -> _Total:
        numbers: dict[TaskState, int] = {}
        for score in view.scores:
            numbers[score.state] = numbers.get(score.state, 0) + 1
        states = ", ".join(f"{n} {state.value.lower()}" for state, n in numbers.items())
        noun = "task" if len(view.scores) == 1 else "tasks"
        return cls(
            states=f"{len(view.scores)} {noun}: {states}",
            rows=sum(score.counts.read for score in view.scores),
            rate=sum(view.rates(score)[0] for score in view.scores),
            size_bytes=sum(score.counts.size_bytes for score in view.scores),
        )


def _cells(view: View, score: TaskScore) -> dict[str, RenderableType]:
    from rich.text import Text

    pulse = view.pulses.get(score.task)
    rate, bytes_rate = view.rates(score)
    lag = pulse.lag if pulse else None
    state, style = score.state.value.lower(), _STYLES.get(score.state, "")
    if score.retry is not None and not score.is_over:
        wait = max(0.0, score.retry.at - view.now)
        state, style = f"retry in {wait:.0f} s", "yellow"
    return {
        "task": Text(str(score.task)),
        "state": Text(state, style=style),
        "rows": Text(count(score.counts.read)),
        "rows/s": Text("" if score.is_over else count(rate)),
        "bytes": Text(size(score.counts.size_bytes)),
        "lag": Text("" if lag is None else _behind(lag)),
        "ETA": Text("" if lag is None else _eta(lag, rate, bytes_rate)),
        "batch": Text("" if score.is_over else _batch(view, score, pulse)),
    }


def _batch(view: View, score: TaskScore, pulse: Pulse | None) -> str:
    if pulse is None:
        if score.recent or score.began is None:
            return "waiting for data" if score.recent else ""
        return "starting" if not score.batches else "waiting for data"
    now = pulse.progress
    spark = f", {now.spark_done}/{now.spark_total} parts" if now.spark_total else ""
    return f"#{now.batch} for {span(view.now - pulse.since)}{spark}"


def _behind(lag: Lag) -> str:
    if lag.rows is not None:
        return count(lag.rows)
    return "" if lag.size_bytes is None else size(lag.size_bytes)


def _eta(lag: Lag, rows_per_second: float, bytes_per_second: float) -> str:
    if lag.rows is not None and rows_per_second > 0:
        return span(lag.rows / rows_per_second)
    if lag.size_bytes is not None and bytes_per_second > 0:
        return span(lag.size_bytes / bytes_per_second)
    return ""
