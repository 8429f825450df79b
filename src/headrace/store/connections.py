"""What stores need of every database: modes of transactions, locks, errors that may pass."""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, ExceptionContext, QueuePool, event, func, select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoneFreeError
from typing_extensions import override

from headrace.sdk.errors import HeadraceError
from headrace.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection

    from headrace.store.sqlite import StoreFile


_OPTION = "headrace_mode"


class Mode(Enum):
    """What a transaction needs to be kept from."""

    READ = "read"
    """Nothing: each statement sees what is committed."""
    SNAPSHOT = "snapshot"
    """Changes by others: all its statements see the rows as they were when it began."""
    WRITE = "write"
    """Others that write the same rows, once it has locked them."""
    ALONE = "alone"
    """All others that ask to be alone."""


def in_mode(engine: Engine, mode: Mode) -> Engine:
    """Return the engine for transactions of this kind; it shares the connections."""
    return engine.execution_options(**{_OPTION: mode})


def mode_of(connection: Connection) -> Mode:
    """Return the mode of the transaction that begins on a connection."""
    found: Mode = connection.get_execution_options().get(_OPTION, Mode.READ)
    return found


class StorePool(QueuePool):
    """Says that the store is not to be had when all connections are in use for too long."""

    @override
    def connect(self) -> PoolProxiedConnection:
        """Return a connection. Raises StoreUnavailableError."""
        try:
            return super().connect()
        except NoneFreeError as error:
            problem = "The store did not respond: all connections to it are in use."
            raise StoreUnavailableError(problem) from error


_PASSING = (
    "08",  # connection exception
    "25006",  # read-only: a standby, or a primary that is being handed over
    "25P03",  # idle in transaction for too long
    "40",  # serialization failure, deadlock, unknown completion
    "53",  # no space, no memory, too many connections
    "55P03",  # a lock was not to be had in time
    "57",  # cancelled, shut down, cannot connect now
    "58",  # input or output error
)
"""The SQLSTATEs of PostgreSQL that may pass, by their beginnings."""
_FIXES = {
    sqlite3.SQLITE_FULL: "Make room on the file system of {path}.",
    sqlite3.SQLITE_READONLY: "Let this process write {path} and its folder.",
    sqlite3.SQLITE_CANTOPEN: "Let this process read and write {path} and its folder.",
    sqlite3.SQLITE_IOERR: "Check the file system of {path}, and at the room on it.",
    sqlite3.SQLITE_BUSY: "End the process that holds {path} locked.",
    sqlite3.SQLITE_LOCKED: "End the process that holds {path} locked.",
    sqlite3.SQLITE_NOMEM: "",
    sqlite3.SQLITE_INTERRUPT: "",
    sqlite3.SQLITE_PROTOCOL: "",
}
"""The results of SQLite that may pass, and what helps."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY = 0xFF  # the lowest byte of an extended result


def of_sqlite(error: BaseException | None, file: StoreFile) -> HeadraceError | None:
    """Return what an error of SQLite's driver means; None where it is a fault of ours."""
    result = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    if result in _DAMAGED:
        return file.damaged(str(error))
    if result not in _FIXES:
        return None
    fix = _FIXES[result].format(path=file.path)
    return StoreUnavailableError(_problem(error), fix=fix)


def of_postgresql(error: BaseException | None) -> StoreUnavailableError | None:
    """Return what an error of PostgreSQL's driver means; None where it is a fault of ours."""
    state = getattr(error, "sqlstate", None)
    if state is None or not state.startswith(_PASSING):
        return None
    return StoreUnavailableError(_problem(error))


def translate(error: BaseException, file: StoreFile | None) -> HeadraceError | None:
    """Return what SQLAlchemy's error means; None where it is a fault of ours."""
    if not isinstance(error, DBAPIError):
        return None
    if file is not None:
        return of_sqlite(error.orig, file)
    found = of_postgresql(error.orig)
    # Those of the connection itself have no SQLSTATE.
    lost = isinstance(error, OperationalError | InterfaceError)
    return found or (StoreUnavailableError(_problem(error.orig)) if lost else None)


def translated(engine: Engine, file: StoreFile | None = None) -> None:
    """Make an engine raise what its errors mean."""

    def reraise(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        found = None if error is None else translate(error, file)
        if found is not None:
            raise found from error

    event.listen(engine, "handle_error", reraise)


def _problem(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return f"The store did not respond: {lines[0] if lines else type(error).__name__}."


def lock_name(db: Connection, *names: str) -> None:
    """Keep other transactions from going on beyond their own ``lock_name`` of these names.

    For rows that do not exist yet, and so cannot be locked. In SQLite a transaction that
    writes keeps all others away as it is.
    """
    if db.dialect.name == "postgresql":
        key = func.hashtextextended("\n".join(names), 0)
        db.execute(select(func.pg_advisory_xact_lock(key)))
