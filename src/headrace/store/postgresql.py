"""Opens PostgreSQL databases the one way that all stores open them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event

from headrace.sdk.errors import ConfigError, SetupError
from headrace.store.failures import translated
from headrace.store.modes import Mode, mode_of
from headrace.store.origin import Origin
from headrace.store.pool import StorePool

if TYPE_CHECKING:
    from sqlalchemy import Engine

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
    patience = seconds + _MORE_SECONDS
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
    silence = silence_of(url.render_as_string(), patience)
    event.listen(engine, "do_connect", connector(silence, patience))
    event.listen(engine, "connect", _wait_for_disk)
    event.listen(engine, "connect", origin.connected)
    event.listen(engine, "checkin", lambda made, _: _be_patient(made, patience))
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
        problem = f"{TIMEOUT} must be a number of seconds, not {text!r}."
        raise ConfigError(problem, field="store_url", fix=f"Write {TIMEOUT}={_SECONDS}.")
    return int(text)


def _wait_for_disk(connection: Any, _record: object) -> None:
    # What waits for a standby as well is left as it is.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


def _be_patient(connection: Any, seconds: float) -> None:
    if connection is not None:  # it is None when it was lost
        connection.patience = seconds


def _begin(connection: Connection, origin: Origin) -> None:
    mode = mode_of(connection)
    if mode is Mode.ALONE:
        _be_patient(connection.connection.driver_connection, _ALONE_SECONDS)
        for name in ("statement_timeout", "lock_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {name} = '{_ALONE_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ALONE})")
    elif mode is Mode.SNAPSHOT:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    elif mode is Mode.WRITE:
        origin.confirm(connection)
