"""Opens PostgreSQL databases the one way that all stores open them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import URL, Connection, Engine, create_engine, event

from headrace.sdk.errors import ConfigError, SetupError
from headrace.store.connections import Mode, StorePool, lock_name, mode_of, translated
from headrace.store.rows import raise_floors, set_back
from headrace.store.tables import fact, put_fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.pool import ConnectionPoolEntry

log = structlog.get_logger(__name__)


_KEY = "headrace_origin"
_FACT = "origin"
_QUERY = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
       substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
       (SELECT oid FROM pg_database WHERE datname = current_database())::text,
       to_regclass('tasks')::oid::text
WHERE NOT pg_is_in_recovery()
"""
"""The cluster, its timeline, which is the next one after each promotion or recovery to a point
in time, the database, and the table, which is another one after a dump was loaded."""


class Origin:
    """Compares the database behind new connections with the one that the store was in.

    A standby that is promoted may lack the newest transactions, and a restored backup does.
    The numbers that they held may be in targets, so new ones must be larger (Guarantee 1).
    """

    def __init__(self) -> None:
        self._confirmed: list[object] | None = None

    def connected(self, connection: Any, record: ConnectionPoolEntry) -> None:
        """Look which database a new connection leads to."""
        import psycopg  # noqa: PLC0415 - it may not be installed

        try:
            record.info[_KEY] = _seen(connection.execute(_QUERY).fetchone())
        except psycopg.Error as error:
            # Not every service that speaks PostgreSQL's language lets everyone know.
            log.debug("the origin of the store is not known", why=str(error))
            record.info[_KEY] = None
        connection.rollback()

    def confirm(self, db: Connection) -> None:
        """Raise the floors, in a transaction that writes, if the database is another one."""
        if db.info.get(_KEY) == []:  # it led to a standby, which may be promoted by now
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
            log.warning("the database of the store is another one", was=known, now=seen)
            if known[2:] == seen[2:]:
                # Perhaps nothing is missing: an intent is looked for in the targets.
                raise_floors(db)
            else:
                set_back(db)
        put_fact(db, _FACT, seen)


def _seen(row: Sequence[object] | None) -> list[object] | None:
    """Return what a row says; nothing of a standby, None where it is not all known."""
    if row is None:
        return []
    return None if None in row else list(row)


TIMEOUT = "connect_timeout"
"""The key of a URL that says for how many seconds an answer is waited for."""
_SECONDS = 5
_MORE_SECONDS = 2
"""How much longer is waited for the server to say itself that something takes too long."""
_ISOLATION = r"-c default_transaction_isolation=read\ committed"
_ALONE = 0x6865_6164_7261_6365
"""The number of the lock of transactions that are alone: the letters of ``headrace``."""
_ALONE_SECONDS = 600
"""How long a transaction that is alone may take: it may change tables."""


def open_postgresql(url: URL) -> Engine:
    """Return an engine on the database. Nothing is connected yet.

    Whatever is configured there, a statement of a transaction that writes sees what was
    committed before it, also while the transaction waited for a lock, and a commit waits for
    the disk: an intent lost in a power failure would let its id be used again.

    A server that does not answer is given up after the URL's ``connect_timeout`` and a little
    more, whether it, its machine or the network is at fault. A transaction of ours that a
    broken line has left behind is ended by the server, so that its locks go.

    Raises:
        ConfigError: The time-out is not a number of seconds.
        SetupError: The driver is not installed.
    """
    seconds = _seconds(url)
    answer_timeout = seconds + _MORE_SECONDS
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=_arguments(url, seconds),
            poolclass=StorePool,
            pool_size=8,
            pool_timeout=seconds,
            pool_pre_ping=True,  # a connection that the server closed meanwhile is replaced
        )
        from headrace.store.silent_server import (  # noqa: PLC0415 - it needs the driver
            connector,
            silence_of,
        )
    except ModuleNotFoundError as error:
        problem = f"The driver of PostgreSQL cannot be loaded: {error}."
        fix = "Install it: pip install 'headrace[postgresql]'."
        raise SetupError(problem, field="store_url", fix=fix) from error
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
    """Return how to connect; what the URL says of the line wins."""
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
    # What waits for a standby as well is left as it is.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


def _set_answer_timeout(connection: Any, seconds: float) -> None:
    if connection is not None:  # it is None when it was lost
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
