"""A plugin's work that may hang, on a thread of its own."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Aside:
    """Work that goes on by itself: whoever waits for it may stop waiting.

    What it logs has the labels of whoever has started it. The thread of work that does not
    end is left behind; it keeps no process from ending.

    Args:
        name: The thread's.
        work: What is done. It must not raise.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(work,), name=name, daemon=True)
        self._thread.start()

    def has_ended(self, by: float | None = None) -> bool:
        """Wait for the end; return whether it came.

        Args:
            by: Until when to wait, in seconds of the monotonic clock; None for ever.
        """
        self._thread.join(None if by is None else max(0.0, by - time.monotonic()))
        return not self._thread.is_alive()
