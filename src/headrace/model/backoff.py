"""When to try again after a temporary failure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST = timedelta(milliseconds=300)
_DOUBLINGS = 40
"""Enough for any ``longest``, and few enough for a timedelta."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits ``0.3 s * 2 ** (failures - 1)``: 0.3, 0.6, 1.2, 2.4, 4.8 s...

    Where that is longer than ``longest`` it waits a random time up to ``longest``, so that
    many tasks do not return to a busy system all at once, and it never waits past the
    end of ``timeout``. This is Kafka Connect's formula.

    Args:
        longest: The longest wait (``errors.retry.delay.max.ms``).
        timeout: How long to go on trying; zero for not at all, None for ever. Kafka Connect
            too retries a busy system without end.
        random: Gives a number from 0 to below 1.
    """

    longest: timedelta = timedelta(minutes=1)
    timeout: timedelta | None = None
    random: Callable[[], float] = random.random

    def wait(
        self,
        failures: int,
        asked: timedelta | None = None,
        trying_for: timedelta = timedelta(),
    ) -> timedelta:
        """Return the wait after so many failures in a row.

        Args:
            failures: At least 1.
            asked: What the system asked for, if it did: the shortest wait.
            trying_for: The time since the first of them.
        """
        wait: timedelta = _FIRST * 2 ** min(failures - 1, _DOUBLINGS)
        if wait > self.longest:
            wait = self.longest * self.random()
        wait = max(wait, asked or timedelta())
        if self.timeout is None:
            return wait
        return max(timedelta(), min(wait, self.timeout - trying_for))

    def expired(self, trying_for: timedelta) -> bool:
        """Return whether it is time to give up."""
        return self.timeout is not None and trying_for >= self.timeout
