"""The summary of a run, as a table and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
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
