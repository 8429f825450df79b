"""The window of a log that a source reads."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from headrace.sdk import BoundaryKind, ConfigError, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.sdk import Boundaries
    from headrace_plugins.changes.database_log import DatabaseLog
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.catalog import Table
    from headrace_plugins.databases.database import Session


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
