"""Drivers, which connector authors write; sample rows; and the errors of failed checks."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.sdk.connectjson import to_float32
from headrace.sdk.schema import TIME, TIMESTAMP, Schema, Type, day_micros
from headrace.sdk.struct import Struct

if TYPE_CHECKING:
    from headrace.sdk.position import Position
    from headrace.sdk.sink import SinkConnector
    from headrace.sdk.sources import SourceConnector


@dataclass(frozen=True)
class BadConfig:
    """A configuration that validation must reject.

    Args:
        changes: Keys to set in the valid configuration; None removes a key.
        field: The key that the error must name.
    """

    changes: Mapping[str, str | None]
    field: str


@dataclass(frozen=True)
class DeadLetter:
    """A record that was dead-lettered.

    Args:
        value: The value, deserialized from JSON.
    """

    stage: str
    value: Any


@dataclass(frozen=True)
class Arrived:
    """A record of the source under test, as received by the sink.

    Args:
        value: The value; a dictionary if it has fields.
        topic: The topic or stream of the record.
        batch: The batch, as (task, id).
    """

    value: Any
    key: Any
    topic: str
    batch: tuple[int, int]


class Point(StrEnum):
    """A point in a batch at which a check may run a hook, or end the batch like a kill."""

    BEFORE_WRITE = "before the write"
    BEFORE_COMMIT = "between write and commit"
    AFTER_COMMIT = "between commit and finish"


class Killed(BaseException):
    """Ends a batch like a killed process: no plugin can clean up."""


def killer(at: Point | None) -> Callable[[Point], None]:
    """Return a hook that ends a batch at a point."""

    def hook(point: Point) -> None:
        if point is at:
            raise Killed

    return hook


@dataclass(frozen=True)
class Moved:
    """A finished batch: its bounds, and the number of records read."""

    start: Position
    end: Position
    rows: int


class Driver(ABC):
    """Accesses the external system of a connector, which is empty at first. One per test."""

    @abstractmethod
    def config(self) -> Mapping[str, str]:
        """Return a valid configuration of the connector. Called at each start."""

    def bad_configs(self) -> Sequence[BadConfig]:
        """Return configurations that must be rejected, each with the key the error must name.

        The kit itself removes required keys and sets invalid numbers.
        """
        return ()

    def close(self) -> None:  # noqa: B027 - optional
        """Release all resources. Called at the end of each test."""


class SourceDriver(Driver):
    """Adds rows to the system that a source reads."""

    connector: type[SourceConnector]
    """The connector under test."""
    fixed: ClassVar[str] = ""
    """Why the system accepts no rows while a task is open, if so; shown for skipped tests."""

    @abstractmethod
    def append(self, rows: Sequence[Row]) -> None:
        """Append rows to the external system, after the existing rows, all at once.

        They must be visible to the source when this returns.
        """

    def row(self, number: int) -> Row:
        """Return the row with that number, from 0; each row must be different.

        Override it if the system has other columns.
        """
        return {"id": number, "text": f"row {number}"}

    def seen(self, record: Arrived) -> Row:
        """Return the appended row for a record that the source produced from it.

        Override it if the source adds, renames or converts something.
        """
        row: Row = record.value
        return row


class SinkDriver(Driver):
    """Reads the rows that a sink wrote, without using the sink's own code."""

    connector: type[SinkConnector]
    """The connector under test."""

    @abstractmethod
    def read_back(self) -> list[Row]:
        """Return all rows that a reader of the target would see; none at first.

        Use an independent reader. Maps may be lists of pairs.
        """

    def refused(self, number: int) -> Row:
        """Return a row with that ``id`` that the target rejects; prepare the target for it.

        The valid rows around it have an ``id`` and a ``text``, see
        ``headrace.sdk.testing.sinks.PLAIN``. Called before each such row is written.
        """
        message = "Override refused, or set cannot_refuse."
        raise AssertionError(message)

    def break_target(self) -> None:
        """Make all writes to the target fail from now on, as in an outage."""
        message = "Override break_target and repair_target, or set cannot_break."
        raise AssertionError(message)

    def repair_target(self) -> None:
        """End the outage."""


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

# By column name: the schema, and a usual, a null, an empty and two extreme values.
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
"""The column names of the sample; each represents a kind of value."""


def sample_schema(kinds: Iterable[str] = ALL_KINDS) -> Schema:
    """Return the schema of the sample's rows: ``id`` and a column of each kind."""
    return Schema.struct({"id": Schema.int64(), **{kind: _SAMPLES[kind][0] for kind in kinds}})


def sample_rows(kinds: Iterable[str] = ALL_KINDS, *, first: int = 0) -> list[Row]:
    """Return the sample's five rows: usual, null, empty and extreme values."""
    names = list(kinds)
    count = len(_SAMPLES["boolean"][1])
    return [
        {"id": first + row, **{kind: _SAMPLES[kind][1][row] for kind in names}}
        for row in range(count)
    ]


Row = Mapping[str, Any]

_SHOWN = 3
"""How many rows of a kind a message shows."""


def fitted(schema: Schema, value: Any) -> Any:
    """Return a value in the canonical form for its schema.

    Readers differ: a map may be a dictionary or a list of pairs, a struct a dictionary or a
    Struct, bytes a bytearray, a timestamp in any time zone. Times of day become microseconds,
    as in Spark. Values of a type other than the schema's are returned unchanged, so they show
    up as differences.
    """
    kind = schema.name if schema.is_logical else schema.type
    keys, items = schema.key_schema, schema.value_schema
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if kind is Type.STRUCT and isinstance(value, Mapping | Struct):
        parts = {member.name: member.schema for member in schema.fields}
        values = {name: value[name] for name in value}
        return {n: fitted(parts[n], v) if n in parts else v for n, v in values.items()}
    if items is not None and keys is None and listed:
        return [fitted(items, item) for item in value]
    if items is not None and keys is not None and (listed or isinstance(value, Mapping)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {fitted(keys, key): fitted(items, item) for key, item in pairs}
    if kind == TIMESTAMP and isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    if kind == TIME and isinstance(value, time):
        return day_micros(value)
    if kind is Type.BYTES and isinstance(value, bytearray | memoryview):
        return bytes(value)
    if kind is Type.FLOAT32 and isinstance(value, float):
        return to_float32(value)
    return value


def differences(expected: Iterable[Row], found: Iterable[Row], *, repeats: bool = False) -> str:
    """Compare rows as multisets; return a sentence with a few differences, or an empty string.

    A null field equals a missing field. With ``repeats``, duplicate rows are allowed.
    """
    there = [(_text(row), row) for row in found]
    needed = [(_text(row), row) for row in expected]
    rows = dict([*there, *needed])
    want, got = Counter(text for text, _ in needed), Counter(text for text, _ in there)
    more = got - want
    kinds: dict[str, Iterable[str]] = {
        "missing": (want - got).elements(),
        "more often than expected": (
            text for text in more.elements() if text in want and not repeats
        ),
        "never expected": (text for text in more if text not in want),
    }
    parts = []
    for kind, texts in kinds.items():
        if shown := [str(dict(rows[text])) for text in texts]:
            some = ", ".join([*shown[:_SHOWN], *(["..."] if len(shown) > _SHOWN else [])])
            parts.append(f"{len(shown)} rows are {kind}, such as {some}")
    return "; ".join(parts) + "." if parts else ""


def same_order(expected: Sequence[Row], found: Sequence[Row]) -> bool:
    """Return whether the rows are the same and in the same order."""
    return [_text(row) for row in expected] == [_text(row) for row in found]


def same_value(expected: Any, found: Any) -> bool:
    """Return whether two fitted values are equal; NaN equals itself."""
    return _text(expected) == _text(found)


def _text(value: Any) -> str:
    match value:
        case Mapping():
            pairs = ((repr(key), _text(item)) for key, item in value.items())
            held = sorted(pair for pair in pairs if pair[1] != "None")
            return "{" + ", ".join(f"{key}: {item}" for key, item in held) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_text, value)) + "]"
        case Decimal():
            return f"Decimal({value.normalize() + 0:f})"
        case _:
            return repr(value)


class BrokenPromiseError(AssertionError):
    """A connector violates its contract.

    Args:
        promise: The expected behavior, as a sentence.
        seen: The observed behavior, as a sentence.
        read: The class or method of the SDK whose docstring states the promise.
    """

    def __init__(self, *, promise: str, seen: str, read: object) -> None:
        self.promise = promise
        self.seen = seen
        where = f"{getattr(read, '__module__', '')}.{getattr(read, '__qualname__', read)}"
        text = inspect.getdoc(read) or ""
        super().__init__(f"{promise}\nSeen: {seen}\nRead: {where}\n\n{_indented(text)}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
