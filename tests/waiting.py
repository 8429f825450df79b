"""Wait for what another thread or process is to bring about."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1


def until(
    condition: Callable[[], T],
    why: Callable[[], object] = lambda: "it did not become true in time",
    *,
    seconds: float = 240,
) -> T:
    """Return what a condition gives once it is true; where that takes long, fail."""
    by, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while not (found := condition()):
        assert time.monotonic() < by, why()
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 1.5)
    return found
