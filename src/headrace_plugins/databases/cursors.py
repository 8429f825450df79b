"""Cursors: the position of a source in a table, the next batch, and its splits."""

# ruff: noqa: S608 - names are quoted, and values are quoted by the driver
from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog
from typing_extensions import override

from headrace.sdk import StateError
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, WHOLE_NUMBERS, Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import tzinfo

    from headrace.sdk import Schema
    from headrace_plugins.databases.catalog import Column, Table, TableName
    from headrace_plugins.databases.database import Database, Session
    from headrace_plugins.window import ColumnWindow

    Offset: TypeAlias = Mapping[str, Any]

log = structlog.get_logger(__name__)

_SPARSE = 4
"""The maximum numbers per row of a key for a split into even ranges of numbers."""
_DIVIDING = (DATE, DECIMAL, TIMESTAMP, TIME)
"""The logical types that are sortable and exact in an offset."""
_UNEVEN = 2
"""The maximum size of an even range of a key's first column, relative to the average."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table, or the rows of a query, for cursors.

    Args:
        database: The database.
        source: SQL of the table or subquery in the FROM clause.
        columns: The columns by name.
        key: The primary key's columns; empty without a primary key.
        count: The approximate number of rows; None if unknown.
        title: The title for users.
        table: The name of the table; None for a query.
    """

    database: Database
    source: str
    columns: Mapping[str, Column]
    key: tuple[str, ...]
    count: int | None
    title: str
    table: TableName | None = None

    @classmethod
    def of(cls, database: Database, table: Table) -> Rows:
        """Return a table for cursors."""
        return cls(
            database=database,
            source=database.path(table.name),
            columns={each.name: each for each in table.columns},
            key=table.key,
            count=table.rows,
            title=str(table.name),
            table=table.name,
        )

    def quoted(self, names: Sequence[str]) -> list[str]:
        """Return column names as SQL."""
        return [self.database.quote(name) for name in names]

    def value(self, name: str, value: Any) -> str:
        """Return an offset's value of a column as SQL."""
        schema = self.columns[name].schema
        is_whole = schema.type in WHOLE_NUMBERS and not schema.is_logical
        if is_whole or schema.name == DECIMAL:
            return self.database.literal(Decimal(str(value)))
        return self.database.compared(value, self.columns[name])

    def has_zone(self, name: str) -> bool:
        """Return whether a column's values are instants, not local times."""
        schema = self.columns[name].schema
        return schema.name == TIMESTAMP and schema.is_logical and not schema.is_local

    def time(self, name: str, at: datetime, zone: tzinfo) -> datetime:
        """Return an instant as a column's value: if the column has no zone, local time.

        While local times are about to repeat, as the clock in ``zone`` will be set back, the
        result is reduced by that hour: no later instant has a smaller local time.
        """
        if self.has_zone(name):
            return at.astimezone(UTC)
        local = at.astimezone(zone)
        offsets = (local.utcoffset(), local.replace(fold=1).utcoffset())
        return at.astimezone(UTC).replace(tzinfo=None) + min(
            o for o in offsets if o is not None
        )


def dividing_key(rows: Rows) -> tuple[str, ...]:
    """Return the key's columns if the table can be split by it, else an empty tuple."""
    return rows.key if all(_divides(rows.columns[name]) for name in rows.key) else ()


def _divides(column: Column) -> bool:
    """Return whether a column's values are sortable and exact in an offset."""
    schema = column.schema
    if column.type.lower().startswith(("enum", "set(")):
        return False  # MySQL sorts them by number, but compares them as text
    if schema.is_logical:
        return schema.name in _DIVIDING
    return schema.type in WHOLE_NUMBERS or schema.type is Type.STRING


def stored(value: Any) -> Any:
    """Return a key value as stored in an offset, in JSON."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, datetime):
        zoned = value if value.tzinfo is None else value.astimezone(UTC)
        return zoned.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, bytes | bytearray | memoryview | float):
        raise StateError(problem=f"A {type(value).__name__} cannot split a table.")
    return str(value)


def compared(rows: Rows, terms: Mapping[str, str], sign: str, values: Sequence[Any]) -> str:
    """Return SQL that compares terms, by column name, with values."""
    right = [rows.value(name, v) for name, v in zip(terms, values, strict=True)]
    pairs = list(zip(terms.values(), right, strict=True))
    if len(pairs) > 1 and rows.database.seeks_rows:
        return f"({', '.join(terms.values())}) {sign} ({', '.join(right)})"
    *before, (term, value) = pairs
    found = f"{term} {sign} {value}"
    for term, value in reversed(before):
        found = f"({term} {sign[0]} {value} OR ({term} = {value} AND {found}))"
    return found


def window_sql(rows: Rows, window: ColumnWindow, columns: Sequence[str] = ()) -> str:
    """Return the SQL condition that rows are in a window.

    With several ``columns``, the first of which is the window's column, the first non-null
    value applies.
    """
    column = rows.columns[window.column]
    terms = {window.column: rows.database.ordered(column)}
    if len(columns) > 1:
        ordered = [rows.database.ordered(rows.columns[name]) for name in columns]
        terms = {window.column: f"COALESCE({', '.join(ordered)})"}
    parts = [
        compared(rows, terms, sign, [written(bound, window.schema)])
        for sign, bound in window.comparisons
    ]
    return " AND ".join(parts) or f"{terms[window.column]} IS NOT NULL"


def written(bound: Any, schema: Schema) -> Any:
    """Return a window's bound as a value for ``compared``; local times are as if in UTC."""
    if not isinstance(bound, datetime):
        return stored(bound)
    local = bound.replace(tzinfo=None) if schema.is_local else bound
    # No trailing zeros: SQLite compares text, and its own times may have none.
    text = local.replace(tzinfo=None).isoformat(sep=" ")
    return (text.rstrip("0") if local.microsecond else text) + (
        "+00:00" if local.tzinfo else ""
    )


@dataclass(frozen=True)
class KeyRange:
    """The rows of a condition in a range of the sort order.

    Args:
        terms: SQL of the sort terms, by the columns whose values they have.
        after: The lower bound, exclusive; None for no bound.
        upto: The upper bound, inclusive; None for no bound.
        more: An additional SQL condition; empty for none.
    """

    terms: Mapping[str, str]
    after: tuple[Any, ...] | None = None
    upto: tuple[Any, ...] | None = None
    more: str = ""

    def where(self, rows: Rows) -> str:
        """Return the SQL condition; empty for all rows."""
        parts = [self.more] if self.more else []
        if self.after is not None:
            parts.append(compared(rows, self.terms, ">", self.after))
        if self.upto is not None:
            parts.append(compared(rows, self.terms, "<=", self.upto))
        return " AND ".join(parts)

    def count(self, session: Session, rows: Rows, most: int) -> int:
        """Return the number of rows, at most ``most``."""
        some = rows.database.page(f"SELECT 1 AS one FROM {self._from(rows)}", most)
        return int(session.value(f"SELECT count(*) FROM ({some}) q"))

    def last(self, session: Session, rows: Rows) -> tuple[Any, ...] | None:
        """Return the position of the last row; None without rows."""
        return self._place(session, rows, " DESC", 0)

    def place(self, session: Session, rows: Rows, number: int) -> tuple[Any, ...] | None:
        """Return the position of the n-th row, from 1; None if there are fewer."""
        return self._place(session, rows, "", number - 1)

    def _place(
        self, session: Session, rows: Rows, direction: str, offset: int
    ) -> tuple[Any, ...] | None:
        order = ", ".join(f"{term}{direction}" for term in self.terms.values())
        query = (
            f"SELECT {', '.join(self.terms.values())} FROM {self._from(rows)} ORDER BY {order}"
        )
        found = session.rows(rows.database.page(query, 1, offset))
        return tuple(stored(value) for value in found[0]) if found else None

    def divided(self, session: Session, rows: Rows, count: int) -> list[KeyRange]:
        """Split the range into about ``count`` ranges of similar size."""
        if count <= 1:
            return [self]
        about = self._total(session, rows) if rows.count is None else rows.count
        ranges = self._even(session, rows, count, about)
        if not ranges:
            total = about if rows.count is None else self._total(session, rows)
            ranges = self._between(self._quantiles(session, rows, count, total))
        return ranges

    def _between(self, bounds: Sequence[tuple[Any, ...]]) -> list[KeyRange]:
        places = [self.after, *[bound for bound in bounds if bound != self.upto], self.upto]
        return [replace(self, after=after, upto=upto) for after, upto in pairwise(places)]

    def _even(self, session: Session, rows: Rows, count: int, about: int) -> list[KeyRange]:
        """Split into even ranges of integers, if the numbers are dense; else return none."""
        [(name, term), *others] = self.terms.items()
        schema = rows.columns[name].schema
        if schema.is_logical or schema.type not in WHOLE_NUMBERS:
            return []
        ends = f"SELECT min({term}), max({term}) FROM {self._from(rows)}"
        least, most = session.rows(ends)[0]
        if not isinstance(least, int | Decimal) or not isinstance(most, int | Decimal):
            return []  # no rows, or a text in a SQLite column
        least, most = int(least), int(most)
        width = most - least + 1
        if width > _SPARSE * max(1, about) or (others and width < count):
            return []
        bounds = [(least + width * number // count - 1,) for number in range(1, count)]
        if not others:
            return self._between(bounds)
        # In a composite key, the rows per value of the first column are unknown: count them.
        whole = KeyRange({name: term}, more=self.where(rows))
        ranges = whole._between(bounds)
        shares = [each._total(session, rows) for each in ranges]  # noqa: SLF001
        return ranges if max(shares) <= _UNEVEN * sum(shares) / count else []

    def _total(self, session: Session, rows: Rows) -> int:
        return int(session.value(f"SELECT count(*) FROM {self._from(rows)}"))

    def _quantiles(
        self, session: Session, rows: Rows, count: int, total: int
    ) -> list[tuple[Any, ...]]:
        """Return bounds of ranges with equal row counts, for any types."""
        step = max(1, -(-total // count))
        if tuple(self.terms) == rows.key or not rows.database.has_row_number:
            return self._stepped(session, rows, step, count - 1)
        return self._numbered(session, rows, step)

    def _stepped(
        self, session: Session, rows: Rows, step: int, most: int
    ) -> list[tuple[Any, ...]]:
        """Find every ``step``-th row from the previous one: fast with an index."""
        bounds, last = list[tuple[Any, ...]](), self.after
        while len(bounds) < most:
            last = replace(self, after=last).place(session, rows, step)
            if last is None:
                break
            bounds.append(last)
        return bounds

    def _numbered(self, session: Session, rows: Rows, step: int) -> list[tuple[Any, ...]]:
        """Find every ``step``-th row by one query, which sorts the rows once."""
        names = [f"c{number}" for number in range(len(self.terms))]
        named = ", ".join(
            f"{t} AS {n}" for t, n in zip(self.terms.values(), names, strict=True)
        )
        order = ", ".join(self.terms.values())
        numbered = f"SELECT {named}, row_number() OVER (ORDER BY {order}) AS place"
        found = session.rows(
            f"SELECT {', '.join(names)} FROM ({numbered} FROM {self._from(rows)}) q "
            f"WHERE place % {step} = 0 ORDER BY place"
        )
        return [tuple(stored(value) for value in row) for row in found]

    def _from(self, rows: Rows) -> str:
        where = self.where(rows)
        return f"{rows.source} WHERE {where}" if where else rows.source


class Cursor(ABC):
    """The strategy of a read mode: the meaning of its offsets, and the rows that are new."""

    @abstractmethod
    def latest(
        self,
        session: Session,
        rows: Rows,
        offset: Offset | None,
        *,
        most: int | None,
        until: Offset | None = None,
    ) -> tuple[Offset, int] | None:
        """Return the end of the next batch from ``offset``, and its estimated row count.

        None if there are no new rows. ``most`` is the target size in rows, None for all rows;
        the end is never after ``until``.
        """

    @abstractmethod
    def range(self, rows: Rows, start: Offset | None, end: Offset) -> KeyRange:
        """Return the rows after ``start`` up to ``end``."""

    def continues(self, start: Offset | None) -> bool:
        """Return whether a batch from ``start`` continues an earlier batch."""
        return start is not None


@dataclass(frozen=True)
class BulkCursor(Cursor):
    """Reads a whole table, in one or more batches by its key.

    The offset is ``{"round": n}`` when the table has been read n times, and during the n-th
    round ``{"round": n, "after": key, "upto": key}``: the current key, and the last key of the
    table when the round began. For a table that is read repeatedly, the offset of a completed
    round has its time: ``{"round": n, "at": milliseconds since 1970}``.

    Args:
        key: The columns to split the table by; empty to read the table in one batch.
        now_ms: The time in milliseconds since 1970, for a table that is read repeatedly; None
            for a table that is read once.
        more: An SQL condition of the rows to read; empty for all.
    """

    key: tuple[str, ...]
    now_ms: int | None = None
    more: str = ""

    @override
    def latest(
        self,
        session: Session,
        rows: Rows,
        offset: Offset | None,
        *,
        most: int | None,
        until: Offset | None = None,
    ) -> tuple[Offset, int] | None:
        number, is_done = _round(offset)  # raises StateError for an offset of another mode
        if offset is not None and is_done:
            if self.now_ms is None or (until is not None and number >= until["round"]):
                return None
            number, offset = number + 1, None
        done: Offset = {"round": number}
        if until is not None and number == until["round"]:
            done = until
        elif self.now_ms is not None:
            done = {"round": number, "at": self.now_ms}
        if not self.key or most is None:
            return done, rows.count or 0
        all_of = KeyRange(self._terms(rows), more=self.more)
        if offset is None:
            count = None if self.more else rows.count
            if count is None:  # no statistics yet
                count = all_of.count(session, rows, most + 1)
            if count <= most:
                return done, count
        upto = tuple(offset["upto"]) if offset else all_of.last(session, rows)
        if upto is None:
            return done, 0
        after = tuple(offset["after"]) if offset else None
        bound = replace(all_of, after=after, upto=upto).place(session, rows, most)
        if bound is None or bound == upto:
            return done, most
        return {"round": number, "after": list(bound), "upto": list(upto)}, most

    @override
    def range(self, rows: Rows, start: Offset | None, end: Offset) -> KeyRange:
        _, was_done = _round(start)
        after = tuple(start["after"]) if start and not was_done else None
        if "after" in end:
            return KeyRange(self._terms(rows), after, tuple(end["after"]), self.more)
        upto = tuple(start["upto"]) if start and not was_done else None
        return KeyRange(self._terms(rows), after, upto, self.more)

    @override
    def continues(self, start: Offset | None) -> bool:
        return not _round(start)[1]

    def _terms(self, rows: Rows) -> Mapping[str, str]:
        return dict(zip(self.key, rows.quoted(self.key), strict=True))


def _round(offset: Offset | None) -> tuple[int, bool]:
    """Return the round of an offset, and whether it is complete."""
    if offset is None:
        return 1, True
    if "round" not in offset:
        raise StateError(
            problem=f"The position {dict(offset)} is not from mode bulk.",
            fix="Restore the previous mode, or reset the connector's offsets.",
        )
    return int(offset["round"]), "after" not in offset


@dataclass(frozen=True)
class GrowingCursor(Cursor):
    """Reads rows whose values in one or two columns are larger than those read before.

    Offsets are Kafka Connect's: ``{"incrementing": number}``, ``{"timestamp": time}``, or both,
    with times in the database's format.

    Args:
        timestamp: The columns of a row's modification time; the first non-null value applies.
        incrementing: The column of a number that increases with each new row.
        delay: The minimum age of a row's time, by the database's clock.
        initial: The start, as an offset; empty to start at the first row. The value ``now`` is
            the time of the start.
        begin: An SQL condition of the rows to read while there is no offset; empty for all.
        more: An SQL condition of all rows to read; empty for all.
        zone: The time zone of columns without a zone, and of a database without one.
    """

    timestamp: tuple[str, ...] = ()
    incrementing: str | None = None
    delay: timedelta = timedelta()
    initial: Offset = field(default_factory=dict)
    zone: tzinfo = UTC
    begin: str = ""
    more: str = ""

    @override
    def latest(
        self,
        session: Session,
        rows: Rows,
        offset: Offset | None,
        *,
        most: int | None,
        until: Offset | None = None,
    ) -> tuple[Offset, int] | None:
        self._check(offset)
        upper = self._upper(rows, session)
        if offset is None and self.initial.get("timestamp") == NOW:
            assert upper is not None  # `now` requires a timestamp column
            # More rows may follow with this same time or date.
            is_time = isinstance(upper, datetime)
            least = timedelta(microseconds=1) if is_time else timedelta(days=1)
            begin = stored(upper - least)
            # Guarantee 2: the start is computed and stored once.
            return self._offset((begin, *([0] if self.incrementing else []))), 0
        new = self._range(rows, offset, None, upper)
        if until is not None:
            new = replace(new, upto=self._place(until))
        last = new.last(session, rows)
        if last is None:
            return None
        new, count = replace(new, upto=last), 0
        if most is not None:
            count = new.count(session, rows, most + 1)
            if count > most:
                last = new.place(session, rows, most) or last
                count = most
        return self._offset(last), count

    def newest(self, session: Session, rows: Rows, offset: Offset | None) -> Offset | None:
        """Return the offset of the last row after an offset; None without such a row."""
        self._check(offset)
        new = self._range(rows, offset, None, None)
        last = new.last(session, rows)
        return None if last is None else self._offset(last)

    @override
    def range(self, rows: Rows, start: Offset | None, end: Offset) -> KeyRange:
        self._check(start)
        self._check(end)
        if start is None and self.initial.get("timestamp") == NOW:
            start = end  # the batch only stores the start
        return self._range(rows, start, self._place(end), None)

    def _check(self, offset: Offset | None) -> None:
        """Raise StateError for an offset of another mode, which would not be a bound."""
        needed = "timestamp" if self.timestamp else "incrementing"
        if offset is not None and offset.get(needed) is None:
            raise StateError(
                problem=f"The position {dict(offset)} is not from the configured mode.",
                fix="Restore the previous mode, or reset the connector's offsets.",
            )

    def _upper(self, rows: Rows, session: Session) -> date | None:
        """Return the exclusive upper bound of the rows' time, by the database's clock.

        The bound is truncated to the columns' precision, as more rows with the same time may
        follow in the current second; for dates it is the day.
        """
        if not self.timestamp:
            return None
        now = rows.database.now(session)
        if now.tzinfo is None:
            now = now.replace(tzinfo=self.zone)
        upper = rows.time(self.timestamp[0], now.astimezone(UTC) - self.delay, self.zone)
        if rows.columns[self.timestamp[0]].schema.name == DATE:
            return upper.date()
        digits = min(rows.database.second_digits(rows.columns[n]) for n in self.timestamp)
        step = int(10 ** (6 - digits))
        return upper.replace(microsecond=upper.microsecond // step * step)

    def _range(
        self,
        rows: Rows,
        start: Offset | None,
        upto: tuple[Any, ...] | None,
        before: date | None,
    ) -> KeyRange:
        terms: dict[str, str] = {}
        if self.timestamp:
            names = rows.quoted(self.timestamp)
            term = names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"
            terms[self.timestamp[0]] = term
        if self.incrementing:
            [terms[self.incrementing]] = rows.quoted([self.incrementing])
        # A row with a null is never new; some databases would sort it last.
        more = [
            f"{term} IS NOT NULL"
            for name, term in terms.items()
            if rows.columns[name].schema.optional
        ]
        more += [each for each in (self.more, "" if start else self.begin) if each]
        if before is not None:
            [(name, term), *_] = terms.items()
            # No trailing zeros: SQLite compares text, and its own times may have none.
            more.append(compared(rows, {name: term}, "<", [str(before)]))
        after = self._place(start or self.initial)
        return KeyRange(terms, after, upto, " AND ".join(more))

    def _place(self, offset: Offset) -> tuple[Any, ...] | None:
        names = [
            *(["timestamp"] if self.timestamp else []),
            *(["incrementing"] if self.incrementing else []),
        ]
        found = [offset.get(name) for name in names]
        if found[0] is None:
            return None
        # An offset that was set manually may lack the number.
        return tuple(-1 if value is None else value for value in found)

    def _offset(self, place: Sequence[Any]) -> Offset:
        values = list(place)
        offset: dict[str, Any] = {}
        if self.timestamp:
            offset["timestamp"] = values.pop(0)
        if self.incrementing:
            offset["incrementing"] = values.pop(0)
        return offset


class SettledNumber:
    """The number up to which no more rows can appear in a table.

    Transactions draw numbers in one order and commit in another, so an open transaction may
    still add a row with a smaller number than a visible one. A number is settled once all
    transactions have ended that were writing the table when the number was seen.
    """

    def __init__(self) -> None:
        self._settled: Offset | None = None
        self._seen: Offset | None = None
        self._writers: frozenset[str] = frozenset()
        self._tells_at = 0.0

    def look(
        self, session: Session, rows: Rows, cursor: GrowingCursor, offset: Offset | None
    ) -> Offset | None:
        """Return the settled offset; None if there is none.

        The first call waits a moment for writers, as a process may call this only once.
        """
        if self._seen is None and self._settled is None:
            self._see(session, rows, cursor, offset)
            until = time.monotonic() + _FIRST_WAIT_SECONDS
            while not self._settle(session, rows) and time.monotonic() < until:
                time.sleep(_FIRST_WAIT_SECONDS / 40)
            self._tells_at = 0.0
        elif self._settle(session, rows):
            self._see(session, rows, cursor, offset)
            self._settle(session, rows)
        if self._seen is not None and time.monotonic() >= self._tells_at:
            self._tells_at = time.monotonic() + _TELL_SECONDS
            log.warning(
                "new rows are held back until open transactions on their table end",
                table=rows.title,
                transactions=sorted(self._writers),
                fix="Commit or end them: pg_stat_activity shows sessions idle in transaction.",
            )
        return self._settled

    def _see(
        self, session: Session, rows: Rows, cursor: GrowingCursor, offset: Offset | None
    ) -> None:
        newest = cursor.newest(session, rows, offset)
        if newest is not None and newest != self._settled:
            # Read the number before the writers: the transaction of each smaller number is then
            # a current writer or has committed.
            self._tells_at = time.monotonic() + _TELL_SECONDS
            self._seen, self._writers = newest, rows.database.writers(session, rows.table)

    def _settle(self, session: Session, rows: Rows) -> bool:
        """Settle the seen offset if no writer is left; return whether none is pending."""
        if self._writers:
            self._writers &= rows.database.writers(session, rows.table)
        if self._seen is not None and not self._writers:
            self._settled, self._seen = self._seen, None
        return self._seen is None


_FIRST_WAIT_SECONDS, _TELL_SECONDS = 2.0, 60.0
NOW = "now"
