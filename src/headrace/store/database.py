"""Opens the database in which stores keep their rows: a SQLite file, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import event, func, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from headrace.sdk.errors import ConfigError, SetupError
from headrace.store.errors import StoreUnavailableError
from headrace.store.migrations import migrate
from headrace.store.postgresql import open_postgresql
from headrace.store.restoring import go_on_from_copy
from headrace.store.sqlite_file import open_sqlite

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, ExceptionContext

Place: TypeAlias = Path | str
"""A SQLite file, or the URL of a PostgreSQL database (which may hold a password)."""


def open_database(place: Place) -> Engine:
    """Return an engine on the database, with all tables as this version wants them.

    An error that may pass, such as a server that is away, becomes a StoreUnavailableError.

    Raises:
        ConfigError: The URL is none of PostgreSQL.
        SetupError: The database cannot be reached, or a newer version has made its tables.
    """
    engine = open_sqlite(place) if isinstance(place, Path) else open_postgresql(_url(place))
    event.listen(engine, "handle_error", _tell)
    try:
        migrate(engine)
        go_on_from_copy(engine)
    except StoreUnavailableError as error:
        engine.dispose()
        fix = "Start its server, or correct its address, user and password."
        raise SetupError(error.problem, field="store_url", fix=fix) from error
    except BaseException:
        engine.dispose()
        raise
    return engine


def hold(db: Connection, *names: str) -> None:
    """Keep other transactions from going on beyond their own ``hold`` of these names.

    For rows that do not exist yet, and so cannot be locked. In SQLite a transaction that
    writes keeps all others away as it is.
    """
    if db.dialect.name == "postgresql":
        key = func.hashtextextended("\n".join(names), 0)
        db.execute(select(func.pg_advisory_xact_lock(key)))


def _url(text: str) -> URL:
    fix = "Write it as postgresql://user@host:5432/database."
    try:
        url = make_url(text)
    except ArgumentError:  # its text shows the URL, and with it the password
        problem = "The URL cannot be read."
        raise ConfigError(problem, field="store_url", fix=fix) from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        problem = f"A store cannot be kept in {url.get_backend_name()!r}."
        raise ConfigError(problem, field="store_url", fix=fix)
    return url


def _tell(context: ExceptionContext) -> None:
    """Say that the database is not to be had now, where the driver says so."""
    error = context.sqlalchemy_exception
    passing = isinstance(error, OperationalError | InterfaceError)
    if not passing or not isinstance(error, DBAPIError):
        return
    told = str(error.orig).strip().splitlines()
    problem = f"The store did not answer: {told[0] if told else type(error.orig).__name__}."
    raise StoreUnavailableError(problem) from error
