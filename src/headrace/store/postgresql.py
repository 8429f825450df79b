"""Opens PostgreSQL databases the one way that all stores open them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event

from headrace.sdk.errors import SetupError
from headrace.store.modes import Mode, mode_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

_WAIT_SECONDS = 30
"""How long a connection waits for another one's lock."""
_ALONE = 0x6865_6164_7261_6365
"""The number of the lock of transactions that are alone: the letters of ``headrace``."""


def open_postgresql(url: URL) -> Engine:
    """Return an engine on the database. Nothing is connected yet.

    Whatever is configured there, a statement of a transaction that writes sees what was
    committed before it, also while the transaction waited for a lock, and a commit waits for
    the disk: an intent lost in a power failure would let its id be used again.

    Raises:
        SetupError: The driver is not installed.
    """
    ours = rf"-c lock_timeout={_WAIT_SECONDS}s -c default_transaction_isolation=read\ committed"
    arguments = {
        "application_name": "headrace",
        "connect_timeout": _WAIT_SECONDS,
        "options": f"{url.query.get('options', '')} {ours}".strip(),
    }
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=arguments,
            pool_size=8,
            pool_pre_ping=True,  # a connection that the server closed meanwhile is replaced
        )
    except ModuleNotFoundError as error:
        problem = f"The driver of PostgreSQL cannot be loaded: {error}."
        fix = "Install it: pip install 'headrace[postgresql]'."
        raise SetupError(problem, field="store_url", fix=fix) from error
    event.listen(engine, "connect", _wait_for_disk)
    event.listen(engine, "begin", _begin)
    return engine


def _wait_for_disk(connection: Any, _record: object) -> None:
    # What waits for a standby as well is left as it is.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


def _begin(connection: Connection) -> None:
    mode = mode_of(connection)
    if mode is Mode.ALONE:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ALONE})")
    elif mode is Mode.SNAPSHOT:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
