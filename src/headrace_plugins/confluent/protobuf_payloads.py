"""Reads and writes Protobuf payloads: the indexes of the message in its file, and the message.

docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop. Spark's own
from_protobuf is not used: it is in a jar that is not locked, returns nulls in all columns for
bytes that it cannot parse, without a cause, and keeps duplicate keys in a map.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from headrace.sdk import ConfigError, RecordError, Type
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.converter import Decoded, Group
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.confluent.protobuf_filling import Targets, natives, record_filler
from headrace_plugins.confluent.protobuf_schemas import connect_of, is_union
from headrace_plugins.confluent.protobuf_types import (
    ENUM,
    MAP,
    MESSAGE,
    ProtoFile,
    native_reader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.sdk import Field, Schema
    from headrace_plugins.confluent.protobuf_converter import ProtoOptions
    from headrace_plugins.confluent.protobuf_filling import Filler
    from headrace_plugins.confluent.protobuf_types import ProtoField, ProtoType

    Faults = dict[int, str]
    Column = Callable[[Sequence[Any], Sequence[int], Faults], pa.Array]
    Getter = Callable[[Sequence[Any]], Sequence[Any]]


_SMALL = {Type.INT8: 1 << 7, Type.INT16: 1 << 15}


def record_column(type_: ProtoType, schema: Schema, options: ProtoOptions) -> Column:
    """Return a function that converts messages to an array; ``schema`` is from ``connect_of``.

    The function takes the messages, their row numbers, and a dict for the errors by row. The
    value of a row with an error is undefined.
    """
    columns = _Columns(options)
    if schema.type is Type.STRUCT:
        return columns.message(type_, schema, "")
    return columns.field(type_.fields[0], schema, "")


class _Columns:
    def __init__(self, options: ProtoOptions) -> None:
        self._options = options

    def message(self, type_: ProtoType, schema: Schema, path: str) -> Column:
        arrow = to_arrow_type(schema)
        made = [self._member(type_, each, path) for each in schema.fields]

        def column(messages: Sequence[Any], rows: Sequence[int], faults: Faults) -> pa.Array:
            there = [place for place, each in enumerate(messages) if each is not None]
            size = len(messages)
            if len(there) == size:
                parts = [member(messages, rows, faults) for member in made]
                return _struct(parts, arrow, size)
            present = [messages[place] for place in there]
            own = [rows[place] for place in there]
            parts = [member(present, own, faults) for member in made]
            return _spread(_struct(parts, arrow, len(present)), there, size)

        return column

    def _member(self, type_: ProtoType, member: Field, path: str) -> Column:
        field = type_.field(member.name)
        if field is not None and not is_union(member.schema):
            return self.field(field, member.schema, path)
        arrow = to_arrow_type(member.schema)
        pairs = [(type_.field(each.name), each.schema) for each in member.schema.fields]
        made = [self.field(own, schema, path) for own, schema in pairs if own is not None]
        oneof = next(own.oneof[0] for own, _ in pairs if own is not None and own.oneof)

        def column(messages: Sequence[Any], rows: Sequence[int], faults: Faults) -> pa.Array:
            parts = [part(messages, rows, faults) for part in made]
            absent = pa.array([each.WhichOneof(oneof) is None for each in messages], pa.bool_())
            return _struct(parts, arrow, len(messages), absent)

        return column

    def field(self, field: ProtoField, schema: Schema, path: str) -> Column:
        """Return a function that converts the values of a field to an array."""
        get, where = self._getter(field, schema), f"{path}.{field.name}".strip(".")
        if field.repeated and schema.value_schema is not None:
            item = self._value(field.type, schema.value_schema, where)
            make = _list(item, to_arrow_type(schema))
        elif field.type.kind == MAP:
            make = self._map(field.type, schema, where)
        else:
            make = self._value(field.type, schema, where)
        return lambda messages, rows, faults: make(get(messages), rows, faults)

    def _getter(self, field: ProtoField, schema: Schema) -> Getter:
        name, get = field.name, attrgetter(field.name)
        if self._is_always_there(field, schema):
            return lambda messages: list(map(get, messages))
        if field.type.kind == MESSAGE or field.old:
            return lambda messages: [
                get(each) if each.HasField(name) else None for each in messages
            ]
        # A missing field is read as zero, so HasField is only needed for zeros.
        return lambda messages: [
            value if value or each.HasField(name) else None
            for value, each in zip(map(get, messages), messages, strict=True)
        ]

    def _is_always_there(self, field: ProtoField, schema: Schema) -> bool:
        """Return whether a missing field is read as its default, not as null."""
        if not field.present:
            return True
        if field.oneof is not None or schema.is_logical:
            return False
        scalar = field.type.kind != MESSAGE
        ignored = scalar and field.old and not self._options.proto2_words
        return self._options.structs_for_nulls or ignored

    def _value(self, type_: ProtoType, schema: Schema, path: str) -> Column:
        arrow = to_arrow_type(schema)
        if schema.is_logical:
            return _checked(native_reader(schema), arrow, path)
        if type_.kind == MESSAGE and schema.type is Type.STRUCT:
            return self.message(type_, schema, path)
        if type_.kind == MESSAGE:
            make = _scalar(type_.fields[0].type, schema, path)
            return lambda values, rows, faults: make(_unwrapped(values), rows, faults)
        if type_.kind == ENUM and schema.type is Type.STRING:
            names = _Names(type_)
            return lambda values, _, __: pa.array(
                [None if value is None else names[value] for value in values], arrow
            )
        return _scalar(type_, schema, path)

    def _map(self, type_: ProtoType, schema: Schema, path: str) -> Column:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        arrow = to_arrow_type(schema)
        key_field, value_field = type_.fields
        key = self._value(key_field.type, keys, f"{path} key")
        value = self._value(value_field.type, values, f"{path} value")
        get_key, get_value = self._getter(key_field, keys), self._getter(value_field, values)

        def pairs(present: Any) -> list[tuple[Any, Any]]:
            if type_.native:
                return list(present.items())
            # Of entries with equal keys the last one wins, as in Protobuf's own maps.
            both = zip(get_key(present), get_value(present), strict=True)
            return list({_same(pair[0]): pair for pair in both}.values())

        return lambda present, rows, faults: _entries(
            list(map(pairs, present)), rows, faults, (key, value), arrow
        )


def _unwrapped(values: Sequence[Any]) -> Sequence[Any]:
    return [None if each is None else each.value for each in values]


def _same(key: Any) -> Any:
    """Return a hashable value that is equal for equal keys."""
    return key.SerializeToString(deterministic=True) if hasattr(key, "ListFields") else key


class _Names(dict[int, str]):
    """The names of an enum's values by number; the first of several names for a number."""

    def __init__(self, type_: ProtoType) -> None:
        symbols = list(type_.symbols.items())
        super().__init__({number: name for name, number in reversed(symbols)})
        self._name = type_.short_name

    def __missing__(self, number: int) -> str:
        # The same name as in Protobuf's Java library.
        return f"UNKNOWN_ENUM_VALUE_{self._name}_{number}"


def _struct(
    parts: list[pa.Array], arrow: pa.DataType, rows: int, absent: pa.Array | None = None
) -> pa.Array:
    if not parts:
        return pa.array([{}] * rows, arrow)
    return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=absent)


def _spread(array: pa.Array, places: Sequence[int], size: int) -> pa.Array:
    """Return an array of a size with the values at these places, and nulls elsewhere."""
    indices: list[int | None] = [None] * size
    for number, place in enumerate(places):
        indices[place] = number
    return array.take(pa.array(indices, pa.int64()))


def _scalar(type_: ProtoType, schema: Schema, path: str) -> Column:
    arrow, name = to_arrow_type(schema), schema.type
    if type_.kind in {"uint64", "fixed64"}:
        # Kafka Connect has no unsigned types; Confluent's converter reinterprets the bits.
        return lambda values, _, __: pa.array(values, pa.uint64()).view(arrow)
    limit = _SMALL.get(name)
    if limit is None:
        return lambda values, _, __: pa.array(values, arrow)

    def small(value: int) -> int:
        if not -limit <= value < limit:
            problem = f"{value} is out of the range of {name.value}"
            raise ValueError(problem)
        return value

    return _checked(small, arrow, path)


def _checked(read: Callable[[Any], Any], arrow: pa.DataType, path: str) -> Column:
    """Return a function that converts values with ``read``, which may raise ValueError."""
    plain = pa.int64() if pa.types.is_timestamp(arrow) else arrow
    plain = pa.int32() if pa.types.is_date32(arrow) else plain

    def column(values: Sequence[Any], rows: Sequence[int], faults: Faults) -> pa.Array:
        made: list[Any] = [None] * len(values)
        for place, value in enumerate(values):
            if value is None:
                continue
            try:
                made[place] = read(value)
            except ValueError as error:
                faults[rows[place]] = f"{error}, at {path}"
        array = pa.array(made, plain)
        return array if plain == arrow else array.view(arrow)

    return column


def _list(item: Column, arrow: pa.DataType) -> Column:
    def column(values: Sequence[Any], rows: Sequence[int], faults: Faults) -> pa.Array:
        flat, own = _flat(values, rows)
        return pa.ListArray.from_arrays(_offsets(values), item(flat, own, faults), type=arrow)

    return column


def _entries(
    pairs: Sequence[Sequence[tuple[Any, Any]]],
    rows: Sequence[int],
    faults: Faults,
    columns: tuple[Column, Column],
    arrow: pa.DataType,
) -> pa.Array:
    flat, own = _flat(pairs, rows)
    keys = columns[0]([pair[0] for pair in flat], own, faults)
    values = columns[1]([pair[1] for pair in flat], own, faults)
    if keys.null_count:
        for place in pc.indices_nonzero(keys.is_null()).to_pylist():
            faults.setdefault(own[place], "a map has an entry without a key")
        keys = pa.array([], keys.type)
        values = pa.array([], values.type)
        return pa.MapArray.from_arrays([0] * (len(pairs) + 1), keys, values, type=arrow)
    return pa.MapArray.from_arrays(_offsets(pairs), keys, values, type=arrow)


def _flat(values: Sequence[Any], rows: Sequence[int]) -> tuple[list[Any], Sequence[int]]:
    flat = list(chain.from_iterable(values))
    own = [row for row, each in zip(rows, values, strict=True) for _ in range(len(each))]
    return flat, own


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array([0, *accumulate(map(len, values))], pa.int32())


RESULT = "struct<bytes: binary, problem: string>"
"""The Spark type of a writer's result."""

_RESULT = pa.struct([("bytes", pa.binary()), ("problem", pa.string())])
_FIRST = b"\x00"
"""The short form of the indexes of a file's first message."""
_MORE, _BITS, _LONGEST = 0x80, 7, 5


def index_bytes(path: Sequence[int]) -> bytes:
    """Return the bytes that precede a message with these indexes in its file."""
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
    """Return the indexes at the start of a payload, and their size in bytes.

    Raises ValueError if there are none.
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
    """Return a non-negative number in zig-zag varint encoding, and its end position."""
    number = 0
    for place, byte in enumerate(payload[at : at + _LONGEST]):
        number |= (byte & (_MORE - 1)) << (_BITS * place)
        if byte < _MORE:
            if number & 1:
                break
            return number >> 1, at + place + 1
    problem = "the value has no valid message index"
    raise ValueError(problem)


@dataclass(frozen=True)
class PayloadReader:
    """Reads the payloads after the heads, of non-null values of one schema."""

    files: bytes
    options: ProtoOptions

    def __call__(self, payloads: pa.Array) -> Decoded:
        """Return the decoded values, with a group for each message type."""
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
            # A known field number with another wire type: the field would be read as default.
            if unknown and any(
                unknown[place].field_number in self.numbers for place in range(len(unknown))
            ):
                faults[row] = "a field has another type than in its schema"
        return messages, rows

    def _good(
        self, bodies: list[bytes], rows: Sequence[int], faults: dict[int, str]
    ) -> tuple[list[Message], Sequence[int]]:
        good: list[bytes] = []
        good_rows: list[int] = []
        for row, body in zip(rows, bodies, strict=True):
            try:
                self.message.FromString(body)
            except DecodeError as error:
                faults[row] = str(error)
            else:
                good.append(body)
                good_rows.append(row)
        return self._messages(good, good_rows, faults)

    def _values(
        self, messages: list[Message], rows: Sequence[int], faults: dict[int, str]
    ) -> pa.Array:
        try:
            return self.column(messages, rows, faults)
        except (ValueError, pa.ArrowException):
            pass  # such as a Protobuf 2 string that is not UTF-8; find its row below
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
    """Serializes values of a schema, with their heads and message indexes.

    Args:
        files: The Protobuf schema, from ``compile_proto``.
        path: The indexes of the message in the schema.
        schema: The schema of the values.
        options: The options of the conversion.
        head: The head of the values.
    """

    files: bytes
    path: tuple[int, ...]
    schema: Schema
    options: ProtoOptions
    head: bytes

    def check(self) -> None:
        """Raise RecordError if values of the schema cannot be written as the message."""
        _writing(self.files, self.path, self.schema, self.options)

    def __call__(self, values: pa.Array) -> pa.Array:
        """Return structs with either bytes or a problem; with neither for null."""
        filler, make = _writing(self.files, self.path, self.schema, self.options)
        rows = pc.indices_nonzero(values.is_valid()).to_pylist()
        messages = [make() for _ in rows]
        faults: dict[int, str] = {}
        filler.fill(Targets(messages, rows, faults), values.drop_null())
        made: list[bytes | None] = [None] * len(values)
        before = self.head + index_bytes(self.path)
        for row, message in zip(rows, messages, strict=True):
            try:
                # Equal record keys must have equal bytes, and maps have no order.
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
