"""What is known of each task of a run, kept from the worker's events."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.model import Counts, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model import Batch, TaskId

WINDOW = 10.0
"""Seconds over which rates are measured."""
_NOTHING = Counts()
_ENDED = {TaskState.COMPLETED, TaskState.FAILED, TaskState.STOPPED}


@dataclass(frozen=True, slots=True)
class Moved:
    """What one batch moved, and when, in seconds of the scoreboard's clock."""

    began: float
    ended: float
    rows: int
    size_bytes: int

    def share(self, since: float) -> float:
        """Return how much of the batch's time lies after ``since``, from 0 to 1."""
        if self.began >= since:
            return 1.0
        return max(0.0, self.ended - since) / (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class Retry:
    """A step that failed for now."""

    at: float
    problem: str


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task: its state, its counts since the run began, its last seconds.

    Times are seconds of the scoreboard's clock.

    Args:
        task: The task.
        state: The last state that was told.
        counts: The sum over its batches.
        batches: How many it finished.
        busy: The time its batches took.
        began: When it was first running.
        ended: When it ended.
        error: Why it failed.
        retry: Why and when it is tried again, until a batch is finished.
        recent: The batches that reach into the last seconds.
    """

    task: TaskId
    state: TaskState = TaskState.UNASSIGNED
    counts: Counts = _NOTHING
    batches: int = 0
    busy: timedelta = timedelta()
    began: float | None = None
    ended: float | None = None
    error: Exception | None = None
    retry: Retry | None = None
    recent: tuple[Moved, ...] = ()

    @property
    def is_over(self) -> bool:
        """Return whether the task has ended."""
        return self.state in _ENDED

    def with_batch(self, batch: Batch, took: timedelta, now: float) -> TaskScore:
        """Return the score after a batch."""
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
        """Return the score after a change of state."""
        running = state is TaskState.RUNNING
        began = now if running and self.began is None else self.began
        ended = now if state in _ENDED else None
        return replace(self, state=state, error=error, began=began, ended=ended, retry=None)

    def rates(self, now: float, *, working: bool) -> tuple[float, float]:
        """Return rows and bytes per second over the last seconds.

        While a batch runs its rows are not known yet, so the last seconds before it
        count; an idle task's rate falls to zero.
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
    """The worker's events, kept as one score per task. Any thread may use it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with no tasks; ``clock`` gives seconds that only grow."""
        self.clock = clock
        self.began = clock()
        self._lock = threading.Lock()
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
        """Return the scores of all tasks that were heard of, in their order."""
        with self._lock:
            return [self._scores[task] for task in sorted(self._scores)]

    def seconds(self) -> float:
        """Return how long ago the scoreboard was made."""
        return self.clock() - self.began

    def _score(self, task: TaskId) -> TaskScore:
        return self._scores.get(task) or TaskScore(task)
