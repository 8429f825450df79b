"""Opens SQLite databases, in files and in memory, the one way that all stores open them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import URL, Connection, create_engine, event
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from headrace.sdk.errors import SetupError
from headrace.store.failures import translated
from headrace.store.modes import Mode, mode_of
from headrace.store.pool import StorePool
from headrace.store.store_file import StoreFile
from headrace.store.turns import take_turns

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

log = structlog.get_logger(__name__)

BUSY_SECONDS = 30
"""How long a connection waits for another one's transaction."""
_warned: set[Path] = set()
"""Files of which it was said that they have no write-ahead log."""


def open_sqlite(path: Path) -> Engine:
    """Return an engine on the file, in WAL mode, and make its folder when it is missing.

    Commits wait for the disk (``synchronous=FULL``): an intent lost in a power failure would
    let its id be used again. Transactions that write, or are to be alone, hold the write lock
    from their beginning. No transaction begins or is committed while the path stands for
    another file than the one that was opened.

    Raises:
        StoreMissingError: There was a store here, and it is gone.
        SetupError: The file cannot be made or written.
    """
    file = StoreFile(path)
    try:
        file.open()
    except OSError as error:
        problem = f"The store {path} cannot be opened: {error.strerror}."
        fix = "Let this process read and write it and its folder, or name another with --home."
        raise SetupError(problem, field="home", fix=fix) from error
    # Not by its path, which would make a file that is missing.
    url = URL.create(
        "sqlite", database=path.absolute().as_uri(), query={"mode": "rw", "uri": "true"}
    )
    engine = create_engine(url, poolclass=StorePool, pool_size=8)
    translated(engine, file)
    event.listen(engine, "do_connect", lambda *_: file.check())
    event.listen(engine, "connect", lambda made, _: _prepare_connection(made, path))
    take_turns(engine, path, BUSY_SECONDS)
    event.listen(engine, "begin", lambda db: _begin(db, file))
    event.listen(engine, "commit", lambda _: file.check())
    return engine


def open_memory() -> Engine:
    """Return an engine on a new SQLite database in memory, without tables.

    It has one connection, so transactions wait for each other; it ends with the engine.
    """
    engine = create_engine(
        "sqlite://",
        connect_args={"check_same_thread": False},
        poolclass=StorePool,
        pool_size=1,
        max_overflow=0,
    )
    event.listen(engine, "connect", lambda made, _: setattr(made, "isolation_level", None))
    event.listen(engine, "begin", lambda db: db.exec_driver_sql("BEGIN"))
    return engine


def _is_locked(error: BaseException) -> bool:
    return (
        isinstance(error, sqlite3.OperationalError)
        and error.sqlite_errorcode == sqlite3.SQLITE_BUSY
    )


def _prepare_connection(connection: Any, path: Path) -> None:
    connection.isolation_level = None  # SQLAlchemy's BEGIN below, not the driver's own
    connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    mode = _turn_to_wal(connection)
    if mode != "wal" and path not in _warned:
        _warned.add(path)
        log.warning(
            "the file system of the store has no shared memory, so that readers and writers "
            "wait for each other; keep the home folder on a local disk",
            store=str(path),
            journal_mode=mode,
        )
    connection.execute("PRAGMA synchronous=FULL")


@retry(
    retry=retry_if_exception(_is_locked),
    wait=wait_random_exponential(multiplier=0.01, max=0.5),
    stop=stop_after_delay(BUSY_SECONDS),
    reraise=True,
)
def _turn_to_wal(connection: Any) -> str:
    # Of several that open a new file at once all but one are refused without any wait: the
    # busy time-out does not hold for a change of the journal's mode.
    return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _begin(connection: Connection, file: StoreFile) -> None:
    file.check()
    # A transaction that reads and then writes must hold the write lock from its start,
    # or SQLite fails it at once when another writer came between.
    writes = mode_of(connection) in {Mode.WRITE, Mode.ALONE}
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
