"""Groups a binary log's row events into runs of a table, and converts their values.

Row events are buffered until there are enough of them. Values are converted exactly, or
rejected.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import DATE, TIME, TIMESTAMP
from headrace_plugins.changes.log import CREATE, DELETE, TRUNCATE, UPDATE, Run
from headrace_plugins.connectors.mysql.binlog_rows import Block, decoded, row_starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from headrace_plugins.connectors.mysql.binlog_shapes import Bound
    from headrace_plugins.databases.catalog import Column, TableName
    from headrace_plugins.databases.database import Rejected

    Numbers: TypeAlias = npt.NDArray[np.int64]
    Flags: TypeAlias = npt.NDArray[np.bool_]


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
        kinds = [(column.name, _raw_type(column)) for column in bound.shape.columns]
        return pa.nulls(len(has), pa.struct(kinds))
    found = decoded(block, starts, bound.fields, bound.names)
    if has.all():
        return found
    return found.take(pa.array(np.cumsum(has) - 1, mask=~has))


def _numbers(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


_DAY_MICROS = 86_400 * 10**6
_SHOWN = 200
_DIGITS = re.compile(r"\((\d)\)")


@dataclass(frozen=True)
class BinlogColumns:
    """Converts the columns of a run of a binary log to their types.

    Most columns have their types already. Dates and times are still numbers as in the log,
    which may represent invalid dates such as month 0, or times of more than a day: a DATE as
    year, month and day in bits, a DATETIME likewise with its microseconds, a TIMESTAMP as
    microseconds since 1970 with 0 for the zero date, and a TIME as microseconds.

    Args:
        columns: The columns of the values.
        nulls: Whether a value that the schema cannot represent becomes null if the column is
            nullable.
    """

    columns: Sequence[Column]
    nulls: bool = False

    def parse_changes(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejected]:
        """Return a run's rows with ``before`` and ``after`` typed, and the rejected rows.

        In ``before``, a value that its schema cannot represent becomes null if the column is
        nullable.
        """
        reasons = dict[int, tuple[str, str]]()
        for name, nulls in (("before", True), ("after", self.nulls)):
            place = rows.schema.get_field_index(name)
            structs = rows.column(place)
            values = structs.flatten()
            arrays, found = self._typed(values, nulls=nulls)
            for row, why in found.items():
                reasons.setdefault(row, (self._shown(values, row), why))
            typed = pa.StructArray.from_arrays(
                arrays, [column.name for column in self.columns], mask=structs.is_null()
            )
            rows = rows.set_column(place, name, typed)
        if not reasons:
            return rows, ()
        rejected = [each for _, each in sorted(reasons.items())]
        return rows.filter(_without(reasons, len(rows))), rejected

    def _typed(
        self, values: Sequence[pa.Array], *, nulls: bool
    ) -> tuple[list[pa.Array], dict[int, str]]:
        arrays, reasons = [], dict[int, str]()
        for column, array in zip(self.columns, values, strict=True):
            if column.schema.name not in {DATE, TIME, TIMESTAMP}:
                arrays.append(array)
                continue
            given = array.fill_null(0).to_numpy().astype(np.int64)
            is_null = array.is_null().to_numpy(zero_copy_only=False)
            made, fits = _made(column, given)
            fits |= is_null
            if not fits.all() and not (nulls and column.schema.optional):
                for row in np.flatnonzero(~fits).tolist():
                    reasons.setdefault(
                        row,
                        f"The column {column.name} of type {column.type} contains "
                        f"{_text(column, int(given[row]))!r}, which its schema cannot "
                        "represent.",
                    )
            kind = _typed_as(column)
            mask = is_null | ~fits
            made[mask] = 0
            plain = made.astype(np.int32) if pa.types.is_date32(kind) else made
            arrays.append(pa.array(plain, mask=mask if mask.any() else None).view(kind))
        return arrays, reasons

    def _shown(self, values: Sequence[pa.Array], row: int) -> str:
        texts = []
        for column, array in zip(self.columns, values, strict=True):
            value = array[row].as_py()
            if value is None:
                texts.append("")
            elif column.schema.name in {DATE, TIME, TIMESTAMP}:
                texts.append(_text(column, value))
            elif isinstance(value, bool):
                texts.append(str(int(value)))
            else:
                texts.append(value.hex() if isinstance(value, bytes) else str(value))
        shown = ",".join(texts)
        return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _typed_as(column: Column) -> pa.DataType:
    """Return the type of a column's values, the same as in a snapshot."""
    if column.schema.name == TIME:
        return pa.time64("us")
    return to_arrow_type(column.schema.bare())


def _raw_type(column: Column) -> pa.DataType:
    """Return the type of a column in a run."""
    if column.schema.name == DATE:
        return pa.int32()
    if column.schema.name in {TIME, TIMESTAMP}:
        return pa.int64()
    return to_arrow_type(column.schema.bare())


def _without(rows: Iterable[int], count: int) -> pa.Array:
    good = np.ones(count, np.bool_)
    good[list(rows)] = False
    return pa.array(good)


def _made(column: Column, given: Numbers) -> tuple[Numbers, Flags]:
    """Return the values as Arrow stores them, and which of them are valid."""
    if column.schema.name == TIME:
        return given.copy(), (given >= 0) & (given < _DAY_MICROS)
    if column.schema.name == DATE:
        return _days(given >> 9, given >> 5 & 15, given & 31)
    if not column.schema.is_local:
        return given.copy(), given >= 10**6
    days, fits = _days(*_year_month_day(given))
    return days * _DAY_MICROS + _clock(given), fits


def _year_month_day(packed: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    days = packed >> 41
    return days // (32 * 13), (days >> 5) % 13, days & 31


def _clock(packed: Numbers) -> Numbers:
    clock = packed >> 24 & 0x1FFFF
    seconds = (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    micros: Numbers = seconds * 10**6 + (packed & 0xFFFFFF)
    return micros


def _days(years: Numbers, months: Numbers, days: Numbers) -> tuple[Numbers, Flags]:
    """Return days since 1970, and which of them are valid dates."""
    month = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    day = month.astype("datetime64[D]") + (days - 1)
    fits = (years > 0) & (months > 0) & (days > 0) & (day.astype("datetime64[M]") == month)
    return day.astype(np.int64), fits & (months <= 12)  # noqa: PLR2004 - months


def _text(column: Column, value: int) -> str:
    """Return a value as the server writes it."""
    found = _DIGITS.search(column.type)
    digits = int(found[1]) if found else 0
    if column.schema.name == DATE:
        return f"{value >> 9:04}-{value >> 5 & 15:02}-{value & 31:02}"
    if column.schema.name == TIME:
        return ("-" if value < 0 else "") + _clock_text(abs(value), digits)
    if not column.schema.is_local:  # valid values are shown only beside an invalid one
        if value < 10**6:
            return f"0000-00-00 {_clock_text(0, digits)}"
        moment = np.datetime64(value, "us")
        return f"{moment.astype('datetime64[D]')} {_clock_text(value % _DAY_MICROS, digits)}"
    packed = np.array([value], np.int64)
    year, month, day = (int(part[0]) for part in _year_month_day(packed))
    return f"{year:04}-{month:02}-{day:02} {_clock_text(int(_clock(packed)[0]), digits)}"


def _clock_text(micros: int, digits: int) -> str:
    seconds, rest = divmod(micros, 10**6)
    fraction = f".{rest:06}"[: digits + 1] if digits else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
