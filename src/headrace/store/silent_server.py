"""Connections to PostgreSQL that give a silent server up. Needs the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any
from weakref import WeakValueDictionary

import psycopg
from typing_extensions import override

from headrace.store.errors import StoreUnavailableError

_NEVER = 86_400.0
_PAUSE_SECONDS = 2.0
"""How long after it was silent a server is asked again."""


class Silence:
    """Answers for a silent server, so that not everybody waits for it. Any thread may call it.

    Else a server of Headrace with many tasks would wait the time-out for each of them, one
    after the other, when it is asked to end.

    Args:
        seconds: How long it takes to find out that the server is still silent.
    """

    def __init__(self, seconds: float) -> None:
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
                problem = "The store did not respond: its server is silent."
                raise StoreUnavailableError(problem)
            if self._until:
                self._until = now + self._seconds  # until whoever passes knows


_of_servers: WeakValueDictionary[str, Silence] = WeakValueDictionary()
_servers = threading.Lock()


def silence_of(server: str, seconds: float) -> Silence:
    """Return what all of this process know of one server."""
    with _servers:
        return _of_servers.setdefault(server, Silence(seconds))


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server does not answer in time.

    The time-outs of PostgreSQL and of TCP are of no use where the server's process is stopped
    and its kernel goes on answering.
    """

    answer_timeout: float = _NEVER
    """For how many seconds an answer is waited for."""
    silence: Silence

    @override
    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **values: Any) -> Any:
        """Do what psycopg wants done. All that waits for the server passes here."""
        return super().wait(self._bounded(gen), *args, **values)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        by = time.monotonic() + self.answer_timeout
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > by:  # nothing came, and psycopg looks round
                    gen.close()
                    self._give_up()
                state = gen.send(ready)
        except StopIteration as done:
            return done.value

    def _give_up(self) -> None:
        self.silence.heard_nothing()
        self.pgconn.finish()
        problem = f"the server was silent for {self.answer_timeout:.0f} seconds"
        raise psycopg.OperationalError(problem)


def connector(silence: Silence, answer_timeout: float) -> Callable[..., BoundedConnection]:
    """Return how SQLAlchemy connects, while the server is not known to be silent."""

    def connect(
        _dialect: object, _record: object, args: tuple[Any, ...], values: dict[str, Any]
    ) -> BoundedConnection:
        silence.check()
        try:
            made = BoundedConnection.connect(*args, **values)
        except psycopg.errors.ConnectionTimeout:
            silence.heard_nothing()
            raise
        except psycopg.Error:
            silence.over()  # it says why
            raise
        silence.over()
        made.silence, made.answer_timeout = silence, answer_timeout
        return made

    return connect
