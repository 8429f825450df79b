"""Shows a run while it goes on: live on a screen, else as lines, else as JSON events."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from headrace.cli.board import Pulse, View, draw
from headrace.cli.figures import count, span
from headrace.model import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from rich.console import RenderableType

    from headrace.cli.scoreboard import Scoreboard, TaskScore
    from headrace.cli.terminal import Terminal
    from headrace.model import Batch, TaskId
    from headrace.worker import Progress

log = structlog.get_logger(__name__)

LINE_INTERVAL = 10.0
"""Seconds between two lines of one task, where there is no screen."""
_TICK = 0.2


@contextmanager
def live(
    scoreboard: Scoreboard,
    terminal: Terminal,
    probe: Callable[[TaskId], Progress | None],
    interval: timedelta,
) -> Iterator[None]:
    """Draw the board again and again while the body runs.

    Drawing has a thread of its own and looks only at what is in memory; asking the
    store and Spark has another. Neither waits for a batch, so the clock never stops.
    """
    from rich.live import Live

    seconds = interval.total_seconds()
    pulses = Pulses(scoreboard, probe)
    console = terminal.err

    def picture() -> RenderableType:
        view = View(scoreboard.scores(), scoreboard.clock(), scoreboard.seconds(), pulses.seen)
        return draw(view, width=console.width, height=console.height)

    with (
        _ticking(pulses.refresh, seconds, "headrace-pulses"),
        Live(
            get_renderable=picture,
            console=console,
            refresh_per_second=1 / seconds,
            transient=True,
            redirect_stdout=False,
        ),
    ):
        yield


class Pulses:
    """What each running task is doing, asked again and again by one thread."""

    def __init__(
        self,
        scoreboard: Scoreboard,
        probe: Callable[[TaskId], Progress | None],
    ) -> None:
        """Ask ``probe`` about the running tasks of ``scoreboard``."""
        self._scoreboard = scoreboard
        self._probe = probe
        self.seen: dict[TaskId, Pulse] = {}

    def refresh(self) -> None:
        """Ask about every running task."""
        now = self._scoreboard.clock()
        seen = {}
        for score in self._scoreboard.scores():
            if score.state is not TaskState.RUNNING:
                continue
            found = self._probe(score.task)
            if found is not None:
                before = self.seen.get(score.task)
                since = before.since if before and before.progress.batch == found.batch else now
                seen[score.task] = Pulse(found, since)
        self.seen = seen  # replaced whole, so that the drawing thread needs no lock


@contextmanager
def lines(scoreboard: Scoreboard, terminal: Terminal) -> Iterator[None]:
    """Print a line when a task starts and ends, and now and then while it moves."""
    news = News()

    def tell() -> None:
        for line in news.of(scoreboard.scores(), scoreboard.clock()):
            terminal.note(line)

    terminal.note("starting Spark")
    with _ticking(tell, _TICK, "headrace-lines"):
        yield
    tell()


class News:
    """Tells of each task what has changed since it last did, but not too often."""

    def __init__(self) -> None:
        """Know of no task yet."""
        self._told: dict[TaskId, tuple[TaskState, int, float]] = {}
        self._retries: dict[TaskId, float] = {}

    def of(self, scores: Sequence[TaskScore], now: float) -> list[str]:
        """Return the lines to print now."""
        return [line for score in scores for line in self._of(score, now)]

    def _of(self, score: TaskScore, now: float) -> Iterator[str]:
        state, batches, at = self._told.get(score.task, (TaskState.UNASSIGNED, 0, now))
        if state is TaskState.UNASSIGNED and score.began is not None:
            yield f"{score.task}: started"
        due = now - at >= LINE_INTERVAL
        if score.is_over and state != score.state:
            yield f"{score.task}: {_ending(score)}"
        elif (
            due and score.retry is not None and self._retries.get(score.task) != score.retry.at
        ):
            self._retries[score.task] = score.retry.at
            wait = span(max(0.0, score.retry.at - now))
            yield f"{score.task}: tries again in {wait}: {score.retry.problem}"
        elif due and score.batches != batches:
            rate = count(score.rates(now, working=True)[0])
            yield f"{score.task}: {_figures(score)}, {rate} rows/s"
        elif score.state == state:
            return
        self._told[score.task] = (score.state, score.batches, now)


def _ending(score: TaskScore) -> str:
    state = score.state.value.lower()
    if score.error is None:
        return f"{state}, {_figures(score)}"
    problem = getattr(score.error, "problem", f"{type(score.error).__name__}: {score.error}")
    return f"{state} after {_figures(score)}: {problem.partition(chr(10))[0]}"


def _figures(score: TaskScore) -> str:
    counts = score.counts
    parts = [f"{count(counts.read)} read", f"{count(counts.written)} written"]
    parts += [f"{count(counts.filtered)} filtered"] if counts.filtered else []
    parts += [f"{count(counts.rejected)} rejected"] if counts.rejected else []
    return ", ".join(parts)


class JsonEvents:
    """Prints each event as a line of JSON, and passes it on to the scoreboard.

    A thread of its own prints, so that a reader that is slow never holds a batch up.
    """

    def __init__(
        self, scoreboard: Scoreboard, terminal: Terminal, unheard: Callable[[], None]
    ) -> None:
        """Print on ``terminal``; call ``unheard`` when nobody reads it any more."""
        self._scoreboard = scoreboard
        self._terminal = terminal
        self._unheard = unheard
        self._events: queue.SimpleQueue[dict[str, object] | None] = queue.SimpleQueue()

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        self._scoreboard.batch_finished(batch, took)
        counts = batch.counts
        self._put(
            "batch",
            batch.task,
            batch=batch.id,
            read=counts.read,
            written=counts.written,
            filtered=counts.filtered,
            filters=dict(counts.filters),
            rejected=counts.rejected,
            causes=dict(counts.causes),
            size_bytes=counts.size_bytes,
            seconds=round(took.total_seconds(), 6),
        )

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        from headrace.cli.failures import errors_json

        self._scoreboard.state_changed(task, state, error)
        self._put(
            "state", task, state=state.value, errors=errors_json([error] if error else [])
        )

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        from headrace.cli.failures import errors_json

        self._scoreboard.retrying(task, error, wait)
        seconds = round(wait.total_seconds(), 6)
        self._put("retry", task, wait_seconds=seconds, errors=errors_json([error]))

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Print events while the body runs, and the rest at its end."""
        printer = threading.Thread(target=self._print, name="headrace-events", daemon=True)
        printer.start()
        try:
            yield
        finally:
            self._events.put(None)
            printer.join()

    def _put(self, event: str, task: TaskId, **values: object) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._events.put({"event": event, "time": time, "task": str(task), **values})

    def _print(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._terminal.print_json(event)
            except OSError:  # the reader has gone, as with `| head`
                self._unheard()
                return


@contextmanager
def _ticking(work: Callable[[], None], seconds: float, name: str) -> Iterator[None]:
    """Call ``work`` every so many seconds in a thread while the body runs."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(seconds):
            try:
                work()
            except Exception:  # what shows a run must never end it
                log.debug("progress could not be shown", exc_info=True)

    thread = threading.Thread(target=tick, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)
