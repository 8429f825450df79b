"""Rows as the kit compares them, whatever reader they come from."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk.logical import DECIMAL, TIME, TIMESTAMP
from headrace.sdk.schema import Type
from headrace.sdk.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.schema import Schema

Row = Mapping[str, Any]

_SHOWN = 3
"""How many rows of a kind a message shows."""


def fitted(schema: Schema, value: Any) -> Any:
    """Return a value in the one form that its schema has here.

    Readers differ: a map may be a dictionary or a list of pairs, a struct a dictionary or
    a Struct, bytes a bytearray, an instant in any zone. Values of another type than the
    schema's are left as they are, so that they show as a difference.
    """
    if value is None:
        return None
    if schema.is_logical:
        return _LOGICAL.get(str(schema.name), _same)(value)
    if schema.type is Type.STRUCT:
        return _struct(schema, value)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        part = schema.value_schema
        return [fitted(part, item) for item in value] if _is_list(value) else value
    if schema.type is Type.MAP:
        return _map(schema, value)
    if schema.type is Type.BYTES and isinstance(value, bytearray | memoryview):
        return bytes(value)
    if schema.type is Type.FLOAT32 and isinstance(value, float):
        return _as_float32(value)
    return value


@dataclass(frozen=True)
class Differences:
    """How the rows that were found differ from those that were expected."""

    missing: Sequence[Row] = ()
    repeated: Sequence[Row] = ()
    unexpected: Sequence[Row] = ()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.missing or self.repeated or self.unexpected)

    @override
    def __str__(self) -> str:
        """Return them as a sentence, with a few rows of each kind."""
        kinds = {
            "missing": self.missing,
            "more often than expected": self.repeated,
            "never expected": self.unexpected,
        }
        parts = [
            f"{len(rows)} rows are {kind}, such as {_shown(rows)}"
            for kind, rows in kinds.items()
            if rows
        ]
        return "; ".join(parts) + "." if parts else "No rows differ."


def differences(
    expected: Iterable[Row], found: Iterable[Row], *, repeats: bool = False
) -> Differences:
    """Compare rows as multisets; a field that is null is one that is absent.

    Args:
        expected: The rows that should be there.
        found: The rows that are.
        repeats: Whether a row may be there more often than expected.
    """
    wanted, have = [(_text(row), row) for row in expected], [(_text(row), row) for row in found]
    rows = dict([*have, *wanted])
    want, got = Counter(text for text, _ in wanted), Counter(text for text, _ in have)
    more = got - want
    return Differences(
        missing=[rows[text] for text in (want - got).elements()],
        repeated=[] if repeats else [rows[text] for text in more.elements() if text in want],
        unexpected=[rows[text] for text in more if text not in want],
    )


def same_order(expected: Sequence[Row], found: Sequence[Row]) -> bool:
    """Return whether the rows are the same and in the same order."""
    return [_text(row) for row in expected] == [_text(row) for row in found]


def same_value(expected: Any, found: Any) -> bool:
    """Return whether two fitted values are equal; not-a-number equals itself."""
    return _text(expected) == _text(found)


def _shown(rows: Sequence[Row]) -> str:
    more = ", ..." if len(rows) > _SHOWN else ""
    return ", ".join(str(dict(row)) for row in rows[:_SHOWN]) + more


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


def _same(value: Any) -> Any:
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _struct(schema: Schema, value: Any) -> Any:
    if isinstance(value, Struct):
        value = {m.name: value.get(m.name) for m in schema.fields}
    if not isinstance(value, Mapping):
        return value
    parts = {member.name: member.schema for member in schema.fields}
    return {
        name: fitted(parts[name], item) if name in parts else item
        for name, item in value.items()
    }


def _map(schema: Schema, value: Any) -> Any:
    keys, values = schema.key_schema, schema.value_schema
    if keys is None or values is None or not (isinstance(value, Mapping) or _is_list(value)):
        return value
    pairs = value.items() if isinstance(value, Mapping) else value
    return {fitted(keys, key): fitted(values, item) for key, item in pairs}


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return value


def _instant(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _micros(value: Any) -> Any:
    """Return a time of day as Spark carries it, which has no type that fits Delta."""
    if not isinstance(value, time):
        return value
    midnight = datetime.combine(date.min, time())
    since = datetime.combine(date.min, value) - midnight
    return since.seconds * 1_000_000 + since.microseconds


_LOGICAL = {TIMESTAMP: _instant, TIME: _micros, DECIMAL: _same}
