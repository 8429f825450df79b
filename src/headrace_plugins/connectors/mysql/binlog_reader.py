"""Reads the binary log of MySQL or MariaDB, as a replica does."""

from __future__ import annotations

import re
import struct
import time
import zlib
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, DataLostError, RetriableError
from headrace_plugins.changes.log import LogReader, Piece
from headrace_plugins.connectors.mysql import binlog_events as events
from headrace_plugins.connectors.mysql.binlog_dump import Dump, GtidSet
from headrace_plugins.connectors.mysql.binlog_runs import TRUNCATES, RowsEvents
from headrace_plugins.connectors.mysql.binlog_settings import (
    FULL_IMAGE,
    NO_PARTIAL_JSON,
    ROW_FORMAT,
)
from headrace_plugins.connectors.mysql.binlog_shapes import Bound, Shapes
from headrace_plugins.databases.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.catalog import TableName
    from headrace_plugins.databases.mysql import Mysql

_PIECE_BYTES = 2 << 20
"""The size of row events per piece; converted to Arrow they are several times as large."""
_PIECE_EVENTS = 20_000
_WAITING_BYTES = 8 << 20
"""The maximum size of received data that was not yet requested."""
_HIGH = ~0xFFFFFFFF
_PACKET, _CRC = struct.Struct("<IBIBIIIH"), struct.Struct("<I")
"""The packet (length, number, status, and the event's header), and the checksum."""
_LENGTH_BYTES, _LEAST_BYTES = 4, 24
_USUAL = {events.XID, events.MARIADB_GTID, events.TABLE_MAP, *events.ROWS}
_MOST_POS = 0xFFFFFFFF
_CHECKSUM_BYTES = 4
_NO_TABLE = 0xFFFFFF
"""The table number of an event without rows."""
_IGNORED = {0, 3, 5, 13, 14, 29, 36, 37, 160, 161, 163, 164}
_IGNORABLE = 0x80
_BEGINS = re.compile(r"(?i)\s*(?:BEGIN|START\s+TRANSACTION|XA\s+START|XA\s+BEGIN)\b")
_CHANGES_ROWS = re.compile(r"(?i)(?:INSERT|UPDATE|DELETE|REPLACE|LOAD)\b")
_SNAPSHOT = "Start with a new snapshot."
_REMOVED = (
    f"{_SNAPSHOT} Then delete the removed rows from the target by headrace verify --repair. "
    "To have the log contain the deletions, use a DELETE of these rows instead."
)


class BinlogReader(LogReader):
    """Reads the binary log of a server from a place on.

    A place contains ``file`` and ``pos``, the position of the first byte after a transaction,
    and ``server``, the owner of the log. ``gtid`` is the set of GTIDs executed up to the place;
    it exists if the reader's start has one, or from the time on when MySQL's transactions get
    GTIDs. A place with an empty file is after that set. In addition to the columns of every
    run, the rows have ``file``, ``pos`` and ``row``: where the event of a change begins, and
    the index of the row in it; and ``server_id``, ``gtid`` and ``thread``, the last two null if
    the log lacks them. `BinlogColumns` converts the values.

    Args:
        database: The server; the user needs REPLICATION SLAVE on it.
        follows: Whether a table is followed.
        heartbeat: The interval of the server's heartbeats while there are no events.
        server_id: The server id of the reader, which no replica may have; a random number
            above 1073741824 if None.
    """

    def __init__(
        self,
        database: Mysql,
        follows: Callable[[TableName], bool],
        *,
        heartbeat: timedelta,
        server_id: int | None = None,
    ) -> None:
        self._database, self._follows = database, follows
        self._dump = Dump(database, server_id, heartbeat)

    # --- the contract ---------------------------------------------------------------

    @override
    def start(self, after: Offset, cut: Offset | None) -> None:
        self._file, self._pos = str(after["file"]), int(after["pos"])
        self._gtids = GtidSet(after["gtid"]) if after.get("gtid") else None
        self._new_gtids = list[str]()
        self._previous: GtidSet | None = None
        self._cut_place = cut
        self._inner: events.Payload | None = None
        self._tables: dict[int, Bound | None] = {}
        self._by_map: dict[bytes, Bound | None] = {}
        self._last: dict[TableName, Bound] = {}
        self._aside = RowsEvents()
        self._has_checksums = self._is_full = self._was_split = False
        self._end: tuple[str, int] | None = None
        self._told = (self._file, self._pos)
        self._end_us: int | None = None
        self._close()
        self._dump.open()
        is_other = after.get("server") not in {None, self._dump.server}
        if is_other and not (cut is not None and self._gtids is not None and cut.get("gtid")):
            self._dump.close()
            raise RetriableError(
                problem=f"{self._database.address.title} is now another server: "
                f"{self._dump.server} instead of {after['server']}."
            )
        self._goal: GtidSet | None = None
        if is_other and cut is not None and self._gtids is not None:
            self._goal = GtidSet(cut["gtid"]).filled(after["server"])
            self._gtids = self._gtids.filled(after["server"])
        self._is_done = False
        facts = {key: after[key] for key in ("failovers",) if key in after}
        self._facts = {"server": self._dump.server, **facts}
        self._cut = None if cut is None or is_other or self._reaches(cut) else cut
        is_far = self._pos > _MOST_POS
        if is_far and self._gtids is None:
            raise DataLostError(
                problem=f"No reader can start at {self._file}:{self._pos}: the protocol's "
                "positions have 32 bits.",
                fix=_SNAPSHOT,
            )
        goes_by_gtid = self._gtids is not None and (is_far or is_other or not self._file)
        self._is_placed = not goes_by_gtid  # with GTIDs, the server first sends its position
        self._dump.request(self._file, self._pos, str(self._gtids) if goes_by_gtid else None)
        self._shapes = Shapes(self._database, mariadb=self._dump.mariadb)

    @override
    def read(self, seconds: float) -> Piece | None:
        by = time.monotonic() + seconds
        if self._is_done and not self._is_full:
            time.sleep(seconds)
            return None
        while True:
            self._scan()
            # Return complete transactions as soon as there is no more data.
            left = 0.0 if self._aside.whole else max(0.0, by - time.monotonic())
            if self._is_full:
                return self._take()
            if not self._dump.receive(left) and (left == 0.0 or time.monotonic() >= by):
                return self._take()

    @override
    def confirm(self, place: Offset) -> None:
        """Do nothing: the server purges its log by age, regardless of readers."""

    @override
    def idle(self) -> None:
        # Receive data up to the limit; beyond it, the server waits for the reader.
        while len(self._dump.data) < _WAITING_BYTES and self._dump.receive(0):
            pass

    @override
    def stop(self) -> None:
        self._dump.close()

    # --- pieces ---------------------------------------------------------------------

    def _take(self) -> Piece | None:
        aside, end = self._aside, self._end
        self._is_full = False
        if not aside.whole and len(aside.bodies) >= _PIECE_BYTES:
            self._was_split, self._end = True, None
            return Piece(aside.take(begun=True), None)
        self._end = None
        if self._goal is not None:
            end_place = self._cut_place if self._is_done else None
            runs = aside.take() if aside.whole else ()
            return Piece(runs, end_place, self._end_us) if runs or end_place else None
        if end is None or (end == self._told and not aside.whole):
            return None
        self._told = end
        place: dict[str, object] = {"file": end[0], "pos": end[1], **self._facts}
        if self._gtids is not None:
            place["gtid"] = str(self._executed())
        return Piece(aside.take() if aside.whole else (), place, self._end_us)

    def _executed(self) -> GtidSet:
        assert self._gtids is not None
        for each in self._new_gtids:
            self._gtids.add(each)
        self._new_gtids.clear()
        return self._gtids

    def _reaches(self, cut: Offset) -> bool:
        """Return whether the log has been read up to a place."""
        return (_file_order(self._file), self._pos) >= (_file_order(cut["file"]), cut["pos"])

    def _pass(self) -> None:
        """Advance the end of the piece to the current place, if no transaction is open."""
        if self._goal is not None and not self._is_open:
            self._approach(self._goal)
        if self._is_open or not self._is_placed or self._goal is not None:
            return
        self._end = (self._file, self._pos)
        if self._cut is not None and self._reaches(self._cut):
            self._cut, self._is_full = None, True

    def _approach(self, goal: GtidSet) -> None:
        """Check whether a batch that was planned on another server is read completely.

        Its end is a place in the other server's log, and no piece may end before it.
        """
        executed = self._executed()
        if self._is_done or not executed.covers(goal):
            return
        if not goal.covers(executed):
            raise DataLostError(
                problem=f"{self._database.address.title} has the transactions of the batch in "
                f"another order than the previous server: {executed} are before the end of "
                f"{goal}.",
                fix=f"Discard the batch. {_SNAPSHOT}",
            )
        self._is_full = self._is_done = True

    def _commit(self) -> None:
        if self._gtid is not None:
            self._gtids = self._gtids or self._previous
        if self._gtids is not None and self._gtid is not None:
            self._new_gtids.append(self._gtid)
        elif not self._dump.mariadb and self._goal is None:
            # A transaction without a GTID: the GTIDs no longer describe what was read.
            self._gtids = self._previous = None
        aside = self._aside
        aside.commit()
        self._end_us = self._ts_us
        self._close()
        self._pass()
        if len(aside.bodies) >= _PIECE_BYTES or aside.whole >= _PIECE_EVENTS:
            self._is_full = True

    def _undo(self) -> None:
        """Drop the rows of the open transaction."""
        if self._was_split:
            raise DatabaseError(
                problem="The binary log rolls back a long transaction at its end, before "
                f"{self._file}:{self._pos}.",
                fix=_SNAPSHOT,
            )
        self._aside.undo()

    def _close(self) -> None:
        self._is_open = self._has_end = self._was_split = False
        self._gtid: str | None = None
        self._thread: int | None = None
        self._ts_us = 0

    # --- events ---------------------------------------------------------------------

    def _scan(self) -> None:
        """Process the received events until a piece is full."""
        place, dump = 0, self._dump
        self._scan_inner()
        while True:
            place = self._scan_usual(place)
            found = None if self._is_full else dump.packet(place)
            if found is None:
                break
            self._event(dump.data, *found)
            place = found[1]
            self._scan_inner()
        del dump.data[:place]

    def _scan_usual(self, place: int) -> int:
        """Process the event types of ordinary transactions, until another type comes.

        In a log of short transactions these are nearly all events, so this loop is optimized:
        it does nothing twice and calls few functions. Returns the place of the other event.
        """
        data, checksum = self._dump.data, _CHECKSUM_BYTES if self._has_checksums else 0
        length = len(data)
        with memoryview(data) as view:
            while not self._is_full and place + _LEAST_BYTES <= length:
                head, status, ts, kind, sender, size, log_pos, _ = _PACKET.unpack_from(
                    data, place
                )
                end = place + _LENGTH_BYTES + (head & 0xFFFFFF)
                if kind not in _USUAL or end > length or status or not log_pos:
                    break
                stop = end - checksum
                if checksum:
                    [found] = _CRC.unpack_from(data, stop)
                    if zlib.crc32(view[place + _LENGTH_BYTES + 1 : stop]) != found:
                        break  # _event reports the error
                pos = (self._pos & _HIGH) | log_pos
                if pos < self._pos:
                    pos += 1 << 32
                self._begin, self._pos, self._is_placed = pos - size, pos, True
                first = place + _LEAST_BYTES
                if kind == events.XID:
                    self._commit()
                elif kind == events.MARIADB_GTID:
                    self._begin_transaction(events.mariadb_gtid(data, first, sender), ts)
                elif kind == events.TABLE_MAP:
                    self._map(data, first, stop)
                else:
                    self._first_row = 0
                    self._put_aside(kind, data, first, stop, sender)
                place = end
        return place

    def _scan_inner(self) -> None:
        """Process the events of a compressed transaction."""
        while self._inner is not None and not self._is_full:
            self._first_row = self._inner.place  # all events have the same place in the log
            event = self._inner.next()
            if event is None:
                self._inner = None
                return
            header = events.HEADER.unpack_from(event)
            self._handle(header, event, events.HEADER.size, len(event))

    def _event(self, data: bytearray, start: int, end: int) -> None:
        header = events.HEADER.unpack_from(data, start)
        _, kind, _, size, log_pos, flags = header
        if kind in events.CONTROL:
            self._control(kind, bytes(data[start:end]), log_pos, flags)
            return
        if self._has_checksums:
            end -= _CHECKSUM_BYTES
            found = int.from_bytes(data[end : end + _CHECKSUM_BYTES], "little")
            if zlib.crc32(memoryview(data)[start:end]) != found:
                raise DatabaseError(
                    problem=f"The binary log is damaged after {self._file}:{self._pos}."
                )
        self._begin, self._first_row = self._pos, 0
        self._move(log_pos, size, flags)
        self._handle(header, data, start + events.HEADER.size, end)

    def _move(self, log_pos: int, size: int, flags: int) -> None:
        """Update the position from an event, which contains only its lower 32 bits."""
        if log_pos == 0 or flags & events.ARTIFICIAL:
            return
        pos = (self._pos & _HIGH) | log_pos
        if pos < self._pos:
            pos += 1 << 32
        self._begin, self._pos, self._is_placed = pos - size, pos, True

    def _control(self, kind: int, event: bytes, log_pos: int, flags: int) -> None:
        """Process an event of a type that may have a checksum or none."""
        body = event[events.HEADER.size :]
        if kind == events.FORMAT_DESCRIPTION:
            self._has_checksums = body[-_CHECKSUM_BYTES - 1] == 1
            if log_pos and self._is_open:  # the server crashed during the transaction
                self._undo()
                self._close()
            self._move(log_pos, 0, flags)
            return
        checksum = int.from_bytes(event[-_CHECKSUM_BYTES:], "little")
        if zlib.crc32(event[:-_CHECKSUM_BYTES]) == checksum:
            body = body[:-_CHECKSUM_BYTES]
        if kind == events.ROTATE:
            file, pos = body[8:].decode(), int.from_bytes(body[:8], "little")
            if (file, pos) == (self._file, self._pos):
                return
            self._file, self._pos = file, pos
            self._tables.clear()
        else:
            self._move(log_pos, 0, 0)
        self._pass()

    def _handle(
        self, header: tuple[int, ...], data: bytes | bytearray, first: int, end: int
    ) -> None:
        ts, kind, server_id, _, _, flags = header
        if kind in events.ROWS:
            self._put_aside(kind, data, first, end, server_id)
        elif kind == events.TABLE_MAP:
            self._map(data, first, end)
        elif kind == events.XID:
            self._commit()
        elif kind == events.PREVIOUS_GTIDS:
            # When GTIDs are turned on, the server starts a new file.
            self._previous = GtidSet.unpacked(bytes(data[first:end]))
            self._pass()
        elif kind in _IGNORED:
            self._pass()
        else:
            self._seldom(kind, bytes(data[first:end]), ts, server_id, flags)

    def _seldom(self, kind: int, body: bytes, ts: int, server_id: int, flags: int) -> None:
        """Process an event of a type that is rare within a transaction."""
        self._sender = server_id
        if kind in events.GTIDS:
            self._begin_transaction(events.gtid(kind, body, server_id), ts)
        elif kind in events.STATEMENTS:
            self._thread, schema, statement = events.query(kind, body)
            self._statement(schema, statement, ts)
        elif kind == events.XA_PREPARE:
            if not body[0] and (self._was_split or self._aside.begun):
                names = ", ".join(sorted(map(str, self._aside.begun_tables)))
                raise self._refused(
                    problem="prepares a transaction (XA PREPARE) of "
                    f"{names or 'followed tables'}, which may be rolled back later",
                    fix="Exclude the tables that distributed transactions change by "
                    "table.exclude.list, or commit with XA COMMIT ... ONE PHASE.",
                )
            self._commit()
        elif kind == events.TRANSACTION_PAYLOAD:
            self._inner = events.Payload(body)
        elif kind == events.PARTIAL_UPDATE_ROWS:
            if self._tables.get(events.table_number(body, 0)) is not None:
                raise self._refused(
                    problem="contains only parts of JSON values", fix=NO_PARTIAL_JSON
                )
        elif kind == events.INCIDENT:
            raise DataLostError(
                problem="The server reports that its binary log lacks changes before "
                f"{self._file}:{self._pos}.",
                fix=_SNAPSHOT,
            )
        elif not flags & _IGNORABLE:
            raise self._refused(problem=f"contains an event of unknown type {kind}", fix="")

    def _begin_transaction(self, found: events.Gtid, ts: int) -> None:
        self._gtid, self._has_end, ts_us = found
        self._ts_us, self._is_open = ts_us or ts * 10**6, True

    # --- rows -----------------------------------------------------------------------

    def _map(self, data: bytes | bytearray, first: int, end: int) -> None:
        text = bytes(data[first + 6 : end])
        try:
            bound = self._by_map[text]
        except KeyError:
            bound = self._by_map[text] = self._bind(text)
        self._tables[events.table_number(data, first)] = bound

    def _bind(self, text: bytes) -> Bound | None:
        """Return the table of a TABLE_MAP; None if it is not followed."""
        log = events.table_map(text, mariadb=bool(self._dump.mariadb))
        if not self._follows(log.table):
            return None
        bound, last = self._shapes.bound(log), self._last.get(log.table)
        if last is not None:
            if (last.shape, last.log) == (bound.shape, bound.log):
                return last
            # A piece contains only one shape of a table.
            self._is_full = self._is_full or self._aside.whole > 0
        self._last[log.table] = bound
        return bound

    def _put_aside(
        self, kind: int, data: bytes | bytearray, first: int, end: int, server_id: int
    ) -> None:
        number = events.table_number(data, first)
        if number == _NO_TABLE:
            return
        try:
            bound = self._tables[number]
        except KeyError:
            raise DatabaseError(
                problem=f"The binary log contains rows of an unknown table at {self._file}:"
                f"{self._begin}."
            ) from None
        if bound is None:
            return
        op, aside = events.ROWS[kind], self._aside
        begin = events.rows_begin(kind, data, first + 6)
        head = bound.heads[op]
        is_whole = data.startswith(head, begin)
        if not is_whole and not bound.is_whole(bytes(data[begin : begin + len(head)]), op):
            raise self._refused(problem="contains only some columns of a row", fix=FULL_IMAGE)
        rows = data[begin + len(head) : end]
        if kind in events.COMPRESSED_ROWS:
            rows = events.decompressed(bytes(rows))
        at = (self._ts_us, self._file, self._begin, self._first_row)
        facts = (bound, op, *at, server_id, self._gtid, self._thread)
        if aside.put(rows, facts) >= _PIECE_BYTES:
            self._is_full = True

    def _truncate(self, table: TableName) -> None:
        bound = self._last.get(table) or self._shapes.known(table)
        if bound is None:  # the table was dropped since
            return
        self._last[table] = bound
        self._aside.put(
            b"",
            (
                bound,
                TRUNCATES,
                self._ts_us,
                self._file,
                self._begin,
                0,
                self._sender,
                self._gtid,
                self._thread,
            ),
        )

    # --- statements -----------------------------------------------------------------

    def _statement(self, schema: str, statement: str, ts: int) -> None:
        if not self._is_open:
            self._ts_us = ts * 10**6
        word = statement[:20].strip().upper()
        if _BEGINS.match(statement):
            self._is_open = self._has_end = True
        elif word == "COMMIT":
            self._commit()
        elif word == "ROLLBACK":
            self._undo()
            self._commit()
        elif word.startswith("ROLLBACK TO"):
            if self._was_split or self._aside.begun:
                raise self._refused(problem="rolls back part of a transaction", fix=_SNAPSHOT)
        elif not word.startswith(("SAVEPOINT", "XA END")):
            self._define(schema, events.plain(statement))
            if not self._has_end:
                self._commit()

    def _define(self, schema: str, statement: str) -> None:
        """Process a statement that may truncate a table or change its shape."""
        if _CHANGES_ROWS.match(statement):
            if any(map(self._follows, events.names_in(statement, schema))):
                raise self._refused(
                    problem="contains a statement instead of the rows that it changes",
                    fix=ROW_FORMAT,
                )
            return
        table = events.truncated(statement, schema)
        for each in (table, events.replaced(statement, schema)):
            if each is not None and self._follows(each):
                self._truncate(each)
        if table is not None:
            return
        stored = filter(self._follows, events.stored_otherwise(statement, schema))
        names = ", ".join(sorted(map(str, stored)))
        if names:
            raise DataLostError(
                problem=f"A statement adds or removes rows of {names} with their partition or "
                "file before "
                f"{self._file}:{self._pos}; the binary log does not contain these rows.",
                fix=_REMOVED,
            )
        text = statement.lower()
        changed = {name for name in self._last if name.name.lower() in text}
        self._by_map = {
            key: bound
            for key, bound in self._by_map.items()
            if bound is None or bound.shape.table not in changed
        }

    def _refused(self, *, problem: str, fix: str) -> ConfigError:
        return ConfigError(
            problem=f"The binary log of {self._database.address.title} {problem}, before "
            f"{self._file}:{self._pos}.",
            fix=fix,
        )


def _file_order(name: str) -> tuple[int, str]:
    number = name.rpartition(".")[2]
    return (int(number) if number.isdigit() else 0, name)
