"""How often the captures of one host append, all together."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RECENT_SECONDS = 5.0
"""Who has appended within so long counts as busy."""


@dataclass
class Tempo:
    """Lets captures that are busy at once append in turn: the more, the less often each.

    An append costs 20 ms of CPU in host, worker and store however few rows it holds. So
    many captures gather for longer: they carry as much, and sinks find it in fewer and
    larger pieces. Any thread may call it.

    Args:
        per_second: How many appends all captures make together.
        longest: The longest that one waits from one append to the next, in seconds.
        clock: Gives seconds that only grow.
    """

    per_second: float = 25.0
    longest: float = 2.0
    clock: Callable[[], float] = time.monotonic
    linger: float = 0.0
    """How long a capture is to wait from one append to its next, in seconds."""
    _appended: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def appended(self, capture: str) -> None:
        """Learn that a capture has appended. Called by it."""
        now = self.clock()
        with self._lock:
            self._appended[capture] = now
            since = now - _RECENT_SECONDS
            self._appended = {c: at for c, at in self._appended.items() if at > since}
            self.linger = min(len(self._appended) / self.per_second, self.longest)
