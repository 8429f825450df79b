"""Change records: Debezium's envelope, with before, after, op and source.

Debezium's documentation:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Schema
from headrace.sdk.arrow import conform, to_arrow, to_arrow_type
from headrace_plugins.changes.log import CREATE, DELETE, READ, UPDATE
from headrace_plugins.databases.catalog import rows_schema

if TYPE_CHECKING:
    from headrace_plugins.changes.log import Shape

_TIMES = ("ts_ms", "ts_us", "ts_ns")


def row_schema(kind: str, shape: Shape) -> Schema:
    """Return the schema of a table's rows in changes, with all columns nullable."""
    columns = [replace(c, schema=c.schema.replaced(optional=True)) for c in shape.columns]
    return rows_schema(kind, columns, shape.key).replaced(optional=True)


@dataclass(frozen=True)
class Envelope:
    """Builds records from the changes of one table. Pickled to executors.

    Args:
        row: The schema of the rows before and after.
        key: The columns that identify a row.
        facts: The constant fields of ``source``, such as the name of the table.
        details: The schemas of the ``source`` fields per change, which are columns of the
            changes.
    """

    row: Schema
    key: tuple[str, ...]
    facts: Mapping[str, str]
    details: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The schema of the records."""
        times = dict.fromkeys(_TIMES, Schema.int64())
        texts = dict.fromkeys(self.facts, Schema.string())
        snapshot = {"snapshot": Schema.string()}
        details = {n: s.replaced(optional=True) for n, s in self.details.items()}
        source = Schema.struct({**texts, **times, **snapshot, **details})
        fields = {"before": self.row, "after": self.row, "source": source}
        return Schema.struct({**fields, "op": Schema.string(), **times})

    @cached_property
    def _arrow(self) -> pa.Schema:
        return to_arrow(self.schema)

    def records(
        self,
        op: pa.Array,
        before: pa.Array,
        after: pa.Array,
        ts_us: pa.Array,
        details: Mapping[str, pa.Array],
    ) -> pa.RecordBatch:
        """Return a record for each change, and two records if the change updates the key.

        As in Debezium, such a change deletes the old row and creates the new one.

        Args:
            op: The operations.
            before: The rows before, structs of the columns of the row schema.
            after: The rows after.
            ts_us: The commit times, in microseconds since 1970.
            details: The ``source`` fields per change.
        """
        moved = self._moved(op, before, after)
        if moved is not None:
            index, deletes, creates = moved
            op, before, after, ts_us = (each.take(index) for each in (op, before, after, ts_us))
            details = {name: values.take(index) for name, values in details.items()}
            op = pc.if_else(deletes, DELETE, pc.if_else(creates, CREATE, op))
            before = pc.if_else(creates, pa.scalar(None, before.type), before)
            after = pc.if_else(deletes, pa.scalar(None, after.type), after)
        return self._records(op, before, after, ts_us, details)

    def read_rows(
        self,
        rows: pa.RecordBatch,
        ts_us: int,
        details: Mapping[str, int | str | None],
        like: pa.RecordBatch | None = None,
    ) -> pa.RecordBatch:
        """Return the snapshot rows of a table as records.

        Args:
            rows: The rows.
            ts_us: The time of the snapshot, in microseconds since 1970.
            details: The ``source`` fields of all rows.
            like: Records returned earlier for the same time and details. If they are at least
                as many, all columns except the row are reused from them.
        """
        count, after = rows.num_rows, rows.to_struct_array()
        if like is not None and like.num_rows >= count:
            place = like.schema.get_field_index("after")
            records = like.slice(length=count).set_column(place, "after", after)
            return conform(records, self._arrow)
        source = {
            name: pa.repeat(pa.scalar(details.get(name), to_arrow_type(schema)), count)
            for name, schema in self.details.items()
        }
        return self._records(
            pa.repeat(READ, count),
            pa.nulls(count, after.type),
            after,
            pa.repeat(pa.scalar(ts_us, pa.int64()), count),
            source,
        )

    def _moved(
        self, op: pa.Array, before: pa.Array, after: pa.Array
    ) -> tuple[pa.Array, pa.Array, pa.Array] | None:
        """Return how updates of keys are split into two changes; None if there are none.

        The arrays contain, per record, the index of its change, whether the record is the
        deletion, and whether it is the creation.
        """
        if before.null_count == len(before) or not self.key:
            return None
        is_update = pc.and_(pc.equal(op, UPDATE), before.is_valid())
        differs = pa.repeat(pa.scalar(False), len(op))  # noqa: FBT003 - Arrow's
        for name in self.key:
            same = pc.equal(pc.struct_field(before, name), pc.struct_field(after, name))
            differs = pc.or_(differs, pc.invert(pc.fill_null(same, True)))  # noqa: FBT003
        moves = pc.and_(is_update, differs).to_numpy(zero_copy_only=False)
        if not moves.any():
            return None
        times = moves.astype(np.int64) + 1
        index = np.repeat(np.arange(len(times)), times)
        first = np.cumsum(times) - times
        deletes = np.zeros(len(index), bool)
        deletes[first[moves]] = True
        creates = np.zeros(len(index), bool)
        creates[first[moves] + 1] = True
        return pa.array(index), pa.array(deletes), pa.array(creates)

    def _records(
        self,
        op: pa.Array,
        before: pa.Array,
        after: pa.Array,
        ts_us: pa.Array,
        details: Mapping[str, pa.Array],
    ) -> pa.RecordBatch:
        count = len(op)
        times = [pc.divide(ts_us, 1000), ts_us, pc.multiply(ts_us, 1000)]
        snapshot = pc.if_else(pc.equal(op, READ), "true", "false")
        values = [
            *(pa.repeat(text, count) for text in self.facts.values()),
            *times,
            snapshot,
            *(details[name] for name in self.details),
        ]
        names = [*self.facts, *_TIMES, "snapshot", *self.details]
        source = pa.StructArray.from_arrays(values, names)
        columns = [before, after, source, op, *times]
        batch = pa.RecordBatch.from_arrays(
            columns, ["before", "after", "source", "op", *_TIMES]
        )
        return conform(batch, self._arrow)
