"""MySQL's binary JSON becomes the text that the server writes."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_plugins.connectors.mysql.binlog_rows import json_text
from headrace_plugins.databases.database import DatabaseError


def encoded(value: Any, *, large: bool) -> tuple[int, bytes]:
    """Return the type of a value and its bytes, as MySQL keeps it."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        return 9, struct.pack("<q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        text = value.encode()
        return 12, length_of(len(text)) + text
    return container(value, large=large)


def length_of(size: int) -> bytes:
    parts = []
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*parts, size])


def container(value: Any, *, large: bool) -> tuple[int, bytes]:
    width = 4 if large else 2

    def number(given: int) -> bytes:
        return given.to_bytes(width, "little")

    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    values = list(value.values()) if isinstance(value, dict) else value
    at = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    heads, tail = b"", b""
    for key in keys:
        heads += number(at + len(tail)) + len(key).to_bytes(2, "little")
        tail += key
    for each in values:
        kind, body = encoded(each, large=large)
        if kind == 4:
            heads += bytes([kind]) + body.ljust(width, b"\0")
        else:
            heads += bytes([kind]) + number(at + len(tail))
            tail += body
    size = at + len(tail)
    kind = (0 if isinstance(value, dict) else 2) + large
    return kind, number(len(values)) + number(size) + heads + tail


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values, st.booleans())
def test_values_are_what_was_kept(value: Any, large: bool) -> None:
    kind, body = encoded(value, large=large)
    text = json_text(bytes([kind]) + body)
    assert json.loads(text) == value
    assert text == json.dumps(value, ensure_ascii=False)  # with blanks where MySQL has them


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-2.5, "-2.5"), (0.1, "0.1")],
        *[(1.5e-5, "0.000015"), (1e-14, "0.00000000000001"), (5e-324, "5e-324")],
        *[(1e14, "100000000000000.0"), (1e15, "1e15"), (1e16, "1e16"), (1.5e300, "1.5e300")],
        *[(999999999999999.9, "999999999999999.9"), (1234567890123456.8, "1234567890123456.8")],
        *[(-1e-200, "-1e-200"), (float("inf"), "null")],
    ],
)
def test_doubles_have_an_exponent_where_mysql_writes_one(value: float, text: str) -> None:
    assert json_text(b"\x0b" + struct.pack("<d", value)) == text


def opaque(kind: int, body: bytes) -> str:
    return json_text(bytes([15, kind]) + length_of(len(body)) + body)


def packed(days: tuple[int, int, int], clock: tuple[int, int, int], micros: int) -> bytes:
    year, month, day = days
    hour, minute, second = clock
    value = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second
    return (value << 24 | micros).to_bytes(8, "little")


def test_types_of_sql_are_texts_or_numbers() -> None:
    assert opaque(10, packed((2024, 2, 29), (0, 0, 0), 0)) == '"2024-02-29"'
    stamp = packed((2024, 2, 29), (1, 2, 3), 456)
    assert opaque(12, stamp) == '"2024-02-29 01:02:03.000456"'
    assert opaque(7, stamp) == '"2024-02-29 01:02:03.000456"'
    assert opaque(11, packed((0, 0, 0), (23, 59, 59), 1)) == '"23:59:59.000001"'
    minus = -int.from_bytes(packed((0, 0, 0), (1, 0, 0), 0), "little")
    assert opaque(11, minus.to_bytes(8, "little", signed=True)) == '"-01:00:00.000000"'
    assert opaque(246, b"\x04\x02\x8a\x05") == "10.05"
    assert opaque(246, b"\x04\x02\x75\xfa") == "-10.05"
    assert opaque(252, b"\xde\xad") == '"base64:type252:3q0="'


def test_an_empty_value_is_null() -> None:
    assert json_text(b"") == "null"


@pytest.mark.parametrize("entries", [1, 2])
def test_a_container_that_leads_to_itself_is_refused(entries: int) -> None:
    head = struct.pack("<HH", entries, 60)
    with pytest.raises(DatabaseError, match="itself"):
        json_text(b"\2" + head + b"\2\0\0" * entries + bytes(50))
