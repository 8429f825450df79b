"""Connections to PostgreSQL that give a silent server up. Needs the driver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg
from typing_extensions import override

from headrace.store.silence import Silence

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_NEVER = 86_400.0


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server does not answer in time.

    The time-outs of PostgreSQL and of TCP are of no use where the server's process is stopped
    and its kernel goes on answering.
    """

    patience: float = _NEVER
    """For how many seconds an answer is waited for."""
    silence: Silence

    @override
    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **values: Any) -> Any:
        """Do what psycopg wants done. All that waits for the server passes here."""
        return super().wait(self._bounded(gen), *args, **values)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        by = time.monotonic() + self.patience
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > by:  # nothing came, and psycopg looks round
                    gen.close()
                    self._give_up()
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value

    def _give_up(self) -> None:
        self.silence.heard_nothing()
        self.pgconn.finish()
        problem = f"the server was silent for {self.patience:.0f} seconds"
        raise psycopg.OperationalError(problem)


def connector(silence: Silence, patience: float) -> Callable[..., BoundedConnection]:
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
        made.silence, made.patience = silence, patience
        return made

    return connect
