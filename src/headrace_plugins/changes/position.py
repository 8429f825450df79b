"""The position of a source of changes: a place in the log, and how far each table is read.

The place has ``initial`` until all tables are read. A table has an offset of ``BulkCursor``,
and beside it what its snapshot has of the log (``seen``) up to which place (``until``), for as
long as the log is behind that. ``{"round": 0}`` asks for a table to be read again, and with a
condition in its partition (``where``) for some of its rows.
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
from headrace_plugins.changes.offset_fields import OffsetField, check_fields
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
    """Return a place in the log that is followed, now that all tables are read."""
    return {key: value for key, value in place.items() if key != INITIAL}


def is_read(offset: Mapping[str, Any] | None) -> bool:
    """Return whether a table with this offset is read to its end."""
    return offset is not None and "after" not in offset and offset.get("round") != 0


def all_read(start: Position, tables: Iterable[str]) -> Position:
    """Return a position where tables are read to their ends."""
    end = start
    for name in tables:
        if not is_read(start.offset(partition_of(name))):
            end = end.moved(partition_of(name), {"round": 1})
    return end


def begun_offset(offset: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the offset of a table that is being read; None for one that was not begun."""
    return None if offset is None or offset.get("round") == 0 else offset


def require_own(position: Position, log: Mapping[str, str]) -> None:
    """Raise StateError for a position in another log, behind which this one begins anew."""
    others = [dict(p) for p, _ in position.items() if not {"table", SINCE} & set(p)]
    if position.offset(log) is None and others:
        raise StateError(
            problem=f"The position is one of {others[0]}, and the log that is followed is "
            f"{dict(log)}.",
            fix="Set slot.name, topic.prefix or the connector's name back to what it was, "
            "or reset the offsets, which reads all tables anew.",
        )


def moved_over(start: Position, partition: Mapping[str, str], place: Offset) -> Position:
    """Return a position at its place in the log of a server that has taken over."""
    end = start.moved(partition, place)
    for each, offset in start.items():
        if UNTIL in offset or "after" in offset:
            # What was read of it may be more than what the server has.
            end = end.moved(each, {"round": 0})
        if AT in offset:
            end = _given_up(end, each)
    return end


def without_lost(start: Position, check: Callable[[Offset], None]) -> Position:
    """Return a position where nothing is sent again that the log no longer has.

    That raises DataLostError in ``check``.
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
    """Return a position where tables are read again, and their changes not sent again."""
    offset = position.offset(partition)
    assert offset is not None
    log.warning("changes cannot be sent again; their tables are read", tables=offset[TABLES])
    end = position.without(partition)
    for table in offset[TABLES]:
        end = end.moved(partition_of(table), {"round": 0})
    return end


def has_given_up(start: Position, end: Position, partition: Mapping[str, str]) -> bool:
    """Return whether all that happens between positions is that changes are not sent again.

    ``partition`` is that of the place in the log.
    """
    return start.offset(partition) == end.offset(partition) and any(
        AT in offset
        and end.offset(each) is None
        and all(end.offset(partition_of(name)) == {"round": 0} for name in offset[TABLES])
        for each, offset in start.items()
    )


def settled(start: Position, database_log: DatabaseLog, place: Offset) -> Position:
    """Return the position at a place in the log, without what is over by then."""
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
    """Return whether rows of a table lie between two of its offsets."""
    if after is None:
        return False

    def place(offset: Mapping[str, Any] | None) -> object:
        return offset and (offset.get("round"), offset.get("after"))

    return place(before) != place(after)


def check_table_offset(
    log: DatabaseLog, partition: Mapping[str, Any], offset: Mapping[str, Any]
) -> None:
    """Raise ConfigError unless a person may set this offset of a table, or of rows of it."""
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
            problem=f"Invalid {what} {dict(offset)}: after and upto differ in their length.",
            fix="Both have to be the values of one key of the table.",
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


_TABLE = OffsetField("table", "a text", lambda value: isinstance(value, str), required=True)
_WHERE = OffsetField(WHERE, "a condition in SQL", lambda value: isinstance(value, str))
_ASKED = OffsetField(
    "round", "0", lambda value: type(value) is int and value == 0, required=True
)
_ROUND = OffsetField.integer("round", 0, required=True)
_KEYS = [
    OffsetField(name, "a list of the values of a key", _is_key) for name in ("after", "upto")
]
_UNTIL = OffsetField(UNTIL, "a place in the log", lambda value: isinstance(value, dict))


def check_condition(text: str) -> None:
    """Raise ConfigError for a condition in SQL that could end what it is put into.

    Quotes and parentheses have to be closed, and a comment, another statement, or a text with
    escapes, whose end is not plain to see, is refused.
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
    """Raise ConfigError for a condition that the rows of a table cannot have."""
    check_condition(text)
    # The condition is put into queries by whoever asks for rows, and checked above.
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
            fix="Correct it. Where the connector has it already, take it back by headrace "
            f"connector offsets set NAME FILE --stop, with a FILE of [{json.dumps(asked)}].",
            field="offsets",
        ) from error
