"""The position of a change source: a place in the log, and the offset of each table.

The place has ``initial`` until all tables are read. A table has an offset of ``BulkCursor``.
Until the log has passed the table's snapshot, the offset also has the log changes that the
snapshot contains (``seen``) and the place up to which they reach (``until``). ``{"round": 0}``
requests to read a table again, or some of its rows if the partition has a condition
(``where``).
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from headrace.sdk import (
    ConfigError,
    DataLostError,
    HeadraceError,
    RetriableError,
    StateError,
)
from headrace_plugins.changes.log import OffsetField, check_fields
from headrace_plugins.changes.replay import AT, SINCE, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.sdk import Position
    from headrace_plugins.changes.database_log import DatabaseLog
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.catalog import TableName
    from headrace_plugins.databases.database import Database, Session

log = structlog.get_logger(__name__)

INITIAL, SEEN, UNTIL, WHERE = "initial", "seen", "until", "where"
_UNSAFE = re.compile(r"""[;#$'"`]|--|/\*""")


def partition_of(name: TableName | str) -> Mapping[str, str]:
    """Return the source partition of a table."""
    return {"table": str(name)}


def followed(place: Offset) -> Offset:
    """Return a place in the log without ``initial``, once all tables are read."""
    return {key: value for key, value in place.items() if key != INITIAL}


def is_read(offset: Mapping[str, Any] | None) -> bool:
    """Return whether the offset is of a completely read table."""
    return offset is not None and "after" not in offset and offset.get("round") != 0


def all_read(start: Position, tables: Iterable[str]) -> Position:
    """Return a position where these tables are completely read."""
    end = start
    for name in tables:
        if not is_read(start.offset(partition_of(name))):
            end = end.moved(partition_of(name), {"round": 1})
    return end


def begun_offset(offset: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the offset of a table; None if its reading has not begun."""
    return None if offset is None or offset.get("round") == 0 else offset


def require_own(position: Position, log: Mapping[str, str]) -> None:
    """Raise StateError for a position in another log: this log would restart from scratch."""
    others = [dict(p) for p, _ in position.items() if not {"table", SINCE} & set(p)]
    if position.offset(log) is None and others:
        raise StateError(
            problem=f"The position is in the log {others[0]}, but the connector follows "
            f"{dict(log)}.",
            fix="Restore the previous slot.name, topic.prefix or connector name, or reset the "
            "offsets, which reads all tables again.",
        )


def moved_over(start: Position, partition: Mapping[str, str], place: Offset) -> Position:
    """Return the position in the log of another server after a failover."""
    end = start.moved(partition, place)
    for each, offset in start.items():
        if UNTIL in offset or "after" in offset:
            # The rows that were read may be newer than those of the new server.
            end = end.moved(each, {"round": 0})
        if AT in offset:
            end = _given_up(end, each)
    return end


def without_lost(start: Position, check: Callable[[Offset], None]) -> Position:
    """Return a position without replays whose changes the log has lost.

    ``check`` raises DataLostError for a lost place.
    """
    end = start
    for partition, offset in start.items():
        if AT in offset:
            try:
                check(offset[AT])
            except DataLostError:
                end = _given_up(end, partition)
    return end


def _given_up(position: Position, partition: Mapping[str, str]) -> Position:
    """Return a position without a replay, whose tables are read again instead."""
    offset = position.offset(partition)
    assert offset is not None
    log.warning("changes cannot be replayed; tables are read again", tables=offset[TABLES])
    end = position.without(partition)
    for table in offset[TABLES]:
        end = end.moved(partition_of(table), {"round": 0})
    return end


def has_given_up(start: Position, end: Position, partition: Mapping[str, str]) -> bool:
    """Return whether the only difference between two positions is an abandoned replay.

    ``partition`` is the partition of the place in the log.
    """
    return start.offset(partition) == end.offset(partition) and any(
        AT in offset
        and end.offset(each) is None
        and all(end.offset(partition_of(name)) == {"round": 0} for name in offset[TABLES])
        for each, offset in start.items()
    )


def settled(start: Position, database_log: DatabaseLog, place: Offset) -> Position:
    """Return the position at a place in the log, without fields that are obsolete there."""
    end = start.moved(database_log.partition, followed(place))
    for partition, offset in start.items():
        until = offset.get(UNTIL)
        is_over = until is not None and database_log.order(place) >= database_log.order(until)
        if is_over and is_read(offset):
            done = {"round": offset["round"]}
            is_asked = WHERE in partition
            end = end.without(partition) if is_asked else end.moved(partition, done)
    return end


def has_rows_between(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Return whether there are rows of a table between two offsets."""
    if after is None:
        return False

    def place(offset: Mapping[str, Any] | None) -> object:
        return offset and (offset.get("round"), offset.get("after"))

    return place(before) != place(after)


def check_table_offset(
    log: DatabaseLog, partition: Mapping[str, Any], offset: Mapping[str, Any]
) -> None:
    """Raise ConfigError unless a user may set this offset of a table or of its rows."""
    example = (
        '{"table": "schema.name"} and {"round": 1} for a table that counts as read, or reset '
        "the offsets to read all again"
    )
    check_fields("position", partition, [_TABLE, _WHERE], example)
    if WHERE in partition:
        check_condition(partition[WHERE])
        check_fields("request for rows", offset, [_ASKED], '{"round": 0}')
        return
    what = f"position of the table {partition['table']}"
    fields = [_ROUND, OffsetField(SEEN, "what was stored before", partial(_is_seen, log))]
    fields += [*_KEYS, _UNTIL]
    check_fields(what, offset, fields, example)
    keys = [offset.get(name) for name in ("after", "upto")]
    if len({None if key is None else len(key) for key in keys}) > 1:
        raise ConfigError(
            problem=f"Invalid {what} {dict(offset)}: after and upto differ in length.",
            fix="Both must be values of the table's key.",
            field="offsets",
        )
    if UNTIL in offset:
        log.check_place(offset[UNTIL])


def _is_key(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(type(each) in {int, str} for each in value)


def _is_seen(database_log: DatabaseLog, value: Any) -> bool:
    try:
        database_log.keeps(value)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


_TABLE = OffsetField("table", "a string", lambda value: isinstance(value, str), required=True)
_WHERE = OffsetField(WHERE, "an SQL condition", lambda value: isinstance(value, str))
_ASKED = OffsetField(
    "round", "0", lambda value: type(value) is int and value == 0, required=True
)
_ROUND = OffsetField.integer("round", 0, required=True)
_KEYS = [
    OffsetField(name, "a list of the values of a key", _is_key) for name in ("after", "upto")
]
_UNTIL = OffsetField(UNTIL, "a place in the log", lambda value: isinstance(value, dict))


def check_condition(text: str) -> None:
    """Raise ConfigError for an SQL condition that could end the statement around it.

    Quotes and parentheses must be closed. Comments, further statements and backslash escapes,
    which make the end of a string ambiguous, are refused.
    """
    depth, rest = 0, re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", text)
    for sign in rest:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            break
    if depth or _UNSAFE.search(rest) or "\\" in text or not text.strip():
        raise ConfigError(
            problem=f"Invalid condition {text!r}.",
            fix="Write one condition in SQL, such as id > 5 AND status = 'open', without "
            "comments, semicolons and backslashes.",
            field="offsets",
        )


def try_condition(database: Database, session: Session, table: TableName, text: str) -> None:
    """Raise ConfigError for an SQL condition that is invalid for a table."""
    check_condition(text)
    # The condition is from the user who requests rows, and checked above.
    query = f"SELECT 1 FROM {database.path(table)} WHERE ({text}) LIMIT 0"  # noqa: S608
    try:
        with database.reading(session):
            session.rows(query)
    except RetriableError:
        raise
    except HeadraceError as error:
        asked = {"partition": {**partition_of(table), WHERE: text}, "offset": None}
        raise ConfigError(
            problem=f"Invalid condition {text!r} for {table}: {error.problem}",
            fix="Correct it. If the connector's offsets already have it, remove it by headrace "
            f"connector offsets set NAME FILE --stop, with a FILE of [{json.dumps(asked)}].",
            field="offsets",
        ) from error
