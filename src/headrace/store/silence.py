"""What a process knows of a server that does not answer: only one asks it at a time."""

from __future__ import annotations

import threading
import time
from weakref import WeakValueDictionary

from headrace.store.errors import StoreUnavailableError

_PAUSE_SECONDS = 2.0
"""How long after it was silent a server is asked again."""


class Silence:
    """Answers for a silent server, so that not everybody waits for it. Any thread may call it.

    Else a server of Headrace with many tasks would wait the time-out for each of them, one
    after the other, when it is told to end.

    Args:
        seconds: How long it takes to find out that the server is still silent.
    """

    def __init__(self, seconds: float) -> None:
        """Begin with a server that answers."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until = 0.0

    def heard_nothing(self) -> None:
        """Say that the server did not answer in time."""
        with self._lock:
            self._until = time.monotonic() + _PAUSE_SECONDS

    def over(self) -> None:
        """Say that it has answered."""
        with self._lock:
            self._until = 0.0

    def check(self) -> None:
        """Raise StoreUnavailableError while it is silent; once in a while somebody passes."""
        now = time.monotonic()
        with self._lock:
            if now < self._until:
                problem = "The store did not answer: its server is silent."
                raise StoreUnavailableError(problem)
            if self._until:
                self._until = now + self._seconds  # until whoever passes knows


_of_servers: WeakValueDictionary[str, Silence] = WeakValueDictionary()
_servers = threading.Lock()


def silence_of(server: str, seconds: float) -> Silence:
    """Return what all of this process know of one server."""
    with _servers:
        return _of_servers.setdefault(server, Silence(seconds))
