"""Detects stalled Spark jobs, and batches that run no Spark job for a long time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from headrace.sdk import RetriableError
from headrace.worker.events import labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.worker.task_queue import TaskSlot

log = structlog.get_logger(__name__)

_FIX = (
    "Check what the job waits for: a system that does not respond, or free Spark executors. "
    "Set HEADRACE_SPARK_STALLED_CANCEL=true to cancel and retry such jobs automatically."
)


_PLAN_FIX = (
    "Check that the source and target systems respond, that Spark does (`/health`), and that "
    "the machine is not overloaded."
)
_MANY_COLUMNS = 100
_WIDE_FIX = (
    " If they do, select fewer columns at the source, split the columns over several "
    "connectors, use fewer transforms, or use larger batches, because Spark plans each batch "
    "separately."
)


class SlowPlanningError(RetriableError):
    """A batch has run no Spark job for long: Spark is planning, or a system does not respond.

    The batch continues; the error is only shown.
    """

    code = "spark.planning"


class SparkStalledError(RetriableError):
    """A Spark job has made no progress for too long; it was cancelled if so configured."""

    code = "spark.stalled"


@dataclass
class _Seen:
    activity: object
    since: float
    reported: bool = False


@dataclass(frozen=True)
class _Planning:
    """The activity of a task that runs a batch but no Spark job, in one of its steps."""

    step: int


@dataclass(kw_only=True)
class Stalls:
    """Checks periodically whether the Spark jobs of tasks make progress. One thread uses it.

    Args:
        after: How long a job may make no progress before it is reported.
        planned: How long planning a batch may take before it is reported.
        report: Called with a task and its error; with None when the task progresses again.
    """

    after: timedelta = timedelta(minutes=10)
    cancel: bool = False
    planned: timedelta = timedelta(seconds=10)
    report: Callable[[TaskSlot, RetriableError | None], None] = lambda _slot, _error: None
    clock: Callable[[], float] = time.monotonic
    _seen: dict[TaskSlot, _Seen] = field(default_factory=dict)

    @property
    def interval(self) -> timedelta:
        return min(self.after / 5, self.planned / 2, timedelta(minutes=1))

    def look(self, slots: Iterable[TaskSlot]) -> None:
        running = [slot for slot in slots if slot.running and slot.started]
        for gone in self._seen.keys() - set(running):
            self._moves(gone)
        for slot in running:
            activity = slot.task.activity()
            if activity is None and slot.task.columns() is not None:
                activity = _Planning(slot.step)
            seen = self._seen.get(slot)
            if activity is None or seen is None or seen.activity != activity:
                self._moves(slot)
                if activity is not None:
                    self._seen[slot] = _Seen(activity, self.clock())
                continue
            is_planning = isinstance(activity, _Planning)
            most = self.planned if is_planning else self.after
            if not seen.reported and self.clock() - seen.since >= most.total_seconds():
                seen.reported = True
                (self._plans if is_planning else self._stalled)(slot)

    def _moves(self, slot: TaskSlot) -> None:
        seen = self._seen.pop(slot, None)
        if seen is not None and seen.reported:
            self.report(slot, None)

    def _stalled(self, slot: TaskSlot) -> None:
        minutes = self.after.total_seconds() / 60
        problem = f"The task's Spark job has made no progress for {minutes:g} minutes."
        log.warning("Spark job makes no progress", minutes=minutes, **labels(slot.task.id))
        error = SparkStalledError(problem, fix=_FIX)
        self.report(slot, error)
        if self.cancel:
            slot.stalled = error
            slot.cancel()

    def _plans(self, slot: TaskSlot) -> None:
        seconds, columns = self.planned.total_seconds(), slot.task.columns()
        of = f" of {columns} columns" if columns else ""
        fix = _PLAN_FIX + (_WIDE_FIX if columns and columns >= _MANY_COLUMNS else "")
        problem = (
            f"A batch{of} has run no Spark job for {seconds:g} seconds: Spark is still "
            "planning it, or it waits for a system that does not respond."
        )
        log.warning(
            "batch runs no Spark job",
            seconds=seconds,
            columns=columns,
            fix=fix,
            **labels(slot.task.id),
        )
        self.report(slot, SlowPlanningError(problem, fix=fix))
