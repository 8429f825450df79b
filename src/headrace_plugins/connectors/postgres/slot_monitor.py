"""Watches how much of its log a server retains for a slot, and drops the slot at a limit."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from headrace.sdk import DataLostError, HeadraceError, Lag
from headrace_plugins.changes.database_log import RESNAPSHOT
from headrace_plugins.connectors.postgres.replication import END_HOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace_plugins.changes.spool import Entry
    from headrace_plugins.connectors.postgres.slot_log import SlotLog
    from headrace_plugins.databases.database import Session

log = structlog.get_logger(__name__)

_LOOK_SECONDS, _STOP_SECONDS = 2.0, 5.0
_DROPS = 50
"""The number of tries to drop a slot, which another connection may take in between."""
_NEAR_BYTES = 1 << 20
"""The lag in rows is reported only within this distance from the end of the log."""
_STALE_SECONDS = 10.0
"""The maximum age of the last measurement; after that only the age of changes is reported."""
_MARKS = 200
_RETAINED = """
SELECT pg_catalog.pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint,
  pg_catalog.pg_wal_lsn_diff(now.lsn, restart_lsn)::bigint,
  pg_catalog.pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::bigint,
  (extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint
FROM pg_catalog.pg_replication_slots, (SELECT pg_current_wal_lsn() AS lsn) now
WHERE slot_name = %s"""


class SlotMonitor:
    """Polls a slot, on a thread and a connection of its own.

    A task that waits for its sinks cannot poll, and this is when the log grows.

    Args:
        slot_log: The slot's log, with its limits.
        read_ahead: Returns the changes that were read and wait for the sinks, and the position
            up to which the log was read; None while the log is not read.
    """

    def __init__(
        self,
        slot_log: SlotLog,
        read_ahead: Callable[[], tuple[Sequence[Entry], int] | None],
    ) -> None:
        self._log, self._read_ahead = slot_log, read_ahead
        self._lag: Lag | None = None
        self._looked, self._now_us = time.monotonic(), 0
        self._is_silent = False
        self._place = 0
        """The position up to which the log was read."""
        self._marks: tuple[tuple[int, int], ...] = ()
        """Earlier ends of the log that were not read yet, with the times of their polls."""
        self._error: DataLostError | None = None
        self._warned_bytes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-slot", daemon=True)
        self._thread.start()

    @property
    def lag(self) -> Lag | None:
        """The task's lag at the last poll. Thread-safe.

        While the server does not answer, only the age is reported: of the changes known by
        then, or of those that were read and wait for the sinks.
        """
        silent = time.monotonic() - self._looked
        if silent < _STALE_SECONDS:
            return self._lag
        if not self._is_silent:
            self._is_silent = True  # no other code reports it before a query times out
            log.warning(
                "server does not answer",
                server=self._log.database.address.title,
                slot=self._log.slot,
                seconds=round(silent),
            )
        entries, _ = self._read_ahead() or ((), 0)
        return Lag(age=self._age(entries, self._now_us + int(silent * 1_000_000)))

    def raise_error(self) -> None:
        """Raise DataLostError, once, after the slot was dropped."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Stop polling."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        session: Session | None = None
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                session = self._log.database.idle(session)
                self._look(session)
                session.rollback()
            except HeadraceError:  # the task itself reports an unavailable server
                log.debug("slot poll failed", slot=self._log.slot, exc_info=True)
        if session is not None:
            session.close()

    def _look(self, session: Session) -> None:
        found = session.rows(_RETAINED, [self._log.slot])
        # The slot is gone or being created; the task reports a missing slot.
        if not found or None in found[0]:
            self._lag, self._looked = Lag(), time.monotonic()
            return
        if self._is_silent:
            self._is_silent = False
            log.info("server answers again", server=self._log.database.address.title)
        end, retained, confirmed, now_us = found[0]
        self._lag = self._measured(end, confirmed, now_us, retained)
        self._looked, self._now_us = time.monotonic(), now_us
        most, warn = self._log.max_retained_bytes, self._log.warn_retained_bytes
        if most is not None and retained > most:
            self._give_up(session, retained, most)
        elif warn is not None and retained > max(warn, 2 * self._warned_bytes):
            self._warned_bytes = retained
            log.warning(
                "slot retains much of the server's log",
                slot=self._log.slot,
                server=self._log.database.address.title,
                retained_bytes=retained,
                fix="Find out what blocks the sinks, before the server's disk is full.",
            )
        elif warn is None or retained <= warn:
            self._warned_bytes = 0

    def _measured(self, end: int, confirmed: int, now_us: int, retained: int) -> Lag:
        entries, place = self._read_ahead() or ((), 0)
        self._place = place = place or self._place
        self._mark(end, max(confirmed, place), now_us)
        age = self._age(entries, now_us) if place else None
        is_near = place > 0 and end - max(confirmed, place) < _NEAR_BYTES
        rows = sum(entry.rows for entry in entries)
        return Lag(
            # Between the reader's place and the log's end there may be any number of changes.
            rows=rows if is_near and (entries or age == timedelta()) else None,
            size_bytes=max(0, end - (confirmed if entries else max(confirmed, place))),
            age=age,
            retained_bytes=retained,
        )

    def _mark(self, end: int, place: int, now_us: int) -> None:
        """Record the time of the log's end, and drop the marks up to the read place."""
        marks = tuple(each for each in self._marks if each[0] > place)
        if end > max(place, marks[-1][0] if marks else 0):
            marks += ((end, now_us),)
        # Keep the oldest mark: dropping others reports a too small age for a while.
        self._marks = marks if len(marks) <= _MARKS else marks[::2]

    def _age(self, entries: Sequence[Entry], now_us: int) -> timedelta | None:
        """Return the age of the oldest waiting change, read or not."""
        if entries:
            began_us = entries[0].ts_us
        else:
            marks = self._marks
            began_us = marks[0][1] if marks else now_us
        return None if began_us is None else timedelta(microseconds=max(0, now_us - began_us))

    def _give_up(self, session: Session, retained: int, most: int) -> None:
        """Drop the slot: the source's disk is more important than this copy."""
        slot, title = self._log.slot, self._log.database.address.title
        for _ in range(_DROPS):
            session.rows(END_HOLDER, [slot])
            try:
                session.rows("SELECT pg_catalog.pg_drop_replication_slot(%s)", [slot])
            except HeadraceError:
                session.rollback()
                if self._stopping.wait(_LOOK_SECONDS / 20):
                    return
            else:
                session.commit()
                break
        else:
            log.warning("slot cannot be dropped", slot=slot, server=title)
            return
        log.error("slot was dropped", slot=slot, server=title, retained_bytes=retained)
        self._error = DataLostError(
            problem=f"The slot {slot} made {title} retain {retained:,} bytes of its log, more "
            f"than slot.max.retained.bytes = {most:,}, and was dropped: the changes after the "
            "stored position are lost to this connector.",
            fix=f"Find out what blocked the sinks. {RESNAPSHOT}",
        )
