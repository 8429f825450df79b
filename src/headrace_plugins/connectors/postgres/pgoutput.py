"""Decodes messages of PostgreSQL's logical replication to columns of text, and text to values.

All received rows of a table are decoded at once, column by column.
The formats: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Schema, SourceError
from headrace.sdk.arrow import to_arrow_type
from headrace_plugins.changes.log import CREATE, DELETE, TRUNCATE, UPDATE
from headrace_plugins.databases.catalog import Column
from headrace_plugins.databases.text_rows import TextColumns, unhexed

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace_plugins.databases.database import Rejected

    Numbers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]


HEAD = 25
"""The bytes of XLogData before a message: its letter, two positions in the log, and a time."""
INSERT_MESSAGE, UPDATE_MESSAGE, DELETE_MESSAGE, TRUNCATE_MESSAGE = b"IUDT"
_EPOCH_US = 946_684_800_000_000
"""2000-01-01, PostgreSQL's epoch, in microseconds since 1970."""
_NEW, _NULL, _UNCHANGED = b"Nnu"
_BROKEN = "PostgreSQL has sent a change whose values exceed its message."
_MARK = HEAD + 5
"""The place of the kind of the first tuple in a row message, after the relation's oid."""
_OPS = {
    INSERT_MESSAGE: CREATE,
    UPDATE_MESSAGE: UPDATE,
    DELETE_MESSAGE: DELETE,
    TRUNCATE_MESSAGE: TRUNCATE,
}


@dataclass(frozen=True, slots=True)
class Transaction:
    """The content of a Begin message: the commit's LSN and time, and the transaction's id."""

    lsn: int
    ts_us: int
    xid: int

    @classmethod
    def begun(cls, message: bytes) -> Transaction:
        """Decode a Begin message, including the head of XLogData."""
        lsn, at, xid = struct.unpack_from("!qqI", message, HEAD + 1)
        return cls(lsn, at + _EPOCH_US, xid)


def commit_end(message: bytes) -> int:
    """Return the position after the transaction from a Commit message."""
    return int.from_bytes(message[HEAD + 10 : HEAD + 18], "big")


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column in a Relation message."""

    name: str
    type_oid: int
    modifier: int
    in_identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as a Relation message describes it.

    Args:
        identity: The columns that identify a row in changes: ``d`` for the primary key, ``f``
            for all, ``i`` for an index, ``n`` for none.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @classmethod
    def parsed(cls, message: bytes) -> Relation:
        """Decode a Relation message."""
        oid = int.from_bytes(message[HEAD + 1 : HEAD + 5], "big")
        schema, at = _text(message, HEAD + 5)
        name, at = _text(message, at)
        identity, count = chr(message[at]), int.from_bytes(message[at + 1 : at + 3], "big")
        at += 3
        columns = []
        for _ in range(count):
            in_identity = bool(message[at] & 1)
            title, at = _text(message, at + 1)
            type_oid, modifier = struct.unpack_from("!Ii", message, at)
            columns.append(RelationColumn(title, type_oid, modifier, in_identity))
            at += 8
        return cls(oid, schema or "pg_catalog", name, identity, tuple(columns))


def truncated(message: bytes) -> tuple[int, ...]:
    """Return the oids of the relations in a Truncate message."""
    count = int.from_bytes(message[HEAD + 1 : HEAD + 5], "big")
    return struct.unpack_from(f"!{count}I", message, HEAD + 6)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


@dataclass
class RowMessages:
    """Row messages of one relation, in the order of the log.

    Raises SourceError for an invalid message.

    Args:
        columns: The number of columns of the relation.
    """

    columns: int
    messages: list[bytes] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    """The transaction of each message."""

    def add_truncation(self, message: bytes, transaction: Transaction) -> None:
        """Add a truncation of the relation."""
        # Truncate has no tuple: add one of nulls, so that all messages have the same layout.
        none = struct.pack("!h", self.columns) + b"n" * self.columns
        self.messages.append(message[:HEAD] + b"T" + bytes(5) + none)
        self.transactions.append(transaction)

    def before(self, transaction: Transaction) -> tuple[RowMessages, RowMessages]:
        """Return the messages before a transaction, and those of it, which are the last."""
        count = len(self.messages)
        while count and self.transactions[count - 1] is transaction:
            count -= 1
        return (
            RowMessages(self.columns, self.messages[:count], self.transactions[:count]),
            RowMessages(self.columns, self.messages[count:], self.transactions[count:]),
        )

    def decoded(self) -> DecodedRows:
        """Return the changes as columns."""
        block = b"".join([*self.messages, bytes(8)])  # lengths are read before they are checked
        sizes = np.fromiter(map(len, self.messages), np.int64, len(self.messages))
        starts = np.cumsum(sizes) - sizes
        limits = starts + sizes
        data = np.frombuffer(block, np.uint8)
        kinds, marks = data[starts + HEAD], data[starts + _MARK]
        is_truncation = kinds == TRUNCATE_MESSAGE
        is_new = (marks == _NEW) & ~is_truncation
        is_old = ~is_new & ~is_truncation
        first, ends = _tuples(block, data, starts + _MARK + 1, limits, self.columns)
        rows = np.arange(len(starts))
        after = [_taken(each, np.where(is_new, rows, -1)) for each in first]
        before = None
        if is_old.any():
            before = [_taken(each, np.where(is_old, rows, -1)) for each in first]
            both = np.nonzero(is_old & (kinds == UPDATE_MESSAGE))[0]
            if len(both):
                second, _ = _tuples(block, data, ends[both] + 1, limits[both], self.columns)
                index = np.full(len(starts), -1, np.int64)
                index[is_new] = rows[is_new]
                index[both] = len(starts) + np.arange(len(both))
                after = [_taken(a.joined(b), index) for a, b in zip(first, second, strict=True)]
                is_new = is_new.copy()
                is_new[both] = True
        ops = pa.array([_OPS[kind] for kind in range(256) if kind in _OPS])
        order = {kind: n for n, kind in enumerate(k for k in range(256) if k in _OPS)}
        index = np.zeros(256, np.int8)
        index[list(order)] = list(order.values())
        return DecodedRows(
            op=ops.take(pa.array(index[kinds])),
            lsn=_big_endian(data, starts + 1, 8),
            transactions=self.transactions,
            before=None if before is None else [each.texts for each in before],
            after=[each.texts for each in after],
            has_before=is_old,
            has_after=is_new,
            unchanged={
                n: each.unchanged
                for n, each in enumerate(after)
                if each.unchanged is not None and each.unchanged.any()
            },
        )


@dataclass
class DecodedRows:
    """Changes of one relation.

    Args:
        op: The operation of each change.
        lsn: The position of each change in the log.
        transactions: The transaction of each change.
        before: The texts of each column before the change; None if no change has such a row.
        after: The texts of each column after the change.
        has_before: Whether the change has a row before.
        has_after: Whether the change has a row after.
        unchanged: By column number: the rows in ``after`` whose value was not sent, because it
            is stored out of line (TOAST) and was not changed.
    """

    op: pa.Array
    lsn: Numbers
    transactions: Sequence[Transaction]
    before: list[pa.Array] | None
    after: list[pa.Array]
    has_before: npt.NDArray[np.bool_]
    has_after: npt.NDArray[np.bool_]
    unchanged: dict[int, npt.NDArray[np.bool_]]


@dataclass
class _Column:
    """One column of tuples: its texts, and a mask of values that were not sent, if any."""

    texts: pa.Array
    unchanged: npt.NDArray[np.bool_] | None = None

    def joined(self, other: _Column) -> _Column:
        """Return the concatenated values of both columns."""
        unchanged = None
        if self.unchanged is not None or other.unchanged is not None:
            parts = [
                np.zeros(len(each.texts), bool) if each.unchanged is None else each.unchanged
                for each in (self, other)
            ]
            unchanged = np.concatenate(parts)
        return _Column(pa.concat_arrays([self.texts, other.texts]), unchanged)


def _taken(column: _Column, index: Numbers) -> _Column:
    """Return the values at the indexes; null for -1."""
    missing = index < 0
    if not missing.any() and len(index) == len(column.texts):
        return column
    texts = column.texts.take(pa.array(index, mask=missing))
    unchanged = None
    if column.unchanged is not None:
        unchanged = column.unchanged[np.where(missing, 0, index)] & ~missing
    return _Column(texts, unchanged)


def _tuples(
    block: bytes, data: Bytes, places: Numbers, limits: Numbers, columns: int
) -> tuple[list[_Column], Numbers]:
    """Return the values of the tuple at each place, and the end of each tuple.

    A tuple consists of the number of columns, and for each column a letter; the letter ``t`` is
    followed by the length of the value and its text.
    """
    rows = len(places)
    place = places + 2
    bounds = np.empty((rows, columns, 2), np.int32)
    nulls: list[npt.NDArray[np.bool_] | None] = []
    unsent: list[npt.NDArray[np.bool_] | None] = []
    for column in range(columns):
        if (place >= limits).any():
            raise SourceError(_BROKEN)
        kind = data[place]
        sent = kind == ord("t")
        if sent.all():
            size = _big_endian(data, place + 1, 4)
            start = place + 5
            nulls.append(None)
            unsent.append(None)
        else:
            # A value that is not sent consists of the letter only: its size is 0.
            size = np.zeros(rows, np.int64)
            size[sent] = _big_endian(data, place[sent] + 1, 4)
            start = place + np.where(sent, 5, 1)
            nulls.append(~sent)
            missing = kind == _UNCHANGED
            unsent.append(missing if missing.any() else None)
        bounds[:, column, 0] = start
        place = start + size
        if (place > limits).any():
            raise SourceError(_BROKEN)  # else memory outside the message would be read
        bounds[:, column, 1] = place
    # Describes the block as one array, in which every second element is a column's value, and
    # the others are lengths. So only Arrow's take copies the values.
    offsets = np.append(bounds.ravel(), bounds[-1, -1, 1] if rows and columns else 0)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(block)]
    everything = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    values = np.arange(rows, dtype=np.int64) * (2 * columns)
    found = [
        _Column(everything.take(pa.array(values + 2 * n, mask=nulls[n])), unsent[n])
        for n in range(columns)
    ]
    return found, place


def _big_endian(data: Bytes, places: Numbers, width: int) -> Numbers:
    found = np.zeros(len(places), np.int64)
    for n in range(width):
        found = (found << 8) | data[places + n]
    return found


def patched(texts: pa.Array, rows: Numbers, values: Sequence[str | None]) -> pa.Array:
    """Return the texts with the values in ``rows`` replaced."""
    mask = np.zeros(len(texts), bool)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(values, pa.string()))


_ROW = Column(name="", type="bigint", schema=Schema.int64())


@dataclass(frozen=True)
class LogTexts:
    """Converts texts to values, like the bulk reader.

    Args:
        nulls: Whether a value that its schema cannot represent becomes null.
    """

    nulls: bool = False

    def __call__(
        self, columns: tuple[Column, ...], rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, Rejected]:
        """Return the changes with typed ``before`` and ``after``, and the rejected changes.

        In ``before``, an invalid value becomes null if the column is nullable.
        """
        reasons: list[tuple[str, str]] = []
        for name, nulls in (("before", True), ("after", self.nulls)):
            structs = rows.column(name)
            if structs.null_count == len(structs):
                values, left = pa.nulls(len(structs), _struct(columns)), None
            else:
                arrays, rejected, left = _values(columns, structs.flatten(), nulls=nulls)
                reasons += rejected
                missing = structs.is_null() if left is None else structs.is_null().take(left)
                kind = _struct(columns)
                # Times of day are parsed as Arrow's time type.
                fitted = [a.cast(field.type) for a, field in zip(arrays, kind, strict=True)]
                values = pa.StructArray.from_arrays(fitted, fields=list(kind), mask=missing)
            rows = rows if left is None else rows.take(left)
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows, reasons


def _struct(columns: tuple[Column, ...]) -> pa.StructType:
    return pa.struct([pa.field(c.name, to_arrow_type(c.schema)) for c in columns])


def _values(
    columns: tuple[Column, ...], arrays: list[pa.Array], *, nulls: bool
) -> tuple[list[pa.Array], Rejected, pa.Array | None]:
    """Return the values, the rejected rows with reasons, and the indexes of the kept rows."""
    texts = [_plain(array, column) for array, column in zip(arrays, columns, strict=True)]
    batch, rejected = TextColumns(columns, nulls, zone="+00").parse(texts)
    if not rejected:
        return batch.columns, (), None
    rows = pa.array([str(row) for row in range(len(texts[0]))])
    batch, rejected = TextColumns((*columns, _ROW), nulls, zone="+00").parse([*texts, rows])
    *values, left = batch.columns
    return values, rejected, left


def _plain(texts: pa.Array, column: Column) -> pa.Array:
    if column.type == "money":
        # The format of lc_monetary C, which the connection sets.
        return pc.replace_substring_regex(texts, r"[$,]", "")
    return unhexed(texts, column.schema)


@dataclass(frozen=True)
class Unseen:
    """Selects the changes of transactions that a snapshot does not see.

    Args:
        xmin: All transactions before this one had ended.
        xmax: This one and all later ones had not started.
        running: The transactions in between that had not ended.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Unseen:
        """Parse the text of ``pg_current_snapshot()``."""
        xmin, xmax, running = text.split(":")
        return cls(
            int(xmin), int(xmax), tuple(int(each) for each in running.split(",") if each)
        )

    def __call__(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return a mask of the changes to keep; None for all."""
        # The log has the lower 32 bits: of two ids, the later is less than 2**31 ahead.
        numbers = rows.column("txId").to_numpy()
        from_xmin = ((numbers - self.xmin + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        seen = from_xmin < self.xmax - self.xmin
        if self.running:
            seen &= ~np.isin(from_xmin, [each - self.xmin for each in self.running])
        return pa.array(~seen) if seen.any() else None
