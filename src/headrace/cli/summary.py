"""How a run ended, for people and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.failures import errors_json
from headrace.cli.formats import count, span
from headrace.cli.terminal import table
from headrace.model import Counts, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from headrace.cli.progress import TaskScore

_FIGURES = ("read", "written", "filtered", "rejected", "batches", "seconds", "rows/s")


@dataclass(frozen=True)
class Summary:
    """All tasks of a run at its end.

    Args:
        scores: The tasks.
        seconds: How long the run lasted.
        stopped: Whether the user stopped it.
    """

    scores: Sequence[TaskScore]
    seconds: float
    stopped: bool

    @property
    def state(self) -> str:
        """Return ``failed``, ``stopped`` or ``completed``."""
        if any(score.state is TaskState.FAILED for score in self.scores):
            return "failed"
        return "stopped" if self.stopped else "completed"

    @property
    def counts(self) -> Counts:
        """Return the sum over all tasks."""
        total = Counts()
        for score in self.scores:
            total = total.plus(score.counts)
        return total

    def to_table(self) -> Table:
        """Return a line for each task; seconds are those spent in batches."""
        shown = table("task", *_FIGURES, "state", right=_FIGURES)
        for score in self.scores:
            busy = score.busy.total_seconds()
            cells = _cells(score.counts, score.batches, busy)
            shown.add_row(str(score.task), *cells, score.state.value)
        return shown

    def last_line(self) -> str:
        """Return the run in one sentence."""
        tasks = "1 task" if len(self.scores) == 1 else f"{count(len(self.scores))} tasks"
        failed = sum(score.state is TaskState.FAILED for score in self.scores)
        head = f"failed: {count(failed)} of {tasks}" if failed else f"{self.state}: {tasks}"
        counts = self.counts
        figures = f"{count(counts.read)} rows read, {count(counts.written)} written"
        line = f"{head}, {figures}, {span(self.seconds)}"
        if not counts.read and self.state == "completed":
            line += "; nothing was new since the last run"
        return line

    def to_json(self) -> dict[str, object]:
        """Return the last object of ``headrace run --json``."""
        batches = sum(score.batches for score in self.scores)
        return {
            "event": "summary",
            "state": self.state,
            "seconds": round(self.seconds, 3),
            **_counts_json(self.counts),
            "batches": batches,
            "tasks": [_task_json(score) for score in self.scores],
        }


def _cells(counts: Counts, batches: int, seconds: float) -> list[str]:
    rate = count(counts.read / seconds) if seconds else ""
    return [
        count(counts.read),
        _of_sinks(counts),
        _split(counts.filtered, counts.filters),
        _split(counts.rejected, counts.causes),
        count(batches),
        f"{seconds:,.1f}",
        rate,
    ]


def _of_sinks(counts: Counts) -> str:
    """Return what all sinks have, with what each of them has below it where they differ."""
    lines = [f"\nsink {n} {count(share['written'])}" for n, share in counts.sinks.items()]
    return count(counts.written) + "".join(lines)


def _split(total: int, parts: Mapping[str, int]) -> str:
    """Return a figure with what it consists of below it, a class without its package."""
    lines = [f"\n{_short(name)} {count(rows)}" for name, rows in parts.items() if rows]
    return count(total) + "".join(lines)


def _short(name: str) -> str:
    first, _, exception = name.partition(" ")
    return f"{first} {exception.rpartition('.')[2]}" if exception else name


def _counts_json(counts: Counts) -> dict[str, object]:
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
        **_counts_json(score.counts),
        "sinks": {number: dict(share) for number, share in score.counts.sinks.items()},
        "batches": score.batches,
        "seconds": round(busy, 6),
        "rows_per_second": round(score.counts.read / busy, 3) if busy else None,
        "errors": errors_json([score.error] if score.error else []),
    }
