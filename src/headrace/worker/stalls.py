"""Finds Spark jobs in which nothing moves."""

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

    from headrace.worker.entries import Entry

log = structlog.get_logger(__name__)

_FIX = (
    "See what it waits for: a system that gives no answer, or Spark for executors. It is "
    "cancelled and tried again by itself with HEADRACE_SPARK_STALLED_CANCEL=true."
)


class SparkStalledError(RetriableError):
    """A Spark job has made no progress for too long, and was cancelled where so configured."""

    code = "spark.stalled"


@dataclass
class _Seen:
    """What a task's jobs had done when they last had done more."""

    activity: object
    since: float
    told: bool = False


@dataclass(kw_only=True)
class Stalls:
    """Looks now and then whether the Spark jobs of tasks get on. One thread uses it.

    Args:
        after: How long nothing may move.
        cancel: Whether what does not move is cancelled, and tried again.
        tell: Called with a task and what is wrong with it; with None when it moves again.
        clock: Gives seconds, and only goes on.
    """

    after: timedelta = timedelta(minutes=10)
    cancel: bool = False
    tell: Callable[[Entry, SparkStalledError | None], None] = lambda _entry, _error: None
    clock: Callable[[], float] = time.monotonic
    _seen: dict[Entry, _Seen] = field(default_factory=dict)

    @property
    def interval(self) -> timedelta:
        """How often to look."""
        return min(self.after / 5, timedelta(minutes=1))

    def look(self, entries: Iterable[Entry]) -> None:
        """Tell of those that have not got on for too long."""
        running = [entry for entry in entries if entry.running and entry.started]
        for gone in self._seen.keys() - set(running):
            self._moves(gone)
        for entry in running:
            activity = entry.task.activity()
            seen = self._seen.get(entry)
            if activity is None or seen is None or seen.activity != activity:
                self._moves(entry)
                if activity is not None:
                    self._seen[entry] = _Seen(activity, self.clock())
            elif not seen.told and self.clock() - seen.since >= self.after.total_seconds():
                seen.told = True
                self._stalled(entry)

    def _moves(self, entry: Entry) -> None:
        seen = self._seen.pop(entry, None)
        if seen is not None and seen.told:
            self.tell(entry, None)

    def _stalled(self, entry: Entry) -> None:
        minutes = self.after.total_seconds() / 60
        problem = f"Its Spark job has made no progress for {minutes:g} minutes."
        log.warning("Spark job makes no progress", minutes=minutes, **labels(entry.task.id))
        error = SparkStalledError(problem, fix=_FIX)
        self.tell(entry, error)
        if self.cancel:
            entry.stalled = error
            entry.cancel()
