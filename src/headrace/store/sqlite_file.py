"""Opens SQLite files the one way that all stores open them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine


def open_sqlite(path: Path) -> Engine:
    """Return an engine on the file, in WAL mode, and make its folder when it is missing.

    Commits wait for the disk (``synchronous=FULL``): an intent lost in a power failure would
    let its id be used again. Connections with the execution option ``writes`` hold the write
    lock from the beginning of a transaction.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=8)
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare_connection(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy's BEGIN below, not the driver's own
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    # A transaction that reads and then writes must hold the write lock from its start,
    # or SQLite fails it at once when another writer came between.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
