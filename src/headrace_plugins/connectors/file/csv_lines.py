"""Reads CSV records as rows of a schema, with Arrow."""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from headrace.sdk.arrow import from_arrow, to_arrow
from headrace.sdk.sqltext import quote, sql_type
from headrace.sdk.struct_exprs import is_variant
from headrace_plugins.connectors.file.formats import BOM
from headrace_plugins.connectors.file.json_lines import variant_text
from headrace_plugins.connectors.file.text_blocks import (
    MOST_REASON,
    Parsed,
    joined,
    no_rows,
    salvaged,
    settled,
    times_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.sdk import Schema
    from headrace_plugins.connectors.file.formats import Dialect, TimePattern

    _Check = Callable[[pa.ChunkedArray], Iterator[tuple[int, str]]]
    """Yields the indices of invalid texts, with the reasons."""

_ZONE = re.compile(r"In CSV column #(\d+): .*zone offset in ")
_HEX = re.compile(rb"0[xX]")
_NUMBER = r"^\s*[+-]?[0-9.]"
_PADDED = "^[+-]?0[0-9]"
"""A number with leading zeros, such as a postal code."""
_DAY = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)
_CLOCK = "([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?)?"
_MICROS = _CLOCK.replace("[0-9]+", "[0-9]{1,6}")
_ZONES = "(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?"
_SHAPES = (
    (
        pa.types.is_floating,
        r"(?i)^\s*[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan.*)\s*$",
    ),
    (pa.types.is_boolean, "^(true|True|TRUE|false|False|FALSE|0|1)$"),
    (pa.types.is_date, rf"^\s*{_DAY}\s*$"),
)
"""Patterns that all valid values of a type match, and nearly all others do not."""
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_AFTER_QUOTE = "Text follows a closing quote"
_RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")
_NO_DECIMAL = re.compile("^The string '(.*)' is not a valid decimal128 number$")
_MISFIT = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]*: )?(.*)"
)


@dataclass(frozen=True, slots=True)
class CsvLines:
    """Reads CSV as rows of a schema; ``names`` are the file's columns, in order.

    Blocks are in UTF-8, with the stand-ins of the dialect, and so are rejected records.
    """

    schema: Schema
    names: Sequence[str]
    dialect: Dialect
    _zoned: set[str] = field(default_factory=set)
    """The columns whose last times had a time zone: Arrow parses only one kind per column."""
    _mixed: set[str] = field(default_factory=set)
    """The columns in which times with and without a time zone occurred."""

    def read(self, block: bytes) -> Parsed:
        """Return the rows of complete records, without a header."""
        return joined(self.parts(block))

    def parts(self, block: bytes) -> Iterator[Parsed]:
        """Yield what ``read`` returns in slices."""
        target = to_arrow(self.schema)
        return salvaged(
            block,
            lambda records: self._parse(records, target),
            target,
            self.dialect.ends,
            find_invalid=lambda records: self._invalid(records, target),
        )

    def _parse(self, records: bytes, target: pa.Schema) -> Parsed:
        if not records.strip(b"\r\n"):
            return Parsed(no_rows(target))
        ends = self.dialect.ends
        if len(ends.text_after_quotes(records)):
            raise pa.ArrowInvalid(_AFTER_QUOTE)
        if len(self.names) > len(target) and (reason := _not_utf8(records)) is not None:
            raise pa.ArrowInvalid(reason)  # Arrow checks only the columns that it converts
        records = ends.doubled(records)
        toggled: set[str] = set()
        while True:
            try:
                table = self._converted(self._numbers(records, target), target)
                return Parsed(settled(table, target, self.dialect))
            except pa.ArrowInvalid as error:
                zone = _ZONE.match(str(error))
                name = None if zone is None else self.names[int(zone[1])]
                if name is None or from_arrow(target.field(name)).is_local:
                    raise self._named(error) from None
                if name in toggled:
                    self._mixed.add(name)
                toggled.add(name)
                self._zoned.symmetric_difference_update({name})

    def _invalid(self, records: Sequence[bytes], target: pa.Schema) -> dict[int, str]:
        """Return the indices of records that are certainly invalid, with the reasons.

        All records are checked at once: parsing each alone would cost a change of threads for
        each of them.
        """
        block, stops = b"".join(records), list(accumulate(map(len, records)))
        ends = self.dialect.ends
        found: dict[int, str] = {}
        if _not_utf8(block) is not None:
            reasons = ((number, _not_utf8(record)) for number, record in enumerate(records))
            found = {number: reason for number, reason in reasons if reason is not None}
        for place in ends.text_after_quotes(block).tolist():
            found.setdefault(bisect_right(stops, place), _AFTER_QUOTE)
        asked = [n for n, r in enumerate(records) if n not in found and r.strip(b"\r\n")]
        ragged: dict[int, str] = {}

        def skip(row: pa_csv.InvalidRow) -> str:
            ragged[row.number - 1] = _ragged(row.actual_columns, row.expected_columns)
            return "skip"

        checks = {column.name: check for column in target if (check := self._check(column))}
        names = list(checks) or self.names[:1]
        texts = pa.schema([pa.field(name, pa.string()) for name in names])
        part = ends.doubled(b"".join(records[number] for number in asked))
        try:
            table = self._columns(part, texts, names, blank=True, on_ragged=skip)
        except pa.ArrowInvalid:
            return found
        if table.num_rows + len(ragged) != len(asked):
            return found
        found |= {asked[number]: reason for number, reason in ragged.items()}
        numbers = np.delete(asked, [*ragged])
        for name, check in checks.items():
            for number, problem in check(table.column(name)):
                found.setdefault(int(numbers[number]), f"{self._column(name)}: {problem}")
        return found

    def _check(self, column: pa.Field) -> _Check | None:
        """Return what finds the certainly invalid values of a column; None for nothing."""
        if self._is_variant(column.name):
            return _wrong_variants
        shape = self._shape(column)
        return None if shape is None else partial(self._misfits, column.type, shape)

    def _misfits(
        self, arrow: pa.DataType, shape: str, texts: pa.ChunkedArray
    ) -> Iterator[tuple[int, str]]:
        fits = pc.match_substring_regex(texts, shape)
        if self._keeps_zeros(arrow):
            fits = pc.and_(fits, pc.invert(pc.match_substring_regex(texts, _PADDED)))
        if pa.types.is_floating(arrow):
            fits = pc.and_(fits, pc.invert(_overflows(texts, fits, arrow)))
        misfits = pc.indices_nonzero(pc.invert(fits))
        for number, value in zip(misfits.to_pylist(), texts.take(misfits), strict=True):
            yield number, self._misfit(arrow, value.as_py())

    def _shape(self, column: pa.Field) -> str | None:
        """Return a pattern that all valid values of a column match; None if there is none."""
        arrow = column.type
        if pa.types.is_binary(arrow):
            return _BASE64
        if (pattern := self.dialect.pattern_of(arrow)) is not None:
            return pattern.regex
        if pa.types.is_decimal(arrow):
            whole, fraction = arrow.precision - arrow.scale, arrow.scale
            return rf"^\s*[+-]?(0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{fraction}}}0*)?|.*[eE].*)\s*$"
        if pa.types.is_timestamp(arrow):
            clock = _CLOCK if self.dialect.truncates else _MICROS
            zones = "" if from_arrow(column).is_local else _ZONES
            return f"^{_DAY}([ T]{clock}{zones})?$"
        if pa.types.is_integer(arrow):
            most = 2 ** (arrow.bit_width - 1) - 1
            return rf"^\s*(0*{_up_to(most)}|-0*{_up_to(most + 1)})\s*$"
        return next((shape for test, shape in _SHAPES if test(arrow)), None)

    def _misfit(self, arrow: pa.DataType, value: str) -> str:
        if pa.types.is_binary(arrow):
            return "invalid Base64"
        if (pattern := self.dialect.pattern_of(arrow)) is not None:
            return pattern.mismatch(value)
        if self._keeps_zeros(arrow) and re.match(_PADDED, value):
            return f"the inferred type would drop the leading zeros of {value[:MOST_REASON]!r}"
        return f"invalid value {value[:MOST_REASON]!r}"

    def _numbers(self, records: bytes, target: pa.Schema) -> pa.Table:
        """Return the columns as Arrow reads them. Raises ArrowInvalid for distorted numbers.

        Arrow reads hexadecimal numbers as integers, and numbers that are too large as infinity.
        It drops leading zeros, which an inferred type must not lose.
        """
        table = self._table(records, target)
        has_x = (b"x" in records or b"X" in records) and _HEX.search(records) is not None
        padded = {column.name for column in target if self._keeps_zeros(column.type)}
        if padded and not self._may_have_padded(records):
            padded = set()
        infinite = {
            column.name: pc.is_inf(table.column(column.name))
            for column in target
            if pa.types.is_floating(column.type)
        }
        suspects = [
            column.name
            for column in target
            if (has_x and pa.types.is_integer(column.type))
            or column.name in padded
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
            if name in padded:
                bent = pc.or_(bent, pc.match_substring_regex(found.column(name), _PADDED))
            if pc.any(bent).as_py():
                value = pc.filter(found.column(name), bent)[0].as_py()
                problem = self._misfit(target.field(name).type, value)
                message = f"{self._column(name)}: {problem}"
                raise pa.ArrowInvalid(message)
        return table

    def _keeps_zeros(self, arrow: pa.DataType) -> bool:
        """Return whether a type was inferred from numbers without leading zeros."""
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        return self.dialect.is_inferred and any(test(arrow) for test in kinds)

    def _may_have_padded(self, records: bytes) -> bool:
        """Return whether a value may begin with a zero before another digit."""
        signs = np.frombuffer(b"\n" + records, np.uint8)
        parsed = self.dialect.parsed
        borders = [ord(sign) for sign in ("\n", "\r", parsed.delimiter, parsed.quote)]
        zeros = np.flatnonzero(signs[1:-1] == ord("0"))
        after = signs[zeros + 2]
        zeros = zeros[(after >= ord("0")) & (after <= ord("9"))]
        before, earlier = signs[zeros], signs[np.maximum(zeros - 1, 0)]
        is_signed = np.isin(before, [ord(sign) for sign in "+-"]) & np.isin(earlier, borders)
        return bool((np.isin(before, borders) | is_signed).any())

    def _table(self, records: bytes, target: pa.Schema) -> pa.Table:
        """Parse the columns; a null value in quotes is a text in a string column, else null.

        Arrow reads quoted null values as null in all columns or in none.
        """
        texts = [
            column.name
            for column in target
            if pa.types.is_string(column.type) and not self._is_variant(column.name)
        ]
        others = [name for name in target.names if name not in texts]
        if not others or not self._has_quoted_null(records):
            return self._columns(records, target, target.names, blank=False)
        if not self.dialect.null_value:
            with suppress(pa.ArrowInvalid):  # as ever if only strings are empty in quotes
                return self._columns(records, target, target.names, blank=False)
        table = self._columns(records, target, others, blank=True)
        columns = dict(zip(others, table.columns, strict=True))
        if texts:
            rest = self._columns(records, target, texts, blank=False)
            columns |= dict(zip(texts, rest.columns, strict=True))
        return pa.table({name: columns[name] for name in target.names})

    def _has_quoted_null(self, records: bytes) -> bool:
        parsed = self.dialect.parsed
        mark = parsed.quote.encode()
        borders = b"\r\n" + parsed.delimiter.encode()
        for text in {parsed.null_value.encode(), b""}:
            quoted = mark + text.replace(mark, mark * 2) + mark
            # A pattern that begins with a text is searched for fast.
            end = b"(?=[%b]|$)" % re.escape(borders)
            for found in re.finditer(re.escape(quoted) + end, records):
                if not found.start() or records[found.start() - 1] in borders:
                    return True
        return False

    def _columns(
        self,
        records: bytes,
        target: pa.Schema,
        names: Sequence[str],
        *,
        blank: bool,
        on_ragged: Callable[[pa_csv.InvalidRow], str] | None = None,
    ) -> pa.Table:
        types = {name: self._type(target.field(name)) for name in names}
        if records.startswith(BOM):
            records = BOM + records  # Arrow removes one; within a file it is text
        return self.dialect.table(
            records,
            pa_csv.ReadOptions(
                column_names=list(self.names), block_size=len(records) + 2, use_threads=False
            ),
            on_ragged=on_ragged,
            column_types=types,
            include_columns=names,
            include_missing_columns=True,
            quoted_strings_can_be_null=blank,
        )

    def _converted(self, table: pa.Table, target: pa.Schema) -> pa.Table:
        """Convert columns that were read as strings: Base64, and times not in ISO 8601."""
        columns = table.columns
        for number, column in enumerate(target):
            if not self._is_text_first(column):
                continue
            texts = columns[number]
            texts = pc.if_else(pc.equal(texts, ""), None, texts)
            if pa.types.is_binary(column.type):
                values = self._bytes(column.name, texts)
            elif self._is_variant(column.name):
                values = self._variants(column.name, texts)
            elif (pattern := self.dialect.pattern_of(column.type)) is not None:
                values = self._of_pattern(column.name, pattern, texts)
            else:
                values = self._times(column, texts)
            columns[number] = values
        return pa.Table.from_arrays(columns, table.column_names)

    def _of_pattern(self, name: str, pattern: TimePattern, texts: pa.ChunkedArray) -> Any:
        try:
            return pattern.read(texts, truncates=self.dialect.truncates)
        except pa.ArrowInvalid as error:
            message = f"{self._column(name)}: {error}"
            raise pa.ArrowInvalid(message) from None

    def _times(self, column: pa.Field, texts: pa.ChunkedArray) -> Any:
        try:
            return times_of(texts, self.dialect, is_local=from_arrow(column).is_local)
        except pa.ArrowInvalid as error:
            message = f"{self._column(column.name)}: {error}"
            raise pa.ArrowInvalid(message) from None

    def _bytes(self, name: str, texts: pa.ChunkedArray) -> pa.Array:
        try:
            values = [t and base64.b64decode(t, validate=True) for t in texts.to_pylist()]
        except ValueError as error:
            message = f"{self._column(name)}: invalid Base64"
            raise pa.ArrowInvalid(message) from error
        return pa.array(values, pa.binary())

    def _variants(self, name: str, texts: pa.ChunkedArray) -> pa.Array:
        try:
            values = [text and variant_text(text) for text in texts.to_pylist()]
        except ValueError as error:
            message = f"{self._column(name)}: {error}"
            raise pa.ArrowInvalid(message) from error
        return pa.array(values, pa.string())

    def _is_variant(self, name: str) -> bool:
        column = self.schema.field(name)
        return column is not None and is_variant(column.schema)

    def _is_text_first(self, column: pa.Field) -> bool:
        arrow = column.type
        if self._is_variant(column.name):
            return True
        cut = self.dialect.truncates and pa.types.is_timestamp(arrow)
        cut = cut or column.name in self._mixed
        return cut or pa.types.is_binary(arrow) or self.dialect.pattern_of(arrow) is not None

    def _named(self, error: pa.ArrowInvalid) -> pa.ArrowInvalid:
        """Return an error with our names of columns and types instead of Arrow's."""
        if (ragged := _RAGGED.search(str(error))) is not None:
            return pa.ArrowInvalid(_ragged(int(ragged[2]), int(ragged[1])))
        found = _MISFIT.match(str(error))
        if found is None:
            return error
        problem = _NO_DECIMAL.sub("invalid value '\\1'", found[2])
        return pa.ArrowInvalid(f"{self._column(self.names[int(found[1])])}: {problem}")

    def _column(self, name: str) -> str:
        column = self.schema.field(name)
        return quote(name) if column is None else f"{quote(name)} {sql_type(column.schema)}"

    def _type(self, column: pa.Field) -> pa.DataType:
        if self._is_text_first(column):
            return pa.string()
        if pa.types.is_timestamp(column.type):
            zoned = column.name in self._zoned and not from_arrow(column).is_local
            return pa.timestamp("us", "UTC" if zoned else None)
        return column.type


def _wrong_variants(texts: pa.ChunkedArray) -> Iterator[tuple[int, str]]:
    for number, text in enumerate(texts.to_pylist()):
        try:
            if text:
                variant_text(text)
        except ValueError as error:
            yield number, str(error)


def _ragged(found: int, expected: int) -> str:
    return f"{found} values instead of {expected}"


def _up_to(most: int) -> str:
    """Return a pattern of the whole numbers from 0 to ``most``, without leading zeros."""
    digits = str(most)
    parts = [f"[0-9]{{0,{len(digits) - 1}}}"] if len(digits) > 1 else []
    for place, digit in enumerate(digits):
        if digit != "0":
            below = f"{digits[:place]}[0-{int(digit) - 1}]"
            parts.append(f"{below}[0-9]{{{len(digits) - place - 1}}}")
    return f"({'|'.join([*parts, digits])})"


def _overflows(texts: Any, are_numbers: Any, arrow: pa.DataType) -> Any:
    """Return which numbers are read as infinite, though their texts are finite."""
    is_finite = pc.and_(are_numbers, pc.match_substring_regex(texts, _NUMBER))
    finite = pc.if_else(is_finite, texts, pa.scalar(None, pa.string()))
    numbers = pc.cast(pc.utf8_trim_whitespace(finite), arrow)
    return pc.fill_null(pc.is_inf(numbers), fill_value=False)


def _not_utf8(text: bytes) -> str | None:
    """Return the reason why bytes are not UTF-8; None if they are."""
    try:
        text.isascii() or text.decode()
    except UnicodeDecodeError as error:
        return f"Invalid UTF-8: {error.reason}"
    return None
