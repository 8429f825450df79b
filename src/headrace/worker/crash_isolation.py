"""Finds the task whose batch crashes Spark's JVM, among those that run at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass
class CrashIsolation:
    """Lets a suspect, a task that ran when Spark's JVM crashed, run without others beside it.

    A crash counts against a task only if no other ran at any time meanwhile, so no task fails
    because of another one's batch. The tasks of one process share this object. Thread-safe.

    Args:
        patience: How long a suspect waits for tasks that run, and how long others wait for it,
            each time. So a task that hangs delays others, and does not stop them.
        attributed: Called for each crash that counts against a task.
        clock: A monotonic clock in seconds.
    """

    patience: timedelta = timedelta(minutes=1)
    attributed: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: set[object] = field(default_factory=set)
    _alone: object | None = None
    _suspect: object | None = None
    _until: float = 0.0

    def enter(self, task: object, *, is_suspect: bool) -> bool:
        """Return whether a task may run now; if so it has to ``leave``."""
        with self._lock:
            now = self.clock()
            if self._suspect not in {None, task} and now < self._until:
                return False
            if is_suspect:
                if self._suspect is not task:
                    self._suspect, self._until = task, self._later(now)
                if self._running and now < self._until:
                    return False
                self._until = self._later(now)
            self._alone = None if self._running else task
            self._running.add(task)
            return True

    def is_alone(self, task: object) -> bool:
        """Return whether no other task has run since a running task entered."""
        with self._lock:
            return self._alone is task

    def leave(self, task: object) -> None:
        """End the turn of a task, or its waiting for one."""
        with self._lock:
            self._running.discard(task)
            if self._suspect is task:
                self._suspect = None

    def _later(self, now: float) -> float:
        return now + self.patience.total_seconds()
