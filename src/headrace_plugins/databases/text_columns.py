"""Parses a database's text values to typed Arrow columns: exact, or rejected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Rejected

_DAY = re.sub(
    r"\s",
    "",
    r"""(
    (000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-(
        (0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])
        |(0[469]|11)-(0[1-9]|[12][0-9]|30)
        |02-(0[1-9]|1[0-9]|2[0-8]))
    |([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)""",
)
"""The days from 0001-01-01 to 9999-12-31, leap days included."""
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_PATTERNS = {
    DATE: f"^{_DAY}$",
    TIME: f"^{_CLOCK}$",
    TIMESTAMP: rf"^{_DAY} {_CLOCK}(\+00)?$",
    DECIMAL: r"^-?[0-9]+(\.[0-9]+)?$",
}
"""The text formats of values of these types that Arrow, Python and Spark can represent."""
_INSTANT = pa.timestamp("us", "UTC")
_SHOWN = 200


@dataclass(frozen=True)
class TextColumns:
    """Parses text columns; bytes columns are already bytes.

    Args:
        columns: The columns.
        nulls: Whether values that the schema cannot represent become null if nullable.
        zone: The suffix of times with a zone, which are all in UTC.
    """

    columns: Sequence[Column]
    nulls: bool = False
    zone: str = ""

    def parse(self, texts: Sequence[pa.Array]) -> tuple[pa.RecordBatch, Rejected]:
        """Return the rows as Arrow, and the rejected rows."""
        try:
            return self._batch(texts), ()
        except pa.ArrowInvalid:
            return self._parse_one_by_one(list(texts))

    def _parse_one_by_one(self, texts: list[pa.Array]) -> tuple[pa.RecordBatch, Rejected]:
        """Find invalid values, and parse the valid rows."""
        good, reasons = pa.array([True] * len(texts[0])), dict[int, str]()
        given = list(texts)
        for number, column in enumerate(self.columns):
            pattern = _PATTERNS.get(column.schema.name or "")
            if pattern is None:
                continue
            fits = pc.fill_null(pc.match_substring_regex(texts[number], pattern), True)  # noqa: FBT003 - Arrow's
            if column.schema.name == DECIMAL:
                fits = pc.and_(fits, _fits_decimal(texts[number], column.schema, fits))
            if pc.all(fits).as_py():
                continue
            if self.nulls and column.schema.optional:
                texts[number] = pc.if_else(fits, texts[number], None)
                continue
            for row in pc.indices_nonzero(pc.invert(fits)).to_pylist():
                reasons.setdefault(
                    row,
                    f"The column {column.name} of type {column.type} contains "
                    f"{texts[number][row].as_py()!r}, which its schema cannot represent.",
                )
            good = pc.and_(good, fits)
        rejected = [(_shown(given, row), why) for row, why in sorted(reasons.items())]
        return self._batch([each.filter(good) for each in texts]), rejected

    def _batch(self, texts: Sequence[pa.Array]) -> pa.RecordBatch:
        arrays = [
            self._typed(array, column.schema)
            for array, column in zip(texts, self.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])

    def _typed(self, texts: pa.Array, schema: Schema) -> pa.Array:
        if schema.type is Type.BOOLEAN:
            return pc.match_substring_regex(texts, "^[t1]")
        if schema.name == TIME:
            # Arrow cannot cast strings to times.
            moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
            return moments.cast(pa.timestamp("us")).cast(pa.time64("us"))
        if schema.name == TIMESTAMP:
            zone = "UTC" if self.zone and not schema.is_local else None
            first = pa.scalar(datetime.min.replace(tzinfo=UTC), _INSTANT)
            return _since(texts.cast(pa.timestamp("us", zone)).cast(_INSTANT), first)
        if schema.name == DATE:
            return _since(texts.cast(pa.date32()), pa.scalar(date.min))
        return texts.cast(to_arrow_type(schema.bare()))


def _since(values: pa.Array, first: pa.Scalar) -> pa.Array:
    """Return the values. Raises ArrowInvalid for the year 0, which Python does not support."""
    least = pc.min(values)
    if least.is_valid and pc.less(least, first).as_py():
        message = "a day before the year 1"
        raise pa.ArrowInvalid(message)
    return values


def _fits_decimal(texts: pa.Array, schema: Schema, looks: pa.Array) -> pa.Array:
    kind = to_arrow_type(schema.bare())
    whole = kind.precision - kind.scale
    digits = pc.utf8_length(
        pc.replace_substring_regex(
            pc.if_else(looks, texts, "0"), r"^-?0*([0-9]*)(\..*)?$", r"\1"
        )
    )
    return pc.fill_null(pc.less_equal(digits, whole), True)  # noqa: FBT003 - Arrow's


def _shown(texts: Sequence[pa.Array], row: int) -> str:
    values = [array[row].as_py() for array in texts]
    shown = ",".join(
        value.hex() if isinstance(value, bytes) else "" if value is None else value
        for value in values
    )
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
