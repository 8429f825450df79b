"""Decodes the rows of a binary log's events to Arrow columns, without a loop over rows.

All rows of a table store their values in the same order without gaps, so the start of a row is
known only after the previous row was traversed. The rows of many events are traversed together:
the first row of each event, then the second row of each. Then each column is extracted from all
rows at once. Only JSON is converted value by value, to the text that the server would write.
https://dev.mysql.com/doc/dev/mysql-server/latest/classbinary__log_1_1Rows__event.html
https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace_plugins.databases.database import DatabaseError

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.int64]
    Unsigned: TypeAlias = npt.NDArray[np.uint64]
    Flags: TypeAlias = npt.NDArray[np.bool_]


_PADDING = bytes(8)
_DIGITS_OF_FOUR_BYTES = 9
_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_LONG_DIGITS = 18
"""The number of decimal digits that always fit into 64 bits."""


class Block:
    """The concatenated rows of events, with vectorized access to the numbers in them."""

    def __init__(self, rows: bytes) -> None:
        self.bytes = rows + _PADDING
        self.data = np.frombuffer(self.bytes, np.uint8)
        self.buffer = pa.py_buffer(self.bytes)
        self._views = {
            kind: np.ndarray(
                (len(self.bytes) - np.dtype(kind).itemsize + 1,), kind, self.bytes, strides=(1,)
            )
            for kind in ("<u2", "<u4", "<u8", ">u8")
        }

    def at(self, kind: str, start: Numbers) -> npt.NDArray[Any]:
        """Return numbers of a NumPy type at places of any alignment."""
        size = np.dtype(kind).itemsize
        if size == 1:
            return self.data[start].view(kind)
        return self._views[f"<u{size}"][start].view(kind)

    def little(self, start: Numbers, width: int) -> Unsigned:
        """Return little-endian numbers of up to 8 bytes."""
        if width == 1:
            return self.data[start].astype(np.uint64)
        found = self._views["<u8"][start]
        return found if width == 8 else found & np.uint64((1 << 8 * width) - 1)  # noqa: PLR2004

    def big(self, start: Numbers, width: int) -> Unsigned:
        """Return big-endian numbers of up to 8 bytes."""
        found = self._views[">u8"][start].astype(np.uint64)
        return found >> np.uint64(64 - 8 * width)

    def fixed(self, start: Numbers, width: int) -> npt.NDArray[np.uint8]:
        """Return a matrix with ``width`` bytes for each place."""
        place = np.minimum(start[:, None] + np.arange(width), len(self.data) - 1)
        found: npt.NDArray[np.uint8] = self.data[place]
        return found


Decode: TypeAlias = Callable[[Block, "Numbers", "Numbers", "Flags | None"], pa.Array]
"""Decodes values, given their starts, their sizes, and a mask of nulls."""


@dataclass(frozen=True, slots=True)
class Field:
    """How a column is encoded in a row.

    Args:
        width: The number of bytes of the value, or of its length prefix if ``counted``.
        counted: Whether the value has a length prefix.
        decode: Decodes the values.
    """

    width: int
    counted: bool
    decode: Decode


def row_starts(
    block: Block, begins: Numbers, ends: Numbers, fields: Sequence[Field]
) -> tuple[Numbers, Numbers]:
    """Return the starts of the rows, in the order of the block, and the row count per event.

    Raises DatabaseError if the rows of an event do not end at the end of the event.
    """
    null_bytes = (len(fields) + 7) // 8
    parts = _parts(fields)
    if not fields and (begins < ends).any():
        raise DatabaseError(problem="The binary log contains rows of a table without columns.")
    place, left = begins, np.arange(len(begins))
    places, events = list[Any](), list[Any]()
    keep = place < ends
    while keep.any():
        if not keep.all():
            place, left = place[keep], left[keep]
        places.append(place)
        events.append(left)
        nulls = _null_bits(block, place, null_bytes)
        place = place + null_bytes
        present = ~nulls[:, : len(fields)] if nulls.any() else None
        for first, widths, counted in parts:
            end = first + len(widths)
            if present is None:
                place = place + int(widths.sum())
            elif end > first:
                place = place + present[:, first:end] @ widths
            if counted:
                inside = np.minimum(place, len(block.data) - 8)
                size = block.little(inside, counted).astype(np.int64) + counted
                place = place + (size if present is None else size * present[:, end])
        if (place > ends[left]).any():
            raise DatabaseError(
                problem="An event of the binary log contains rows that do not match the "
                "columns of its table."
            )
        keep = place < ends[left]
    if not places:
        return np.zeros(0, np.int64), np.zeros(len(begins), np.int64)
    event = np.concatenate(events)
    counts = np.bincount(event, minlength=len(begins))
    row = np.repeat(np.arange(len(places)), [len(each) for each in places])
    starts = np.empty(len(event), np.int64)
    starts[(np.cumsum(counts) - counts)[event] + row] = np.concatenate(places)
    return starts, counts


def _parts(fields: Sequence[Field]) -> list[tuple[int, Numbers, int]]:
    """Return groups of fixed-width columns, each with the counted column that follows it."""
    parts, first, widths = list[Any](), 0, list[int]()
    for number, field in enumerate(fields):
        if field.counted:
            parts.append((first, np.array(widths, np.int64), field.width))
            first, widths = number + 1, []
        else:
            widths.append(field.width)
    return [*parts, (first, np.array(widths, np.int64), 0)]


def _null_bits(block: Block, place: Numbers, count: int) -> Flags:
    packed = block.fixed(place, count)
    found: Flags = np.unpackbits(packed, axis=1, bitorder="little").view(np.bool_)
    return found


def decoded(
    block: Block, starts: Numbers, fields: Sequence[Field], names: Sequence[str]
) -> pa.StructArray:
    """Return the rows at ``starts``, with the columns that have names."""
    null_bytes = (len(fields) + 7) // 8
    nulls = _null_bits(block, starts, null_bytes)
    has_null: Flags = np.any(nulls, axis=0)
    place, arrays = starts + null_bytes, list[pa.Array]()
    for index, field in enumerate(fields[: len(names)]):
        mask = nulls[:, index] if has_null[index] else None
        size: Any = field.width
        if field.counted:
            size = block.little(place, field.width).astype(np.int64)
            place = place + (field.width if mask is None else field.width * ~mask)
        if mask is not None:
            size = np.where(mask, 0, size)
        sizes = np.broadcast_to(np.asarray(size, np.int64), place.shape)
        arrays.append(field.decode(block, place, sizes, mask))
        place = place + sizes
    return pa.StructArray.from_arrays(arrays, names)


# --- fields by type -----------------------------------------------------------------


def whole(width: int, *, signed: bool, kind: str) -> Field:
    """Return the field of an integer; ``kind`` is the NumPy type of the values."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        sign = "i" if signed else "u"
        if width == 3:  # noqa: PLR2004 - numpy has no such integers
            values = block.at("<u4", start)
            values = (values << 8).view("<i4") >> 8 if signed else values & 0xFFFFFF
        else:
            values = block.at(f"<{sign}{width}", start)
        return pa.array(values.astype(kind), mask=mask)

    return Field(width, counted=False, decode=decode)


def unsigned_bigint() -> Field:
    """Return the field of BIGINT UNSIGNED."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        low = block.little(start, 8)
        return _decimals(low, np.zeros_like(low), pa.decimal128(20, 0), mask)

    return Field(8, counted=False, decode=decode)


def floating(width: int) -> Field:
    """Return the field of a FLOAT or DOUBLE."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        return pa.array(block.at(f"<f{width}", start), mask=mask)

    return Field(width, counted=False, decode=decode)


def year() -> Field:
    """Return the field of a YEAR."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        values = block.data[start].astype(np.int16)
        return pa.array(np.where(values, values + np.int16(1900), values), mask=mask)

    return Field(1, counted=False, decode=decode)


def bits(count: int) -> Field:
    """Return the field of a BIT."""
    width = (count + 7) // 8

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        if count == 1:
            return pa.array(block.data[start] & 1 != 0, mask=mask)
        return _from_fixed(block.fixed(start, width), mask)

    return Field(width, counted=False, decode=decode)


def number(precision: int, scale: int, kind: pa.DataType) -> Field:
    """Return the field of a DECIMAL, as decimals or, with too many digits, as strings."""
    pieces = _pieces(precision - scale, scale)
    width = sum(bytes_ for bytes_, _ in pieces)

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        negative = block.data[start] & 0x80 == 0
        groups = _groups(block, start, pieces, negative)
        if pa.types.is_string(kind):
            texts = _digits(groups, pieces, precision - scale, scale, negative)
            return pa.array(texts, pa.string(), mask=mask)
        if precision <= _LONG_DIGITS:
            value = np.zeros(len(start), np.int64)
            for group, piece in zip(groups, pieces, strict=True):
                value = value * 10 ** piece[1] + group.view(np.int64)
            value = np.where(negative, -value, value)
            return _decimals(value.view(np.uint64), (value >> 63).view(np.uint64), kind, mask)
        return _decimals(*_long(groups, pieces, negative), kind, mask)

    return Field(width, counted=False, decode=decode)


def _pieces(whole_digits: int, scale: int) -> list[tuple[int, int]]:
    """Return the number of bytes and digits of each group of a DECIMAL."""
    nines, rest = divmod(whole_digits, _DIGITS_OF_FOUR_BYTES)
    behind, last = divmod(scale, _DIGITS_OF_FOUR_BYTES)
    digits = [rest, *[9] * (nines + behind), last]
    return [(_BYTES_OF_DIGITS[count], count) for count in digits if count]


def _groups(
    block: Block, start: Numbers, pieces: Sequence[tuple[int, int]], negative: Flags
) -> list[Unsigned]:
    groups, place = [], start
    for index, (width, _) in enumerate(pieces):
        mask = np.uint64((1 << 8 * width) - 1)
        found = block.big(np.minimum(place, len(block.data) - 8), width)
        if index == 0:
            found = found ^ np.uint64(0x80 << 8 * (width - 1))
        groups.append(np.where(negative, ~found & mask, found))
        place = place + width
    return groups


def _long(
    groups: Sequence[Unsigned], pieces: Sequence[tuple[int, int]], negative: Flags
) -> tuple[Unsigned, Unsigned]:
    """Return 128-bit numbers as low and high halves, computed with four 32-bit limbs."""
    quarter = np.uint64(0xFFFFFFFF)
    limbs = [np.zeros(len(negative), np.uint64) for _ in range(4)]
    for group, (_, digits) in zip(groups, pieces, strict=True):
        carry = group
        for index, limb in enumerate(limbs):
            product = limb * np.uint64(10**digits) + carry
            limbs[index], carry = product & quarter, product >> np.uint64(32)
    low = limbs[0] | limbs[1] << np.uint64(32)
    high = limbs[2] | limbs[3] << np.uint64(32)
    minus = ~low + np.uint64(1)
    minus_high = ~high + (minus == 0)
    return np.where(negative, minus, low), np.where(negative, minus_high, high)


def _digits(
    groups: Sequence[Unsigned],
    pieces: Sequence[tuple[int, int]],
    whole_digits: int,
    scale: int,
    negative: Flags,
) -> list[str]:
    texts = []
    for row, minus in enumerate(negative.tolist()):
        found = "".join(
            str(group[row]).zfill(digits)
            for group, (_, digits) in zip(groups, pieces, strict=True)
        )
        before = found[:whole_digits].lstrip("0") or "0"
        behind = f".{found[whole_digits:]}" if scale else ""
        texts.append(f"{'-' if minus else ''}{before}{behind}")
    return texts


def _decimals(low: Unsigned, high: Unsigned, kind: pa.DataType, mask: Flags | None) -> pa.Array:
    halves = np.empty((len(low), 2), np.uint64)
    halves[:, 0], halves[:, 1] = low, high
    return pa.Array.from_buffers(kind, len(low), [_validity(mask), pa.py_buffer(halves)])


def _validity(mask: Flags | None) -> pa.Buffer | None:
    return None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))


def _from_fixed(values: npt.NDArray[np.uint8], mask: Flags | None) -> pa.Array:
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [
        _validity(mask),
        pa.py_buffer(offsets),
        pa.py_buffer(np.ascontiguousarray(values)),
    ]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def binary(block: Block, start: Numbers, size: Numbers, mask: Flags | None) -> pa.Array:
    """Return bytes as they are in the block."""
    # Describes the block as one array, in which every second element is a row's value, and the
    # others are the data between them. So only Arrow's take copies the values.
    offsets = np.empty(2 * len(start) + 1, np.int32)
    offsets[:-1:2], offsets[1::2] = start, start + size
    offsets[-1] = len(block.data)
    buffers = [None, pa.py_buffer(offsets), block.buffer]
    everything = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return everything.take(pa.array(np.arange(len(start)) * 2, mask=mask))


def counted(width: int, change: Callable[[pa.Array], pa.Array] | None = None) -> Field:
    """Return the field of length-prefixed bytes; ``change`` converts the values."""

    def decode(block: Block, start: Numbers, size: Numbers, mask: Flags | None) -> pa.Array:
        found = binary(block, start, size, mask)
        return found if change is None else change(found)

    return Field(width, counted=True, decode=decode)


def padded(
    prefix: int, width: int, change: Callable[[pa.Array], pa.Array] | None = None
) -> Field:
    """Return the field of BINARY, whose trailing zeros are not in the log."""

    def decode(block: Block, start: Numbers, size: Numbers, mask: Flags | None) -> pa.Array:
        values = block.fixed(start, width)
        values[np.arange(width) >= size[:, None]] = 0
        found = _from_fixed(values, mask)
        return found if change is None else change(found)

    return Field(prefix, counted=True, decode=decode)


def chosen(width: int, values: Sequence[str]) -> Field:
    """Return the field of an ENUM; an invalid value is the empty string."""
    texts = pa.array(["", *values], pa.string())

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        index = block.little(start, width).astype(np.int64)
        return texts.take(pa.array(index, mask=mask))

    return Field(width, counted=False, decode=decode)


def several(width: int, values: Sequence[str]) -> Field:
    """Return the field of a SET."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        found, index = np.unique(block.little(start, width), return_inverse=True)
        texts = [
            ",".join(value for bit, value in enumerate(values) if each >> bit & 1)
            for each in found.tolist()
        ]
        return pa.array(texts, pa.string()).take(pa.array(index, mask=mask))

    return Field(width, counted=False, decode=decode)


# --- dates and times, as numbers that binlog_runs converts ---------------------------


def day() -> Field:
    """Return the field of a DATE: the number as in the log."""
    return whole(3, signed=False, kind="<i4")


def moment(width: int, digits: int) -> Field:
    """Return the field of a TIMESTAMP: microseconds since 1970, 0 for the zero date."""
    fraction = (digits + 1) // 2

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        if width:  # the format of servers before MySQL 5.6
            seconds = block.little(start, width)
            micros = np.zeros_like(seconds)
        else:
            seconds = block.big(start, 4)
            micros = _micros(block, start + 4, fraction)
        return pa.array((seconds * np.uint64(10**6) + micros).astype(np.int64), mask=mask)

    return Field(width or 4 + fraction, counted=False, decode=decode)


def _micros(block: Block, start: Numbers, fraction: int) -> Unsigned:
    if not fraction:
        return np.zeros(len(start), np.uint64)
    inside = np.minimum(start, len(block.data) - 8)
    return block.big(inside, fraction) * np.uint64(100 ** (3 - fraction))


def date_time(digits: int) -> Field:
    """Return the field of a DATETIME: date and time in bits, and 24 bits of microseconds."""
    fraction = (digits + 1) // 2

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        packed = block.big(start, 5) - np.uint64(1 << 39)
        micros = _micros(block, start + 5, fraction)
        return pa.array((packed << np.uint64(24) | micros).view(np.int64), mask=mask)

    return Field(5 + fraction, counted=False, decode=decode)


def old_date_time() -> Field:
    """Return the field of a DATETIME before MySQL 5.6, converted to the newer form."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        days, clock = np.divmod(block.at("<i8", start), 10**6)
        years, months, day_ = days // 10**4, days // 100 % 100, days % 100
        hours, minutes, seconds = clock // 10**4, clock // 100 % 100, clock % 100
        packed = (years * 13 + months) << 5 | day_
        packed = (packed << 17) | hours << 12 | minutes << 6 | seconds
        return pa.array(packed << 24, mask=mask)

    return Field(8, counted=False, decode=decode)


def time_of_day(digits: int) -> Field:
    """Return the field of a TIME: microseconds, which may be negative."""
    fraction = (digits + 1) // 2

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        found = block.big(start, 3 + fraction).astype(np.int64)
        signed = found - (0x800000 << 8 * fraction)
        packed = np.abs(signed)
        clock = packed >> 8 * fraction
        micros = (packed & ((1 << 8 * fraction) - 1)) * 100 ** (3 - fraction)
        seconds = (clock >> 12 & 0x3FF) * 3600 + (clock >> 6 & 0x3F) * 60 + (clock & 0x3F)
        values = seconds * 10**6 + (micros if fraction else 0)
        return pa.array(np.where(signed < 0, -values, values), mask=mask)

    return Field(3 + fraction, counted=False, decode=decode)


def old_time_of_day() -> Field:
    """Return the field of a TIME before MySQL 5.6."""

    def decode(block: Block, start: Numbers, _: Numbers, mask: Flags | None) -> pa.Array:
        found = ((block.at("<u4", start) << 8).view("<i4") >> 8).astype(np.int64)
        clock = np.abs(found)
        seconds = clock // 10**4 * 3600 + clock // 100 % 100 * 60 + clock % 100
        return pa.array(np.sign(found) * seconds * 10**6, mask=mask)

    return Field(3, counted=False, decode=decode)


# --- JSON ---------------------------------------------------------------------------

_LITERALS = ("null", "true", "false")
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE, _LITERAL = 11, 12, 15, 4
_INLINED_SMALL, _INLINED_LARGE = {4, 5, 6}, {4, 5, 6, 7, 8}
_DECIMAL, _DATE, _TIME, _TIMES = 246, 10, 11, {7, 12}
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
    precision, scale, body = data[0], data[1], bytearray(data[2:])
    minus = not body[0] & 0x80
    body[0] ^= 0x80
    if minus:
        body = bytearray(byte ^ 0xFF for byte in body)
    digits, place = "", 0
    for size, count in _pieces(precision - scale, scale):
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
