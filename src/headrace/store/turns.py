"""Who of a process's threads writes next: whoever has waited longest."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sqlalchemy import event

from headrace.store.modes import Mode, mode_of

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Engine
    from sqlalchemy.pool import ConnectionPoolEntry

_KEY = "headrace_turn"
_WRITES = {Mode.WRITE, Mode.ALONE}


class Turns:
    """Gives one thread after the other its turn. Any thread may call it.

    A connection of SQLite that finds the file locked sleeps, longer each time, and looks again:
    among many that write, one may be passed over for seconds.
    """

    def __init__(self) -> None:
        """Begin with nobody's turn."""
        self._lock = threading.Lock()
        self._taken = False
        self.waiting: deque[threading.Event] = deque()
        """Those that wait, who came first in front."""

    def take(self, seconds: float) -> bool:
        """Wait for a turn; return whether it came in time. Whoever got it must ``give``."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Event()
            self.waiting.append(mine)
        mine.wait(seconds)
        with self._lock:
            if mine.is_set():  # perhaps only just now
                return True
            self.waiting.remove(mine)
            return False

    def give(self) -> None:
        """End a turn; the next is that of whoever has waited longest."""
        with self._lock:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self._taken = False


_of_files: WeakValueDictionary[Path, Turns] = WeakValueDictionary()
_files = threading.Lock()


def take_turns(engine: Engine, path: Path, seconds: float) -> None:
    """Make the engine's transactions that write wait for each other in the order they came.

    Also for those of other engines of this process on the same file. Who has waited for
    ``seconds`` tries its luck, as do other processes.
    """
    with _files:
        turns = _of_files.setdefault(path.resolve(), Turns())

    def begin(connection: Connection) -> None:
        if mode_of(connection) in _WRITES and turns.take(seconds):
            connection.info[_KEY] = turns

    event.listen(engine, "begin", begin)
    # Not at the commit, which is told of before it is made.
    for ended in ("checkin", "invalidate", "close"):
        event.listen(engine, ended, _ended)


def _ended(_connection: object, record: ConnectionPoolEntry, *_: object) -> None:
    held = record.info.pop(_KEY, None)
    if held is not None:
        held.give()
