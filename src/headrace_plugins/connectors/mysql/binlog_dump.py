"""The connection on which a server sends its binary log, as to a replica, and GTID sets.

PyMySQL connects and logs in; the packets that follow are read here. A GTID set says after which
transactions the log begins.
https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_binlog_dump.html
"""

from __future__ import annotations

import re
import secrets
import ssl
import struct
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from typing_extensions import override

from headrace.sdk import ConfigError, DataLostError, RetriableError
from headrace_plugins.connectors.mysql.binlog_settings import grant_of, server_of, version_of
from headrace_plugins.databases.database import DatabaseError
from headrace_plugins.databases.mysql_connection import (
    FULL,
    HEAD_BYTES,
    join_packets,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from headrace_plugins.databases.database import Session
    from headrace_plugins.databases.mysql import Mysql


_READ_BYTES = 1 << 20
_REGISTER, _DUMP, _DUMP_GTID = 0x15, 0x12, 0x1E
_THROUGH_GTID = 4
_LEAST_ID = 1 << 30
"""Random server ids start here, above the ids that people use for servers."""
_LOST, _UNREADABLE, _NO_RIGHT = 2013, 1236, {1045, 1227}
_ERROR, _END = 0xFF, 0xFE
_SILENT_SECONDS = 10


class Dump:
    """Receives the log from a server, as packets of one event each.

    Args:
        database: The server.
        server_id: The server id of the reader; None for a random number.
        heartbeat: The interval of the server's heartbeats while there are no events.
    """

    def __init__(self, database: Mysql, server_id: int | None, heartbeat: timedelta) -> None:
        self._database = database
        self._server_id = server_id or _LEAST_ID + secrets.randbelow(_LEAST_ID)
        self._heartbeat = heartbeat.total_seconds()
        self._session: Session | None = None
        self._room = bytearray(_READ_BYTES)
        self.data = bytearray()
        """The received data; the caller deletes the packets that it has processed."""
        self.mariadb: tuple[int, ...] = ()
        """The version of a MariaDB server; empty for MySQL."""
        self.server = ""
        """The identity of the server; see ``server_of``."""

    def open(self) -> None:
        """Connect, and read the server's version and identity."""
        self.close()
        self.data.clear()
        session = self._session = self._database.session()
        try:
            version = str(session.value("SELECT VERSION()"))
            self.mariadb = version_of(version) if "MariaDB" in version else ()
            self.server = server_of(session)
        except BaseException:
            self.close()
            raise

    def request(self, file: str, pos: int, gtids: str | None) -> None:
        """Request the log from a place on, or after a set of GTIDs."""
        session = self._session
        assert session is not None
        connection = session.connection
        try:
            checksum = session.value("SELECT @@global.binlog_checksum")
            for name in ("master", "source"):  # names of older and newer servers
                session.execute(f"SET @{name}_binlog_checksum = %s", [checksum])
                session.execute(
                    f"SET @{name}_heartbeat_period = {int(self._heartbeat * 10**9)}"
                )
            session.execute("SET @mariadb_slave_capability = 4")  # supports GTIDs
            command, packet = self._command(session, file, pos, gtids)
            with session.errors(), self._rights():
                host = b"\x08headrace\0\0" + bytes(10)
                connection._execute_command(  # noqa: SLF001 - PyMySQL has no other way
                    _REGISTER, struct.pack("<I", self._server_id) + host
                )
                connection._read_packet()  # noqa: SLF001
                connection._execute_command(command, packet)  # noqa: SLF001
        except BaseException:
            self.close()
            raise
        self._socket = connection._sock  # noqa: SLF001
        self._heard = time.monotonic()

    def _command(
        self, session: Session, file: str, pos: int, gtids: str | None
    ) -> tuple[int, bytes]:
        if gtids is None:
            return _DUMP, struct.pack("<IHI", pos, 0, self._server_id) + file.encode()
        if self.mariadb:
            session.execute("SET @slave_connect_state = %s", [gtids])
            session.execute("SET @slave_gtid_strict_mode = 1")  # else it may start anywhere
            session.execute("SET @slave_gtid_ignore_duplicates = 0")
            return _DUMP, struct.pack("<IHI", 4, 0, self._server_id)
        sets = GtidSet(gtids).packed()
        head = struct.pack("<HIIQI", _THROUGH_GTID, self._server_id, 0, 4, len(sets))
        return _DUMP_GTID, head + sets

    @contextmanager
    def _rights(self) -> Iterator[None]:
        """Raise ConfigError with the GRANT statement if the user lacks privileges."""
        from pymysql.err import MySQLError  # noqa: PLC0415 - an extra

        try:
            yield
        except MySQLError as error:
            if error.args and error.args[0] in _NO_RIGHT:
                raise self._not_granted(str(error.args[-1])) from error
            raise

    def _not_granted(self, text: str) -> ConfigError:
        address = self._database.address
        return ConfigError(
            problem=f"{address.title}: {text.rstrip('.')}.",
            fix=grant_of(address.user, mariadb=bool(self.mariadb)),
            field="connection.user",
        )

    def close(self) -> None:
        """Disconnect. Never raises."""
        if self._session is not None:
            with suppress(Exception):
                self._session.connection._force_close()  # noqa: SLF001 - no public method
            self._session = None

    def receive(self, seconds: float) -> bool:
        """Wait for data from the server; return whether data was received.

        Raises RetriableError if the connection has ended, or the server sends no heartbeats.
        """
        count = -1
        try:
            self._socket.settimeout(seconds)
            count = self._socket.recv_into(self._room)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            raise translated(self._database.address, _LOST, str(error)) from error
        if count > 0:
            with memoryview(self._room) as view:
                self.data += view[:count]
            self._heard = time.monotonic()
            return True
        title = self._database.address.title
        if count == 0:
            raise RetriableError(problem=f"{title} has closed the connection.")
        if time.monotonic() - self._heard > 3 * self._heartbeat + _SILENT_SECONDS:
            raise RetriableError(problem=f"{title} has sent no heartbeat.")
        return False

    def packet(self, place: int) -> tuple[int, int] | None:
        """Return the start and end of the event in the packet at a place; None if incomplete.

        Raises the error that the server has sent instead of an event.
        """
        data = self.data
        if place + HEAD_BYTES > len(data):
            return None
        size = data[place] | data[place + 1] << 8 | data[place + 2] << 16
        end = place + HEAD_BYTES + size
        if size == FULL:
            end = join_packets(data, end)
        if end > len(data):
            return None
        if data[place + HEAD_BYTES]:
            raise self._failure(bytes(data[place + HEAD_BYTES : end]))
        return place + HEAD_BYTES + 1, end

    def _failure(self, packet: bytes) -> Exception:
        """Return the error for a packet that the server has sent instead of an event."""
        address = self._database.address
        if packet[0] == _END:
            return RetriableError(problem=f"{address.title} has ended the log stream.")
        number = int.from_bytes(packet[1:3], "little")
        text = packet[9:].decode(errors="replace").rstrip(".")
        if number in _NO_RIGHT:
            return self._not_granted(text)
        if "server_uuid" in text or "server_id" in text or "same server" in text:
            return RetriableError(
                problem=f"{address.title}: {text}.",
                fix="Another reader or replica has the same server id: set database.server.id "
                "to an unused number, or remove it to use a random one.",
            )
        if number != _UNREADABLE:
            return translated(address, number, text, self._database.grants)
        if "max_allowed_packet" in text:
            return ConfigError(
                problem=f"{address.title}: {text}.",
                fix="SET GLOBAL max_allowed_packet = 1073741824;",
            )
        return DataLostError(
            problem=f"{address.title} no longer has the required part of its binary log: "
            f"{text}.",
            fix="Start with a new snapshot, and keep the log for longer.",
        )


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ONE = rf"(?:{_UUID}(?:\s*:\s*(?:[a-z_]\w*|\d+(?:-\d+)?))+|\d+-\d+-\d+)"
_SET = re.compile(rf"(?i)\s*{_ONE}(?:\s*,\s*{_ONE})*\s*")


def is_gtid_set(value: object) -> bool:
    """Return whether a value is a GTID set as a server writes it."""
    return isinstance(value, str) and _SET.fullmatch(value) is not None


class GtidSet:
    """A set of executed GTIDs, to which a reader adds.

    MySQL's sets are intervals of numbers per server, `uuid:1-5:9,uuid:1-3`, and since 8.3 also
    per tag, `uuid:1-5:tag:1-3`. MariaDB's contain the last GTID per domain, `0-1-77,1-4-3`.
    """

    def __init__(self, text: str) -> None:
        self._intervals: dict[str, list[list[int]]] = {}
        self._last: dict[str, str] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            source, *ranges = (each.strip().lower() for each in part.split(":"))
            if not ranges:
                self._last[part.partition("-")[0]] = part
            name = source
            for each in ranges:
                if not each[0].isdigit():
                    name = f"{source}:{each}"
                    continue
                first, _, last = each.partition("-")
                own = self._intervals.setdefault(name, [])
                own.append([int(first), int(last or first)])
                own.sort()

    def add(self, gtid: str) -> None:
        """Add the GTID of a transaction."""
        source, colon, number = gtid.rpartition(":")
        if not colon:
            self._last[gtid.partition("-")[0]] = gtid
            return
        own, found = int(number), self._intervals.setdefault(source.lower(), [])
        if found and found[-1][1] == own - 1:  # the usual case
            found[-1][1] = own
            return
        if any(first <= own <= last for first, last in found):
            return
        found.append([own, own])
        found.sort()
        joined = found[:1]
        for interval in found[1:]:
            if interval[0] == joined[-1][1] + 1:
                joined[-1][1] = interval[1]
            else:
                joined.append(interval)
        self._intervals[source.lower()] = joined

    def covers(self, other: GtidSet) -> bool:
        """Return whether this set contains all of another set."""
        for source, intervals in other._intervals.items():
            own = self._intervals.get(source, [])
            if not all(any(a <= x and y <= b for a, b in own) for x, y in intervals):
                return False
        return all(
            _number(self._last.get(domain, "")) >= _number(gtid)
            for domain, gtid in other._last.items()
        )

    def filled(self, server: str) -> GtidSet:
        """Return the set without the gaps between a MySQL server's own numbers.

        They increase in the server's own log. The set lacks transactions that the server was
        committing when it was queried, although they are before that place in the log.
        """
        found = GtidSet(str(self))
        for source, intervals in found._intervals.items():
            if source.partition(":")[0] == server.lower():
                intervals[:] = [[intervals[0][0], intervals[-1][1]]]
        return found

    def packed(self) -> bytes:
        """Return MySQL's set encoded for the protocol, in the tagged form if it has tags."""
        count, is_tagged = len(self._intervals), any(":" in each for each in self._intervals)
        parts = [struct.pack("<Q", count << 8 | 1 << 56 | 1 if is_tagged else count)]
        for source, intervals in sorted(self._intervals.items()):
            uuid, _, tag = source.partition(":")
            head = bytes([len(tag) << 1]) + tag.encode() if is_tagged else b""
            parts += [UUID(uuid).bytes, head, struct.pack("<Q", len(intervals))]
            parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
        return b"".join(parts)

    @classmethod
    def unpacked(cls, data: bytes) -> GtidSet:
        """Decode the form of ``packed``, which is also at the start of a file of MySQL's log.

        Raises DatabaseError if it is incomplete.
        """
        try:
            return cls(cls._text_of(data))
        except (struct.error, ValueError, IndexError) as error:
            problem = f"The binary log contains a damaged GTID set: {error}."
            raise DatabaseError(problem=problem) from error

    @staticmethod
    def _text_of(data: bytes) -> str:
        [head], place, parts = struct.unpack_from("<Q", data), 8, list[str]()
        is_tagged = head >> 56 == 1
        for _ in range(head >> 8 & 0xFFFFFFFFFFFF if is_tagged else head):
            name, place = str(UUID(bytes=data[place : place + 16])), place + 16
            if is_tagged:
                size = data[place] >> 1
                tag, place = data[place + 1 : place + 1 + size].decode(), place + 1 + size
                name = f"{name}:{tag}" if tag else name
            [count] = struct.unpack_from("<Q", data, place)
            ends = iter(struct.unpack_from(f"<{2 * count}Q", data, place + 8))
            parts += [
                f"{name}:{first}-{end - 1}" for first, end in zip(ends, ends, strict=True)
            ]
            place += 8 + 16 * count
        return ",".join(parts)

    @override
    def __str__(self) -> str:
        """Return the set as the server writes it, so that equal sets have equal texts."""
        servers: dict[str, list[str]] = {}
        for source, intervals in sorted(self._intervals.items()):
            server, _, tag = source.partition(":")
            spans = [f"{a}-{b}" if a < b else str(a) for a, b in intervals]
            servers.setdefault(server, []).extend([tag, *spans] if tag else spans)
        parts = [":".join([server, *each]) for server, each in servers.items()]
        return ",".join([*parts, *self._last.values()])


def _number(gtid: str) -> int:
    return int(gtid.rpartition("-")[2] or 0)
