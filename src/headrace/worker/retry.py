"""When to try again after a temporary failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

_FIRST = timedelta(milliseconds=300)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits ``0.3 s * 2 ** failures``, at most ``longest``: 0.3, 0.6, 1.2, 2.4, 4.8 s...

    Args:
        longest: The longest wait (``errors.retry.delay.max.ms``).
        timeout: How long to go on trying; None or zero for ever. Kafka Connect too
            retries a busy system without end unless told otherwise.
    """

    longest: timedelta = timedelta(minutes=1)
    timeout: timedelta | None = None

    def wait(self, failures: int, asked: timedelta | None = None) -> timedelta:
        """Return the wait after so many failures in a row, or what the system asked for."""
        doubled: timedelta = _FIRST * 2 ** min(failures - 1, 20)
        return max(min(doubled, self.longest), asked or timedelta())

    def expired(self, trying_for: timedelta) -> bool:
        """Return whether it is time to give up."""
        return bool(self.timeout) and trying_for >= self.timeout  # type: ignore[operator]  # bool() saw it
