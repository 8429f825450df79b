"""Converts MySQL's binary JSON to the text that the server would write.

https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal

from headrace_plugins.databases.database import DatabaseError

_LITERALS = ("null", "true", "false")
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE, _LITERAL = 11, 12, 15, 4
_INLINED_SMALL, _INLINED_LARGE = {4, 5, 6}, {4, 5, 6, 7, 8}
_DECIMAL, _DATE, _TIME, _TIMES = 246, 10, 11, {7, 12}
_DIGITS_OF_A_GROUP = 9
_LEAST_POINT, _MOST_POINT = -14, 15
"""The range of the decimal point in doubles that are written without an exponent."""


def json_text(data: bytes) -> str:
    """Return a value's text; empty data, which INSERT IGNORE may leave, is null."""
    return _value(data[0], data, 1, [len(data)]) if data else "null"


def _value(kind: int, data: bytes, place: int, left: list[int]) -> str:
    _take(1, left)
    if kind <= 3:  # noqa: PLR2004 - objects and arrays, small and large
        return _container(kind, data, place, left)
    if kind == _LITERAL:
        return _LITERALS[data[place]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, place)[0])
    if kind == _DOUBLE:
        return _double(struct.unpack_from("<d", data, place)[0])
    if kind == _STRING:
        size, place = _length(data, place)
        _take(size, left)
        return _quoted(data[place : place + size].decode())
    if kind == _OPAQUE:
        size, start = _length(data, place + 1)
        _take(size, left)
        return _opaque(data[place], data[start : start + size])
    raise DatabaseError(problem=f"The binary log contains JSON of unknown type {kind}.")


def _take(size: int, left: list[int]) -> None:
    """Count bytes: more than the data's size means that a value contains itself."""
    left[0] -= size
    if left[0] < 0:
        raise DatabaseError(
            problem="The binary log contains a JSON value that contains itself."
        )


def _container(kind: int, data: bytes, place: int, left: list[int]) -> str:
    is_object, width = kind < 2, 4 if kind % 2 else 2  # noqa: PLR2004
    inlined = _INLINED_LARGE if kind % 2 else _INLINED_SMALL

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    count, entry = number(place, width), place + 2 * width
    keys = []
    if is_object:
        for _ in range(count):
            start, size = place + number(entry, width), number(entry + width, 2)
            _take(size, left)
            keys.append(_quoted(data[start : start + size].decode()))
            entry += width + 2
    values = []
    for _ in range(count):
        own = data[entry]
        at = entry + 1 if own in inlined else place + number(entry + 1, width)
        values.append(_value(own, data, at, left))
        entry += 1 + width
    if is_object:
        return "{" + ", ".join(map(": ".join, zip(keys, values, strict=True))) + "}"
    return "[" + ", ".join(values) + "]"


def _length(data: bytes, place: int) -> tuple[int, int]:
    """Return a length encoded in groups of seven bits, and the place after it."""
    size = shift = 0
    while True:
        byte = data[place]
        size |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return size, place


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _double(value: float) -> str:
    """Return a double as the server writes it: with the fewest digits and a decimal point."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if not isinstance(exponent, int):  # infinity, which JSON cannot represent
        return "null"
    text, point = "".join(map(str, digits)), len(digits) + exponent
    if not value:
        text, point = "0", 1
    minus = "-" if sign else ""
    if point >= _LEAST_POINT and (point <= _MOST_POINT or len(text) > point):
        whole, rest = text[: max(point, 0)].ljust(point, "0"), text[max(point, 0) :]
        return f"{minus}{whole or '0'}.{'0' * -point + rest or '0'}"
    rest = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{rest}e{point - 1}"


def _opaque(kind: int, data: bytes) -> str:
    """Return a value of a SQL type inside JSON."""
    if kind == _DECIMAL:
        return _decimal(data)
    if kind in {_DATE, _TIME, *_TIMES}:
        return _quoted(_moment(kind, int.from_bytes(data, "little", signed=True)))
    return _quoted(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _decimal(data: bytes) -> str:
    precision, scale = data[0], data[1]
    body = bytearray(data[2:])
    minus = not body[0] & 0x80
    body[0] ^= 0x80
    if minus:
        body = bytearray(byte ^ 0xFF for byte in body)
    nines, rest = divmod(precision - scale, _DIGITS_OF_A_GROUP)
    behind, last = divmod(scale, _DIGITS_OF_A_GROUP)
    digits, place = "", 0
    for count in (rest, *[_DIGITS_OF_A_GROUP] * (nines + behind), last):
        size = (count + 1) // 2 if count < _DIGITS_OF_A_GROUP else 4
        if count:
            digits += str(int.from_bytes(body[place : place + size])).zfill(count)
        place += size
    before = digits[: precision - scale].lstrip("0") or "0"
    return (
        ("-" if minus else "") + before + (f".{digits[precision - scale :]}" if scale else "")
    )


def _moment(kind: int, packed: int) -> str:
    sign, packed = "-" if packed < 0 else "", abs(packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    clock = f"{whole >> 6 & 63:02}:{whole & 63:02}.{micros:06}"
    if kind == _TIME:
        return f"{sign}{whole >> 12 & 0x3FF:02}:{clock}"
    days = whole >> 17
    day = f"{days // 416:04}-{(days >> 5) % 13:02}-{days & 31:02}"
    return day if kind == _DATE else f"{day} {whole >> 12 & 31:02}:{clock}"
