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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.record_ends import RecordEnds

TEXT = pa.schema([pa.field("value", pa.string(), nullable=False)])
FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, RecordError)
"""The errors that parsers raise for a block with an invalid record."""
_FEW = 64
"""Up to this many records are parsed one by one, if a parser can do that."""
_EXAMINED = 65_536
"""Up to this many records are examined at once."""
_MANY = 4096
_FAN = 16


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
    split: Callable[[bytes], list[bytes]],
    *,
    find_invalid: Callable[[list[bytes]], Mapping[int, str]] = lambda _: {},
    one_by_one: Callable[[list[bytes]], Parsed] | None = None,
) -> Parsed:
    """Parse a block; if this fails, divide the block until invalid records are isolated.

    ``find_invalid`` returns the indices of records that are certainly invalid, with reasons. It
    need not find all. ``one_by_one`` parses the records once only few are left, and raises
    nothing.
    """
    fault: Exception | None = None
    try:
        return parse(block)
    except FAULTS as error:
        fault = error
    records = split(block)
    parts: list[pa.RecordBatch] = []
    bad: dict[int, str] = {}
    pending: list[tuple[Sequence[int], bool]] = [(range(len(records)), False)]
    while pending:
        numbers, is_examined = pending.pop()
        some = [records[number] for number in numbers]
        if fault is None:  # the first part is the whole block, which has failed
            try:
                parts.append(parse(b"".join(some)).rows)
                continue
            except FAULTS as error:
                fault = error
        reason, fault = _reason(fault), None
        if one_by_one is not None and len(some) <= _FEW:
            parsed = one_by_one(some)
            parts.append(parsed.rows)
            bad.update((numbers[each.line], each.reason) for each in parsed.rejected)
            continue
        if not is_examined and len(some) <= _EXAMINED:
            is_examined = True
            if found := find_invalid(some):
                bad.update((numbers[index], text) for index, text in found.items())
                rest = [number for number in numbers if number not in bad]
                pending += [(rest, is_examined)] if rest else []
                continue
        if len(some) == 1:
            bad[numbers[0]] = reason
            continue
        size = -(-len(some) // (_FAN if len(some) > _MANY else 2))
        starts = reversed(range(0, len(some), size))
        pending += [(numbers[start : start + size], is_examined) for start in starts]
    table = pa.Table.from_batches(parts, schema).combine_chunks()
    rows = next(iter(table.to_batches()), no_rows(schema))
    return Parsed(rows, [*_bad_records(records, bad)])


def _reason(error: Exception) -> str:
    text = error.problem if isinstance(error, RecordError) else str(error).splitlines()[0]
    return text.removeprefix("In chunk 0: Invalid: ")


def _bad_records(records: Sequence[bytes], reasons: Mapping[int, str]) -> Iterator[BadRecord]:
    line = before = 0
    for number in sorted(reasons):
        line += b"".join(records[before:number]).count(b"\n")
        yield BadRecord(line, records[number].rstrip(b"\r\n"), reasons[number])
        before = number


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def settled(table: pa.Table, target: pa.Schema, dialect: Dialect) -> pa.RecordBatch:
    """Return a table as one batch of a schema; times without a zone get the dialect's zone.

    Times in columns of local times do not. Raises ArrowInvalid if such a time has a zone.
    """
    for number, column in enumerate(table.schema):
        if not pa.types.is_timestamp(column.type):
            continue
        values = table.column(number)
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
        table = table.set_column(number, column.name, values)
    for column in table.itercolumns():
        if _has_decimals(column.type):
            # Arrow's parsers check the digits after the point, but not those before it.
            column.validate(full=True)
    batches = table.combine_chunks().to_batches()
    return conform(batches[0], target) if batches else no_rows(target)


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
        lines = record.count(b"\n")
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
        return (
            salvaged(block, _texts, TEXT, LineEnds().records)
            if block
            else Parsed(no_rows(TEXT))
        )


def _texts(lines: bytes) -> Parsed:
    whole = pa.array([lines.removesuffix(b"\n")], pa.binary()).cast(pa.string())
    texts = pc.split_pattern(whole, "\n").flatten()
    if b"\r" in lines:
        texts = pc.replace_substring_regex(texts, "\r$", "")
    return Parsed(pa.RecordBatch.from_arrays([texts], schema=TEXT))
