"""Converts the values of a binary log to Arrow columns: exactly, or rejects them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import DATE, TIME, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected

    Numbers: TypeAlias = npt.NDArray[np.int64]
    Flags: TypeAlias = npt.NDArray[np.bool_]

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


def raw_type(column: Column) -> pa.DataType:
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
