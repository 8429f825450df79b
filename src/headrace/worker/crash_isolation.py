"""Finds the task whose batch crashes Spark's JVM, among those that run at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass
class CrashIsolation:
    """Lets a suspect, a task that ran when Spark's JVM crashed, run without others beside it.

    A crash counts against a task only if no other ran at any time meanwhile, so no task fails
    because of another one's batch, and not if it follows one of another task without a batch
    between them that succeeded: then the machine may be the cause. The tasks of one process
    share this object. Thread-safe.

    Args:
        patience: How long a suspect waits for tasks that run, and how long others wait for it,
            each time. So a task that hangs delays others, and does not stop them.
        attributed: Called for each crash that counts against a task, without a lock.
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
    _blamed: object | None = None
    _works: bool = False
    """Whether another task has moved a batch since a crash counted against ``_blamed``."""

    def enter(self, task: object, *, is_suspect: bool) -> bool:
        """Return whether a task may run now; if so it has to ``leave``."""
        with self._lock:
            now = self.clock()
            if self._suspect not in {None, task} and now < self._until:
                return False
            if is_suspect:
                if self._suspect is None:
                    self._suspect, self._until = task, self._later(now)
                if self._running and now < self._until:
                    return False
                self._suspect, self._until = task, self._later(now)
            self._alone = None if self._running else task
            self._running.add(task)
            return True

    def blame(self, task: object) -> bool:
        """Return whether a crash while a task was running counts against it."""
        with self._lock:
            if self._alone is not task:
                return False
            if self._blamed not in {None, task} and not self._works:
                return False
            self._blamed, self._works = task, False
        self.attributed()
        return True

    def succeeded(self, task: object) -> None:
        """Record that a task has moved a batch."""
        with self._lock:
            self._works = self._works or task is not self._blamed

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Run work that never waits, such as a preview; no crash meanwhile counts."""
        work = object()
        with self._lock:
            self._alone = None
            self._running.add(work)
        try:
            yield
        finally:
            self.leave(work)

    def leave(self, task: object) -> None:
        """End the turn of a task, or its waiting for one."""
        with self._lock:
            self._running.discard(task)
            if self._suspect is task:
                self._suspect = None

    def _later(self, now: float) -> float:
        return now + self.patience.total_seconds()
