"""Follows the binary log of a server as a connector does."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from headrace_plugins.changes.log import Offset, Piece
from headrace_plugins.connectors.mysql.binlog_reader import BinlogReader
from headrace_plugins.connectors.mysql.binlog_runs import BinlogColumns
from headrace_plugins.connectors.mysql.binlog_settings import current_place
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.mysql import Mysql

Change = dict[str, Any]
SECONDS = 60


def database_of(url: str) -> Mysql:
    return Mysql(address_of(url))


def place_of(url: str) -> Offset:
    """Return where the log ends."""
    with database_of(url).session() as session:
        return current_place(session)


@contextmanager
def reading(
    url: str,
    after: Offset,
    cut: Offset | None = None,
    *,
    follows: Callable[[TableName], bool] | None = None,
    **options: Any,
) -> Iterator[BinlogReader]:
    """Follow the tables of a URL's database from a place on."""
    database = database_of(url)
    own = database.default_schema
    options.setdefault("heartbeat", timedelta(seconds=1))
    reader = BinlogReader(database, follows or (lambda name: name.schema == own), **options)
    try:
        reader.start(after, cut)
        yield reader
    finally:
        reader.stop()


def order(place: Offset) -> tuple[str, int]:
    return place["file"], place["pos"]


def gives_no_rows(reader: BinlogReader, seconds: float) -> bool:
    """Return whether a reader gives nothing for a while, but events of the server itself."""
    piece = reader.read(seconds)
    return piece is None or not piece.runs


def pieces_until(reader: BinlogReader, end: Offset) -> Iterator[Piece]:
    """Yield what a reader gives, up to a place."""
    by = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < by, f"The log was not read up to {end}."
        piece = reader.read(1)
        if piece is not None:
            yield piece
            if piece.end is not None and order(piece.end) >= order(end):
                return


def pieces(url: str, after: Offset, end: Offset | None = None, **options: Any) -> list[Piece]:
    """Return what the log has behind a place, up to another one or its end."""
    with reading(url, after, **options) as reader:
        return list(pieces_until(reader, end or place_of(url)))


def changes_of(found: list[Piece], *, nulls: bool = True) -> dict[str, list[Change]]:
    """Return the changes of each table, with typed values."""
    tables: dict[str, list[Change]] = {}
    for piece in found:
        for run in piece.runs:
            rows, _ = BinlogColumns(run.shape.columns, nulls).parse_changes(run.rows)
            tables.setdefault(run.shape.table.name, []).extend(rows.to_pylist())
    return tables


def changes(url: str, after: Offset, **options: Any) -> dict[str, list[Change]]:
    """Return the changes of each table behind a place."""
    return changes_of(pieces(url, after, **options))


def brief(found: list[Change]) -> list[tuple[str, Any, Any]]:
    """Return what was done, with the values of the rows alone."""
    return [
        (
            each["op"],
            each["before"] and tuple(each["before"].values()),
            each["after"] and tuple(each["after"].values()),
        )
        for each in found
    ]
