"""Parses blocks of text into rows, and collects the records that are not valid rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import RecordError
from headrace.sdk.arrow import conform, from_arrow
from headrace_plugins.connectors.file.record_ends import LineEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.record_ends import RecordEnds

TEXT = pa.schema([pa.field("value", pa.string(), nullable=False)])
_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
_ZONED = "[ T].*(Z|[+-][0-9:]+)$"
FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, RecordError)
"""The errors that parsers raise for a block with an invalid record."""
_UNDECODABLE = "Invalid UTF8 payload"
"""What Arrow says of bytes that are not UTF-8."""
_FEW = 512
"""Up to this many records are parsed one by one, if a parser can do that."""
_SLICE_BYTES = 256 * 1024
"""The approximate size of the slices of a block in which invalid records are looked for.

A record that is rejected takes some 500 bytes of memory beside its own.
"""
_SLICE_LINES = 256
"""The fewest lines of a slice: a slice has costs for each column, whatever its rows."""


MOST_REASON = 500
"""Characters of a reason: it may quote the value, which may be as long as the record."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A part of a block that is not a valid row.

    Args:
        line: The number of its first line in the block, from 0.
    """

    line: int
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a block, and its rejected records."""

    rows: pa.RecordBatch
    rejected: list[BadRecord] = field(default_factory=list)


def salvaged(
    block: bytes,
    parse: Callable[[bytes], Parsed],
    schema: pa.Schema,
    ends: RecordEnds,
    *,
    find_invalid: Callable[[list[bytes]], Mapping[int, str]] = lambda _: {},
    one_by_one: Callable[[list[bytes]], Parsed] | None = None,
) -> Iterator[Parsed]:
    """Parse a block; if this fails, divide it until invalid records are isolated.

    Yields one result, or one for each slice of a block with invalid records.

    ``find_invalid`` returns the indices of records that are certainly invalid, with reasons. It
    need not find all. ``one_by_one`` parses the records once only few are left, and raises
    nothing.
    """
    whole, reason = None, None
    try:
        whole = parse(block) if block else Parsed(no_rows(schema))
    except FAULTS as error:
        reason = _reason(error)
    if whole is not None:
        yield whole
        return
    line = 0
    for some in _slices(block, ends):
        records = ends.records(some)
        known = reason if len(some) == len(block) else None
        parts, bad = _isolated(records, parse, find_invalid, one_by_one, reason=known)
        yield Parsed(_one_batch(parts, schema), [*_bad_records(records, bad, ends, line)])
        line += ends.lines(some)


def joined(parts: Iterable[Parsed]) -> Parsed:
    """Return the results for the slices of one block as one; there is at least one."""
    found = list(parts)
    rows = _one_batch([each.rows for each in found], found[0].rows.schema)
    return Parsed(rows, [bad for each in found for bad in each.rejected])


def _one_batch(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    return next(iter(table.to_batches()), no_rows(schema))


def _slices(block: bytes, ends: RecordEnds) -> Iterator[bytes]:
    """Divide a block at ends of records."""
    start, size = 0, _SLICE_BYTES
    while start + size < len(block):
        end = ends.whole(block[start : start + size])
        if end and ends.lines(block[start : start + end]) >= _SLICE_LINES:
            yield block[start : start + end]
            start, size = start + end, _SLICE_BYTES
        else:
            size *= 2
    if start < len(block):
        yield block[start:]


def _isolated(
    records: list[bytes],
    parse: Callable[[bytes], Parsed],
    find_invalid: Callable[[list[bytes]], Mapping[int, str]],
    one_by_one: Callable[[list[bytes]], Parsed] | None,
    *,
    reason: str | None = None,
) -> tuple[list[pa.RecordBatch], dict[int, str]]:
    """Return the rows of the valid records, and the indices of the others, with reasons.

    ``reason`` is why all records cannot be parsed together, if that is known.
    """
    parts: list[pa.RecordBatch] = []
    bad: dict[int, str] = {}
    pending: list[tuple[Sequence[int], bool, str | None]]
    pending = [(range(len(records)), False, reason)]
    while pending:
        numbers, is_examined, reason = pending.pop()
        some = [records[number] for number in numbers]
        if reason is None:
            try:
                parts.append(parse(b"".join(some)).rows)
                continue
            except FAULTS as error:
                reason = _reason(error)
        if one_by_one is not None and len(some) <= _FEW:
            parsed = one_by_one(some)
            parts.append(parsed.rows)
            bad.update((numbers[each.line], each.reason) for each in parsed.rejected)
        elif not is_examined and (found := find_invalid(some)):
            bad.update((numbers[index], text) for index, text in found.items())
            if rest := [number for number in numbers if number not in bad]:
                pending.append((rest, True, None))
        elif len(some) == 1:
            bad[numbers[0]] = reason
        else:
            half = len(some) // 2
            pending += [(numbers[half:], True, None), (numbers[:half], True, None)]
    return parts, bad


def _reason(error: Exception) -> str:
    text = error.problem if isinstance(error, RecordError) else str(error).splitlines()[0]
    if text == _UNDECODABLE:
        return "Invalid UTF-8"
    return text.removeprefix("In chunk 0: Invalid: ")


def _bad_records(
    records: Sequence[bytes], reasons: Mapping[int, str], ends: RecordEnds, line: int
) -> Iterator[BadRecord]:
    before = 0
    for number in sorted(reasons):
        line += ends.lines(b"".join(records[before:number]))
        yield BadRecord(line, records[number].rstrip(b"\r\n"), _shortened(reasons[number]))
        before = number


def _shortened(reason: str) -> str:
    return reason if len(reason) <= MOST_REASON else f"{reason[:MOST_REASON]}…"


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def settled(table: pa.Table, target: pa.Schema, dialect: Dialect) -> pa.RecordBatch:
    """Return a table as one batch of a schema; times without a zone get the dialect's zone.

    Times in columns of local times do not. Raises ArrowInvalid if such a time has a zone.
    """
    columns = table.columns
    for number, column in enumerate(table.schema):
        if not pa.types.is_timestamp(column.type):
            continue
        values = columns[number]
        if from_arrow(target.field(column.name)).is_local:
            if column.type.tz is not None:
                message = f"A local time of {column.name} has a time zone"
                raise pa.ArrowInvalid(message)
            continue
        if pa.types.is_date(target.field(column.name).type):
            values = pc.cast(values, pa.date32())
        elif column.type.tz is None and dialect.time_zone != "UTC":
            values = pc.cast(
                pc.assume_timezone(values, dialect.time_zone), pa.timestamp("us", "UTC")
            )
        columns[number] = values
    table = pa.Table.from_arrays(columns, table.column_names)
    for column in columns:
        if _has_decimals(column.type):
            # Arrow's parsers check the digits after the point, but not those before it.
            column.validate(full=True)
    batches = table.combine_chunks().to_batches()
    return conform(batches[0], target) if batches else no_rows(target)


def times_of(texts: Any, dialect: Dialect, *, is_local: bool) -> Any:
    """Parse times in ISO 8601, each with or without a zone unless they are local times.

    Arrow parses either only times with a zone or only times without. Raises ArrowInvalid.
    """
    if dialect.truncates:
        texts = cut_to_micros(texts)
    if is_local:
        return pc.cast(texts, _NAIVE)
    is_zoned, none = pc.match_substring_regex(texts, _ZONED), pa.scalar(None, pa.string())
    if not pc.any(is_zoned).as_py():
        return pc.cast(texts, _NAIVE)
    zoned = pc.cast(pc.if_else(is_zoned, texts, none), _UTC)
    naive = pc.cast(pc.if_else(is_zoned, none, texts), _NAIVE)
    return pc.coalesce(zoned, pc.cast(pc.assume_timezone(naive, dialect.time_zone), _UTC))


def cut_to_micros(texts: Any) -> Any:
    """Return texts of times truncated to microseconds."""
    return pc.replace_substring_regex(texts, r"([.][0-9]{6})[0-9]+", r"\1")


def _has_decimals(arrow: pa.DataType) -> bool:
    inner = (arrow.field(number).type for number in range(arrow.num_fields))
    return pa.types.is_decimal(arrow) or any(map(_has_decimals, inner))


def decoded(
    block: bytes, dialect: Dialect, ends: RecordEnds, *, empty: bool = True
) -> tuple[bytes, list[BadRecord]]:
    """Return records in UTF-8, and those that cannot be decoded.

    With ``empty``, empty lines replace the latter. If the dialect is not ``is_cuttable``, the
    caller has decoded the block already.
    """
    if dialect.is_utf8 or not dialect.is_cuttable:
        return block, []
    try:
        return block.decode(dialect.encoding).encode(), []
    except UnicodeDecodeError:
        good, bad, line = [], [], 0
    for record in ends.records(block):
        lines = ends.lines(record)
        try:
            good.append(record.decode(dialect.encoding).encode())
        except UnicodeDecodeError as error:
            reason = f"Invalid {dialect.encoding}: {error.reason}"
            bad.append(BadRecord(line, record.rstrip(b"\r\n"), reason))
            good.append(b"\n" * lines if empty else b"")
        line += lines
    return b"".join(good), bad


class TextLines:
    """Reads each line as a string, without its line end."""

    def read(self, block: bytes) -> Parsed:
        """Return the strings of complete lines."""
        return joined(self.parts(block))

    def parts(self, block: bytes) -> Iterator[Parsed]:
        """Yield what ``read`` returns in slices."""
        return salvaged(block, _texts, TEXT, LineEnds())


def _texts(lines: bytes) -> Parsed:
    whole = pa.array([lines.removesuffix(b"\n")], pa.binary()).cast(pa.string())
    texts = pc.split_pattern(whole, "\n").flatten()
    if b"\r" in lines:
        texts = pc.replace_substring_regex(texts, "\r$", "")
    return Parsed(pa.RecordBatch.from_arrays([texts], schema=TEXT))
