"""The interface of a database's log for change sources, and the windows of such a log."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import BoundaryKind, ConfigError, Position

if TYPE_CHECKING:
    from headrace.sdk import Boundaries, Schema
    from headrace_plugins.changes.log import LogReader, Offset
    from headrace_plugins.changes.parts import Keeps, Typed
    from headrace_plugins.databases.catalog import Table, TableName
    from headrace_plugins.databases.database import Database, Session
    from headrace_plugins.databases.selection import Selection


RESNAPSHOT = (
    "Reset the connector's offsets, which reads all tables again, or set "
    "snapshot.mode=when_needed."
)
"""The fix if the log has lost unread changes."""
_WRITERS_SECONDS, _LOOK_SECONDS = 2.0, 0.1
"""The timeout for transactions that write a new table to end, and the poll interval."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent snapshot of a database for reading tables.

    Args:
        name: The name for selects, see ``Database.snapshot``; None if each connection sees a
            different state, none of them older than this snapshot.
        seen: The log changes that the snapshot contains, as JSON, see ``DatabaseLog.keeps``;
            None if unknown.
        upto: A place in the log after all changes that the snapshot contains.
        ts_us: The time of the snapshot, in microseconds since 1970.
        details: The ``source`` fields of its rows, see ``DatabaseLog.details``.
        has_lost: Whether a table is no longer readable in the snapshot, as the table was
            rewritten or the connection of the snapshot is lost.
    """

    name: str | None
    seen: Any
    upto: Offset
    ts_us: int
    details: Mapping[str, int | str | None]
    has_lost: Callable[[TableName], bool]


class DatabaseLog(ABC):
    """The log of one database, and its tables. Holds no connection."""

    database: Database
    keeps_start: ClassVar[bool] = False
    """Whether ``begin`` returns the same place again until a later place is confirmed."""

    @property
    @abstractmethod
    def partition(self) -> Mapping[str, str]:
        """The source partition of the place in the log."""

    @abstractmethod
    def order(self, place: Offset) -> tuple[int, ...]:
        """Return the sort key of a place in the log."""

    def moved(self, place: Offset, end: Offset) -> Offset:
        """Return a task's place, advanced to the place that its reader has reached."""
        return {**place, **end}

    @abstractmethod
    def check_place(self, place: Offset) -> None:
        """Raise ConfigError for an invalid place."""

    def between_bytes(self, start: Offset, end: Offset) -> int | None:
        """Return the bytes of the log between two places; None if unknown."""
        return None

    @abstractmethod
    def require(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError if these tables cannot be followed. Has no side effects."""

    @abstractmethod
    def begin(
        self, session: Session, tables: Sequence[Table], *, restart: bool = False
    ) -> Offset:
        """Make the server retain the log for these tables from now on; return the place.

        All commits after the place can be read. Idempotent after a crash, but ``restart``
        releases the log retained before, which cannot be read. Raises ConfigError with the
        statement to run if something is missing.
        """

    def taken_over(self, session: Session, place: Offset) -> Offset | None:
        """Return the corresponding place in the log of another server after a failover.

        None if the server is unchanged. Raises DataLostError if the place cannot be found.
        """
        return None

    def goes_on(self, start: Offset, end: Offset) -> bool:
        """Return whether two places are in the same log, without a failover in between."""
        return True

    @abstractmethod
    def check(self, session: Session, tables: Sequence[Table], place: Offset) -> None:
        """Ensure that the log includes these tables and still has all changes after a place.

        Raises DataLostError if not.
        """

    def check_seen(self, session: Session, upto: Offset) -> None:  # noqa: B027 - none by default
        """Raise DataLostError if the log can never reach the end of a snapshot."""

    def check_end(self, session: Session, place: Offset) -> None:  # noqa: B027 - none by default
        """Raise DataLostError if this server's log can never reach the end of a batch."""

    def obstacles(
        self, session: Session, tables: Sequence[Table]
    ) -> Mapping[TableName, ConfigError]:
        """Return why tables that may be skipped cannot be followed. Has no side effects."""
        return {}

    def left_out(self, session: Session, tables: Sequence[Table]) -> Sequence[TableName]:
        """Return the tables that the log lacks until ``check``. Has no side effects."""
        return ()

    @abstractmethod
    def oldest(self, session: Session, tables: Sequence[Table]) -> Offset:
        """Return the oldest place from which the log still has all changes."""

    @abstractmethod
    def now(self, session: Session) -> Offset:
        """Return the place after all current commits."""

    @abstractmethod
    def since(self, session: Session, time: datetime) -> Offset:
        """Return a place before all commits at a time or later.

        Raises ConfigError if the log no longer has them, or does not support replays.
        """

    @abstractmethod
    def reader(
        self, follows: Callable[[TableName], bool], *, is_second: bool = False
    ) -> Callable[[], LogReader]:
        """Return a factory of a reader for the changes of the followed tables.

        Argument and result are pickled. A second reader can run besides the first.
        """

    @abstractmethod
    def snapshot(self, place: Offset) -> AbstractContextManager[Snapshot]:
        """Take a snapshot of all current commits, readable within this context.

        The snapshot contains all changes in the log before a place. Raises RetriableError if
        the server does not have all of them yet, or is another server.
        """

    @abstractmethod
    def keeps(self, seen: Any) -> Keeps | None:
        """Return a filter that skips the changes a snapshot contains; None to skip none."""

    @property
    @abstractmethod
    def typed(self) -> Typed:
        """Converts the log's values to typed values."""

    @abstractmethod
    def facts(self, table: TableName) -> Mapping[str, str]:
        """Return the ``source`` fields that are the same for all changes of a table."""

    @property
    @abstractmethod
    def details(self) -> Mapping[str, Schema]:
        """The ``source`` fields of each change, which are columns of a reader's runs."""


def followed_tables(
    log: DatabaseLog,
    selection: Selection,
    session: Session,
    *,
    follows: bool,
    known: Callable[[TableName], bool] = lambda _: False,
) -> tuple[list[Table], Mapping[TableName, ConfigError]]:
    """Return the tables to follow, and the reasons why others are skipped.

    A table is skipped if the log lacks it and it only matches a pattern. A table that is
    selected by name, ``known`` from before, or would leave no other table is not skipped, so
    that ``DatabaseLog.require`` refuses it.
    Raises ConfigError if no table is selected, or if two have the same source partition.
    If the log is not read (``follows``), no table is skipped.
    """
    chosen = selection.required_tables(log.database, session)
    by_partition: dict[str, TableName] = {}
    for name in (table.name for table in chosen):
        other = by_partition.setdefault(str(name), name)
        if other != name:
            raise ConfigError(
                problem=f"Two tables have the name {name}: {other.name!r} in the schema "
                f"{other.schema!r} and {name.name!r} in the schema {name.schema!r}, so they "
                "would share a position.",
                fix=f'Exclude one: table.exclude.list="{name.schema}"."{name.name}", and let '
                "another connector follow it.",
                field="table.include.list",
            )
    if not follows:
        return chosen, {}
    found = log.obstacles(session, chosen)
    names = [each for each in sorted(found) if not (selection.names(each) or known(each))]
    passed = {name: found[name] for name in names}
    kept = [table for table in chosen if table.name not in passed]
    return (kept, passed) if kept else (chosen, {})


@dataclass
class TableWriters:
    """Tracks the transactions that were writing a table when the log began to include it.

    Their changes are not in the log, and not in a snapshot until they commit.

    Args:
        now: Returns the transactions that currently write a table, by its name.
    """

    now: Callable[[str], frozenset[str]]
    _left: dict[str, frozenset[str]] = field(default_factory=dict)

    def begin(self, names: Iterable[str]) -> None:
        """Assume that nobody writes these tables: the log began after all writers had ended."""
        self._left = dict.fromkeys(names, frozenset[str]())

    def forget(self, names: Iterable[str]) -> None:
        """Forget the writers of these tables."""
        for name in names:
            self._left.pop(name, None)

    def wait(self, names: Iterable[str]) -> None:
        """Get the writers of unknown tables, and wait a moment for them to end."""
        new = {name: self.now(name) for name in names if name not in self._left}
        self._left |= new
        by = time.monotonic() + _WRITERS_SECONDS
        while any(map(self.may_write, new)) and time.monotonic() < by:
            time.sleep(_LOOK_SECONDS)

    def may_write(self, name: str) -> bool:
        """Return whether any of the table's tracked writers has not ended."""
        left = self._left.get(name)
        if not left:
            return False
        self._left[name] = left = left & self.now(name)
        return bool(left)


class LogWindow:
    """The changes between two places in a log.

    A transaction is never split. A time is converted to the place of the first transaction
    committed at this time or later, so adjacent windows do not overlap.

    Args:
        log: The log.
        window: The bounds; None for all changes.
    """

    def __init__(self, log: DatabaseLog, window: Boundaries | None) -> None:
        self._log, self._window = log, window
        self._end: Offset | None = None

    def begin(self, session: Session, tables: Sequence[Table]) -> Offset:
        """Return the place of the lower bound, or without one the oldest place of the log.

        Raises DataLostError if the log no longer has the changes after the lower bound.
        """
        assert self._window is not None
        if self._window.lower is None:
            return self._log.oldest(session, tables)
        place = self._place(session, self._window.lower, "window.from")
        self._log.check(session, tables, place)
        return place

    def end(self, session: Callable[[], Session]) -> Offset | None:
        """Return the place of the upper bound, which is cached; None without an upper bound.

        Raises RetriableError if the server's clock has not reached the upper bound yet.
        """
        if self._end is None and self._window is not None and self._window.upper is not None:
            self._end = self._place(session(), self._window.upper, "window.to")
        return self._end

    def check(self) -> None:
        """Raise ConfigError if the bounds are not increasing places in such a log.

        Does not look up times in the log.
        """
        window = self._window
        if window is None or window.kind is BoundaryKind.TIME:
            return
        bounds = {"window.from": window.lower, "window.to": window.upper}
        places = [self._offset(text, key) for key, text in bounds.items() if text is not None]
        if len(places) > 1 and self._log.order(places[0]) >= self._log.order(places[1]):
            raise ConfigError(
                problem="window.to must be after window.from.",
                fix="Set a later place, or swap the bounds.",
                field="window.to",
            )

    def _place(self, session: Session, bound: str, key: str) -> Offset:
        assert self._window is not None
        if self._window.kind is BoundaryKind.OFFSET:
            return self._offset(bound, key)
        try:
            return self._log.since(session, datetime.fromisoformat(bound))
        except ConfigError as error:
            raise ConfigError(error.problem, fix=error.fix, field=key) from error

    def _offset(self, bound: str, key: str) -> Offset:
        kind = set(self._log.partition)
        found = [o for p, o in Position.from_json(bound).items() if set(p) == kind]
        if len(found) != 1:
            raise ConfigError(
                problem=f"{bound} must contain exactly one place in the log.",
                fix="Write a position of the source with the partition "
                f"{dict(self._log.partition)}.",
                field=key,
            )
        try:
            self._log.check_place(found[0])
        except ConfigError as error:
            raise ConfigError(error.problem, fix=error.fix, field=key) from error
        return found[0]
