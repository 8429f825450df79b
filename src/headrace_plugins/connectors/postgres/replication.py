"""A connection to a walsender of PostgreSQL, which sends the changes of a slot.

The protocol: https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any, ClassVar, Never

from headrace.sdk import DataLostError, RetriableError
from headrace_plugins.changes.database_log import RESNAPSHOT
from headrace_plugins.databases.postgresql import SETTINGS, Postgresql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.database import Session

_UNIX_2000 = 946_684_800
_TRIES, _BUSY_SECONDS = 20, 0.5
"""The number of tries to use a slot that is still in use, and the pause between them."""
_PATIENT_TRIES = 4
"""The number of tries before the connection that uses the slot is terminated."""
END_HOLDER = """
SELECT pg_catalog.pg_terminate_backend(a.pid)
FROM pg_catalog.pg_replication_slots s
JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND a.application_name = current_setting('application_name')"""
HAS_FAILOVER = 170_000
"""The first server version that synchronizes slots to standbys."""


def to_lsn(text: str) -> int:
    """Return the number of an LSN that is written as ``16/B374D848``."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def check_confirmed(title: str, slot: str, confirmed: str | None, place: int) -> None:
    """Raise DataLostError if a slot's confirmed position is after the stored position.

    If an earlier position is requested, the server silently starts at the slot's position.
    """
    if confirmed is not None and to_lsn(confirmed) > place:
        raise DataLostError(
            problem=f"The slot {slot} of {title} is at {confirmed}, after the stored position "
            f"{lsn_text(place)}: it was created again or read by another reader, and the "
            "changes in between are lost.",
            fix=RESNAPSHOT,
        )


def check_system(title: str, place: Offset, system: str) -> None:
    """Raise DataLostError if a server is neither the one of a place nor a copy of it."""
    if place.get("system") not in {None, system}:
        raise DataLostError(
            problem=f"{title} is another server than the one whose log was read.",
            fix=f"Set connection.url to the server that was read. {RESNAPSHOT}",
        )


def _timeline_end(history: str, timeline: int) -> int | None:
    """Return the end of a timeline; None if the history does not contain it."""
    for line in history.splitlines():
        number, *rest = line.split()
        if number == str(timeline):
            return to_lsn(rest[0])
    return None


def timeline_of(segment: str) -> int:
    """Return the timeline of a file of the log."""
    return int(segment[:8], 16)


def require_primary(title: str, *, is_standby: bool) -> None:
    """Raise RetriableError for a standby."""
    if is_standby:
        raise RetriableError(
            problem=f"{title} is a standby, whose slots cannot be read until it is promoted.",
            fix="Set connection.url to the primary: list all servers, with "
            "?target_session_attrs=read-write.",
        )


def has_ended(session: Session) -> bool:
    """Return whether the server has terminated an idle session."""
    from psycopg import Error  # noqa: PLC0415 - an extra

    server = session.connection.pgconn
    try:
        readable = poll()
        readable.register(server.socket, POLLIN)
        while readable.poll(0):
            server.consume_input()  # the reason is received first, then the end
    except Error:
        return True
    return False


def _option(text: str) -> str:
    """Return a quoted text for replication commands, which have no backslash escapes."""
    return "'" + text.replace("'", "''") + "'"


class FollowedPostgresql(Postgresql):
    """A database that refuses queries from which row security would omit rows.

    The log is not subject to row security.
    """

    settings: ClassVar[Mapping[str, str]] = {**SETTINGS, "row_security": "off"}


class ReplicationConnection:
    """A connection to a walsender. Raises what ``Database`` does."""

    def __init__(self, database: Postgresql, slot: str, publication: str) -> None:
        from psycopg import Error, OperationalError, pq  # noqa: PLC0415 - an extra
        from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - an extra

        self._database, self._slot, self._pq, self._error = database, slot, pq, Error
        self._publication = f'publication "{publication}"'
        parameters = {**database.parameters, "replication": "database"}
        text = make_conninfo("", **{k: v for k, v in parameters.items() if v is not None})
        with database.errors():
            self._server = pq.PGconn.connect(text.encode())
            if self._server.status != pq.ConnStatus.OK:
                raise OperationalError(self._server.get_error_message())
        try:
            for name, value in {**database.settings, "lc_monetary": "C"}.items():
                self._command(f"SET {name} = {database.literal(value)}")
        except BaseException:
            self.close()
            raise

    def _command(self, text: str) -> list[bytes | None]:
        """Run a command; return the first row of its result."""
        result, status = self._server.exec_(text.encode()), self._pq.ExecStatus
        if result.status not in {status.COMMAND_OK, status.COPY_BOTH, status.TUPLES_OK}:
            self._raise(result)
        return [result.get_value(0, n) for n in range(result.nfields if result.ntuples else 0)]

    def check(self, *places: Offset) -> int:
        """Raise DataLostError unless this server's log has these places; return its timeline.

        A promoted standby starts a new timeline where its log ended. Later changes in the old
        primary's log are lost, and their LSNs are used again.
        """
        title = self._database.address.title
        [standby] = self._command("SELECT pg_is_in_recovery()")
        require_primary(title, is_standby=standby == b"t")
        system, timeline = (
            str(each, "ascii") for each in self._command("IDENTIFY_SYSTEM")[:2] if each
        )
        for place in places:
            check_system(title, place, system)
            if place.get("timeline") in {None, int(timeline)}:
                continue
            history = ""
            if int(timeline) > 1:
                history = str(self._command(f"TIMELINE_HISTORY {timeline}")[1] or b"", "utf-8")
            end = _timeline_end(history, int(place["timeline"]))
            if end is None or int(place["lsn"]) > end:
                raise DataLostError(
                    problem=f"{title} was failed over, or restored: its timeline {timeline} "
                    f"{'does not branch' if end is None else f'branched at {lsn_text(end)}'} "
                    f"from timeline {place['timeline']}, in which the log was read up to "
                    f"{lsn_text(int(place['lsn']))}. The target may have changes that are "
                    "missing here.",
                    fix="Set connection.url to the primary, if that is another server. Else: "
                    f"{RESNAPSHOT} headrace verify --repair then deletes rows from the target "
                    "that the source has lost.",
                )
        return int(timeline)

    def _retried(self, command: str) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._command(command)
            except RetriableError:
                if not left:
                    raise
                # The walsender of a dead process needs a moment to notice that. If the process
                # hangs, its walsender is terminated: this process has taken over its task.
                if left <= _TRIES - _PATIENT_TRIES:
                    self._end_holder()
                time.sleep(_BUSY_SECONDS)
            else:
                return

    def _end_holder(self) -> None:
        with self._database.session() as session:
            session.rows(END_HOLDER, [self._slot])

    def _raise(self, result: Any) -> Never:
        from psycopg.errors import error_from_result  # noqa: PLC0415 - an extra

        error = error_from_result(result)
        state, text = error.sqlstate, str(error.diag.message_primary)
        title = self._database.address.title
        # 42704: the slot does not exist. 55000: it was invalidated. 58P01: a file of the log is
        # missing.
        if state == "42704" and self._publication in text:
            raise DataLostError(
                problem=f"{title}: {text}. The publication was created after the stored "
                "position, and earlier changes cannot be read.",
                fix="SELECT pg_drop_replication_slot("
                f"{self._database.literal(self._slot)}); {RESNAPSHOT}",
            ) from error
        if state in {"42704", "58P01"} or (state == "55000" and self._slot in text):
            raise DataLostError(
                problem=f"{title}: {text}. The changes after the stored position are lost.",
                fix=RESNAPSHOT,
            ) from error
        if state == "55006":
            raise RetriableError(problem=f"{title}: {text}.") from error
        with self._database.errors():
            raise error

    def close(self) -> None:
        """Close the connection. Never raises."""
        with suppress(Exception):
            self._server.finish()


class ReplicationStream(ReplicationConnection):
    """Streams the messages of a slot from a place on; one connection at a time may do so.

    Raises DataLostError if the slot or its log is gone.

    Args:
        cut: The end of a batch that was already planned.
        failover: Whether to synchronize the slot to standbys, if the server supports that.
    """

    def __init__(
        self,
        database: Postgresql,
        slot: str,
        publication: str,
        after: Offset,
        cut: Offset | None = None,
        *,
        failover: bool = False,
    ) -> None:
        super().__init__(database, slot, publication)
        try:
            self.timeline = self.check(after, *([] if cut is None else [cut]))
            name = database.quote(slot)
            if failover and self._server.server_version >= HAS_FAILOVER:
                query = (
                    "SELECT failover FROM pg_catalog.pg_replication_slots WHERE slot_name = "
                )
                if self._command(query + database.literal(slot)) == [b"f"]:
                    self._retried(f"ALTER_REPLICATION_SLOT {name} (FAILOVER)")
            names = _option(database.quote(publication))
            self._retried(
                f"START_REPLICATION SLOT {name} LOGICAL {lsn_text(int(after['lsn']))} "
                f"(proto_version '1', publication_names {names})"
            )
        except BaseException:
            self.close()
            raise
        self._readable = poll()
        self._readable.register(self._server.socket, POLLIN)

    def next(self, by: float) -> bytes | None:
        """Return the next message; None if there is none until ``by``, a ``monotonic`` time."""
        try:
            size, message = self._server.get_copy_data(1)
            if size == 0:
                left = by - time.monotonic()
                if left > 0:
                    self._readable.poll(left * 1000)
                    self._server.consume_input()
                    size, message = self._server.get_copy_data(1)
        except self._error:  # entering a context for each message would be too slow
            with self._database.errors():
                raise
        if size < 0:
            self._raise_end()
        return bytes(message) if size > 0 else None

    def _raise_end(self) -> Never:
        with self._database.errors():
            result = self._server.get_result()
        if result is not None and result.status == self._pq.ExecStatus.FATAL_ERROR:
            self._raise(result)
        raise RetriableError(
            problem=f"{self._database.address.title} has ended the log stream."
        )

    def send_status(self, received: int, flushed: int, *, ask: bool = False) -> None:
        """Send the received and the flushed position; ``ask`` requests a reply."""
        now = int((time.time() - _UNIX_2000) * 1_000_000)
        status = struct.pack("!cqqqqB", b"r", received, flushed, flushed, now, ask)
        with self._database.errors():
            self._server.put_copy_data(status)
            self._server.flush()
