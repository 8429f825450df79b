"""What follows the head of a value: the indexes of its message in a file, and the message.

docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop. Spark's own
from_protobuf is not used: it is in a jar that is not locked, gives nulls in all columns for
bytes that it cannot read, without a cause, and keeps several entries of a map with one key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from headrace.sdk import ConfigError, RecordError
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.converter import Decoded, Group
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.confluent.protobuf_columns import record_column
from headrace_plugins.confluent.protobuf_filling import natives, record_filler
from headrace_plugins.confluent.protobuf_schemas import connect_of
from headrace_plugins.confluent.protobuf_types import ProtoFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sdk import Schema
    from headrace_plugins.confluent.protobuf_columns import Column
    from headrace_plugins.confluent.protobuf_filling import Filler
    from headrace_plugins.confluent.protobuf_options import ProtoOptions

RESULT = "struct<bytes: binary, problem: string>"
"""What a writer gives, as Spark has it."""

_RESULT = pa.struct([("bytes", pa.binary()), ("problem", pa.string())])
_FIRST = b"\x00"
"""The first message of a file, in short."""
_MORE, _BITS, _LONGEST = 0x80, 7, 5


def index_bytes(path: Sequence[int]) -> bytes:
    """Return what goes before a message that is at these indexes of its file."""
    if list(path) == [0]:
        return _FIRST
    return b"".join(_varint(each << 1) for each in (len(path), *path))


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= _MORE:
        made.append(number & (_MORE - 1) | _MORE)
        number >>= _BITS
    return bytes([*made, number])


def split_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes at the start of a payload, and how many bytes they take.

    Raises:
        ValueError: There are none.
    """
    size, at = _number(payload, 0)
    if size == 0:
        return (0,), at
    path = []
    for _ in range(size):
        index, at = _number(payload, at)
        path.append(index)
    return tuple(path), at


def _number(payload: bytes, at: int) -> tuple[int, int]:
    """Return a whole number in zig-zag varint form, and where it ends."""
    number = 0
    for place, byte in enumerate(payload[at : at + _LONGEST]):
        number |= (byte & (_MORE - 1)) << (_BITS * place)
        if byte < _MORE:
            if number & 1:
                break
            return number >> 1, at + place + 1
    problem = "the value does not say which message of its schema it is"
    raise ValueError(problem)


@dataclass(frozen=True)
class PayloadReader:
    """Reads what follows the heads, of values of one schema, none of them null.

    Args:
        files: The schema, as ``compile_proto`` gives it.
        options: How it is read.
    """

    files: bytes
    options: ProtoOptions

    def __call__(self, payloads: pa.Array) -> Decoded:
        """Return the values of messages, those of each in a group of their own."""
        faults: dict[int, str] = {}
        groups = []
        for path, rows, bodies in _by_message(payloads, faults):
            try:
                plan = _reading(self.files, path, self.options)
            except (RecordError, ConfigError) as error:
                faults |= dict.fromkeys(rows, error.problem)
                continue
            groups.append(plan.group(bodies, rows, faults))
        text = "Failed to deserialize data to Protobuf: "
        return Decoded(
            groups, {row: (DATA_EXCEPTION, text + why) for row, why in faults.items()}
        )


def _by_message(
    payloads: pa.Array, faults: dict[int, str]
) -> list[tuple[tuple[int, ...], Sequence[int], list[bytes]]]:
    if pc.all(pc.starts_with(payloads, _FIRST)).as_py():
        bodies = natives(pc.binary_replace_slice(payloads, 0, 1, b""))
        return [((0,), range(len(payloads)), bodies)] if bodies else []
    found: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
    for row, payload in enumerate(natives(payloads)):
        try:
            path, at = split_indexes(payload)
        except ValueError as error:
            faults[row] = str(error)
            continue
        rows, bodies = found.setdefault(path, ([], []))
        rows.append(row)
        bodies.append(payload[at:])
    return [(path, *each) for path, each in found.items()]


@dataclass(frozen=True)
class _Reading:
    schema: Schema
    column: Column
    message: type[Message]
    numbers: frozenset[int]

    def group(self, bodies: list[bytes], rows: Sequence[int], faults: dict[int, str]) -> Group:
        messages, rows = self._messages(bodies, rows, faults)
        values = self._values(messages, rows, faults)
        return Group(self.schema, values, list(rows))

    def _messages(
        self, bodies: list[bytes], rows: Sequence[int], faults: dict[int, str]
    ) -> tuple[list[Message], Sequence[int]]:
        parse = self.message.FromString
        try:
            messages = list(map(parse, bodies))
        except DecodeError:
            return self._good(bodies, rows, faults)
        for row, unknown in zip(rows, map(UnknownFieldSet, messages), strict=True):
            # Of another type than the schema says: the field itself would be its default.
            if unknown and any(
                unknown[place].field_number in self.numbers for place in range(len(unknown))
            ):
                faults[row] = "a field has another type than its schema says"
        return messages, rows

    def _good(
        self, bodies: list[bytes], rows: Sequence[int], faults: dict[int, str]
    ) -> tuple[list[Message], Sequence[int]]:
        good: list[bytes] = []
        kept: list[int] = []
        for row, body in zip(rows, bodies, strict=True):
            try:
                self.message.FromString(body)
            except DecodeError as error:
                faults[row] = str(error)
            else:
                good.append(body)
                kept.append(row)
        return self._messages(good, kept, faults)

    def _values(
        self, messages: list[Message], rows: Sequence[int], faults: dict[int, str]
    ) -> pa.Array:
        try:
            return self.column(messages, rows, faults)
        except (ValueError, pa.ArrowException):
            pass  # such as a text of Protobuf 2 that is no UTF-8: whose it is is not said
        parts = []
        for message, row in zip(messages, rows, strict=True):
            try:
                parts.append(self.column([message], [row], faults))
            except (ValueError, pa.ArrowException) as error:
                faults[row] = str(error)
                parts.append(pa.nulls(1, to_arrow_type(self.schema)))
        return pa.concat_arrays(parts)


@lru_cache(maxsize=64)
def _reading(files: bytes, path: tuple[int, ...], options: ProtoOptions) -> _Reading:
    file = ProtoFile(files)
    message = file.at(path)
    type_ = file.type_of(message)
    schema = connect_of(type_, options)
    numbers = frozenset(each.number for each in type_.fields)
    column = record_column(type_, schema, options)
    return _Reading(schema, column, GetMessageClass(message), numbers)


@dataclass(frozen=True)
class RecordWriter:
    """Writes values of a schema, with what goes before them.

    Args:
        files: The schema to write with, as ``compile_proto`` gives it.
        path: The indexes of the message in it.
        schema: The schema of the values.
        options: How it is written.
        head: The head of the values.
    """

    files: bytes
    path: tuple[int, ...]
    schema: Schema
    options: ProtoOptions
    head: bytes

    def check(self) -> None:
        """Raise RecordError unless values of the schema can be written so."""
        _writing(self.files, self.path, self.schema, self.options)

    def __call__(self, values: pa.Array) -> pa.Array:
        """Return structs of bytes, or of why there are none; of neither for null."""
        filler, make = _writing(self.files, self.path, self.schema, self.options)
        rows = pc.indices_nonzero(values.is_valid()).to_pylist()
        messages = [make() for _ in rows]
        faults: dict[int, str] = {}
        filler.fill(messages, values.drop_null(), rows, faults)
        made: list[bytes | None] = [None] * len(values)
        before = self.head + index_bytes(self.path)
        for row, message in zip(rows, messages, strict=True):
            try:
                # Keys of one meaning have to be the same bytes, and maps have no order.
                made[row] = before + message.SerializeToString(deterministic=True)
            except EncodeError as error:
                faults.setdefault(row, str(error))
        problems: list[str | None] = [None] * len(values)
        for row, problem in faults.items():
            made[row], problems[row] = None, problem
        arrays = [pa.array(made, pa.binary()), pa.array(problems, pa.string())]
        return pa.StructArray.from_arrays(arrays, fields=list(_RESULT))


@lru_cache(maxsize=64)
def _writing(
    files: bytes, path: tuple[int, ...], schema: Schema, options: ProtoOptions
) -> tuple[Filler, type[Message]]:
    file = ProtoFile(files)
    message = file.at(path)
    filler = record_filler(schema, file.type_of(message), options)
    return filler, GetMessageClass(message)
