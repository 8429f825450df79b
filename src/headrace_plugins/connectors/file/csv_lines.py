"""Reads CSV records as rows of a schema, with Arrow."""

from __future__ import annotations

import base64
import io
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from headrace.sdk.arrow import from_arrow, to_arrow
from headrace.sdk.sqltext import quote, sql_type
from headrace_plugins.connectors.file.record_ends import CsvQuoting, LineEnds, RecordEnds
from headrace_plugins.connectors.file.text_blocks import (
    Parsed,
    cut_to_micros,
    no_rows,
    salvaged,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sdk import Schema
    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.time_patterns import TimePattern

_NAIVE = pa.timestamp("us")
_ZONE = re.compile(r"In CSV column #(\d+): .*zone offset in ")
_HEX = re.compile(rb"0[xX]")
_NUMBER = r"^\s*[+-]?[0-9.]"
_BLANK = re.compile(r"In CSV column #(\d+): .*invalid value ''$")
_DAY = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_SHAPES = (
    (pa.types.is_integer, r"^\s*[+-]?[0-9]+\s*$"),
    (
        pa.types.is_floating,
        r"(?i)^\s*[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf.*|nan.*)\s*$",
    ),
    (pa.types.is_boolean, r"(?i)^\s*(true|false|[01])\s*$"),
    (pa.types.is_date, rf"^\s*{_DAY}\s*$"),
    (pa.types.is_timestamp, rf"^\s*{_DAY}([ T][0-9:.]+)?(Z|[+-][0-9:]+)?\s*$"),
)
"""Patterns that all valid values of a type match, and nearly all others do not."""
_BASE64 = "^[A-Za-z0-9+/]*={0,2}$"
_AFTER_QUOTE = "Text follows a closing quote"
_RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")
_MISFIT = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]*: )?(.*)"
)


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Reads CSV as rows of a schema; ``names`` are the file's columns, in order.

    With ``quoting``, quoted values may contain line breaks; without, each line is a record.
    """

    schema: Schema
    names: Sequence[str]
    dialect: Dialect
    quoting: CsvQuoting | None = None
    _zoned: set[str] = field(default_factory=set)
    """The columns whose last times had a time zone: Arrow parses only one kind per column."""
    _blank: set[str] = field(default_factory=set)
    """The columns, except strings, in which a quoted empty value occurred, which is null."""

    def read(self, block: bytes) -> Parsed:
        """Return the rows of complete records, without a header."""
        target = to_arrow(self.schema)
        return salvaged(
            block,
            lambda records: self._parse(records, target),
            target,
            self._ends.records,
            find_invalid=lambda records: self._invalid(records, target),
        )

    @property
    def _ends(self) -> RecordEnds:
        return self.quoting or LineEnds()

    def _parse(self, records: bytes, target: pa.Schema) -> Parsed:
        if not records.strip(b"\r\n"):
            return Parsed(no_rows(target))
        if self.quoting is not None and len(self.quoting.text_after_quotes(records)):
            raise pa.ArrowInvalid(_AFTER_QUOTE)
        records = self._ends.doubled(records)
        tried: set[str] = set()
        while True:
            try:
                table = self._converted(self._numbers(records, target), target)
                return Parsed(settled(table, target, self.dialect))
            except pa.ArrowInvalid as error:
                if not self._learns(str(error), tried):
                    raise self._named(error) from None

    def _invalid(self, records: Sequence[bytes], target: pa.Schema) -> dict[int, str]:
        """Return the indices of records that are certainly invalid, with the reasons.

        All records are checked at once: parsing each alone would cost a change of threads for
        each of them.
        """
        block, ends = b"".join(records), list(accumulate(map(len, records)))
        found = {bisect_right(ends, place): reason for place, reason in _not_utf8(block)}
        if self.quoting is not None:
            for place in self.quoting.text_after_quotes(block).tolist():
                found.setdefault(bisect_right(ends, place), _AFTER_QUOTE)
        asked = [n for n, r in enumerate(records) if n not in found and r.strip(b"\r\n")]
        ragged: dict[int, str] = {}

        def skip(row: pa_csv.InvalidRow) -> str:
            ragged[row.number - 1] = _ragged(row.actual_columns, row.expected_columns)
            return "skip"

        shapes = {
            column.name: shape for column in target if (shape := self._shape(column.type))
        }
        names = list(shapes) or self.names[:1]
        texts = pa.schema([pa.field(name, pa.string()) for name in names])
        part = self._ends.doubled(b"".join(records[number] for number in asked))
        try:
            table = self._columns(part, texts, names, blank=True, invalid_row_handler=skip)
        except pa.ArrowInvalid:
            return found
        if table.num_rows + len(ragged) != len(asked):
            return found
        found |= {asked[number]: reason for number, reason in ragged.items()}
        numbers = np.delete(asked, [*ragged])
        for name, shape in shapes.items():
            fits = pc.match_substring_regex(table.column(name), shape)
            misfits = pc.indices_nonzero(pc.invert(fits))
            values = table.column(name).take(misfits).to_pylist()
            for number, value in zip(numbers[misfits].tolist(), values, strict=True):
                problem = self._misfit(target.field(name).type, value)
                found.setdefault(number, f"{self._column(name)}: {problem}")
        return found

    def _shape(self, arrow: pa.DataType) -> str | None:
        """Return a pattern that all valid values of a type match; None if there is none."""
        if pa.types.is_binary(arrow):
            return _BASE64
        if (pattern := self.dialect.pattern_of(arrow)) is not None:
            return pattern.regex
        if pa.types.is_decimal(arrow):
            whole, fraction = arrow.precision - arrow.scale, arrow.scale
            return rf"^\s*[+-]?(0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{fraction}}}0*)?|.*[eE].*)\s*$"
        return next((shape for test, shape in _SHAPES if test(arrow)), None)

    def _misfit(self, arrow: pa.DataType, value: str) -> str:
        if pa.types.is_binary(arrow):
            return "invalid Base64"
        if (pattern := self.dialect.pattern_of(arrow)) is not None:
            return pattern.mismatch(value)
        return f"invalid value {value!r}"

    def _learns(self, error: str, tried: set[str]) -> bool:
        """Return whether an error shows that a column must be read in another way."""
        zone, blank = _ZONE.match(error), _BLANK.match(error)
        if zone is not None and (name := self.names[int(zone[1])]) not in tried:
            tried.add(name)
            self._zoned.symmetric_difference_update({name})
            return True
        if blank is not None and (name := self.names[int(blank[1])]) not in self._blank:
            self._blank.add(name)
            return True
        return False

    def _numbers(self, records: bytes, target: pa.Schema) -> pa.Table:
        """Return the columns as Arrow reads them. Raises ArrowInvalid for distorted numbers.

        Arrow reads hexadecimal numbers as integers, and numbers that are too large as infinity.
        """
        table = self._table(records, target)
        has_x = (b"x" in records or b"X" in records) and _HEX.search(records) is not None
        infinite = {
            column.name: pc.is_inf(table.column(column.name))
            for column in target
            if pa.types.is_floating(column.type)
        }
        suspects = [
            column.name
            for column in target
            if (has_x and pa.types.is_integer(column.type))
            or (column.name in infinite and pc.any(infinite[column.name]).as_py())
        ]
        if not suspects:
            return table
        texts = pa.schema([pa.field(name, pa.string()) for name in suspects])
        found = self._columns(records, texts, suspects, blank=True)
        for name in suspects:
            bent = pc.match_substring_regex(found.column(name), _NUMBER)
            if (is_infinite := infinite.get(name)) is not None:
                bent = pc.and_(bent, is_infinite)
            else:
                bent = pc.match_substring_regex(found.column(name), "0[xX]")
            if pc.any(bent).as_py():
                value = pc.filter(found.column(name), bent)[0].as_py()
                message = f"{self._column(name)}: invalid value {value!r}"
                raise pa.ArrowInvalid(message)
        return table

    def _table(self, records: bytes, target: pa.Schema) -> pa.Table:
        blank = [name for name in target.names if name in self._blank]
        others = [name for name in target.names if name not in self._blank]
        if not blank:
            return self._columns(records, target, others, blank=False)
        # Arrow reads quoted empty values as null in all columns or in none, also in strings.
        table = self._columns(records, target, blank, blank=True)
        if others:
            rest = self._columns(records, target, others, blank=False)
            for name in others:
                table = table.append_column(name, rest.column(name))
        return table.select(target.names)

    def _columns(
        self,
        records: bytes,
        target: pa.Schema,
        names: Sequence[str],
        *,
        blank: bool,
        **parsing: Any,
    ) -> pa.Table:
        types = {name: self._type(target.field(name)) for name in names}
        return pa_csv.read_csv(
            io.BytesIO(records),
            pa_csv.ReadOptions(
                column_names=list(self.names), block_size=len(records) + 1, use_threads=False
            ),
            self.dialect.arrow_parse(breaks=self.quoting is not None, **parsing),
            self.dialect.arrow_convert(
                column_types=types,
                include_columns=names,
                include_missing_columns=True,
                quoted_strings_can_be_null=blank,
            ),
        )

    def _converted(self, table: pa.Table, target: pa.Schema) -> pa.Table:
        """Convert columns that were read as strings: Base64, and times not in ISO 8601."""
        for number, column in enumerate(target):
            if not self._is_text_first(column.type):
                continue
            texts = table.column(number)
            texts = pc.if_else(pc.equal(texts, ""), None, texts)
            if pa.types.is_binary(column.type):
                values = self._bytes(column.name, texts)
            elif (pattern := self.dialect.pattern_of(column.type)) is not None:
                values = self._of_pattern(column.name, pattern, texts)
            else:
                texts = cut_to_micros(texts)
                try:
                    values = pc.cast(texts, _NAIVE)
                except pa.ArrowInvalid:
                    values = pc.cast(texts, column.type)
            table = table.set_column(number, column.name, values)
        return table

    def _of_pattern(self, name: str, pattern: TimePattern, texts: pa.ChunkedArray) -> Any:
        try:
            return pattern.read(texts, truncates=self.dialect.truncates)
        except pa.ArrowInvalid as error:
            message = f"{self._column(name)}: {error}"
            raise pa.ArrowInvalid(message) from None

    def _bytes(self, name: str, texts: pa.ChunkedArray) -> pa.Array:
        try:
            values = [t and base64.b64decode(t, validate=True) for t in texts.to_pylist()]
        except ValueError as error:
            message = f"{self._column(name)}: invalid Base64"
            raise pa.ArrowInvalid(message) from error
        return pa.array(values, pa.binary())

    def _is_text_first(self, arrow: pa.DataType) -> bool:
        cut = self.dialect.truncates and pa.types.is_timestamp(arrow)
        return cut or pa.types.is_binary(arrow) or self.dialect.pattern_of(arrow) is not None

    def _named(self, error: pa.ArrowInvalid) -> pa.ArrowInvalid:
        """Return an error with our names of columns and types instead of Arrow's."""
        if (ragged := _RAGGED.search(str(error))) is not None:
            return pa.ArrowInvalid(_ragged(int(ragged[2]), int(ragged[1])))
        found = _MISFIT.match(str(error))
        if found is None:
            return error
        return pa.ArrowInvalid(f"{self._column(self.names[int(found[1])])}: {found[2]}")

    def _column(self, name: str) -> str:
        column = self.schema.field(name)
        return quote(name) if column is None else f"{quote(name)} {sql_type(column.schema)}"

    def _type(self, column: pa.Field) -> pa.DataType:
        if self._is_text_first(column.type):
            return pa.string()
        if pa.types.is_timestamp(column.type):
            zoned = column.name in self._zoned and not from_arrow(column).is_local
            return pa.timestamp("us", "UTC" if zoned else None)
        return column.type


def _ragged(found: int, expected: int) -> str:
    return f"{found} values instead of {expected}"


def _not_utf8(block: bytes) -> Iterator[tuple[int, str]]:
    """Yield the places of bytes that are not UTF-8, with the reasons."""
    start = 0
    while start < len(block):
        try:
            str(memoryview(block)[start:], "utf-8")
        except UnicodeDecodeError as error:
            yield start + error.start, f"Invalid UTF-8: {error.reason}"
            start += error.end
        else:
            return
