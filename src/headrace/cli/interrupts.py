"""Ctrl-C and SIGTERM: the first stops cleanly, the second Ctrl-C at once."""

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
    """Takes both signals while a run goes on; use it in a ``with``, in the main thread.

    Args:
        began: Tells whether any task has started: before that there is nothing to
            finish, so a signal ends the command by KeyboardInterrupt.
        stop: Asks the run to stop.
    """

    def __init__(self, began: Callable[[], bool], stop: Callable[[], None]) -> None:
        self._began = began
        self._stop = stop
        self._before: dict[int, object] = {}
        self.stopped = False

    def __enter__(self) -> Self:
        """Take the signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._taken)
        return self

    def take_back(self) -> None:
        """Take Ctrl-C back from Spark, which takes it for itself when it starts."""
        signal.signal(signal.SIGINT, self._taken)

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave
        self._before.clear()

    def _taken(self, number: int, _frame: FrameType | None) -> None:
        if self.stopped:
            if number == signal.SIGINT:
                _end_at_once()
            return
        self.stopped = True
        if not self._began():
            raise KeyboardInterrupt
        # A thread, because a handler runs between any two instructions of the main
        # thread, which may hold the locks that stopping needs.
        threading.Thread(target=self._stop, name="headrace-stop", daemon=True).start()


def _end_at_once() -> None:
    """Leave without finishing: intents are stored, so the next run repeats the batch."""
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR + "\n")
        sys.stderr.flush()
    os._exit(_KILLED_BY_CTRL_C)
