"""Opens the database of the stores: a SQLite file or PostgreSQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from headrace.sdk.errors import ConfigError, SetupError
from headrace.store.connections import Mode, StoreFile, in_mode, open_memory, open_sqlite
from headrace.store.errors import StoreMissingError, StoreUnavailableError
from headrace.store.migrations import migrate
from headrace.store.rows import set_back

Place: TypeAlias = Path | str | Engine
"""A SQLite file, the URL of a PostgreSQL database (which may contain a password), or an engine
on a database that is already open, such as one in memory."""


def open_database(place: Place) -> Engine:
    """Return an engine on the database, with its tables migrated to this version.

    The engine raises temporary errors, e.g. of an unreachable server, as StoreUnavailableError.

    Raises:
        ConfigError: The URL is not a PostgreSQL URL.
        SetupError: The file cannot be used, a newer version has migrated the tables, or the
            driver of PostgreSQL is not installed.
        StoreUnavailableError: PostgreSQL cannot be reached.
    """
    if isinstance(place, Engine):
        return place
    engine = open_sqlite(place) if isinstance(place, Path) else _open_postgresql(_url(place))
    try:
        migrate(engine)
        go_on_from_copy(engine)
        if isinstance(place, Path):
            StoreFile(place).mark()
    except StoreMissingError:
        engine.dispose()
        raise
    except StoreUnavailableError as error:
        engine.dispose()
        if isinstance(place, Path):
            raise SetupError(error.problem, field="home", fix=error.fix) from error
        fix = "Restart its server, or correct its address, user and password."
        raise StoreUnavailableError(error.problem, field="store_url", fix=fix) from error
    except BaseException:
        engine.dispose()
        raise
    return engine


def memory_database() -> Engine:
    """Return an engine on a new database in memory, with all tables."""
    engine = open_memory()
    migrate(engine)
    return engine


def _open_postgresql(url: URL) -> Engine:
    try:
        from headrace.store.postgresql import open_postgresql  # noqa: PLC0415 - driver optional
    except ModuleNotFoundError as error:
        problem = f"The PostgreSQL driver cannot be loaded: {error}."
        fix = "Install it: pip install 'headrace[postgresql]'."
        raise SetupError(problem, field="store_url", fix=fix) from error
    return open_postgresql(url)


def _url(text: str) -> URL:
    fix = "Write it as postgresql://user@host:5432/database."
    try:
        url = make_url(text)
    except ArgumentError:  # its text contains the URL and so the password
        problem = "The URL cannot be parsed."
        raise ConfigError(problem, field="store_url", fix=fix) from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        problem = f"A store cannot be in {url.get_backend_name()!r}."
        raise ConfigError(problem, field="store_url", fix=fix)
    return url


_COPY = "PRAGMA user_version=1"
"""A number in the file header, free for applications: marks the file as a backup."""


def mark_as_copy(copy: sqlite3.Connection) -> None:
    """Mark a copy of a store as a backup."""
    copy.execute(_COPY)


def go_on_from_copy(engine: Engine) -> None:
    """Prepare a store for work, once, if it is a restored backup."""
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as db:
        if not _is_copy(db):
            return
    with in_mode(engine, Mode.WRITE).begin() as db:
        if not _is_copy(db):  # another process has already done it
            return
        set_back(db)
        db.exec_driver_sql("PRAGMA user_version=0")


def _is_copy(db: Connection) -> bool:
    return bool(db.exec_driver_sql("PRAGMA user_version").scalar())
