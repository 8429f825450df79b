"""Replays: a second reader sends the changes of tables again from an earlier place.

A user requests a replay by setting the source partition ``{"since": time}`` to
``{"tables": [names]}``. The first batch adds ``at``, the place in the log for this time; each
batch of the second reader advances it. Meanwhile the main reader skips these tables, so the
changes of a table arrive in log order, from one reader at a time, and the newest arrive last.
When ``at`` reaches the place of the main reader, the batch removes the partition, and the main
reader continues with the tables.
"""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace_plugins.changes.log import OffsetField, check_fields
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
"""The interval at which the place advances while the replayed tables have no changes."""


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
    """Raise ConfigError for an invalid replay request, or one that the log does not support."""
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
    """Return the start time of a replay."""
    found = _time(partition[SINCE])
    assert found is not None
    return found


def asked(position: Position) -> tuple[Mapping[str, str], Offset] | None:
    """Return the current replay: the oldest one that has begun, else the oldest one."""
    found = [(p, offset) for p, offset in position.items() if SINCE in p]
    return min(found, key=lambda each: (AT not in each[1], each[0][SINCE]), default=None)


class ReplayReader:
    """The second reader of a log.

    Args:
        folder: A separate folder for spool files.
        most_bytes: The maximum size of unconfirmed data in the folder.
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
        """Return the process that reads an offset's tables after its place."""
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
        """Return the end of a batch of replayed changes, at most the main reader's place.

        At that place the replay ends, and the main reader continues with the tables.

        Args:
            start: The start of the batch, which must have a replay.
            place: The place of the main reader.
            limit: The maximum size of the batch.
            session: Returns a session for queries.
            stopping: Whether the task is stopping.
        """
        order, found = self._log.order, asked(start)
        assert found is not None
        partition, offset = found
        if AT not in offset:
            at = self._log.since(session(), time_of(partition))
            if order(at) >= order(place):
                return start.without(partition)  # the main reader reads all these changes
            return start.moved(partition, {**offset, AT: at})
        process = self.follow(partition, offset)
        while True:
            if not process.entries() and order(process.place) < order(place):
                process.wait(_LOOK_SECONDS)  # short, so that other tables continue
            before = [e for e in process.entries() if order(e.end) <= order(place)]
            end, reached = taken(before, limit.rows, None, order), order(process.place)
            is_last = end is None or order(end) == order(before[-1].end)
            if reached >= order(place) and is_last:
                # The remaining changes are in an entry that spans the place: cut it there.
                self.follow(partition, offset, place)
                before = process.reached(place)
                end = taken(before, limit.rows, None, order)
                if end is None or order(end) == order(before[-1].end):
                    return start.without(partition)
            if end is None and limit.until is None and self._is_due():
                # The tables have no changes: advance, so that a restart continues from here.
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
        """Release changes that are durable in the targets; stop if the replay has ended."""
        offset = position.offset(self._partition)
        if self._process is not None and offset is not None and AT in offset:
            self._process.confirm(offset[AT])
        else:
            self.stop()

    def stop(self) -> None:
        """Stop the process. ``follow`` may be called again."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()


def _is_one(takes: Any, tables: frozenset[str], table: TableName) -> bool:
    return str(table) in tables and takes(table)
