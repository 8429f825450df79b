"""Changes of tables that are sent again, by a second reader from an earlier place on.

Who asks for them sets the source partition ``{"since": time}`` to ``{"tables": [names]}``. The
first batch adds ``at``, the place in the log that belongs to the time; each batch of the second
reader moves it on. Meanwhile the main reader passes over these tables, so that the changes of a
table come in the order of the log, from one reader at a time, and the newest come last. A batch
that brings ``at`` to the place of the main reader takes the partition away, and the main reader
goes on with the tables.
"""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace_plugins.changes.offset_fields import OffsetField, check_fields
from headrace_plugins.changes.process import LogProcess
from headrace_plugins.changes.spool import taken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.sdk import Position, ReadLimit
    from headrace_plugins.changes.database_log import DatabaseLog
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.catalog import TableName
    from headrace_plugins.databases.database import Session
    from headrace_plugins.databases.selection import Selection

SINCE, TABLES, AT = "since", "tables", "at"
_LOOK_SECONDS = 0.1
_MOVE_SECONDS = 10.0
"""How often the place moves on while nothing comes for the tables that are sent again."""


def _is_list(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(t, str) for t in value)


_SINCE = OffsetField(
    SINCE, "a time with its zone", lambda value: _time(value) is not None, required=True
)
_TABLES = OffsetField(TABLES, "a list of names of tables", _is_list, required=True)
_AT = OffsetField(AT, "a place in the log", lambda value: isinstance(value, dict))


def check_replay(
    log: DatabaseLog, partition: Mapping[str, Any], offset: Mapping[str, Any]
) -> None:
    """Raise ConfigError for what a person may not ask for, or this log cannot give."""
    example = '{"since": "2024-02-29T12:00:00Z"} and {"tables": ["schema.name"]}'
    check_fields("replay", partition, [_SINCE], example)
    check_fields("replay", offset, [_TABLES, _AT], example)
    since = time_of(partition)
    if AT in offset:
        log.check_place(offset[AT])
    else:
        with log.database.session() as session:
            log.since(session, since)


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def time_of(partition: Mapping[str, str]) -> datetime:
    """Return the time since which changes are sent again."""
    found = _time(partition[SINCE])
    assert found is not None
    return found


def asked(position: Position) -> tuple[Mapping[str, str], Offset] | None:
    """Return what is sent again now: the oldest that has begun, or else has not."""
    found = [(p, offset) for p, offset in position.items() if SINCE in p]
    return min(found, key=lambda each: (AT not in each[1], each[0][SINCE]), default=None)


class ReplayReader:
    """The second reader of a log.

    Args:
        folder: A folder of its own, for files.
        most_bytes: How much may lie there.
    """

    def __init__(
        self, log: DatabaseLog, selection: Selection, folder: Path, most_bytes: int
    ) -> None:
        self._log, self._selection = log, selection
        self._folder, self._most_bytes = folder, most_bytes
        self._process: LogProcess | None = None
        self._partition: Mapping[str, str] = {}
        self._moved = time.monotonic()

    def follow(
        self, partition: Mapping[str, str], offset: Offset, cut: Offset | None = None
    ) -> LogProcess:
        """Return what reads the tables of an offset behind its place, see ``LogProcess``."""
        if self._process is None or self._partition != partition:
            self.stop()
            tables = frozenset(offset[TABLES])
            make = self._log.reader(
                partial(_is_one, self._selection.takes, tables), is_second=True
            )
            self._process = LogProcess(make, self._log.order, self._folder, self._most_bytes)
            self._partition = partition
        self._process.follow(offset[AT], cut)
        return self._process

    def end(
        self,
        start: Position,
        place: Offset,
        limit: ReadLimit,
        session: Callable[[], Session],
        *,
        stopping: Callable[[], bool],
    ) -> Position:
        """Return the end of a batch of changes that are sent again, at the log's place at most.

        Where that is reached the tables follow the log with the others.

        Args:
            start: Where the batch begins, with something to send again.
            place: Where the main reader stands.
            limit: How large the batch may be.
            session: Gives a session to look with.
            stopping: Whether the task is to end.
        """
        order, found = self._log.order, asked(start)
        assert found is not None
        partition, offset = found
        if AT not in offset:
            at = self._log.since(session(), time_of(partition))
            if order(at) >= order(place):
                return start.without(partition)  # all of it comes anyway
            return start.moved(partition, {**offset, AT: at})
        process = self.follow(partition, offset)
        while True:
            if not process.entries() and order(process.place) < order(place):
                process.wait(_LOOK_SECONDS)  # and no longer: the others go on
            before = [e for e in process.entries() if order(e.end) <= order(place)]
            end, reached = taken(before, limit.rows, None, order), order(process.place)
            is_last = end is None or order(end) == order(before[-1].end)
            if reached >= order(place) and is_last:
                # What is left lies in an entry that goes on behind the place: it is cut there.
                self.follow(partition, offset, place)
                before = process.reached(place)
                end = taken(before, limit.rows, None, order)
                if end is None or order(end) == order(before[-1].end):
                    return start.without(partition)
            if end is None and limit.until is None and self._is_due():
                # Nothing comes for the tables, and another life goes on from here.
                waiting, came = process.read_ahead()
                end = came if not waiting and order(came) <= order(place) else None
            if end is not None and order(end) > order(offset[AT]):
                self._moved = time.monotonic()
                return start.moved(partition, {**offset, AT: self._log.moved(offset[AT], end)})
            if limit.until is None or stopping():
                return start

    def _is_due(self) -> bool:
        return time.monotonic() > self._moved + _MOVE_SECONDS

    def acknowledge(self, position: Position) -> None:
        """Let go of what is durable in the targets, and of all that is over."""
        offset = position.offset(self._partition)
        if self._process is not None and offset is not None and AT in offset:
            self._process.confirm(offset[AT])
        else:
            self.stop()

    def stop(self) -> None:
        """End. It may follow again."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()


def _is_one(takes: Any, tables: frozenset[str], table: TableName) -> bool:
    return str(table) in tables and takes(table)
