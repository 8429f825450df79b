"""Connections to PostgreSQL with a timeout for unresponsive servers. Needs the driver."""

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
"""How long after a timeout the server is tried again."""


class Silence:
    """A circuit breaker for an unresponsive server. Thread-safe.

    Without it, a Headrace server with many tasks would wait for the timeout of each task, one
    after the other, when it stops.

    Args:
        seconds: How long it takes to detect that the server is still unresponsive.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until = 0.0

    def heard_nothing(self) -> None:
        """Record that the server did not respond in time."""
        with self._lock:
            self._until = time.monotonic() + _PAUSE_SECONDS

    def over(self) -> None:
        """Record that the server responded."""
        with self._lock:
            self._until = 0.0

    def check(self) -> None:
        """Raise StoreUnavailableError while the server is silent, except for single probes."""
        now = time.monotonic()
        with self._lock:
            if now < self._until:
                problem = "The store did not respond: its server is unresponsive."
                raise StoreUnavailableError(problem)
            if self._until:
                self._until = now + self._seconds  # until the probe has a result


_of_servers: WeakValueDictionary[str, Silence] = WeakValueDictionary()
_servers = threading.Lock()


def silence_of(server: str, seconds: float) -> Silence:
    """Return the process-wide circuit breaker of a server."""
    with _servers:
        return _of_servers.setdefault(server, Silence(seconds))


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not respond in time.

    The timeouts of PostgreSQL and TCP do not help if the server process is stopped while its
    kernel still responds.
    """

    answer_timeout: float = _NEVER
    """The timeout for a response, in seconds."""
    silence: Silence

    @override
    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **values: Any) -> Any:
        """Run a generator of psycopg. Everything that waits for the server calls this."""
        return super().wait(self._bounded(gen), *args, **values)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        by = time.monotonic() + self.answer_timeout
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > by:  # psycopg's poll returned without data
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
    """Return SQLAlchemy's connect function; it fails at once while the server is silent."""

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
            silence.over()  # the server responded with an error
            raise
        silence.over()
        made.silence, made.answer_timeout = silence, answer_timeout
        return made

    return connect
