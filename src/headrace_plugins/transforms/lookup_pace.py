"""How often a service may be asked, by all the workers of a task together."""

from __future__ import annotations

import fcntl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Pace:
    """Gives out turns, evenly spaced, through a file that all askers share.

    Dividing the limit by the number of workers would waste it whenever some have nothing to
    ask. A turn costs some 20 microseconds. Workers on other machines need a file system
    that locks for all of them, and clocks in step.

    Args:
        per_second: How many turns there are in a second.
        path: The file, in a folder that exists. Remove it while nobody asks to forget turns.
        clock: Gives the seconds of a clock that all askers share.
        sleep: Waits for some seconds.
    """

    per_second: float
    path: str
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> None:
        """Wait for a turn. Any thread of any process may call it."""
        with Path(self.path).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            file.seek(0)
            turn = max(float(file.read() or 0), self.clock())
            file.truncate(0)
            file.write(repr(turn + 1 / self.per_second))
        self.sleep(max(0.0, turn - self.clock()))
