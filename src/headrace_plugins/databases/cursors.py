"""Where a source stands in a table, how far its next batch goes, and how that is divided."""

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
"""How many numbers there may be for each row before even ranges are too uneven."""
_DIVIDING = (DATE, DECIMAL, TIMESTAMP, TIME)
"""The logical types whose values order a table and are exact in an offset."""
_UNEVEN = 2
"""How many times its share an even range of a key's first column may have."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table, or the rows of a query, as cursors see it.

    Args:
        database: Where it is.
        source: SQL of it as it stands behind FROM.
        columns: Its columns by their names.
        key: The columns of its primary key, empty without one.
        count: About how many rows it has; None if that is not known.
        title: What a person calls it.
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
        """Return a table as cursors see it."""
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
        """Return the names of columns as SQL."""
        return [self.database.quote(name) for name in names]

    def value(self, name: str, value: Any) -> str:
        """Return a value of a column, as an offset has it, as SQL."""
        schema = self.columns[name].schema
        is_whole = schema.type in WHOLE_NUMBERS and not schema.is_logical
        if is_whole or schema.name == DECIMAL:
            return self.database.literal(Decimal(str(value)))
        return self.database.compared(value, self.columns[name])

    def has_zone(self, name: str) -> bool:
        """Return whether a column's times are moments, and not what a clock shows somewhere."""
        schema = self.columns[name].schema
        return schema.name == TIMESTAMP and schema.is_logical and not schema.is_local

    def time(self, name: str, at: datetime, zone: tzinfo) -> datetime:
        """Return a moment as a column has it: without a zone, what the clock shows in ``zone``.

        While a clock shows what it will show again, an hour less, or by what it will be set
        back: no time comes later that is less.
        """
        if self.has_zone(name):
            return at.astimezone(UTC)
        local = at.astimezone(zone)
        offsets = (local.utcoffset(), local.replace(fold=1).utcoffset())
        return at.astimezone(UTC).replace(tzinfo=None) + min(
            o for o in offsets if o is not None
        )


def dividing_key(rows: Rows) -> tuple[str, ...]:
    """Return the columns of a table's key if it can be read by it in parts, else none."""
    return rows.key if all(_divides(rows.columns[name]) for name in rows.key) else ()


def _divides(column: Column) -> bool:
    """Return whether a column's values order a table and are exact in an offset."""
    schema = column.schema
    if column.type.lower().startswith(("enum", "set(")):
        return False  # MySQL orders them by their numbers, and compares texts
    if schema.is_logical:
        return schema.name in _DIVIDING
    return schema.type in WHOLE_NUMBERS or schema.type is Type.STRING


def stored(value: Any) -> Any:
    """Return a value of a key as an offset keeps it, in JSON."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, datetime):
        zoned = value if value.tzinfo is None else value.astimezone(UTC)
        return zoned.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, bytes | bytearray | memoryview | float):
        raise StateError(problem=f"A {type(value).__name__} cannot divide a table.")
    return str(value)


def compared(rows: Rows, terms: Mapping[str, str], sign: str, values: Sequence[Any]) -> str:
    """Return the comparison of SQL terms, by the columns whose values they have."""
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
    """Return the condition in SQL that rows are in a window.

    Of several ``columns``, which begin with that of the window, the first that is not null
    counts.
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
    """Return a bound of a window as ``compared`` takes it: times without a zone are of UTC."""
    if not isinstance(bound, datetime):
        return stored(bound)
    local = bound.replace(tzinfo=None) if schema.is_local else bound
    # No zeros behind the second: SQLite compares texts, and its own may have none.
    text = local.replace(tzinfo=None).isoformat(sep=" ")
    return (text.rstrip("0") if local.microsecond else text) + (
        "+00:00" if local.tzinfo else ""
    )


@dataclass(frozen=True)
class KeyRange:
    """The rows of a condition, from one place in the order of some terms to another.

    Args:
        terms: SQL of what orders the rows, by the columns whose values it has.
        after: The place before the first row; None for no bound.
        upto: The place of the last row; None for no bound.
        more: What else holds of the rows, as SQL; empty for nothing.
    """

    terms: Mapping[str, str]
    after: tuple[Any, ...] | None = None
    upto: tuple[Any, ...] | None = None
    more: str = ""

    def where(self, rows: Rows) -> str:
        """Return the condition in SQL; empty for all rows."""
        parts = [self.more] if self.more else []
        if self.after is not None:
            parts.append(compared(rows, self.terms, ">", self.after))
        if self.upto is not None:
            parts.append(compared(rows, self.terms, "<=", self.upto))
        return " AND ".join(parts)

    def count(self, session: Session, rows: Rows, most: int) -> int:
        """Return how many rows there are, but no more than ``most``."""
        some = rows.database.page(f"SELECT 1 AS one FROM {self._from(rows)}", most)
        return int(session.value(f"SELECT count(*) FROM ({some}) q"))

    def last(self, session: Session, rows: Rows) -> tuple[Any, ...] | None:
        """Return the place of the last row; None if there is no row."""
        return self._place(session, rows, " DESC", 0)

    def place(self, session: Session, rows: Rows, number: int) -> tuple[Any, ...] | None:
        """Return the place of the row of that number, from 1; None if there are fewer."""
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
        """Divide the range into about ``count`` ranges of about as many rows."""
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
        """Divide by even ranges of whole numbers, if most are taken; none otherwise."""
        [(name, term), *others] = self.terms.items()
        schema = rows.columns[name].schema
        if schema.is_logical or schema.type not in WHOLE_NUMBERS:
            return []
        ends = f"SELECT min({term}), max({term}) FROM {self._from(rows)}"
        least, most = session.rows(ends)[0]
        if not isinstance(least, int | Decimal) or not isinstance(most, int | Decimal):
            return []  # no rows, or a text in a column of SQLite's
        least, most = int(least), int(most)
        width = most - least + 1
        if width > _SPARSE * max(1, about) or (others and width < count):
            return []
        bounds = [(least + width * number // count - 1,) for number in range(1, count)]
        if not others:
            return self._between(bounds)
        # Of a key's first column it is not known how many rows have a value.
        whole = KeyRange({name: term}, more=self.where(rows))
        ranges = whole._between(bounds)
        shares = [each._total(session, rows) for each in ranges]  # noqa: SLF001
        return ranges if max(shares) <= _UNEVEN * sum(shares) / count else []

    def _total(self, session: Session, rows: Rows) -> int:
        return int(session.value(f"SELECT count(*) FROM {self._from(rows)}"))

    def _quantiles(
        self, session: Session, rows: Rows, count: int, total: int
    ) -> list[tuple[Any, ...]]:
        """Return bounds that have as many rows between them, whatever their types are."""
        step = max(1, -(-total // count))
        if tuple(self.terms) == rows.key or not rows.database.has_row_number:
            return self._stepped(session, rows, step, count - 1)
        return self._numbered(session, rows, step)

    def _stepped(
        self, session: Session, rows: Rows, step: int, most: int
    ) -> list[tuple[Any, ...]]:
        """Find each ``step``-th place from the one before: quick where an index orders them."""
        bounds, last = list[tuple[Any, ...]](), self.after
        while len(bounds) < most:
            last = replace(self, after=last).place(session, rows, step)
            if last is None:
                break
            bounds.append(last)
        return bounds

    def _numbered(self, session: Session, rows: Rows, step: int) -> list[tuple[Any, ...]]:
        """Find each ``step``-th place by one query, which sorts the rows once."""
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
    """How a mode goes through the rows of a table: what an offset means, and what is new."""

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
        """Return the end of the next batch that begins at ``offset``, and how many rows it has.

        None when nothing is new. ``most`` is how many rows are aimed at, without it all that
        are there; ``until`` is never passed. The number of rows is an estimate.
        """

    @abstractmethod
    def range(self, rows: Rows, start: Offset | None, end: Offset) -> KeyRange:
        """Return the rows after ``start`` up to ``end``."""

    def continues(self, start: Offset | None) -> bool:
        """Return whether a batch that begins there goes on with what another has begun."""
        return start is not None


@dataclass(frozen=True)
class BulkCursor(Cursor):
    """Reads a whole table, in one batch or in some, by its key.

    Its offsets are ``{"round": n}`` when the table has been read n times, and before the n-th
    is done ``{"round": n, "after": key, "upto": key}``: where it stands, and the last key that
    the table had when the round began. Of a table that is read again a round that is done has
    its time: ``{"round": n, "at": milliseconds since 1970}``.

    Args:
        key: The columns that divide the table; empty for a table that is read in one batch.
        now_ms: The time in milliseconds since 1970, for a table that is read again and again;
            None for one that is read once.
        more: A condition in SQL of the rows that are read; empty for all.
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
        number, is_done = _round(offset)  # raises StateError for one of another mode
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
    """Return the number of an offset's round, and whether it is done."""
    if offset is None:
        return 1, True
    if "round" not in offset:
        raise StateError(
            problem=f"The position {dict(offset)} is not of the mode bulk.",
            fix="Set the mode back to what it was, or reset the connector's offsets.",
        )
    return int(offset["round"]), "after" not in offset


@dataclass(frozen=True)
class GrowingCursor(Cursor):
    """Reads rows whose values of one or two columns are larger than those that were read.

    Its offsets are Kafka Connect's: ``{"incrementing": number}``, ``{"timestamp": time}``, or
    both, with times as the database writes them.

    Args:
        timestamp: The columns of the time of a row's last change; the first that is not null
            counts.
        incrementing: The column of a number that grows with each new row.
        delay: How old a time has to be, by the database's clock.
        initial: Where to begin, as an offset; empty to begin with the first row. The value
            ``now`` is the time at the start.
        begin: A condition in SQL of the rows that are read before there is an offset; empty
            for all.
        more: A condition in SQL of all rows that are read; empty for all.
        zone: Where the clock is that columns without a zone, and a database without one, show.
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
            assert upper is not None  # only times begin now
            # Rows may still come with this very time, or on this day.
            is_time = isinstance(upper, datetime)
            least = timedelta(microseconds=1) if is_time else timedelta(days=1)
            begin = stored(upper - least)
            # Guarantee 2: a start is written down once, and not worked out at each look.
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
        """Return the place of the last row that is there behind an offset; None without one."""
        self._check(offset)
        new = self._range(rows, offset, None, None)
        last = new.last(session, rows)
        return None if last is None else self._offset(last)

    @override
    def range(self, rows: Rows, start: Offset | None, end: Offset) -> KeyRange:
        self._check(start)
        self._check(end)
        if start is None and self.initial.get("timestamp") == NOW:
            start = end  # nothing but the start was written down
        return self._range(rows, start, self._place(end), None)

    def _check(self, offset: Offset | None) -> None:
        """Refuse an offset of another mode, which would be read as no bound at all."""
        needed = "timestamp" if self.timestamp else "incrementing"
        if offset is not None and offset.get(needed) is None:
            raise StateError(
                problem=f"The position {dict(offset)} is not of the mode that is configured.",
                fix="Set the mode back to what it was, or reset the connector's offsets.",
            )

    def _upper(self, rows: Rows, session: Session) -> date | None:
        """Return the time before which rows are read, by the database's clock.

        It is cut to what the columns hold: of a second that goes on more rows may come, with
        the very time that was read; of dates it is the day.
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
        # A row with a null there is never new; some databases would sort it last.
        more = [
            f"{term} IS NOT NULL"
            for name, term in terms.items()
            if rows.columns[name].schema.optional
        ]
        more += [each for each in (self.more, "" if start else self.begin) if each]
        if before is not None:
            [(name, term), *_] = terms.items()
            # No zeros behind the second: SQLite compares texts, and its own may have none.
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
        # A place that was set by hand may lack the number.
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
    """Up to which number a table has all rows that it will ever have.

    Numbers are drawn in one order and committed in another: behind a number that is there a
    smaller one may still come, of a transaction that is open. One is settled once all
    transactions have ended that wrote the table when it was seen.
    """

    def __init__(self) -> None:
        self._settled: Offset | None = None
        self._seen: Offset | None = None
        self._writers: frozenset[str] = frozenset()
        self._tells_at = 0.0

    def look(
        self, session: Session, rows: Rows, cursor: GrowingCursor, offset: Offset | None
    ) -> Offset | None:
        """Return what is settled by now; None if nothing is.

        The first look waits for writers for a moment, as a process may look only once.
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
                "new rows wait for the end of transactions that write their table",
                table=rows.title,
                transactions=sorted(self._writers),
                fix="Commit or end them: pg_stat_activity shows who is idle in transaction.",
            )
        return self._settled

    def _see(
        self, session: Session, rows: Rows, cursor: GrowingCursor, offset: Offset | None
    ) -> None:
        newest = cursor.newest(session, rows, offset)
        if newest is not None and newest != self._settled:
            # The number comes first: who drew a smaller one is a writer now, or has committed.
            self._tells_at = time.monotonic() + _TELL_SECONDS
            self._seen, self._writers = newest, rows.database.writers(session, rows.table)

    def _settle(self, session: Session, rows: Rows) -> bool:
        """Settle what was seen, if no writer is left; return whether nothing waits now."""
        if self._writers:
            self._writers &= rows.database.writers(session, rows.table)
        if self._seen is not None and not self._writers:
            self._settled, self._seen = self._seen, None
        return self._seen is None


_FIRST_WAIT_SECONDS, _TELL_SECONDS = 2.0, 60.0
NOW = "now"
