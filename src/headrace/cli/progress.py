"""Shows the progress of a run, as a live table, lines or JSON events, and its summary."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

import structlog

from headrace.cli import formats
from headrace.cli.failures import errors_json
from headrace.cli.formats import count, size, span
from headrace.cli.terminal import table
from headrace.model import Counts, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from headrace.cli.terminal import Terminal
    from headrace.model import Batch, TaskId
    from headrace.sdk import Lag
    from headrace.worker import Progress


log = structlog.get_logger(__name__)


_AROUND = 4
"""Screen lines without tasks: the heading, the rule below it, the total, the cursor."""
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

    ``since`` is when the probe first saw its batch, in seconds of the scoreboard's clock.
    """

    progress: Progress
    since: float


@dataclass(frozen=True)
class View:
    """The state of a run at one moment, for drawing.

    ``now`` is a time of the scoreboard's clock, ``seconds`` is the duration of the run so far.
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
    """Return the table for a screen of that many columns and lines."""
    from rich.table import Table
    from rich.text import Text

    if not view.scores:
        return Text(f"starting Spark, {span(view.seconds)}", style="dim")
    lag = any(pulse.progress.lag is not None for pulse in view.pulses.values())
    states = Counter(score.state for score in view.scores)
    noun = "task" if len(view.scores) == 1 else "tasks"
    listed = ", ".join(f"{n} {state.value.lower()}" for state, n in states.items())
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim")
    total = f"{len(view.scores)} {noun}: {listed}"
    table.add_column("task", total, no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("state", span(view.seconds), no_wrap=True)
    figures = {
        "rows": count(sum(score.counts.read for score in view.scores)),
        "rows/s": count(sum(view.rates(score)[0] for score in view.scores)),
    }
    if width >= _WIDE:
        figures["bytes"] = size(sum(score.counts.size_bytes for score in view.scores))
    if lag:
        figures |= {"lag": "", "ETA": ""}
    for heading, footer in figures.items():
        table.add_column(heading, footer, justify="right", no_wrap=True)
    table.add_column("batch", no_wrap=True)
    for score in view.shown(height):
        cells = _cells(view, score)
        table.add_row(*(cells[str(column.header)] for column in table.columns))
    return table


def _cells(view: View, score: TaskScore) -> dict[str, RenderableType]:
    from rich.text import Text

    pulse = view.pulses.get(score.task)
    rate, bytes_rate = view.rates(score)
    lag = pulse.progress.lag if pulse else None
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
        "lag": Text("" if lag is None else formats.lag(lag.rows, lag.size_bytes)),
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


def _eta(lag: Lag, rows_per_second: float, bytes_per_second: float) -> str:
    if lag.rows is not None and rows_per_second > 0:
        return span(lag.rows / rows_per_second)
    if lag.size_bytes is not None and bytes_per_second > 0:
        return span(lag.size_bytes / bytes_per_second)
    return ""


WINDOW = 10.0
"""Seconds over which rates are measured."""
_NOTHING = Counts()
_ENDED = {TaskState.COMPLETED, TaskState.FAILED, TaskState.STOPPED}


@dataclass(frozen=True, slots=True)
class Moved:
    """The counts of one batch, and its start and end in seconds of the scoreboard's clock."""

    began: float
    ended: float
    rows: int
    size_bytes: int

    def share(self, since: float) -> float:
        """Return the fraction of the batch's duration after ``since``, from 0 to 1."""
        if self.began >= since:
            return 1.0
        return max(0.0, self.ended - since) / (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class Retry:
    """The pending retry of a failed step: its time, and the problem."""

    at: float
    problem: str


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task: its state, its counts since the run began, and its recent batches.

    Times are seconds of the scoreboard's clock. ``busy`` is the total duration of its batches,
    ``retry`` is set until a batch finishes or the state changes, and ``recent`` contains the
    batches that ended within the last ``WINDOW`` seconds.
    """

    task: TaskId
    state: TaskState = TaskState.UNASSIGNED
    counts: Counts = _NOTHING
    batches: int = 0
    busy: timedelta = timedelta()
    began: float | None = None
    error: Exception | None = None
    retry: Retry | None = None
    recent: tuple[Moved, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.state in _ENDED

    def with_batch(self, batch: Batch, took: timedelta, now: float) -> TaskScore:
        began = now - took.total_seconds()
        moved = Moved(began, now, batch.counts.read, batch.counts.size_bytes)
        recent = (*(m for m in self.recent if m.ended > now - WINDOW), moved)
        return replace(
            self,
            counts=self.counts.plus(batch.counts),
            batches=self.batches + 1,
            busy=self.busy + took,
            retry=None,
            recent=recent,
        )

    def with_state(self, state: TaskState, error: Exception | None, now: float) -> TaskScore:
        running = state is TaskState.RUNNING
        began = now if running and self.began is None else self.began
        return replace(self, state=state, error=error, began=began, retry=None)

    def rates(self, now: float, *, working: bool) -> tuple[float, float]:
        """Return rows and bytes per second over the last ``WINDOW`` seconds.

        The rows of a running batch are not known yet, so while ``working`` the window ends
        with the last finished batch; the rate of an idle task falls to zero.
        """
        if self.is_over or self.began is None or not self.recent:
            return 0.0, 0.0
        end = self.recent[-1].ended if working else now
        since = max(end - WINDOW, min(self.began, self.recent[0].began))
        seconds = max(end - since, 1e-3)
        shares = [(moved, moved.share(since)) for moved in self.recent]
        rows = sum(moved.rows * share for moved, share in shares)
        size_bytes = sum(moved.size_bytes * share for moved, share in shares)
        return rows / seconds, size_bytes / seconds


class Scoreboard:
    """Collects the worker's events as one score per task. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without tasks; ``clock`` returns monotonic seconds."""
        self.clock = clock
        self.began = clock()
        self._lock = threading.RLock()  # a signal handler asks for the scores
        self._scores: dict[TaskId, TaskScore] = {}

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        with self._lock:
            score = self._score(batch.task)
            self._scores[batch.task] = score.with_batch(batch, took, self.clock())

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        with self._lock:
            self._scores[task] = self._score(task).with_state(state, error, self.clock())

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        problem = str(getattr(error, "problem", error)).partition("\n")[0]
        retry = Retry(self.clock() + wait.total_seconds(), problem)
        with self._lock:
            self._scores[task] = replace(self._score(task), retry=retry)

    def scores(self) -> list[TaskScore]:
        """Return the scores of all tasks, sorted."""
        with self._lock:
            return [self._scores[task] for task in sorted(self._scores)]

    def seconds(self) -> float:
        return self.clock() - self.began

    def _score(self, task: TaskId) -> TaskScore:
        return self._scores.get(task) or TaskScore(task)


LINE_INTERVAL = 10.0
"""Minimum seconds between two progress lines of one task."""
_TICK = 0.2


@contextmanager
def live(
    scoreboard: Scoreboard,
    terminal: Terminal,
    probe: Callable[[TaskId], Progress | None],
    interval: timedelta,
) -> Iterator[None]:
    """Redraw the scoreboard periodically while the body runs.

    One thread draws and reads memory only; another polls the store and Spark. Neither waits
    for a batch, so the displayed time never stops.
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
    """The current activity of each running task; one thread refreshes it periodically."""

    def __init__(
        self, scoreboard: Scoreboard, probe: Callable[[TaskId], Progress | None]
    ) -> None:
        self._scoreboard = scoreboard
        self._probe = probe
        self.seen: dict[TaskId, Pulse] = {}

    def refresh(self) -> None:
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
        self.seen = seen  # replaced as a whole, so the drawing thread needs no lock


@contextmanager
def lines(scoreboard: Scoreboard, terminal: Terminal) -> Iterator[None]:
    """Print a line when a task starts or ends, and progress lines in between."""
    news = News()

    def report() -> None:
        for line in news.of(scoreboard.scores(), scoreboard.clock()):
            terminal.note(line)

    terminal.note("starting Spark")
    with _ticking(report, _TICK, "headrace-lines"):
        yield
    report()


class News:
    """Reports changes of each task since its last line, rate-limited by LINE_INTERVAL."""

    def __init__(self) -> None:
        self._reported: dict[TaskId, tuple[TaskState, int, float]] = {}
        self._retries: dict[TaskId, float] = {}

    def of(self, scores: Sequence[TaskScore], now: float) -> list[str]:
        """Return the lines to print now."""
        return [line for score in scores for line in self._of(score, now)]

    def _of(self, score: TaskScore, now: float) -> Iterator[str]:
        state, batches, at = self._reported.get(score.task, (TaskState.UNASSIGNED, 0, now))
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
            yield f"{score.task}: retries in {wait}: {score.retry.problem}"
        elif due and score.batches != batches:
            rate = count(score.rates(now, working=True)[0])
            yield f"{score.task}: {_figures(score)}, {rate} rows/s"
        elif score.state == state:
            return
        self._reported[score.task] = (score.state, score.batches, now)


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
    """Prints each event as a line of JSON and forwards it to the scoreboard.

    A separate thread prints, so a slow reader never delays a batch.
    """

    def __init__(
        self, scoreboard: Scoreboard, terminal: Terminal, unheard: Callable[[], None]
    ) -> None:
        """Print on ``terminal``; call ``unheard`` once the reader has closed the pipe."""
        self._scoreboard = scoreboard
        self._terminal = terminal
        self._unheard = unheard
        self._events: queue.SimpleQueue[dict[str, object] | None] = queue.SimpleQueue()

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        self._scoreboard.batch_finished(batch, took)
        self._put(
            "batch",
            batch.task,
            batch=batch.id,
            **counts_json(batch.counts),
            seconds=round(took.total_seconds(), 6),
        )

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        self._scoreboard.state_changed(task, state, error)
        self._put(
            "state", task, state=state.value, errors=errors_json([error] if error else [])
        )

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        self._scoreboard.retrying(task, error, wait)
        seconds = round(wait.total_seconds(), 6)
        self._put("retry", task, wait_seconds=seconds, errors=errors_json([error]))

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Print events while the body runs, and the remaining ones at its end."""
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
            except OSError:  # the reader has closed the pipe, as with `| head`
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
            except Exception:  # a display error must not end the run
                log.debug("progress could not be shown", exc_info=True)

    thread = threading.Thread(target=tick, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)


_FIGURES = ("read", "written", "filtered", "rejected", "batches", "seconds", "rows/s")


@dataclass(frozen=True)
class Summary:
    """All tasks of a run at its end, and whether the user stopped it."""

    scores: Sequence[TaskScore]
    seconds: float
    stopped: bool

    @property
    def state(self) -> str:
        if any(score.state is TaskState.FAILED for score in self.scores):
            return "failed"
        return "stopped" if self.stopped else "completed"

    @property
    def counts(self) -> Counts:
        """The sum over all tasks."""
        return reduce(Counts.plus, (score.counts for score in self.scores), Counts())

    def to_table(self) -> Table:
        """Return a row for each task; seconds are the time spent in batches."""
        shown = table("task", *_FIGURES, "state", right=_FIGURES)
        for score in self.scores:
            busy = score.busy.total_seconds()
            counts = score.counts
            shown.add_row(
                str(score.task),
                count(counts.read),
                count(counts.written)
                + "".join(f"\nsink {n} {count(s['written'])}" for n, s in counts.sinks.items()),
                _split(counts.filtered, counts.filters),
                _split(counts.rejected, counts.causes),
                count(score.batches),
                f"{busy:,.1f}",
                count(counts.read / busy) if busy else "",
                score.state.value,
            )
        return shown

    def last_line(self) -> str:
        tasks = "1 task" if len(self.scores) == 1 else f"{count(len(self.scores))} tasks"
        failed = sum(score.state is TaskState.FAILED for score in self.scores)
        head = f"failed: {count(failed)} of {tasks}" if failed else f"{self.state}: {tasks}"
        counts = self.counts
        figures = f"{count(counts.read)} rows read, {count(counts.written)} written"
        line = f"{head}, {figures}, {span(self.seconds)}"
        if not counts.read and self.state == "completed":
            line += "; no source had new records"
        return line

    def to_json(self) -> dict[str, object]:
        """Return the last object of ``headrace run --json``."""
        batches = sum(score.batches for score in self.scores)
        return {
            "event": "summary",
            "state": self.state,
            "seconds": round(self.seconds, 3),
            **counts_json(self.counts),
            "batches": batches,
            "tasks": [_task_json(score) for score in self.scores],
        }


def _split(total: int, parts: Mapping[str, int]) -> str:
    """Return a total with its parts on the lines below; class names lose their package."""
    lines = [f"\n{_short(name)} {count(rows)}" for name, rows in parts.items() if rows]
    return count(total) + "".join(lines)


def _short(name: str) -> str:
    first, _, exception = name.partition(" ")
    return f"{first} {exception.rpartition('.')[2]}" if exception else name


def counts_json(counts: Counts) -> dict[str, object]:
    """Return the counts as in the JSON of a batch, a task or a run."""
    return {
        "read": counts.read,
        "written": counts.written,
        "filtered": counts.filtered,
        "filters": dict(counts.filters),
        "rejected": counts.rejected,
        "causes": dict(counts.causes),
        "size_bytes": counts.size_bytes,
    }


def _task_json(score: TaskScore) -> dict[str, object]:
    busy = score.busy.total_seconds()
    return {
        "task": str(score.task),
        "connector": score.task.connector,
        "state": score.state.value,
        **counts_json(score.counts),
        "sinks": {number: dict(share) for number, share in score.counts.sinks.items()},
        "batches": score.batches,
        "seconds": round(busy, 6),
        "rows_per_second": round(score.counts.read / busy, 3) if busy else None,
        "errors": errors_json([score.error] if score.error else []),
    }
