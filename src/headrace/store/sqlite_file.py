"""Opens SQLite files the one way that all stores open them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from headrace.store.modes import Mode, mode_of
from headrace.store.turns import take_turns

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine


BUSY_SECONDS = 30
"""How long a connection waits for another one's transaction."""


def open_sqlite(path: Path) -> Engine:
    """Return an engine on the file, in WAL mode, and make its folder when it is missing.

    Commits wait for the disk (``synchronous=FULL``): an intent lost in a power failure would
    let its id be used again. Transactions that write, or are to be alone, hold the write lock
    from their beginning.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=8)
    event.listen(engine, "connect", _prepare_connection)
    take_turns(engine, path, BUSY_SECONDS)
    event.listen(engine, "begin", _begin)
    return engine


def _is_locked(error: BaseException) -> bool:
    return (
        isinstance(error, sqlite3.OperationalError)
        and error.sqlite_errorcode == sqlite3.SQLITE_BUSY
    )


def _prepare_connection(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy's BEGIN below, not the driver's own
    connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    _turn_to_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")


@retry(
    retry=retry_if_exception(_is_locked),
    wait=wait_random_exponential(multiplier=0.01, max=0.5),
    stop=stop_after_delay(BUSY_SECONDS),
    reraise=True,
)
def _turn_to_wal(connection: Any) -> None:
    # Of several that open a new file at once all but one are refused without any wait: the
    # busy time-out does not hold for a change of the journal's mode.
    connection.execute("PRAGMA journal_mode=WAL")


def _begin(connection: Connection) -> None:
    # A transaction that reads and then writes must hold the write lock from its start,
    # or SQLite fails it at once when another writer came between.
    writes = mode_of(connection) in {Mode.WRITE, Mode.ALONE}
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
