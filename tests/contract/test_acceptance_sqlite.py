"""The source and the sink of databases pass the acceptance kit on SQLite."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from headrace.sdk.testing import (
    BadConfig,
    Row,
    SinkAcceptance,
    SinkDriver,
    SourceAcceptance,
    SourceDriver,
)
from headrace.sdk.testing.driver import ALL_KINDS
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.connectors.sqlite.sink import SqliteSink


class SqliteSourceDriver(SourceDriver):
    """Inserts rows into a table, in a transaction."""

    connector = JdbcSource

    def __init__(self, file: Path, **more: str) -> None:
        self._file = file
        self._more = {key.replace("_", "."): value for key, value in more.items()}
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")

    @override
    def config(self) -> Mapping[str, str]:
        return {
            "connection.url": f"sqlite:{self._file}",
            "mode": "incrementing",
            "incrementing.column.name": "id",
            **self._more,
        }

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"incrementing.column.name": "number"}, "incrementing.column.name"),
            BadConfig({"connection.url": f"sqlite:{self._file}.none"}, "connection.url"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        with closing(sqlite3.connect(self._file)) as database:
            database.executemany("INSERT INTO rows VALUES (:id, :text)", rows)
            database.commit()


def _converters() -> None:
    """Let Python's sqlite3 make values of the texts that SQLite shows, by declared types."""
    makes: dict[str, Callable[[str], object]] = {
        "BOOLEAN": lambda text: bool(int(text)),
        "DATE": date.fromisoformat,
        "DECIMAL": Decimal,
        "DECIMAL_TEXT": Decimal,
        "TIME": time.fromisoformat,
        "TIMESTAMP": datetime.fromisoformat,
        "TIMESTAMPTZ": datetime.fromisoformat,
    }
    for name, make in makes.items():
        sqlite3.register_converter(name, partial(_made, make))


def _made(make: Callable[[str], object], shown: bytes) -> object:
    return make(shown.decode())


class SqliteDriver(SinkDriver):
    """Reads the table with Python's sqlite3; an outage is a folder in the file's place."""

    connector = SqliteSink

    def __init__(self, file: Path, **more: str) -> None:
        self._file, self._more = file, more

    @override
    def config(self) -> Mapping[str, str]:
        own = {"table.name.format": "copied", "connection.url": f"sqlite:{self._file}"}
        return {**own, **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"connection.url": "nowhere"}, "connection.url"),
            BadConfig({"insert.mode": "merge"}, "insert.mode"),
        ]

    @override
    def read_back(self) -> list[Row]:
        _converters()
        types = sqlite3.PARSE_DECLTYPES
        with closing(sqlite3.connect(self._file, detect_types=types)) as database:
            database.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in database.execute("SELECT * FROM copied")]
            except sqlite3.OperationalError:
                return []

    @override
    def refused(self, number: int) -> Row:
        with closing(sqlite3.connect(self._file)) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS copied (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"
            )
        return {"id": number, "text": None}

    @override
    def break_target(self) -> None:
        self._file.rename(f"{self._file}.kept")
        self._file.mkdir()

    @override
    def repair_target(self) -> None:
        self._file.rmdir()
        Path(f"{self._file}.kept").rename(self._file)


class _OnSqlite(SinkAcceptance):
    kinds = tuple(
        kind
        for kind in ALL_KINDS
        if kind not in {"array", "map", "struct", "nested", "not_a_number"}
    )
    why_not_all_kinds = "Values with parts are kept as JSON, and NaN is refused."


@pytest.mark.long
class TestInsert(_OnSqlite):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return SqliteDriver(tmp_path / "x.db")


class TestUpsert(_OnSqlite):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        more = {"insert.mode": "upsert", "key.fields": "id"}
        return SqliteDriver(tmp_path / "x.db", **more)


class TestTables(SourceAcceptance):
    unordered = "Rows are read in the order in which the database has them."

    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return SqliteSourceDriver(tmp_path / "x.db")


@pytest.mark.long
class TestQuery(SourceAcceptance):
    unordered = "Rows are read in the order in which the database has them."

    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return SqliteSourceDriver(tmp_path / "x.db", query="SELECT id, text FROM rows")
