"""Keeps what has failed, and tells when it is to be started again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from headrace.model import (
    RestartPolicy,
    SchemaChangeError,
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

_SOON = 5.0
"""Seconds after which a start is tried again that was not even a try."""
Part: TypeAlias = TaskId | str
"""A task, or a connector by its name."""

_LASTING = (
    DataLostError,
    RecordError,
    SchemaChangeError,
    StaleEpochError,
    ToleranceExceededError,
    TooManyRejectedError,
    UnfitRecordError,
)
"""Failures that come back until somebody fixes the data or the definition."""


def is_lasting(error: Exception) -> bool:
    """Return whether something must be fixed before a new start makes sense."""
    ours = isinstance(error, HeadraceError) and error.category is not Category.RUN
    return ours or isinstance(error, _LASTING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done about a failure.

    Args:
        wait: The time until the next start; None when there is none.
        text: What is shown of it; empty where nothing is done unless asked for.
    """

    wait: timedelta | None = None
    text: str = ""


@dataclass
class _Failing:
    attempts: int = 0
    due: float | None = None


@dataclass
class Restarts:
    """Decides on failures, and remembers who waits for a new start. Any thread may call it.

    Times are those of a clock that only goes on, whatever happens to the time of day.

    Args:
        chance: Gives a number from 0 to below 1.
    """

    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    _policies: dict[Part, RestartPolicy] = field(default_factory=dict)
    _failing: dict[Part, _Failing] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, parts: Iterable[Part], policy: RestartPolicy) -> None:
        """Set what is done when one of these fails; nothing unless it is set."""
        with self._lock:
            self._policies.update(dict.fromkeys(parts, policy))

    def failed(self, part: Part, error: Exception, ran: timedelta = timedelta()) -> Verdict:
        """Take note of a failure; return what is done about it."""
        with self._lock:
            policy = self._policies.get(part, RestartPolicy())
            if not policy.enabled:
                return Verdict()
            if is_lasting(error):
                self._failing.pop(part, None)
                return Verdict(text="It is not restarted: this must be fixed first.")
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
        """Return what is to be started again now, each once."""
        now = self.clock()
        with self._lock:
            found = [p for p, f in self._failing.items() if f.due is not None and f.due <= now]
            for part in found:
                self._failing[part].due = None
            return found

    def postpone(self, part: Part) -> None:
        """Let something be due again soon, as it could not be started."""
        with self._lock:
            failing = self._failing.get(part)
            if failing is not None:
                failing.due = self.clock() + _SOON

    def forget(self, parts: Iterable[Part]) -> None:
        """Count from the first again, and let nothing be due: somebody has seen to these."""
        with self._lock:
            for part in parts:
                self._failing.pop(part, None)

    def drop(self, parts: Iterable[Part]) -> None:
        """Forget these altogether: they are no more."""
        with self._lock:
            for part in parts:
                self._failing.pop(part, None)
                self._policies.pop(part, None)
