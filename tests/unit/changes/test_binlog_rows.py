"""Rows of events are taken apart as they were put together, however many and however long."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_plugins.connectors.mysql.binlog_rows import (
    Block,
    Field,
    counted,
    decoded,
    floating,
    row_starts,
    whole,
)
from headrace_plugins.databases.database import DatabaseError

KINDS: dict[str, tuple[Field, Any]] = {
    "int": (whole(4, signed=True, kind="<i4"), st.integers(-(2**31), 2**31 - 1)),
    "mediumint": (whole(3, signed=True, kind="<i4"), st.integers(-(2**23), 2**23 - 1)),
    "tinyint unsigned": (whole(1, signed=False, kind="<i2"), st.integers(0, 255)),
    "double": (floating(8), st.floats(allow_nan=False)),
    "varbinary(9)": (counted(1), st.binary(max_size=9)),
    "varbinary(300)": (counted(2), st.binary(max_size=300)),
    "longblob": (counted(4), st.binary(max_size=20)),
}


def written(kind: str, value: Any) -> bytes:
    field, _ = KINDS[kind]
    if field.counted:
        return len(value).to_bytes(field.width, "little") + bytes(value)
    if kind == "double":
        return struct.pack("<d", value)
    return int(value).to_bytes(field.width, "little", signed=kind != "tinyint unsigned")


def row_of(kinds: Sequence[str], values: Sequence[Any]) -> bytes:
    nulls = sum(1 << place for place, value in enumerate(values) if value is None)
    parts = [
        b"" if value is None else written(kind, value)
        for kind, value in zip(kinds, values, strict=True)
    ]
    return nulls.to_bytes((len(kinds) + 7) // 8, "little") + b"".join(parts)


def read_back(kinds: Sequence[str], events: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    ends = np.cumsum([0, *map(len, events)])
    block, fields = Block(b"".join(events)), [KINDS[kind][0] for kind in kinds]
    starts, counts = row_starts(block, ends[:-1], ends[1:], fields)
    names = [str(number) for number in range(len(kinds))]
    rows = decoded(block, starts, fields, names).to_pylist()
    return [list(row.values()) for row in rows], counts.tolist()


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[list[Any]]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12))
    row = st.tuples(*(st.none() | KINDS[kind][1] for kind in kinds)).map(list)
    return kinds, draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=5))


@given(tables())
def test_rows_of_any_table_are_what_was_written(
    table: tuple[list[str], list[list[list[Any]]]],
) -> None:
    kinds, events = table
    bodies = [b"".join(row_of(kinds, row) for row in rows) for rows in events]
    rows, counts = read_back(kinds, bodies)
    assert counts == list(map(len, events))
    assert rows == [row for rows in events for row in rows]


@pytest.mark.parametrize("cut", [1, 3])
def test_rows_that_do_not_end_with_their_event_are_refused(cut: int) -> None:
    body = row_of(["int", "varbinary(9)"], [1, b"abc"])
    with pytest.raises(DatabaseError, match="do not match the columns"):
        read_back(["int", "varbinary(9)"], [body * 2, body[:-cut]])


def test_rows_without_columns_are_refused() -> None:
    with pytest.raises(DatabaseError, match="without columns"):
        read_back([], [b"x"])
