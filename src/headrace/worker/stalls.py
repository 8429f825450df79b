"""Finds Spark jobs in which nothing moves, and batches of which no job runs for long."""

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
    "Check what it waits for: a system that does not respond, or Spark for executors. Set "
    "HEADRACE_SPARK_STALLED_CANCEL=true to cancel and retry such jobs automatically."
)


_PLAN_FIX = (
    "Check that the systems it reads and writes respond. If they do, leave columns out at the "
    "source, or by a connector for each part of them; use fewer transforms; or let batches be "
    "larger, as each is planned anew."
)


class SlowPlanningError(RetriableError):
    """No job of a batch has run for long: Spark plans it, or a system does not respond.

    The batch goes on: this is only shown.
    """

    code = "spark.planning"


class SparkStalledError(RetriableError):
    """A Spark job has made no progress for too long, and was cancelled where so configured."""

    code = "spark.stalled"


@dataclass
class _Seen:
    activity: object
    since: float
    reported: bool = False


_PLANNING = object()
"""The activity of a task that moves a batch and has no job."""


@dataclass(kw_only=True)
class Stalls:
    """Looks now and then whether the Spark jobs of tasks get on. One thread uses it.

    Args:
        after: How long nothing may move.
        planned: How long a batch may be planned before that is said.
        report: Called with a task and what is wrong with it; with None when it moves again.
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
                activity = _PLANNING
            seen = self._seen.get(slot)
            if activity is None or seen is None or seen.activity != activity:
                self._moves(slot)
                if activity is not None:
                    self._seen[slot] = _Seen(activity, self.clock())
                continue
            most = self.planned if activity is _PLANNING else self.after
            if not seen.reported and self.clock() - seen.since >= most.total_seconds():
                seen.reported = True
                (self._plans if activity is _PLANNING else self._stalled)(slot)

    def _moves(self, slot: TaskSlot) -> None:
        seen = self._seen.pop(slot, None)
        if seen is not None and seen.reported:
            self.report(slot, None)

    def _stalled(self, slot: TaskSlot) -> None:
        minutes = self.after.total_seconds() / 60
        problem = f"Its Spark job has made no progress for {minutes:g} minutes."
        log.warning("Spark job makes no progress", minutes=minutes, **labels(slot.task.id))
        error = SparkStalledError(problem, fix=_FIX)
        self.report(slot, error)
        if self.cancel:
            slot.stalled = error
            slot.cancel()

    def _plans(self, slot: TaskSlot) -> None:
        seconds, columns = self.planned.total_seconds(), slot.task.columns()
        of = f" of {columns} columns" if columns else ""
        problem = (
            f"No Spark job of a batch{of} has run for {seconds:g} seconds: Spark plans it, or "
            "it waits for a system that does not respond."
        )
        log.warning(
            "no Spark job of a batch runs",
            seconds=seconds,
            columns=columns,
            fix=_PLAN_FIX,
            **labels(slot.task.id),
        )
        self.report(slot, SlowPlanningError(problem, fix=_PLAN_FIX))
