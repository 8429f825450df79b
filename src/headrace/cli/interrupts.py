"""Ctrl-C and SIGTERM: the first signal stops cleanly, a second Ctrl-C exits at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_KILLED_BY_CTRL_C = 130
_SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Handles both signals during a run; use it in a ``with``, in the main thread.

    Args:
        began: Returns whether any task has started. Before that there is nothing to
            finish, so a signal raises KeyboardInterrupt.
        stop: Asks the run to stop.
    """

    def __init__(self, began: Callable[[], bool], stop: Callable[[], None]) -> None:
        self._began = began
        self._stop = stop
        self._before: dict[int, object] = {}
        self.stopped = False

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._taken)
        return self

    def take_back(self) -> None:
        """Install the Ctrl-C handler again, because Spark replaces it when it starts."""
        signal.signal(signal.SIGINT, self._taken)

    def __exit__(self, *_: object) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as signal.signal returned it
        self._before.clear()

    def _taken(self, number: int, _frame: FrameType | None) -> None:
        if self.stopped:
            if number == signal.SIGINT:
                _end_at_once()
            return
        self.stopped = True
        if not self._began():
            raise KeyboardInterrupt
        # In a thread: a signal handler runs between any two instructions of the main
        # thread, which may hold locks that stopping needs.
        threading.Thread(target=self._stop, name="headrace-stop", daemon=True).start()


def _end_at_once() -> None:
    """Exit without finishing: intents are stored, so the next run repeats the batch."""
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR + "\n")
        sys.stderr.flush()
    os._exit(_KILLED_BY_CTRL_C)
