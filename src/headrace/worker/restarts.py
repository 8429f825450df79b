"""Whether and when failed tasks and connectors restart, by the policy of each."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from headrace.model import (
    RestartPolicy,
    SchemaChangeError,
    SparkCrashedError,
    TaskId,
    ToleranceExceededError,
    TooManyRejectedError,
)
from headrace.sdk import (
    DataLostError,
    HeadraceError,
    RecordError,
    RetriableError,
    UnfitRecordError,
)
from headrace.sdk.errors import Category, StaleEpochError
from headrace.worker.events import trace_of

if TYPE_CHECKING:
    from datetime import datetime


_SOON = 5.0
"""Seconds until a restart that could not be attempted is due again."""
Part: TypeAlias = TaskId | str
"""A task, or the name of a connector."""

_LASTING = (
    DataLostError,
    RecordError,
    SchemaChangeError,
    SparkCrashedError,
    StaleEpochError,
    ToleranceExceededError,
    TooManyRejectedError,
    UnfitRecordError,
)
"""Failures that recur until the data or the definition is fixed."""


def is_lasting(error: Exception) -> bool:
    """Return whether a restart is useless until something is fixed."""
    ours = isinstance(error, HeadraceError) and error.category is not Category.RUN
    return ours or isinstance(error, _LASTING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a failure.

    Args:
        wait: The time until the next restart; None if there is none.
        text: The text to show; empty if automatic restarts are off.
    """

    wait: timedelta | None = None
    text: str = ""


def traced(
    error: Exception | None, verdict: Verdict, now: datetime
) -> tuple[str | None, datetime | None]:
    """Return the trace to store for a failure, and the time of the next restart."""
    if error is None:
        return None, None
    if verdict.wait is None:
        return "\n".join(filter(None, [trace_of(error), verdict.text])), None
    later = now + verdict.wait
    text = f"{verdict.text} is due at {later:%Y-%m-%d %H:%M:%S %Z}."
    return f"{trace_of(error)}\n{text}", later


@dataclass
class _Failing:
    attempts: int = 0
    due: float | None = None


@dataclass
class Restarts:
    """Decides whether failed tasks and connectors restart, and when. Thread-safe.

    Args:
        clock: A monotonic clock, in seconds.
        chance: Returns a random number in [0, 1).
    """

    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    _policies: dict[Part, RestartPolicy] = field(default_factory=dict)
    _failing: dict[Part, _Failing] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, parts: Iterable[Part], policy: RestartPolicy) -> None:
        """Set the restart policy of these parts; without one there are no restarts."""
        with self._lock:
            self._policies.update(dict.fromkeys(parts, policy))

    def failed(self, part: Part, error: Exception, ran: timedelta = timedelta()) -> Verdict:
        """Record a failure; return the decision about it."""
        with self._lock:
            policy = self._policies.get(part, RestartPolicy())
            if not policy.enabled:
                return Verdict()
            if is_lasting(error):
                self._failing.pop(part, None)
                return Verdict(text="Not restarted automatically: fix this error first.")
            failing = self._failing.setdefault(part, _Failing())
            if ran >= policy.quiet:
                failing.attempts = 0
            failing.attempts += 1
            if policy.gives_up(failing.attempts):
                del self._failing[part]
                text = f"It stays failed after {policy.attempts} consecutive restarts."
                return Verdict(text=text)
            asked = error.after if isinstance(error, RetriableError) else None
            wait = max(policy.wait(failing.attempts, self.chance()), asked or timedelta())
            failing.due = self.clock() + wait.total_seconds()
            of = "" if policy.attempts is None else f" of {policy.attempts}"
            return Verdict(wait, f"Restart {failing.attempts}{of}")

    def due(self) -> list[Part]:
        """Return the parts whose restart is due now; each is returned once."""
        now = self.clock()
        with self._lock:
            found = [p for p, f in self._failing.items() if f.due is not None and f.due <= now]
            for part in found:
                self._failing[part].due = None
            return found

    def postpone(self, part: Part) -> None:
        """Make a part due again soon, since its restart could not be attempted."""
        with self._lock:
            failing = self._failing.get(part)
            if failing is not None:
                failing.due = self.clock() + _SOON

    def forget(self, parts: Iterable[Part]) -> None:
        """Reset the restart counts and pending restarts, e.g. after a manual restart."""
        with self._lock:
            for part in parts:
                self._failing.pop(part, None)

    def drop(self, parts: Iterable[Part]) -> None:
        """Remove parts that were deleted, with their policies."""
        with self._lock:
            for part in parts:
                self._failing.pop(part, None)
                self._policies.pop(part, None)
