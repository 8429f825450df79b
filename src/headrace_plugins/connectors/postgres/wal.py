"""Reads the write-ahead log of PostgreSQL by logical replication with pgoutput."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from typing_extensions import override

from headrace.sdk import RetriableError, Type
from headrace_plugins.changes.log import LogReader, Piece, Run, Shape
from headrace_plugins.connectors.postgres.pgoutput import (
    DELETE_MESSAGE,
    HEAD,
    INSERT_MESSAGE,
    TRUNCATE_MESSAGE,
    UPDATE_MESSAGE,
    DecodedRows,
    Relation,
    RowMessages,
    Transaction,
    commit_end,
    patched,
    truncated,
)
from headrace_plugins.connectors.postgres.replication import (
    ReplicationStream,
    check_confirmed,
    has_ended,
)
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import DatabaseError
from headrace_plugins.databases.postgresql_catalog import relation_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace_plugins.changes.log import Offset
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Session
    from headrace_plugins.databases.postgresql import Postgresql


_PIECE_BYTES = 4 << 20
"""The size that completes a piece, even inside a transaction."""
_FULL_BYTES = 1 << 20
"""The size that completes a piece at the end of a transaction."""
_GATHER_SECONDS = 0.05
"""How long transactions are collected into one piece."""
_STATUS_SECONDS = 1.0
_LOOK_SECONDS = 1.0
"""The interval of checks whether the server has terminated the reader's session."""
_SILENT_SECONDS = 300
"""The timeout for a reply of the server, which a long transaction delays."""
_BEGIN, _COMMIT, _RELATION = b"BCR"
_ROWS = {INSERT_MESSAGE, UPDATE_MESSAGE, DELETE_MESSAGE}
[_KEEPALIVE] = b"k"


_CONFIRMED = """
SELECT confirmed_flush_lsn::text FROM pg_catalog.pg_replication_slots WHERE slot_name = %s"""


@dataclass
class _Followed:
    """A followed table: its shape, and its messages for the next piece."""

    relation: Relation
    shape: Shape
    rows: RowMessages


@dataclass
class WalReader(LogReader):
    """Reads the log of a slot.

    Args:
        database: The database of the slot.
        slot: The name of the slot.
        publication: The publication, which defines the streamed tables.
        follows: Whether a streamed table is followed; others are skipped.
        failover: Whether the slot is synchronized to standbys.
    """

    database: Postgresql
    slot: str
    publication: str
    follows: Callable[[TableName], bool]
    failover: bool = False

    _stream: ReplicationStream | None = field(default=None, init=False)
    _session: Session | None = field(default=None, init=False)
    _known: dict[bytes, _Followed | None] = field(default_factory=dict, init=False)
    """By the oid of a relation, as encoded in messages; None for tables not followed."""
    _transaction: Transaction | None = field(default=None, init=False)
    _bytes: int = field(default=0, init=False)
    _first: float = field(default=0.0, init=False)
    """When the oldest waiting change was received."""
    _end: int = field(default=0, init=False)
    """The position after the last complete transaction that was read."""
    _flushed: int = field(default=0, init=False)
    _cut: int | None = field(default=None, init=False)
    _ts_us: int | None = field(default=None, init=False)
    _status: float = field(default=0.0, init=False)
    _unanswered: float | None = field(default=None, init=False)
    """The time since which the server has not answered a request for a reply."""
    _held: bytes | None = field(default=None, init=False)
    """The first message of the next piece."""
    _looked: float = field(default=0.0, init=False)

    # --- the connection -------------------------------------------------------------

    @override
    def start(self, after: Offset, cut: Offset | None) -> None:
        place = int(after["lsn"])
        self._end = self._flushed = place
        self._cut = None if cut is None else int(cut["lsn"])
        self._stream = ReplicationStream(
            self.database, self.slot, self.publication, after, cut, failover=self.failover
        )
        # From now on no other reader can move the slot.
        confirmed = self._asking().value(_CONFIRMED, [self.slot])
        check_confirmed(self.database.address.title, self.slot, confirmed, place)

    @override
    def stop(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._stream is not None:
            self._stream.close()

    @override
    def confirm(self, place: Offset) -> None:
        self._flushed = max(self._flushed, int(place["lsn"]))
        self._send_status()

    @override
    def idle(self) -> None:
        # Keep the connection alive without receiving data.
        self._unanswered = None
        self._require_session()
        if time.monotonic() > self._status + _STATUS_SECONDS:
            self._send_status()

    def _require_session(self) -> None:
        """Raise RetriableError if the server refuses sessions, as during its shutdown.

        On shutdown, it first ends all other sessions, then waits until this reader has
        confirmed the whole log. The reader confirms only what targets have, and cannot deliver
        changes without sessions. So it must close its connection to let the server shut down.
        """
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        if self._session is not None and has_ended(self._session):
            self._session.close()
            self._session = None
            self._asking()

    def _send_status(self, *, ask: bool = False) -> None:
        self._status = time.monotonic()
        assert self._stream is not None
        self._stream.send_status(max(self._end, self._flushed), self._flushed, ask=ask)

    # --- reading --------------------------------------------------------------------

    @override
    def read(self, seconds: float) -> Piece | None:
        by = time.monotonic() + seconds
        assert self._stream is not None
        self._require_session()
        while True:
            message, self._held = self._held, None
            if message is None:
                waits_until = min(by, self._first + _GATHER_SECONDS) if self._is_whole else by
                message = self._stream.next(waits_until)
            if message is None:
                now = time.monotonic()
                if self._is_whole and now >= min(by, self._first + _GATHER_SECONDS):
                    return self._piece()
                if now >= by:
                    self._require_answer(now)
                    self._send_status(ask=True)
                    return None
                continue
            self._unanswered = None
            if message[0] == _KEEPALIVE:
                if (found := self._keepalive(message)) is not None:
                    return found
            elif self._take(message):
                return self._piece()

    def _require_answer(self, now: float) -> None:
        """Raise RetriableError if the server has not answered for too long."""
        self._unanswered = self._unanswered or now
        if now > self._unanswered + _SILENT_SECONDS:
            title = self.database.address.title
            raise RetriableError(problem=f"{title} has sent nothing for {_SILENT_SECONDS} s.")

    @property
    def _is_whole(self) -> bool:
        """Whether there are waiting changes, all of them of complete transactions."""
        return self._bytes > 0 and self._transaction is None

    def _keepalive(self, message: bytes) -> Piece | None:
        place, _, asks = struct.unpack_from("!qqB", message, 1)
        if asks:
            self._send_status()
        if self._transaction is not None or place <= self._end:
            return None
        if self._bytes:
            self._held = message
            return self._piece()
        # All transactions committed before this place were sent before this message.
        self._end = place
        return Piece((), self._place)

    def _take(self, message: bytes) -> bool:
        """Process a message of the log; return whether a piece is complete."""
        kind = message[HEAD]
        if kind in _ROWS:
            followed = self._known[message[HEAD + 1 : HEAD + 5]]
            if followed is not None:
                self._add(followed, message)
            return self._bytes >= _PIECE_BYTES
        if kind == _BEGIN:
            begun = Transaction.begun(message)
            is_cut = self._cut is not None and self._end <= self._cut <= begun.lsn
            if is_cut:
                self._cut = None
                if self._bytes:
                    self._held = message
                    return True
            self._transaction = begun
            return False
        if kind == _COMMIT:
            assert self._transaction is not None
            self._end, self._ts_us = commit_end(message), self._transaction.ts_us
            self._transaction = None
            late = time.monotonic() > self._first + _GATHER_SECONDS
            return bool(self._bytes) and (late or self._bytes >= _FULL_BYTES)
        if kind == _RELATION:
            return self._describe(message)
        if kind == TRUNCATE_MESSAGE:
            for oid in truncated(message):
                followed = self._known.get(oid.to_bytes(4, "big"))
                if followed is not None:
                    assert self._transaction is not None
                    followed.rows.add_truncation(message, self._transaction)
                    self._count(message)
        return False

    def _add(self, followed: _Followed, message: bytes) -> None:
        assert self._transaction is not None
        followed.rows.messages.append(message)
        followed.rows.transactions.append(self._transaction)
        self._count(message)

    def _count(self, message: bytes) -> None:
        if not self._bytes:
            self._first = time.monotonic()
        self._bytes += len(message)

    def _describe(self, message: bytes) -> bool:
        """Process the description of a table; return whether it starts another piece."""
        relation = Relation.parsed(message)
        oid = relation.oid.to_bytes(4, "big")
        known = self._known.get(oid)
        if known is not None and known.relation == relation:
            return False
        if known is not None and known.rows.messages:
            self._held = message
            return True  # the rows received so far have another shape
        name = TableName(relation.schema, relation.name)
        if not self.follows(name):
            self._known[oid] = None
            return False
        shape = self._shape(name, relation)
        self._known[oid] = _Followed(relation, shape, RowMessages(len(relation.columns)))
        return False

    def _shape(self, name: TableName, relation: Relation) -> Shape:
        types = [(each.type_oid, each.modifier) for each in relation.columns]
        session = self._asking()
        found, key = relation_columns(
            session, relation.oid, [c.name for c in relation.columns], types
        )
        session.rollback()
        if not key and relation.identity != "f":
            key = tuple(each.name for each in relation.columns if each.in_identity)
        return Shape(name, found, key)

    def _asking(self) -> Session:
        self._session = self.database.idle(self._session)
        return self._session

    def _piece(self) -> Piece:
        """Return the waiting changes of complete transactions, or else of the open one."""
        waiting = [each for each in self._known.values() if each and each.rows.messages]
        begun = self._transaction
        has_whole = begun is not None and any(
            each.rows.transactions[0] is not begun for each in waiting
        )
        runs = []
        for each in waiting:
            rows, each.rows = each.rows, RowMessages(each.rows.columns)
            if has_whole and begun is not None:
                rows, each.rows = rows.before(begun)
            if rows.messages:
                runs.append(self._run(each, rows.decoded()))
        self._bytes = sum(len(m) for each in waiting for m in each.rows.messages)
        if begun is not None and not has_whole:
            return Piece(runs, None)
        return Piece(runs, self._place, self._ts_us)

    @property
    def _place(self) -> Offset:
        assert self._stream is not None
        return {"lsn": self._end, "timeline": self._stream.timeline}

    # --- rows -----------------------------------------------------------------------

    def _run(self, followed: _Followed, rows: DecodedRows) -> Run:
        if rows.unchanged:
            session = self._asking()
            Toast(self.database, session, followed.relation, followed.shape).complete(rows)
            session.rollback()
        names = [each.name for each in followed.relation.columns]
        fields = [pa.field(name, pa.string()) for name in names]
        after = pa.StructArray.from_arrays(
            rows.after, fields=fields, mask=pa.array(~rows.has_after)
        )
        before = pa.nulls(len(rows.op), pa.struct(fields))
        if rows.before is not None:
            before = pa.StructArray.from_arrays(
                rows.before, fields=fields, mask=pa.array(~rows.has_before)
            )
        times = np.array([each.ts_us for each in rows.transactions], np.int64)
        numbers = np.array([each.xid for each in rows.transactions], np.int64)
        batch = pa.RecordBatch.from_pydict(
            {
                "op": rows.op,
                "ts_us": times,
                "before": before,
                "after": after,
                "txId": numbers,
                "lsn": rows.lsn,
            }
        )
        return Run(followed.shape, batch)


UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a missing value; used in columns that are not nullable."""
_NOW = """
SELECT n.nspname, c.relname, a.attname, a.attnotnull OR t.typnotnull,
  t.typtype IN ('d', 'e') OR t.typnamespace = 'pg_catalog'::regnamespace::oid
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(frozen=True)
class Toast:
    """Fills in values that the log does not send, from the current rows of the table.

    If a value was changed meanwhile, a later change contains it and corrects the row.

    Args:
        database: The database of the table.
        session: A session of the database.
        relation: The table, as the log describes it.
        shape: The shape of the table.
    """

    database: Postgresql
    session: Session
    relation: Relation
    shape: Shape

    def complete(self, rows: DecodedRows) -> None:
        """Fill in unchanged values: from the row before the update, or the current row."""
        left = dict[int, np.ndarray]()
        for number, unchanged in rows.unchanged.items():
            unsent, places = unchanged, np.nonzero(unchanged)[0]
            if rows.before is not None:
                # The whole row, or a key column that is itself stored out of line.
                known = rows.before[number].take(pa.array(places))
                rows.after[number] = patched(rows.after[number], places, known.to_pylist())
                unsent = unsent & rows.after[number].is_null().to_numpy(zero_copy_only=False)
            if unsent.any():
                left[number] = unsent
        if left:
            self._ask(rows, left)

    def _ask(self, rows: DecodedRows, left: Mapping[int, np.ndarray]) -> None:
        lacking = np.nonzero(np.logical_or.reduce(list(left.values())))[0]
        names = [each.name for each in self.relation.columns]
        keys = [names.index(name) for name in self.shape.key]
        texts = [rows.after[k].take(pa.array(lacking)).to_pylist() for k in keys]
        required, found = self._found(keys, list(left), texts)
        none = (None,) * len(left)
        for position, (number, unsent) in enumerate(left.items()):
            column = self.shape.columns[number]
            other = _unavailable(column) if column.name in required else None
            values = [
                found.get(place, none)[position]
                for place, row in enumerate(lacking)
                if unsent[row]
            ]
            shown = [other if value is None else value for value in values]
            rows.after[number] = patched(rows.after[number], np.nonzero(unsent)[0], shown)

    def _found(
        self, keys: Sequence[int], wanted: Sequence[int], texts: Sequence[Sequence[str]]
    ) -> tuple[frozenset[str], Mapping[int, tuple[str | None, ...]]]:
        """Return the required columns, and the current values by the index of the key."""
        described = self.session.rows(_NOW, [self.relation.oid])
        required = frozenset(name for _, _, name, is_required, _ in described if is_required)
        columns = {name for _, _, name, _, _ in described}
        if not keys or not columns.issuperset(self.shape.key):
            return required, {}
        quote = self.database.quote
        names = [quote(each.name).replace("%", "%%") for each in self.shape.columns]
        types = [each.type.replace("%", "%%") for each in self.shape.columns]
        # Casts to text would format some values differently from the log.
        values = [
            f"CASE WHEN t.{names[w]} IS NOT NULL THEN pg_catalog.concat(t.{names[w]}) END"
            if self.shape.columns[w].name in columns
            else "NULL"
            for w in wanted
        ]
        given = ", ".join("pg_catalog.unnest(%s::text[])" for _ in keys)
        aliases = ", ".join(f"k{n}" for n in range(len(keys)))
        # Otherwise a user-defined operator for varchar might be a better match.
        own = {name for _, _, name, _, is_own in described if is_own}
        equals = [
            "OPERATOR(pg_catalog.=)" if self.shape.columns[k].name in own else "=" for k in keys
        ]
        matches = " AND ".join(
            f"t.{names[k]} {equals[n]} CAST(q.k{n} AS {types[k]})" for n, k in enumerate(keys)
        )
        table = self.database.path(TableName(*described[0][:2])).replace("%", "%%")
        try:
            found = self.session.rows(
                f"SELECT q.place, {', '.join(values)} FROM ROWS FROM ({given}) "  # noqa: S608 - quoted
                f"WITH ORDINALITY AS q({aliases}, place) JOIN {table} t ON {matches}",
                [list(each) for each in texts],
            )
        except DatabaseError:
            return required, {}  # the key's type was changed since; the log has that later
        return required, {int(place) - 1: tuple(rest) for place, *rest in found}


def _unavailable(column: Column) -> str:
    """Return the placeholder as a valid text of the column's type."""
    if column.schema.type is Type.BYTES:
        return f"\\x{UNAVAILABLE.encode().hex()}"
    if column.type.endswith("[]"):
        return "{}"
    if column.type.startswith("json"):
        return f'"{UNAVAILABLE}"'
    return "0" if column.type.startswith("numeric") else UNAVAILABLE
