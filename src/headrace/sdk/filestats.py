"""Converts a Parquet file's footer to Delta's statistics of a data file.

The format is the protocol's "Per-file Statistics"
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md), with which readers skip files.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

_TEXT_CHARS = 32  # the string prefix that Delta's own writers store
_MILLISECOND = timedelta(milliseconds=1)


def file_stats(footer: pq.FileMetaData) -> str:
    """Return the statistics of one file as Delta's JSON.

    They contain the number of rows and, for top-level columns of primitive types, the number of
    nulls, the smallest and the largest value. Bounds may be wider than the values, never
    narrower.
    """
    lows: dict[str, list[Any]] = defaultdict(list)
    highs: dict[str, list[Any]] = defaultdict(list)
    nulls: dict[str, int] = defaultdict(int)
    blind: set[str] = set()
    for name, chunk in _chunks(footer):
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            blind.add(name)
            continue
        nulls[name] += stats.null_count
        if stats.null_count == chunk.num_values:
            continue
        low, high = _bounds(stats)
        lows[name].append(low)
        highs[name].append(high)
    low = {n: min(v) for n, v in lows.items() if None not in v and n not in blind}
    high = {n: max(v) for n, v in highs.items() if None not in v and n not in blind}
    counts = {name: count for name, count in nulls.items() if name not in blind}
    # Decimals are written with all digits, which a float might lose.
    minimum, maximum = (
        ", ".join(f"{json.dumps(name)}: {_text(value)}" for name, value in bounds.items())
        for bounds in (low, high)
    )
    return (
        f'{{"numRecords": {footer.num_rows}, "minValues": {{{minimum}}}, '
        f'"maxValues": {{{maximum}}}, "nullCount": {json.dumps(counts)}}}'
    )


def _text(value: object) -> str:
    """Return a bound as JSON."""
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            moment = value.astimezone(UTC).replace(tzinfo=None) if zone else value
            # Readers accept both; Delta's own writers use milliseconds.
            unit = "microseconds" if value.microsecond % 1000 else "milliseconds"
            return json.dumps(moment.isoformat(timespec=unit) + zone)
        case date():
            return json.dumps(value.isoformat())
        case _:
            return json.dumps(value)


def _chunks(footer: pq.FileMetaData) -> Iterator[tuple[str, pq.ColumnChunkMetaData]]:
    # A leaf inside a struct has a dotted path, which a column with a dot could also have.
    plain = {
        field.name
        for field in footer.schema.to_arrow_schema()
        if not pa.types.is_nested(field.type) and "." not in field.name
    }
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            chunk = footer.row_group(group).column(column)
            if chunk.path_in_schema in plain:
                yield chunk.path_in_schema, chunk


def _bounds(stats: pq.Statistics) -> tuple[Any, Any]:
    """Return the smallest and the largest value; None if unknown."""
    if not stats.has_min_max:
        return None, None
    try:
        low, high = stats.min, stats.max
    except OverflowError:  # Python has no years before 1 and after 9999
        return None, None
    return _low(low), _high(high)


def _low(value: object) -> Any:
    match value:
        case str():
            return value[:_TEXT_CHARS]
        case datetime():
            return value - timedelta(microseconds=value.microsecond % 1000)
        case _:
            return _bound(value)


def _high(value: object) -> Any:
    match value:
        case str():
            # A truncated string is too small for an upper bound.
            return value if len(value) <= _TEXT_CHARS else None
        case datetime():
            below = timedelta(microseconds=value.microsecond % 1000)
            try:
                return value - below + _MILLISECOND if below else value
            except OverflowError:  # the last millisecond of the year 9999 has no next one
                return value
        case _:
            return _bound(value)


def _bound(value: object) -> Any:
    match value:
        case bool() | None:
            return None
        case float():
            return value if math.isfinite(value) else None
        case int() | Decimal() | date():
            return value
        case _:
            return None
