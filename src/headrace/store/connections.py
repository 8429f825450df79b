"""Database access of stores: transaction modes, locks, error translation, and SQLite."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import structlog
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    ExceptionContext,
    QueuePool,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoneFreeError
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential
from typing_extensions import override

from headrace.permissions import FILE, make_private_folder, narrow
from headrace.sdk.errors import HeadraceError, SetupError
from headrace.store.errors import StoreDamagedError, StoreMissingError, StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection


log = structlog.get_logger(__name__)

_OPTION = "headrace_mode"


class Mode(Enum):
    """The isolation of a transaction."""

    READ = "read"
    """No isolation: each statement sees what is committed."""
    SNAPSHOT = "snapshot"
    """All statements see a snapshot of the rows from the start of the transaction."""
    WRITE = "write"
    """Excludes other writers of the rows that the transaction has locked."""
    ALONE = "alone"
    """Excludes all other ALONE transactions."""


def in_mode(engine: Engine, mode: Mode) -> Engine:
    """Return an engine for transactions in a mode; it shares the connections."""
    return engine.execution_options(**{_OPTION: mode})


def mode_of(connection: Connection) -> Mode:
    """Return the mode for transactions of a connection."""
    found: Mode = connection.get_execution_options().get(_OPTION, Mode.READ)
    return found


def lock_name(db: Connection, *names: str) -> None:
    """Lock names until the transaction ends; others wait in their ``lock_name`` of them.

    For rows that do not exist yet, and so cannot be locked. Does nothing in SQLite, where a
    write transaction excludes all other writers.
    """
    if db.dialect.name == "postgresql":
        key = func.hashtextextended("\n".join(names), 0)
        db.execute(select(func.pg_advisory_xact_lock(key)))


class StorePool(QueuePool):
    """Raises StoreUnavailableError if all connections are in use for too long."""

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
    "55P03",  # lock not available in time
    "57",  # cancelled, shut down, cannot connect now
    "58",  # input or output error
)
"""The SQLSTATE prefixes of temporary errors of PostgreSQL."""
_FIXES = {
    sqlite3.SQLITE_FULL: "Free space on the file system of {path}.",
    sqlite3.SQLITE_READONLY: "Grant this process write access to {path} and its folder.",
    sqlite3.SQLITE_CANTOPEN: "Grant this process access to {path} and its folder.",
    sqlite3.SQLITE_IOERR: "Check the file system of {path} and its free space.",
    sqlite3.SQLITE_BUSY: "Stop the process that has locked {path}.",
    sqlite3.SQLITE_LOCKED: "Stop the process that has locked {path}.",
    sqlite3.SQLITE_NOMEM: "",
    sqlite3.SQLITE_INTERRUPT: "",
    sqlite3.SQLITE_PROTOCOL: "",
}
"""The result codes of temporary errors of SQLite, with their fixes."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY = 0xFF  # the lowest byte of an extended result


def of_sqlite(error: BaseException | None, file: StoreFile) -> HeadraceError | None:
    """Translate an error of SQLite's driver; return None for a programming error."""
    result = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    if result in _DAMAGED:
        return file.damaged(str(error))
    if result not in _FIXES:
        return None
    fix = _FIXES[result].format(path=file.path)
    return StoreUnavailableError(_problem(error), fix=fix)


def of_postgresql(error: BaseException | None) -> StoreUnavailableError | None:
    """Translate an error of PostgreSQL's driver; return None for a programming error."""
    state = getattr(error, "sqlstate", None)
    if state is None or not state.startswith(_PASSING):
        return None
    return StoreUnavailableError(_problem(error))


def translate(error: BaseException, file: StoreFile | None) -> HeadraceError | None:
    """Translate an error of SQLAlchemy; return None for a programming error."""
    if not isinstance(error, DBAPIError):
        return None
    if file is not None:
        return of_sqlite(error.orig, file)
    found = of_postgresql(error.orig)
    # Errors of the connection itself have no SQLSTATE.
    lost = isinstance(error, OperationalError | InterfaceError)
    return found or (StoreUnavailableError(_problem(error.orig)) if lost else None)


def translated(engine: Engine, file: StoreFile | None = None) -> None:
    """Make an engine raise translated errors."""

    def reraise(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        found = None if error is None else translate(error, file)
        if found is not None:
            raise found from error

    event.listen(engine, "handle_error", reraise)


def _problem(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return f"The store did not respond: {lines[0] if lines else type(error).__name__}."


BACKUPS = "backups"
"""The folder beside the store for its backups."""
BESIDE = ("-wal", "-shm")
_MARKER_TEXT = (
    "{name} belongs here. While this file exists and {name} does not, Headrace does not start, "
    "so that it does not replace a lost store by an empty one.\n"
)
_SHOWN = 3


class StoreFile:
    """The SQLite file that an engine has opened. Thread-safe.

    If an open file is deleted or replaced, the process continues to write to the old file, and
    the data is lost when the process ends. So each transaction checks that the path still
    refers to the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._size = 0

    @property
    def marker(self) -> Path:
        """The file that marks that there was a store here."""
        return self.path.with_name(f"{self.path.name}.marker")

    def open(self) -> None:
        """Create the file if there was no store yet, readable only by its owner.

        Raises:
            StoreMissingError: There was a store, but its file is missing or empty.
            OSError: The file cannot be created.
        """
        make_private_folder(self.path.parent)
        if self.marker.exists() and not (self.path.exists() and self.path.stat().st_size):
            what = "is empty" if self.path.exists() else "is missing"
            raise self._missing(what)
        # SQLite gives the files beside it the permissions of this one.
        self.path.touch(FILE)
        beside = [self.path.with_name(f"{self.path.name}{end}") for end in BESIDE]
        narrowed = narrow([self.path, *beside])
        if narrowed:
            names = [each.name for each in narrowed]
            log.warning("store files were accessible to other users", now_private=names)
        found = self.path.stat()
        self._file, self._size = (found.st_dev, found.st_ino), found.st_size

    def mark(self) -> None:
        if not self.marker.exists():
            self.marker.touch(FILE)
            self.marker.write_text(_MARKER_TEXT.format(name=self.path.name))

    def check(self) -> None:
        """Raise StoreMissingError if the file was deleted, replaced or truncated."""
        wrong = self._wrong()
        if wrong:
            raise self._missing(wrong)

    def _wrong(self) -> str:
        try:
            found = self.path.stat()
        except OSError:
            return "was deleted"
        if (found.st_dev, found.st_ino) != self._file:
            return "was replaced by another file"
        if found.st_size < self._size:
            return "was truncated"
        self._size = found.st_size
        return ""

    def lost(self, what: str) -> None:
        raise self._missing(what)

    def damaged(self, why: str) -> StoreDamagedError:
        problem = f"The store {self.path} is damaged: {why}."
        return StoreDamagedError(problem, field="home", fix=self._restore())

    def _missing(self, what: str) -> StoreMissingError:
        problem = f"The store {self.path} {what}; nothing can be stored."
        return StoreMissingError(problem, field="home", fix=self._restore())

    def _restore(self) -> str:
        folder = self.path.parent / BACKUPS
        found = sorted(folder.glob("store-*.db"), reverse=True)[:_SHOWN]
        if not found:
            return (
                f"Stop the server, and restore a copy of the store with `headrace backup "
                f"restore FILE` (there is none in {folder}), or start with an empty store with "
                "`headrace backup restore --empty`."
            )
        times = [datetime.fromtimestamp(each.stat().st_mtime, UTC) for each in found]
        newest = ", ".join(
            f"{each.name} of {time:%Y-%m-%d %H:%M:%S %Z}"
            for each, time in zip(found, times, strict=True)
        )
        return (
            f"Stop the server, and restore a backup with `headrace backup restore {found[0]}`"
            f"; the newest are: {newest}."
        )


_TURN = "headrace_turn"
_WRITES = {Mode.WRITE, Mode.ALONE}


class Turns:
    """A fair lock: threads get it in the order in which they asked. Thread-safe.

    A SQLite connection that finds the file locked retries with a growing sleep, so with many
    writers one of them may starve for seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self.waiting: deque[threading.Event] = deque()
        """The waiting threads, the first one in front."""

    def take(self, seconds: float) -> bool:
        """Acquire the lock within a time; return whether it succeeded, then call ``give``."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Event()
            self.waiting.append(mine)
        mine.wait(seconds)
        with self._lock:
            if mine.is_set():  # possibly set after the timeout
                return True
            self.waiting.remove(mine)
            return False

    def give(self) -> None:
        """Release the lock to the thread that has waited longest."""
        with self._lock:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self._taken = False


_of_files: WeakValueDictionary[Path, Turns] = WeakValueDictionary()
_files = threading.Lock()


def take_turns(engine: Engine, path: Path, seconds: float) -> None:
    """Make the engine's write transactions wait for each other in order of arrival.

    This includes other engines of this process on the same file. After ``seconds`` a
    transaction stops waiting and uses SQLite's own lock, as other processes do.
    """
    with _files:
        turns = _of_files.setdefault(path.resolve(), Turns())

    def begin(connection: Connection) -> None:
        if mode_of(connection) in _WRITES and turns.take(seconds):
            connection.info[_TURN] = turns

    event.listen(engine, "begin", begin)
    # Not at "commit", which SQLAlchemy signals before the commit happens.
    for ended in ("checkin", "invalidate", "close"):
        event.listen(engine, ended, _ended)


def _ended(_connection: object, record: ConnectionPoolEntry, *_: object) -> None:
    held = record.info.pop(_TURN, None)
    if held is not None:
        held.give()


BUSY_SECONDS = 30
"""How long a connection waits for a transaction of another connection."""
_warned: set[Path] = set()
"""Files with a logged warning that they have no write-ahead log."""


def open_sqlite(path: Path) -> Engine:
    """Return an engine on the file, in WAL mode, and create its folder if missing.

    Commits wait for the disk (``synchronous=FULL``): otherwise an intent could be lost in a
    power failure and its id used again. WRITE and ALONE transactions hold the write lock from
    their start. No transaction begins or commits while the path refers to another file than the
    one that was opened.

    Raises:
        StoreMissingError: There was a store here, but it is missing.
        SetupError: The file cannot be created or written.
    """
    file = StoreFile(path)
    try:
        file.open()
    except OSError as error:
        problem = f"The store {path} cannot be opened: {error.strerror}."
        fix = "Grant this process access to it and its folder, or set another with --home."
        raise SetupError(problem, field="home", fix=fix) from error
    # A URI with mode=rw: a plain path would create a missing file.
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

    It has one connection, so transactions wait for each other. It is gone when the engine is
    disposed.
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


def _prepare_connection(connection: Any, path: Path) -> None:
    connection.isolation_level = None  # SQLAlchemy's BEGIN below, not the driver's own
    connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    mode = _turn_to_wal(connection)
    if mode != "wal" and path not in _warned:
        _warned.add(path)
        log.warning(
            "the file system of the store does not support shared memory, so readers and "
            "writers block each other; put the home folder on a local disk",
            store=str(path),
            journal_mode=mode,
        )
    connection.execute("PRAGMA synchronous=FULL")


@retry(
    retry=retry_if_exception(
        lambda error: getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY
    ),
    wait=wait_random_exponential(multiplier=0.01, max=0.5),
    stop=stop_after_delay(BUSY_SECONDS),
    reraise=True,
)
def _turn_to_wal(connection: Any) -> str:
    # If several processes open a new file at once, all but one fail at once: the busy timeout
    # does not apply to changing the journal mode.
    return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _begin(connection: Connection, file: StoreFile) -> None:
    file.check()
    # A transaction that reads and then writes must hold the write lock from its start:
    # otherwise SQLite fails it at once if another writer has committed in between.
    writes = mode_of(connection) in _WRITES
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
