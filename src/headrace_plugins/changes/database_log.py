"""What a source of changes asks of one kind of database, and who writes its new tables."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.sdk import Schema
    from headrace_plugins.changes.log import LogReader, Offset
    from headrace_plugins.changes.parts import Keeps, Typed
    from headrace_plugins.databases.catalog import Table, TableName
    from headrace_plugins.databases.database import Database, Session
    from headrace_plugins.databases.selection import Selection


RESNAPSHOT = (
    "Reset the connector's offsets, which reads all tables anew, or set "
    "snapshot.mode=when_needed."
)
"""The way on where a log has lost what was not read."""
_WRITERS_SECONDS, _LOOK_SECONDS = 2.0, 0.1
"""How long a look waits for those who write a new table to end, and how often it looks."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of a database, that tables are read as of.

    Args:
        name: What selects call it, see ``Database.snapshot``; None where each connection sees
            a state of its own, none of them older than this.
        seen: Which changes of the log it has, as JSON, see ``DatabaseLog.keeps``; None where
            that is not known.
        upto: A place in the log behind all that it has.
        ts_us: When it was taken, in microseconds since 1970.
        details: What ``source`` says of its rows, see ``DatabaseLog.details``.
        has_lost: Whether a table cannot be read as of it any more, as its rows were written
            anew or the connection that holds the snapshot has gone.
    """

    name: str | None
    seen: Any
    upto: Offset
    ts_us: int
    details: Mapping[str, int | str | None]
    has_lost: Callable[[TableName], bool]


class DatabaseLog(ABC):
    """The log of one database, and its tables. It holds no connection."""

    database: Database
    keeps_start: ClassVar[bool] = False
    """Whether ``begin`` gives the same place again until something behind it is confirmed."""

    @property
    @abstractmethod
    def partition(self) -> Mapping[str, str]:
        """The source partition of the place in the log."""

    @abstractmethod
    def order(self, place: Offset) -> tuple[int, ...]:
        """Return what grows with the log."""

    def moved(self, place: Offset, end: Offset) -> Offset:
        """Return a place that a task has, moved to where its reader has come."""
        return {**place, **end}

    @abstractmethod
    def check_place(self, place: Offset) -> None:
        """Raise ConfigError for what is no place in a log."""

    def between_bytes(self, start: Offset, end: Offset) -> int | None:
        """Return how many bytes of the log lie between two places, if that is known."""
        return None

    @abstractmethod
    def require(self, session: Session, tables: Sequence[Table]) -> None:
        """Raise ConfigError where these tables cannot be followed. It changes nothing."""

    @abstractmethod
    def begin(self, session: Session, tables: Sequence[Table], *, anew: bool = False) -> Offset:
        """See to it that the log is kept from now on for these tables; return its place.

        All that is committed behind the place can be read. Done again after a crash it changes
        nothing, but ``anew`` lets go of what was kept before, as it cannot be read. Raises
        ConfigError with the statement that is missing.
        """

    def taken_over(self, session: Session, place: Offset) -> Offset | None:
        """Return where a place lies in the log of a server that has taken over.

        None where the server is still that of the place. Raises DataLostError where the place
        cannot be found there.
        """
        return None

    def goes_on(self, start: Offset, end: Offset) -> bool:
        """Return whether two places are in one log, and not a server's and its successor's."""
        return True

    @abstractmethod
    def check(self, session: Session, tables: Sequence[Table], place: Offset) -> None:
        """See to it that the log has these tables, and still what follows a place.

        Raises DataLostError where it has not.
        """

    def check_seen(self, session: Session, upto: Offset) -> None:  # noqa: B027 - none by default
        """Raise DataLostError where the log never comes to what a snapshot has."""

    def check_end(self, session: Session, place: Offset) -> None:  # noqa: B027 - none by default
        """Raise DataLostError where the log of this server never comes to a batch's end."""

    def obstacles(
        self, session: Session, tables: Sequence[Table]
    ) -> Mapping[TableName, ConfigError]:
        """Return why tables cannot be followed that may be left out. It changes nothing."""
        return {}

    def left_out(self, session: Session, tables: Sequence[Table]) -> Sequence[TableName]:
        """Return the tables that the log has nothing of until ``check``. It changes nothing."""
        return ()

    @abstractmethod
    def oldest(self, session: Session, tables: Sequence[Table]) -> Offset:
        """Return the first place whose changes the log still has."""

    @abstractmethod
    def now(self, session: Session) -> Offset:
        """Return the place behind all that is committed now."""

    @abstractmethod
    def since(self, session: Session, time: datetime) -> Offset:
        """Return a place in front of all that was committed at a time or later.

        Raises ConfigError: the log does not have that any more, or gives nothing again.
        """

    @abstractmethod
    def reader(
        self, follows: Callable[[TableName], bool], *, is_second: bool = False
    ) -> Callable[[], LogReader]:
        """Return what makes a reader of the changes of the tables that are followed.

        Both are pickled. A second reader reads beside the first one.
        """

    @abstractmethod
    def snapshot(self, place: Offset) -> AbstractContextManager[Snapshot]:
        """Take a snapshot of what is committed now; it can be read while this lasts.

        It has all that the log has before a place. Raises RetriableError where the server does
        not show all of that yet, or is another one.
        """

    @abstractmethod
    def keeps(self, seen: Any) -> Keeps | None:
        """Return what passes over the changes that a snapshot has; None to pass over none."""

    @property
    @abstractmethod
    def typed(self) -> Typed:
        """Makes values of what the log has."""

    @abstractmethod
    def facts(self, table: TableName) -> Mapping[str, str]:
        """Return what ``source`` says of all changes of a table alike."""

    @property
    @abstractmethod
    def details(self) -> Mapping[str, Schema]:
        """What ``source`` says of each change, which are columns of a reader's runs."""


def followed_tables(
    log: DatabaseLog,
    selection: Selection,
    session: Session,
    *,
    follows: bool,
    known: Callable[[TableName], bool] = lambda _: False,
) -> tuple[list[Table], Mapping[TableName, ConfigError]]:
    """Return the tables that are followed, and why others are left out.

    The log does not have these, and no one has named them: patterns only fit. One that is
    named or ``known`` from before, or has no other beside it, is followed, and so refused by
    ``DatabaseLog.require``.
    Raises ConfigError where no table is chosen, or where two have one source partition.
    Where the log is not read (``follows``) nothing is left out.
    """
    chosen = selection.required_tables(log.database, session)
    by_partition: dict[str, TableName] = {}
    for name in (table.name for table in chosen):
        other = by_partition.setdefault(str(name), name)
        if other != name:
            raise ConfigError(
                problem=f"Two tables are called {name}: {other.name!r} in the schema "
                f"{other.schema!r} and {name.name!r} in the schema {name.schema!r}, so their "
                "positions would be one.",
                fix=f'Leave one out: table.exclude.list="{name.schema}"."{name.name}", and let '
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
    """Knows of tables that the log has got lately who writes them since before.

    What such a transaction has written is not in the log, nor yet in a snapshot.

    Args:
        now: Returns who writes the table of a name now.
    """

    now: Callable[[str], frozenset[str]]
    _left: dict[str, frozenset[str]] = field(default_factory=dict)

    def begin(self, names: Iterable[str]) -> None:
        """Take for granted that nobody writes these: the log has begun when all had ended."""
        self._left = dict.fromkeys(names, frozenset[str]())

    def forget(self, names: Iterable[str]) -> None:
        """Ask anew for these."""
        for name in names:
            self._left.pop(name, None)

    def wait(self, names: Iterable[str]) -> None:
        """Learn who writes those that are not known, and wait a moment for them to end."""
        new = {name: self.now(name) for name in names if name not in self._left}
        self._left |= new
        by = time.monotonic() + _WRITERS_SECONDS
        while any(map(self.may_write, new)) and time.monotonic() < by:
            time.sleep(_LOOK_SECONDS)

    def may_write(self, name: str) -> bool:
        """Return whether any of those has not ended."""
        left = self._left.get(name)
        if not left:
            return False
        self._left[name] = left = left & self.now(name)
        return bool(left)
