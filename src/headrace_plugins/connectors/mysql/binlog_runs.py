"""Events of rows, put aside until there are enough of them, and runs of changes of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace_plugins.changes.log import CREATE, DELETE, TRUNCATE, UPDATE, Run
from headrace_plugins.connectors.mysql.binlog_columns import raw_type
from headrace_plugins.connectors.mysql.binlog_rows import Block, decoded, row_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.connectors.mysql.binlog_shapes import Bound

OPS = (CREATE, UPDATE, DELETE, TRUNCATE)
_CREATE, _UPDATE, _DELETE, _TRUNCATE = range(4)


class RowsEvent(NamedTuple):
    """An event of rows.

    Args:
        bound: The table.
        op: What it does, as its place in `OPS`.
        begin: Where its rows begin among those that are put aside.
        end: Where they end.
        first_row: Which row of what the log has at ``pos`` its first one is.
    """

    bound: Bound
    op: int
    begin: int
    end: int
    ts_us: int
    file: str
    pos: int
    first_row: int
    server_id: int
    gtid: str | None
    thread: int | None


class RowsEvents:
    """Events of rows that are put aside: first those of whole transactions."""

    def __init__(self) -> None:
        self.events: list[RowsEvent] = []
        self.bodies = bytearray()
        self.whole = self._whole_bytes = 0

    @property
    def begun(self) -> int:
        """How many are of a transaction that is not whole."""
        return len(self.events) - self.whole

    def commit(self) -> None:
        """Take what was put aside for whole transactions."""
        self.whole, self._whole_bytes = len(self.events), len(self.bodies)

    def undo(self) -> None:
        """Drop what is of no whole transaction."""
        del self.events[self.whole :], self.bodies[self._whole_bytes :]

    def take(self, *, begun: bool = False) -> list[Run]:
        """Return the changes of whole transactions, or all, and drop them here."""
        count = len(self.events) if begun else self.whole
        size = len(self.bodies) if begun else self._whole_bytes
        block, taken = Block(bytes(self.bodies[:size])), self.events[:count]
        del self.events[:count], self.bodies[:size]
        self.events = [
            each._replace(begin=each.begin - size, end=each.end - size) for each in self.events
        ]
        self.whole = self._whole_bytes = 0
        by_table = defaultdict[int, list[RowsEvent]](list)
        for each in taken:
            by_table[id(each.bound)].append(each)
        return [
            Run(group[0].bound.shape, _changes(block, group)) for group in by_table.values()
        ]


def _changes(block: Block, group: Sequence[RowsEvent]) -> pa.RecordBatch:
    """Return the changes of events of one table."""
    bound = group[0].bound
    starts, images = row_starts(
        block,
        _numbers([e.begin for e in group]),
        _numbers([e.end for e in group]),
        bound.fields,
    )
    op = _numbers([each.op for each in group])
    # An update has two images of each row, and what empties a table has none.
    counts = np.where(op == _UPDATE, images // 2, np.where(op == _TRUNCATE, 1, images))
    event = np.repeat(np.arange(len(group)), counts)
    first = np.cumsum(counts) - counts
    row = np.arange(len(event)) - (first - [each.first_row for each in group])[event]
    of_image = np.repeat(op, images)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(images) - images, images)
    is_before = (of_image == _DELETE) | ((of_image == _UPDATE) & (within % 2 == 0))
    ops = op[event]
    before = _images(block, bound, starts[is_before], (ops == _UPDATE) | (ops == _DELETE))
    after = _images(block, bound, starts[~is_before], (ops == _UPDATE) | (ops == _CREATE))
    taken = pa.array(event)

    def texts(values: list[str | None]) -> pa.Array:
        return pa.array(values, pa.string()).take(taken)

    threads = pa.array([each.thread for each in group], pa.int64())
    return pa.RecordBatch.from_pydict(
        {
            "op": pa.array(OPS, pa.string()).take(pa.array(ops)),
            "ts_us": _numbers([each.ts_us for each in group])[event],
            "before": before,
            "after": after,
            "file": texts([each.file for each in group]),
            "pos": _numbers([each.pos for each in group])[event],
            "row": row.astype(np.int32),
            "server_id": _numbers([each.server_id for each in group])[event],
            "gtid": texts([each.gtid for each in group]),
            "thread": threads.take(taken),
        }
    )


def _images(block: Block, bound: Bound, starts: Any, has: Any) -> pa.Array:
    """Return the images of rows that have one, and null for the others."""
    if not len(starts):
        kinds = [(column.name, raw_type(column)) for column in bound.shape.columns]
        return pa.nulls(len(has), pa.struct(kinds))
    found = decoded(block, starts, bound.fields, bound.names)
    if has.all():
        return found
    return found.take(pa.array(np.cumsum(has) - 1, mask=~has))


def _numbers(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)
