"""PostgreSQL as the database of the stores, also if it does not answer. Needs the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import psycopg
import structlog
from sqlalchemy import URL, Connection, Engine, create_engine, event
from typing_extensions import override

from headrace.sdk.errors import ConfigError
from headrace.store.connections import Mode, StorePool, lock_name, mode_of, translated
from headrace.store.errors import StoreUnavailableError
from headrace.store.rows import raise_floors, set_back
from headrace.store.tables import fact, put_fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.pool import ConnectionPoolEntry

log = structlog.get_logger(__name__)

_NEVER = 86_400.0
_PAUSE_SECONDS = 2.0
"""How long after a timeout the server is tried again."""
_KEY = "headrace_origin"
_FACT = "origin"
_QUERY = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
       substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
       (SELECT oid FROM pg_database WHERE datname = current_database())::text,
       to_regclass('tasks')::oid::text
WHERE NOT pg_is_in_recovery()
"""
"""The cluster; its timeline, which changes with each promotion or point-in-time recovery; the
database; and the OID of the table, which changes when a dump is loaded."""


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


class Origin:
    """Detects whether a connection leads to another database than the store used before.

    A promoted standby may lack the newest transactions, and a restored backup does. Targets may
    have marks with the numbers in those transactions, so new numbers must be larger
    (Guarantee 1).
    """

    def __init__(self) -> None:
        self._confirmed: list[object] | None = None

    def connected(self, connection: Any, record: ConnectionPoolEntry) -> None:
        """Record the database that a new connection leads to."""
        try:
            record.info[_KEY] = _seen(connection.execute(_QUERY).fetchone())
        except psycopg.Error as error:
            # Some PostgreSQL-compatible services do not permit this query.
            log.debug("cannot determine the origin of the store", why=str(error))
            record.info[_KEY] = None
        connection.rollback()

    def confirm(self, db: Connection) -> None:
        """Raise the floors, in a write transaction, if the database is another one."""
        if db.info.get(_KEY) == []:  # it was a standby, which may be promoted by now
            db.info[_KEY] = _seen(db.exec_driver_sql(_QUERY).one_or_none())
        seen: list[object] | None = db.info.get(_KEY)
        if not seen or seen == self._confirmed:
            return
        lock_name(db, "origin")
        known = fact(db, _FACT)
        if known == seen:
            self._confirmed = seen
            return
        if isinstance(known, list):
            log.warning("the store is in another database than before", was=known, now=seen)
            if known[2:] == seen[2:]:
                # Possibly nothing is missing: tasks look up their intents in the targets.
                raise_floors(db)
            else:
                set_back(db)
        put_fact(db, _FACT, seen)


def _seen(row: Sequence[object] | None) -> list[object] | None:
    """Return the values of a row; empty for a standby, None if not all are known."""
    if row is None:
        return []
    return None if None in row else list(row)


TIMEOUT = "connect_timeout"
"""The URL parameter for the timeout of a response, in seconds."""
_SECONDS = 5
_MORE_SECONDS = 2
"""Additional wait, so that the server can report its own timeout first."""
_ISOLATION = r"-c default_transaction_isolation=read\ committed"
_ALONE = 0x6865_6164_7261_6365
"""The advisory lock of ALONE transactions: the letters of ``headrace``."""
_ALONE_SECONDS = 600
"""The timeout of an ALONE transaction, which may migrate tables."""


def open_postgresql(url: URL) -> Engine:
    """Return an engine on the database, without connecting yet.

    Regardless of the server's configuration, write transactions are READ COMMITTED, so that a
    statement sees commits from while the transaction waited for a lock. Commits wait for the
    disk: otherwise an intent could be lost in a power failure and its id used again.

    A server that does not respond is given up after the URL's ``connect_timeout`` and a little
    more, whether the server, its machine or the network hangs. The server ends transactions
    left behind by a broken connection, so that their locks are released.

    Raises ConfigError: the timeout is not a number of seconds.
    """
    seconds = _seconds(url)
    answer_timeout = seconds + _MORE_SECONDS
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args=_arguments(url, seconds),
        poolclass=StorePool,
        pool_size=8,
        pool_timeout=seconds,
        pool_pre_ping=True,  # replace connections that the server has closed
    )
    translated(engine)
    origin = Origin()
    silence = silence_of(url.render_as_string(), answer_timeout)
    event.listen(engine, "do_connect", connector(silence, answer_timeout))
    event.listen(engine, "connect", _wait_for_disk)
    event.listen(engine, "connect", origin.connected)
    event.listen(engine, "checkin", lambda made, _: _set_answer_timeout(made, answer_timeout))
    event.listen(engine, "begin", lambda db: _begin(db, origin))
    return engine


def _arguments(url: URL, seconds: int) -> dict[str, str | int]:
    """Return the connection arguments; keepalive parameters of the URL take precedence."""
    server = {
        "lock_timeout": f"{seconds}s",
        "statement_timeout": f"{seconds + 1}s",
        "idle_in_transaction_session_timeout": f"{2 * seconds}s",
        "tcp_keepalives_idle": str(seconds),
        "tcp_keepalives_interval": str(seconds),
        "tcp_keepalives_count": "3",
    }
    ours = " ".join(f"-c {name}={value}" for name, value in server.items())
    line: dict[str, str | int] = {
        "keepalives_idle": seconds,
        "keepalives_interval": seconds,
        "keepalives_count": 3,
        "tcp_user_timeout": 1000 * (seconds + _MORE_SECONDS),
    }
    return {
        "application_name": "headrace",
        TIMEOUT: seconds,
        "options": " ".join([ours, str(url.query.get("options", "")), _ISOLATION]),
        **{key: value for key, value in line.items() if key not in url.query},
    }


def _seconds(url: URL) -> int:
    text = url.query.get(TIMEOUT, str(_SECONDS))
    if not isinstance(text, str) or not text.isdecimal() or int(text) < 1:
        problem = f"Invalid {TIMEOUT} {text!r}; expected a whole number of seconds."
        raise ConfigError(problem, field="store_url", fix=f"Write {TIMEOUT}={_SECONDS}.")
    return int(text)


def _wait_for_disk(connection: Any, _record: object) -> None:
    # Stronger settings, which also wait for a standby, stay unchanged.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


def _set_answer_timeout(connection: Any, seconds: float) -> None:
    if connection is not None:  # None if the connection was lost
        connection.answer_timeout = seconds


def _begin(connection: Connection, origin: Origin) -> None:
    mode = mode_of(connection)
    if mode is Mode.ALONE:
        _set_answer_timeout(connection.connection.driver_connection, _ALONE_SECONDS)
        for name in ("statement_timeout", "lock_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {name} = '{_ALONE_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ALONE})")
    elif mode is Mode.SNAPSHOT:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    elif mode is Mode.WRITE:
        origin.confirm(connection)
