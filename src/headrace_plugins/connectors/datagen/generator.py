"""The generated rows: their plan, the base of every gear, and the rows in Arrow and as SQL.

SQL and numpy code compute the same values. The hash function is XXH64 of a single 8-byte lane
(https://github.com/Cyan4973/xxHash, doc xxhash_spec.md), chained over the arguments from seed
42 as in Spark's ``xxhash64``.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import Position, Schema, SourceTask, Split, Type, check_range
from headrace.sdk.arrow import to_arrow, to_arrow_type
from headrace.sdk.schema import FLOATS
from headrace.sdk.sqltext import literal, sql_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.sdk import ReadLimit, TaskContext


Hashes: TypeAlias = npt.NDArray[np.uint64]

_SPARK_SEED = 42
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANE_BYTES = np.uint64(8)


def hashes(salt_number: int, rows: npt.NDArray[np.int64]) -> Hashes:
    """Return Spark's ``xxhash64(salt, row)`` of each row, unsigned."""
    start = np.array([_SPARK_SEED], dtype=np.uint64)
    seed = _lane(np.array([salt_number], dtype=np.uint64), start)
    return _lane(rows.view(np.uint64), seed)


def _lane(values: Hashes, seed: Hashes) -> Hashes:
    # In place from here on: a fresh array for each step would cost half of the time.
    mixed = values * _P2
    mixed = _rotated(mixed, 31)
    mixed *= _P1
    mixed ^= seed + _P5 + _LANE_BYTES
    mixed = _rotated(mixed, 27)
    mixed *= _P1
    mixed += _P4
    mixed ^= mixed >> np.uint64(33)
    mixed *= _P2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _P3
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _rotated(values: Hashes, bits: int) -> Hashes:
    high = values << np.uint64(bits)
    values >>= np.uint64(64 - bits)
    high |= values
    return high


ITEMS = 3
"""The maximum length of an array or map; all lengths from 0 are equally likely."""
RANGES = {Type.INT8: 100, Type.INT16: 10_000, Type.INT32: 1_000_000, Type.INT64: 2**53}
"""The exclusive upper bound of integers; the lower bound is 0."""
UNIT = 1.1102230246251565e-16
"""2**-53: turns 53 random bits into a number from 0 to below 1."""
DAYS = 365
"""Dates are within this many days from the start time."""
STEP_MICROS = 1000
"""The interval between the timestamps of consecutive rows."""
_DECIMAL_DIGITS = 9
"""Decimals have no more digits than this, so that amounts look like amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that determines the value of each row; equal plans make equal rows."""

    schema: Schema
    seed: int = 0
    start: datetime = field(default=datetime(2025, 1, 1, tzinfo=UTC))
    """The timestamp of row 0, and the first date."""
    nulls: float = 0.0
    """The share of nulls in nullable columns, from 0 to 1."""

    @property
    def start_micros(self) -> int:
        """The start time in microseconds since 1970."""
        return (self.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    @property
    def start_day(self) -> int:
        """The start time in days since 1970."""
        return self.start_micros // 86_400_000_000

    def salt(self, path: str) -> int:
        """Return a hash of the seed and the column ``path``.

        The hash has at most 62 bits, so that it is a plain literal in SQL.
        """
        digest = hashlib.blake2b(f"{self.seed}/{path}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 2

    def columns(self) -> Iterator[tuple[str, Schema]]:
        """Yield the name and schema of each column."""
        return ((member.name, member.schema) for member in self.schema.fields)

    def is_row_number(self, path: str, schema: Schema) -> bool:
        """Return whether the column contains the row number, as ``id BIGINT`` does."""
        return path == "id" and schema.type is Type.INT64 and not schema.is_logical


def kind(schema: Schema) -> str:
    """Return the kind of value, which is the name of the method that makes it."""
    if schema.is_logical:
        return str(schema.name).rpartition(".")[2].lower()
    if schema.type in RANGES:
        return "whole"
    return "real" if schema.type in FLOATS else schema.type.value.lower()


def decimal_sizes(schema: Schema) -> tuple[int, int, int]:
    """Return ``(precision, scale, limit)``; unscaled values are below ``limit``."""
    arrow = to_arrow_type(schema)
    return arrow.precision, arrow.scale, 10 ** min(arrow.precision, _DECIMAL_DIGITS)


def part(schema: Schema | None) -> Schema:
    """Return the schema of items, keys or values; raise TypeError for None."""
    if schema is None:
        message = "only arrays and maps have parts"
        raise TypeError(message)
    return schema


def map_keys(schema: Schema) -> list[str] | list[int] | None:
    """Return all keys that maps may contain, in order; None for unsupported key types."""
    if schema.type is Type.STRING:
        return [f"k{number}" for number in range(ITEMS)]
    if schema.type in RANGES and not schema.is_logical:
        return list(range(ITEMS))
    return None


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
    columns = [
        _ArrowColumn(plan, rows, path).nullable(schema) for path, schema in plan.columns()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=to_arrow(plan.schema))


class _ArrowColumn:
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
        return _ArrowColumn(self.plan, self.rows, f"{self.path}.{name}").made(schema)

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


_MOST_SCALE = 15
"""Up to this scale the product of a number and a power of ten is an exact decimal."""


def value_sql(plan: Plan, row: str) -> str:
    """Return the SQL of one row as a struct; ``row`` is a BIGINT column with its number."""
    pairs = (
        f"{literal(path)}, {_SqlColumn(plan, row, path).nullable(schema)}"
        for path, schema in plan.columns()
    )
    return f"named_struct({', '.join(pairs)})"


def chance_sql(plan: Plan, row: str, path: str) -> str:
    """Return the SQL of a pseudorandom number in [0, 1) for each row."""
    return _unit(_SqlColumn(plan, row, path).hash())


def _unit(hash_sql: str) -> str:
    return f"CAST(shiftrightunsigned({hash_sql}, 11) AS DOUBLE) * {UNIT!r}D"


class _SqlColumn:
    """A column, or a slot of a nested column; one method for each kind of value."""

    def __init__(self, plan: Plan, row: str, path: str) -> None:
        self.plan = plan
        self.row = row
        self.path = path

    def nullable(self, schema: Schema) -> str:
        """Return the SQL of a column, with some nulls if it is nullable."""
        if not (schema.optional and self.plan.nulls):
            return self.sql(schema)
        chance = chance_sql(self.plan, self.row, self.path + "?")
        return f"IF({chance} < {self.plan.nulls!r}D, NULL, {self.sql(schema)})"

    def sql(self, schema: Schema) -> str:
        sql = getattr(self, kind(schema))(schema)
        # Makes the type nullable as in the schema, although no value is null.
        return f"IF(false, NULL, {sql})" if schema.optional else str(sql)

    def hash(self) -> str:
        return f"xxhash64({self.plan.salt(self.path)}L, {self.row})"

    def below(self, limit: int) -> str:
        return f"shiftrightunsigned({self.hash()}, 1) % {limit}L"

    def child(self, name: str, schema: Schema) -> str:
        return _SqlColumn(self.plan, self.row, f"{self.path}.{name}").sql(schema)

    def whole(self, schema: Schema) -> str:
        if self.plan.is_row_number(self.path, schema):
            return self.row
        return f"CAST({self.below(RANGES[schema.type])} AS {sql_type(schema)})"

    def real(self, schema: Schema) -> str:
        return f"CAST({_unit(self.hash())} * 1000D AS {sql_type(schema)})"

    def boolean(self, _: Schema) -> str:
        return f"({self.hash()} & 1L) = 1L"

    def string(self, _: Schema) -> str:
        # With the highest bit set, hex() always returns 16 digits.
        return f"substring(hex({self.hash()} | shiftleft(1L, 63)), 9, 8)"

    def bytes(self, schema: Schema) -> str:
        return f"unhex({self.string(schema)})"

    def decimal(self, schema: Schema) -> str:
        precision, scale, limit = decimal_sizes(schema)
        number = self.below(limit)
        if scale > _MOST_SCALE:
            return f"CAST(concat(CAST({number} AS STRING), 'E-{scale}') AS {sql_type(schema)})"
        unit = f"CAST('1E-{scale}' AS DECIMAL({scale + 1}, {scale}))"
        return (
            f"CAST(CAST({number} AS DECIMAL(10, 0)) * {unit} AS DECIMAL({precision}, {scale}))"
        )

    def date(self, _: Schema) -> str:
        days = f"CAST({self.below(DAYS)} + {self.plan.start_day}L AS INT)"
        return f"date_from_unix_date({days})"

    def timestamp(self, _: Schema) -> str:
        return f"timestamp_micros({self.row} * {STEP_MICROS}L + {self.plan.start_micros}L)"

    def struct(self, schema: Schema) -> str:
        pairs = (f"{literal(m.name)}, {self.child(m.name, m.schema)}" for m in schema.fields)
        return f"named_struct({', '.join(pairs)})"

    def array(self, schema: Schema) -> str:
        items = part(schema.value_schema)
        return self._slice([self.child(str(slot), items) for slot in range(ITEMS)])

    def map(self, schema: Schema) -> str:
        kinds = sql_type(part(schema.key_schema))
        keys = [f"CAST('{key}' AS {kinds})" for key in map_keys(part(schema.key_schema)) or ()]
        return f"map_from_arrays({self._slice(keys)}, {self.array(schema)})"

    def _slice(self, slots: list[str]) -> str:
        return f"slice(array({', '.join(slots)}), 1, CAST({self.below(ITEMS + 1)} AS INT))"
