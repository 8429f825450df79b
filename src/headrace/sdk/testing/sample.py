"""A row of every type: what a sink is asked to write."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.sdk.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.testing.rows import Row

_ADDRESS = Schema.struct(
    {"street": Schema.string(optional=True), "number": Schema.int32(optional=True)},
    optional=True,
)
_DEEP = Schema.array(
    Schema.struct(
        {
            "name": Schema.string(),
            "scores": Schema.map(Schema.string(), Schema.array(Schema.int64())),
        }
    ),
    optional=True,
)

# By name of column: its schema, and a usual, a null, an empty and two extreme values.
_SAMPLES: dict[str, tuple[Schema, tuple[Any, ...]]] = {
    "boolean": (Schema.boolean(optional=True), (True, None, False, True, False)),
    "int8": (Schema.int8(optional=True), (1, None, 0, -(2**7), 2**7 - 1)),
    "int16": (Schema.int16(optional=True), (1, None, 0, -(2**15), 2**15 - 1)),
    "int32": (Schema.int32(optional=True), (1, None, 0, -(2**31), 2**31 - 1)),
    "int64": (Schema.int64(optional=True), (1, None, 0, -(2**63), 2**63 - 1)),
    "float32": (
        Schema.float32(optional=True),
        (1.5, None, 0.0, -3.4028234663852886e38, 1.1754943508222875e-38),
    ),
    "float64": (
        Schema.float64(optional=True),
        (0.1, None, 0.0, -1.7976931348623157e308, 2.2250738585072014e-308),
    ),
    "not_a_number": (
        Schema.float64(optional=True),
        (float("nan"), None, 0.0, float("inf"), float("-inf")),
    ),
    "string": (
        Schema.string(optional=True),
        ("text", None, "", 'it\'s "a\\b",\n\tc; d', "Ünïcödé 中文 🚀 e\u0301 \u05d0"),
    ),
    "bytes": (Schema.bytes(optional=True), (b"ab", None, b"", bytes(range(256)), b"\x00")),
    "decimal": (
        Schema.decimal(2, precision=12, optional=True),
        (Decimal("1.10"), None, Decimal("0.00"), Decimal("-9999999999.99"), Decimal("0.01")),
    ),
    "big_decimal": (
        Schema.decimal(10, precision=38, optional=True),
        (
            Decimal("1.1000000000"),
            None,
            Decimal("0E-10"),
            Decimal("-9999999999999999999999999999.9999999999"),
            Decimal("9999999999999999999999999999.9999999999"),
        ),
    ),
    "date": (
        Schema.date(optional=True),
        (date(2024, 2, 29), None, date(1970, 1, 1), date(1900, 1, 1), date(9999, 12, 31)),
    ),
    "timestamp": (
        Schema.timestamp(optional=True),
        (
            datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC),
            None,
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1901, 12, 13, 20, 45, 51, 1, tzinfo=UTC),
            datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ),
    ),
    "time": (
        Schema.time(optional=True),
        (time(12, 34, 56, 789012), None, time(), time(23, 59, 59, 999999), time(0, 0, 0, 1)),
    ),
    "array": (
        Schema.array(Schema.string(optional=True), optional=True),
        (["a", None, ""], None, [], ["b"], ["c", "d"]),
    ),
    "map": (
        Schema.map(Schema.string(), Schema.int64(optional=True), optional=True),
        ({"a": 1, "b": None}, None, {}, {"": 0}, {"ü": -1}),
    ),
    "struct": (
        _ADDRESS,
        (
            {"street": "High St", "number": 1},
            None,
            {"street": "", "number": 0},
            {"street": None, "number": 2},
            {"street": "x", "number": None},
        ),
    ),
    "nested": (
        _DEEP,
        (
            [{"name": "a", "scores": {"x": [1, 2]}}, {"name": "b", "scores": {}}],
            None,
            [],
            [{"name": "", "scores": {"": []}}],
            [{"name": "ü", "scores": {"y": [-1]}}],
        ),
    ),
}

ALL_KINDS: tuple[str, ...] = tuple(_SAMPLES)
"""The names of the sample's columns; each stands for a kind of value."""


def sample_schema(kinds: Iterable[str] = ALL_KINDS) -> Schema:
    """Return the schema of the sample's rows: ``id`` and a column of each kind."""
    return Schema.struct({"id": Schema.int64(), **{kind: _SAMPLES[kind][0] for kind in kinds}})


def sample_rows(kinds: Iterable[str] = ALL_KINDS, *, first: int = 0) -> list[Row]:
    """Return the sample's five rows: usual, null, empty and extreme values.

    Args:
        kinds: The columns beside ``id``.
        first: The first row's ``id``.
    """
    names = list(kinds)
    count = len(_SAMPLES["boolean"][1])
    return [
        {"id": first + row, **{kind: _SAMPLES[kind][1][row] for kind in names}}
        for row in range(count)
    ]
