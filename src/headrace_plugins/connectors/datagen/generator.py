"""The base of every gear: positions, the rate limit, the division among tasks, and the rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import Position, SourceTask, Split, check_range
from headrace.sdk.arrow import to_arrow, to_arrow_type
from headrace_plugins.connectors.datagen.plan import (
    DAYS,
    ITEMS,
    RANGES,
    STEP_MICROS,
    UNIT,
    Hashes,
    decimal_sizes,
    hashes,
    kind,
    map_keys,
    part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from headrace.sdk import ReadLimit, Schema, TaskContext
    from headrace_plugins.connectors.datagen.plan import Plan


BLOCK_ROWS = 10_000
"""Blocks of this many rows are assigned to the tasks round-robin."""


class Rate:
    """Limits the rows per second, counted from the first use.

    Unused rows are carried over, but never more than one second's worth, so that a generator
    that fell behind does not flood the downstream steps.
    """

    def __init__(self, rows_per_second: float, clock: Callable[[], float]) -> None:
        """Use ``clock``, which returns monotonic seconds; a rate of 0 is unlimited."""
        self._rate = rows_per_second
        self._clock = clock
        self._asked: float | None = None
        self._saved = 0.0
        self._granted = 0

    def grant(self, row: int, requested: int) -> int:
        """Return how many of the rows requested after ``row`` may be read now.

        Rows that were granted before and not read return to the budget: asking twice for
        the same rows uses the budget once.
        """
        if self._rate <= 0:
            return requested
        now = self._clock()
        since = 0.0 if self._asked is None else now - self._asked
        unread = max(self._granted - row, 0) if self._asked is not None else 0
        budget = min(self._saved, self._rate) + unread + since * self._rate
        granted = min(requested, math.floor(budget))
        self._asked, self._saved, self._granted = now, budget - granted, row + granted
        return granted


@dataclass(frozen=True, slots=True)
class Lane:
    """The rows of one of several tasks: every ``of``-th block, starting at block ``part``."""

    part: int = 0
    of: int = 1

    def length(self, rows: int) -> int:
        """Return how many of the first ``rows`` rows belong to this task."""
        rounds, rest = divmod(rows, BLOCK_ROWS * self.of)
        return rounds * BLOCK_ROWS + min(max(rest - self.part * BLOCK_ROWS, 0), BLOCK_ROWS)

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the row numbers, as half-open ranges, of this task's rows start to end."""
        if self.of == 1:
            if start < end:
                yield start, end
            return
        while start < end:
            block, offset = divmod(start, BLOCK_ROWS)
            size = min(BLOCK_ROWS - offset, end - start)
            first = (block * self.of + self.part) * BLOCK_ROWS + offset
            yield first, first + size
            start += size

    def sql(self, column: str) -> str:
        """Return the SQL of the row number of this task's ``column``-th row."""
        if self.of == 1:
            return column
        block = f"({column} DIV {BLOCK_ROWS}L * {self.of}L + {self.part}L)"
        return f"{block} * {BLOCK_ROWS}L + {column} % {BLOCK_ROWS}L"


BATCH_ROWS = 65_536
"""The maximum number of rows of an Arrow batch."""
_SAMPLE_ROWS = 100
_SPLIT_ROWS = 10_000
"""A smaller split costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """The parsed configuration of one task; see ``DatagenSettings``.

    ``rate`` and ``lane`` are those of this task. ``clock`` returns monotonic seconds.
    """

    name: str
    plan: Plan
    first: int = 0
    """The number of the first row of all tasks."""
    rows: int | None = None
    rate: float = 0.0
    lane: Lane = field(default_factory=Lane)
    partitions: int | None = None
    bad: float = 0.0
    streams: int = 1
    change_after: int | None = None
    clock: Callable[[], float] = time.monotonic


class Generator(SourceTask):
    """The behaviour that all gears share; a mixin, listed before the task base class."""

    def __init__(self, options: GeneratorOptions) -> None:
        """Create the generator of one task."""
        self.options = options
        self.partition: Mapping[str, Any] = {"generator": options.name}
        if options.lane.of > 1:
            # With another number of tasks the rows are divided again, from the beginning.
            self.partition |= {"part": options.lane.part, "of": options.lane.of}
        self._rate: Rate | None = None
        self._row_bytes = 1

    @override
    def start(self, context: TaskContext) -> None:
        self.context = context
        self._rate = Rate(self.options.rate, self.options.clock)
        # The budget accumulates from now on, not only from the first batch.
        self._rate.grant(self.row(context.position()), 0)
        sample = make_rows(self.options.plan, np.arange(_SAMPLE_ROWS, dtype=np.int64))
        self._row_bytes = max(sample.nbytes // _SAMPLE_ROWS, 1)

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Exclude the attributes that only the driver uses."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in {"context", "_rate"}
        }

    def row(self, position: Position) -> int:
        """Return how many of this task's rows lie before ``position``."""
        offset = position.offset(self.partition)
        return (
            self.options.lane.length(self.options.first)
            if offset is None
            else int(offset["row"])
        )

    def bounds(self, start: Position, end: Position) -> tuple[int, int]:
        """Return a range as row counts. Raises StateError for another division of tasks."""
        check_range(start, end, [self.partition])
        return self.row(start), self.row(end)

    def position(self, row: int) -> Position:
        """Return the position after the first ``row`` rows of this task."""
        return Position.of(self.partition, {"row": row})

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        row = self.row(start)
        most = self.left(row)
        if limit.until is not None:
            most = min(most, max(self.row(limit.until) - row, 0))
        if limit.rows is not None:
            most = min(most, limit.rows)
        if limit.size_bytes is not None:
            most = min(most, max(limit.size_bytes // self._row_bytes, 1))
        granted = most if self._rate is None else self._rate.grant(row, most)
        return start if granted == 0 else self.position(row + granted)

    def size_bytes(self, start: Position, end: Position) -> int | None:
        """Return the approximate size of the rows in Arrow."""
        return self.rows(start, end) * self._row_bytes

    def left(self, row: int) -> int:
        """Return how many of this task's rows follow its first ``row``."""
        rows = 2**62 if self.options.rows is None else self.options.rows
        return max(self.options.lane.length(self.options.first + rows) - row, 0)

    @override
    def ended(self, position: Position) -> bool:
        return self.left(self.row(position)) == 0

    def rows(self, start: Position, end: Position) -> int:
        return self.row(end) - self.row(start)

    def divided(self, start: Position, end: Position) -> list[Split]:
        """Return the splits of a range."""
        parts = self.parts(*self.bounds(start, end))
        return [Split({"start": a, "end": b}, rows=b - a) for a, b in parts]

    def parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Divide a range of this task's rows; deterministic."""
        most = self.options.partitions or 4
        count = min(most, max((end - start) // _SPLIT_ROWS, 1))
        marks = [start + (end - start) * part // count for part in range(count + 1)]
        return [(a, b) for a, b in pairwise(marks) if a < b]

    def numbers(self, start: int, end: int, size: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield the row numbers of this task's rows start to end, in arrays of one batch."""
        for begin in range(start, end, size):
            ranges = self.options.lane.ranges(begin, min(begin + size, end))
            arrays = [np.arange(first, last, dtype=np.int64) for first, last in ranges]
            yield np.concatenate(arrays)

    def batches(self, start: int, end: int, size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield this task's rows start to end."""
        for numbers in self.numbers(start, end, size):
            yield make_rows(self.options.plan, numbers)


_HEX = np.frombuffer("".join(f"{number:02X}" for number in range(256)).encode(), np.uint16)
_HEX_CHARS = 8


def make_rows(plan: Plan, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows with these numbers: the same values as ``value_sql`` in Spark."""
    columns = [_Column(plan, rows, path).nullable(schema) for path, schema in plan.columns()]
    return pa.RecordBatch.from_arrays(columns, schema=to_arrow(plan.schema))


class _Column:
    """A column, or a slot of a nested column; one method for each kind of value."""

    def __init__(self, plan: Plan, rows: npt.NDArray[np.int64], path: str) -> None:
        self.plan = plan
        self.rows = rows
        self.path = path

    def nullable(self, schema: Schema) -> pa.Array:
        array = self.made(schema)
        if not (schema.optional and self.plan.nulls):
            return array
        chance = (self.hashes("?") >> np.uint64(11)).astype(np.float64) * UNIT
        gone = pa.array(chance < self.plan.nulls)
        return pc.if_else(gone, pa.nulls(len(array), array.type), array)

    def made(self, schema: Schema) -> pa.Array:
        return getattr(self, kind(schema))(schema)

    def hashes(self, suffix: str = "") -> Hashes:
        return hashes(self.plan.salt(self.path + suffix), self.rows)

    def below(self, limit: int) -> Hashes:
        return (self.hashes() >> np.uint64(1)) % np.uint64(limit)

    def child(self, name: str, schema: Schema) -> pa.Array:
        return _Column(self.plan, self.rows, f"{self.path}.{name}").made(schema)

    def whole(self, schema: Schema) -> pa.Array:
        if self.plan.is_row_number(self.path, schema):
            return pa.array(self.rows)
        numbers = self.below(RANGES[schema.type])
        return pa.array(numbers.astype(to_arrow_type(schema).to_pandas_dtype()))

    def real(self, schema: Schema) -> pa.Array:
        numbers = (self.hashes() >> np.uint64(11)).astype(np.float64) * UNIT * 1000.0
        return pa.array(numbers.astype(to_arrow_type(schema).to_pandas_dtype()))

    def boolean(self, _: Schema) -> pa.Array:
        return pa.array((self.hashes() & np.uint64(1)).astype(np.bool_))

    def string(self, _: Schema) -> pa.Array:
        low = self.hashes().astype(">u8").view(np.uint8).reshape(-1, 8)[:, 4:]
        text = _HEX[low]
        offsets = np.arange(len(self.rows) + 1, dtype=np.int32) * _HEX_CHARS
        return pa.StringArray.from_buffers(len(low), pa.py_buffer(offsets), pa.py_buffer(text))

    def bytes(self, _: Schema) -> pa.Array:
        low = self.hashes().astype(np.uint32).astype(">u4")
        offsets = np.arange(len(low) + 1, dtype=np.int32) * low.itemsize
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(low)]
        return pa.Array.from_buffers(pa.binary(), len(low), buffers)

    def decimal(self, schema: Schema) -> pa.Array:
        precision, scale, limit = decimal_sizes(schema)
        # Two little-endian words, the high one zero, as the values are not negative.
        words = np.zeros((len(self.rows), 2), dtype="<u8")
        words[:, 0] = self.below(limit)
        buffers = [None, pa.py_buffer(words)]
        return pa.Array.from_buffers(pa.decimal128(precision, scale), len(words), buffers)

    def date(self, _: Schema) -> pa.Array:
        days = self.below(DAYS).astype(np.int32) + np.int32(self.plan.start_day)
        return pa.array(days).view(pa.date32())

    def timestamp(self, _: Schema) -> pa.Array:
        micros = self.rows * STEP_MICROS + self.plan.start_micros
        return pa.array(micros).view(pa.timestamp("us", tz="UTC"))

    def struct(self, schema: Schema) -> pa.Array:
        children = [self.child(m.name, m.schema) for m in schema.fields]
        return pa.StructArray.from_arrays(children, fields=list(to_arrow_type(schema)))

    def array(self, schema: Schema) -> pa.Array:
        offsets, taken = self._lengths()
        items = self._slots(schema).take(taken)
        return pa.ListArray.from_arrays(offsets, items, type=to_arrow_type(schema))

    def map(self, schema: Schema) -> pa.Array:
        key_schema = part(schema.key_schema)
        keys = pa.array(map_keys(key_schema), to_arrow_type(key_schema))
        offsets, taken = self._lengths()
        slot_of = pc.divide(taken, pa.scalar(max(len(self.rows), 1), pa.int64()))
        return pa.MapArray.from_arrays(
            offsets,
            keys.take(slot_of),
            self._slots(schema).take(taken),
            type=to_arrow_type(schema),
        )

    def _slots(self, schema: Schema) -> pa.Array:
        items = part(schema.value_schema)
        return pa.concat_arrays([self.child(str(slot), items) for slot in range(ITEMS)])

    def _lengths(self) -> tuple[pa.Array, pa.Array]:
        """Return the list offsets, and the index of each item in the concatenated slots."""
        rows = len(self.rows)
        lengths = self.below(ITEMS + 1).astype(np.int32)
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        used = np.arange(ITEMS) < lengths[:, None]
        places = np.arange(rows)[:, None] + np.arange(ITEMS) * rows
        return pa.array(offsets), pa.array(places[used])
