"""Buffers row events until there are enough of them, and converts them to runs of changes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace_plugins.changes.log import CREATE, DELETE, TRUNCATE, UPDATE, Run
from headrace_plugins.connectors.mysql.binlog_columns import raw_type
from headrace_plugins.connectors.mysql.binlog_rows import Block, decoded, row_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.connectors.mysql.binlog_shapes import Bound
    from headrace_plugins.databases.catalog import TableName

_OPS = (CREATE, UPDATE, DELETE, TRUNCATE)
_CREATES, _UPDATES, _DELETES, TRUNCATES = range(4)

Facts: TypeAlias = "tuple[Bound, int, int, str, int, int, int, str | None, int | None]"
"""A row event: its table, its operation as the index in `_OPS`, its commit time in
microseconds, its file, its position, the index of its first row among all rows at that
position, and its server, GTID and thread. A plain tuple, as there may be one for each row."""


class RowsEvents:
    """Buffered row events: first those of complete transactions, then of the open one."""

    def __init__(self) -> None:
        self.events: list[Facts] = []
        self.ends: list[int] = []
        self.bodies = bytearray()
        self.whole = self._whole_bytes = 0

    def put(self, rows: bytes | bytearray, facts: Facts) -> int:
        """Buffer an event; return the size of all buffered rows."""
        self.bodies += rows
        size = len(self.bodies)
        self.events.append(facts)
        self.ends.append(size)
        return size

    @property
    def begun(self) -> int:
        """The number of events of the open transaction."""
        return len(self.events) - self.whole

    @property
    def begun_tables(self) -> set[TableName]:
        """The tables of the open transaction."""
        return {bound.shape.table for bound, *_ in self.events[self.whole :]}

    def commit(self) -> None:
        """Mark the open transaction as complete."""
        self.whole, self._whole_bytes = len(self.events), len(self.bodies)

    def undo(self) -> None:
        """Drop the events of the open transaction."""
        del self.events[self.whole :], self.ends[self.whole :]
        del self.bodies[self._whole_bytes :]

    def take(self, *, begun: bool = False) -> list[Run]:
        """Remove and return the changes of complete transactions; with ``begun``, of all."""
        count = len(self.events) if begun else self.whole
        size = len(self.bodies) if begun else self._whole_bytes
        block, ends = Block(bytes(self.bodies[:size])), _numbers(self.ends[:count])
        begins = np.concatenate([[0], ends[:-1]]) if count else ends
        by_table = defaultdict[int, list[int]](list)
        for number, facts in enumerate(self.events[:count]):
            by_table[id(facts[0])].append(number)
        runs = [
            Run(
                self.events[group[0]][0].shape,
                _changes(block, begins[group], ends[group], [self.events[n] for n in group]),
            )
            for group in by_table.values()
        ]
        del self.events[:count], self.ends[:count], self.bodies[:size]
        self.ends = [end - size for end in self.ends]
        self.whole = self._whole_bytes = 0
        return runs


def _changes(block: Block, begins: Any, ends: Any, group: Sequence[Facts]) -> pa.RecordBatch:
    """Return the changes of events of one table."""
    (bound, *_), ops_, moments, files, places, rows, senders, gtids, threads = zip(
        *group, strict=True
    )
    starts, images = row_starts(block, begins, ends, bound.fields)
    op = _numbers(ops_)
    # An update has two images of each row, a truncation has none.
    counts = np.where(op == _UPDATES, images // 2, np.where(op == TRUNCATES, 1, images))
    event = np.repeat(np.arange(len(group)), counts)
    first = np.cumsum(counts) - counts
    row = np.arange(len(event)) - (first - _numbers(rows))[event]
    of_image = np.repeat(op, images)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(images) - images, images)
    is_before = (of_image == _DELETES) | ((of_image == _UPDATES) & (within % 2 == 0))
    ops = op[event]
    before = _images(block, bound, starts[is_before], (ops == _UPDATES) | (ops == _DELETES))
    after = _images(block, bound, starts[~is_before], (ops == _UPDATES) | (ops == _CREATES))
    taken = pa.array(event)

    return pa.RecordBatch.from_pydict(
        {
            "op": pa.array(_OPS, pa.string()).take(pa.array(ops)),
            "ts_us": _numbers(moments)[event],
            "before": before,
            "after": after,
            "file": pa.array(files, pa.string()).take(taken),
            "pos": _numbers(places)[event],
            "row": row.astype(np.int32),
            "server_id": _numbers(senders)[event],
            "gtid": pa.array(gtids, pa.string()).take(taken),
            "thread": pa.array(threads, pa.int64()).take(taken),
        }
    )


def _images(block: Block, bound: Bound, starts: Any, has: Any) -> pa.Array:
    """Return the images of the rows that have one, and null for the other rows."""
    if not len(starts):
        kinds = [(column.name, raw_type(column)) for column in bound.shape.columns]
        return pa.nulls(len(has), pa.struct(kinds))
    found = decoded(block, starts, bound.fields, bound.names)
    if has.all():
        return found
    return found.take(pa.array(np.cumsum(has) - 1, mask=~has))


def _numbers(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)
