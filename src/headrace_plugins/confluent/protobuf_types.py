"""Protobuf types as trees, with all names resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from headrace.sdk import RecordError
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    precision_of,
    scale_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from headrace.sdk import Schema


MESSAGE, ENUM, MAP = "message", "enum", "map"
DECIMAL_MESSAGE = "confluent.type.Decimal"
DATE_MESSAGE = "google.type.Date"
TIME_MESSAGE = "google.type.TimeOfDay"
TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
WRAPPERS = {
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int64Value": "int64",
    "google.protobuf.UInt64Value": "uint64",
    "google.protobuf.Int32Value": "int32",
    "google.protobuf.UInt32Value": "uint32",
    "google.protobuf.BoolValue": "bool",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "bytes",
}
"""The value types of the wrapper messages, in the order of their file."""
_ENTRY = "Entry"


@dataclass(frozen=True)
class ProtoField:
    """A field of a message.

    Args:
        name: The name of the field.
        number: The field number.
        type: The type of the value, or of each item of a repeated field.
        repeated: Whether the field is repeated; false for maps.
        required: Whether the field is required (Protobuf 2 only).
        optional: Whether the field has the keyword `optional`, in either version.
        present: Whether the field has presence: a default can be told from a missing value.
        old: Whether the field is from a Protobuf 2 file.
        oneof: The name and the index of the `oneof` of the field.
        facts: The parameters that Confluent's converter wrote into the field's options.
    """

    name: str
    number: int
    type: ProtoType
    repeated: bool = False
    required: bool = False
    optional: bool = False
    present: bool = False
    old: bool = False
    oneof: tuple[str, int] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProtoType:
    """A Protobuf type.

    Args:
        kind: Protobuf's name of the type.
        name: The full name of a message or an enum.
        symbols: The numbers of an enum's values, by name.
        fields: The fields of a message; the key and the value of a map.
        native: Whether a map is a Protobuf map. Maps with keys that Protobuf does not support
            are repeated entries.
    """

    kind: str
    name: str = ""
    symbols: Mapping[str, int] = field(default_factory=dict)
    fields: tuple[ProtoField, ...] = ()
    native: bool = True

    @property
    def short_name(self) -> str:
        """The name without its package and enclosing messages."""
        return self.name.rpartition(".")[2]

    def field(self, name: str) -> ProtoField | None:
        """Return the field with this name, or None."""
        return next((each for each in self.fields if each.name == name), None)

    def oneof(self, name: str, place: int) -> list[ProtoField]:
        """Return the fields of a `oneof`."""
        return [each for each in self.fields if each.oneof == (name, place)]

    @property
    def oneofs(self) -> list[tuple[str, int]]:
        """The names and indexes of the `oneof`s."""
        return list(dict.fromkeys(each.oneof for each in self.fields if each.oneof is not None))


class ProtoFile:
    """A registered schema: a file of messages, with its imports."""

    def __init__(self, files: bytes) -> None:
        """Parse a serialized FileDescriptorSet from ``compile_proto``; the file is its last."""
        self._files = FileDescriptorSet.FromString(files)

    @cached_property
    def pool(self) -> DescriptorPool:
        """A descriptor pool of all files."""
        pool = DescriptorPool()
        for each in self._files.file:
            pool.AddSerializedFile(each.SerializeToString())
        return pool

    def at(self, path: Sequence[int]) -> Descriptor:
        """Return the message at a path of indexes, from the outermost to the innermost.

        Raises RecordError if there is none.
        """
        main = self._files.file[-1]
        messages, names = list(main.message_type), [main.package] if main.package else []
        for index in path:
            if not 0 <= index < len(messages):
                known = f"it has no message {list(path)}"
                raise RecordError(problem=f"The schema does not fit the value: {known}.")
            names.append(messages[index].name)
            # Like Confluent's Java code, count only messages in the file's text, so no entry
            # messages of maps.
            messages = [m for m in messages[index].nested_type if not m.options.map_entry]
        return self.pool.FindMessageTypeByName(".".join(names))

    def path_of(self, name: str | None) -> list[int]:
        """Return the index path of a top-level message by full name; else of the first."""
        main = self._files.file[-1]
        prefix = f"{main.package}." if main.package else ""
        names = [prefix + message.name for message in main.message_type]
        return [names.index(name)] if name in names else [0]

    def type_of(self, message: Descriptor) -> ProtoType:
        """Return a message as a tree.

        Raises RecordError if it contains itself, or field names differ only in case.
        """
        return _Reading(self.pool).message(message, ())


class _Reading:
    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def message(self, message: Descriptor, around: tuple[str, ...]) -> ProtoType:
        if message.full_name in around:
            problem = f"The Protobuf message {message.full_name} contains itself."
            raise RecordError(problem=problem)
        fields = self._fields(message, (*around, message.full_name))
        if len({each.name.lower() for each in fields}) != len(fields):
            problem = f"Field names of {message.full_name} differ only in case."
            raise RecordError(problem=problem)
        return ProtoType(MESSAGE, message.full_name, fields=fields)

    def _fields(self, message: Descriptor, around: tuple[str, ...]) -> tuple[ProtoField, ...]:
        copy = DescriptorProto()
        message.CopyToProto(copy)
        return tuple(
            self._field(each, proto, around)
            for each, proto in zip(message.fields, copy.field, strict=True)
        )

    def _field(
        self, each: FieldDescriptor, proto: FieldDescriptorProto, around: tuple[str, ...]
    ) -> ProtoField:
        is_repeated = proto.label == proto.LABEL_REPEATED
        around_it = each.containing_type
        assert around_it is not None
        file = FileDescriptorProto()
        around_it.file.CopyToProto(file)
        old = file.syntax in {"", "proto2"}
        in_oneof = each.containing_oneof is not None and not proto.proto3_optional
        type_ = self._type(each, around, is_repeated=is_repeated)
        names = [one.name for one in around_it.oneofs]
        oneof = each.containing_oneof.name if each.containing_oneof is not None else ""
        explicit = proto.label == proto.LABEL_OPTIONAL and not in_oneof and old
        return ProtoField(
            name=each.name,
            number=each.number,
            type=type_,
            repeated=is_repeated and type_.kind != MAP,
            required=proto.label == proto.LABEL_REQUIRED,
            optional=proto.proto3_optional or explicit,
            present=each.has_presence,
            old=old,
            oneof=(oneof, names.index(oneof)) if in_oneof else None,
            facts=self._facts(proto),
        )

    def _type(
        self, each: FieldDescriptor, around: tuple[str, ...], *, is_repeated: bool
    ) -> ProtoType:
        if each.enum_type is not None:
            symbols = {value.name: value.number for value in each.enum_type.values}
            return ProtoType(ENUM, each.enum_type.full_name, symbols)
        if each.message_type is None:
            return ProtoType(_WORDS[each.type])
        message = self.message(each.message_type, around)
        native = each.message_type.GetOptions().map_entry
        if native or (is_repeated and _is_entry(message)):
            return ProtoType(MAP, message.name, fields=message.fields, native=native)
        return message

    def _facts(self, proto: FieldDescriptorProto) -> Mapping[str, str]:
        options = proto.options.SerializeToString()
        if not options:
            return {}
        try:
            meta = self._pool.FindExtensionByName("confluent.field_meta")
            known = self._pool.FindMessageTypeByName("google.protobuf.FieldOptions")
        except KeyError:
            return {}
        read: Any = GetMessageClass(known).FromString(options)
        return dict(read.Extensions[meta].params)


def _is_entry(message: ProtoType) -> bool:
    named = message.short_name.endswith(_ENTRY)
    single = all(not each.repeated for each in message.fields)
    return named and single and [each.name for each in message.fields] == ["key", "value"]


_WORDS = dict(
    enumerate(
        (
            "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool",
            "string", MESSAGE, MESSAGE, "bytes", "uint32", ENUM, "sfixed32", "sfixed64",
            "sint32", "sint64",
        ),
        start=1,
    )
)  # fmt: skip
"""Protobuf's names of the types, by their numbers in descriptors."""


_DIGITS = Context(prec=MAX_PRECISION)
_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 1_000_000
_DAY = 86_400
# The seconds of the years 1 to 9999: the documented range of the messages.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
_NANOS = 1_000_000_000
_SCALES = range(-MAX_PRECISION, MAX_PRECISION * 2)
_BYTES = 32


def native_reader(schema: Schema) -> Callable[[Any], Any]:
    """Return a function that converts a message to a native value for Arrow.

    The function raises ValueError for a message that has no valid value for the schema.
    """
    if schema.name == DECIMAL:
        sizes = _sizes(schema)
        return lambda message: _decimal(message, *sizes)
    return _READERS[str(schema.name)]


def message_filler(schema: Schema) -> Callable[[Any, Any], None]:
    """Return a function that writes a native value into an empty message.

    The function raises ValueError for a value that the message cannot represent.
    """
    if schema.name == DECIMAL:
        sizes = _sizes(schema)
        return lambda message, value: _fill_decimal(message, value, *sizes)
    return _FILLERS[str(schema.name)]


def _sizes(schema: Schema) -> tuple[int, int]:
    """Return the precision and the scale of a decimal."""
    precision = precision_of(schema.parameters) or MAX_PRECISION
    return precision, scale_of(schema.parameters) or 0


def _decimal(message: Any, precision: int, scale: int) -> Decimal:
    if message.scale not in _SCALES or len(message.value) > _BYTES:
        problem = f"a decimal of scale {message.scale} has too many digits"
        raise ValueError(problem)
    number = int.from_bytes(message.value, "big", signed=True)
    if message.scale > scale:
        # Only remove trailing zeros, so the value does not change.
        number, rest = divmod(number, 10 ** (message.scale - scale))
        if rest:
            problem = f"a decimal has more than {scale} digits after the point"
            raise ValueError(problem)
    else:
        number *= 10 ** (scale - message.scale)
    if abs(number) >= 10**precision:
        problem = f"a decimal has more than {precision} digits"
        raise ValueError(problem)
    return _DIGITS.scaleb(Decimal(number), -scale)


def _time(message: Any) -> int:
    seconds = message.hours * 3600 + message.minutes * 60 + message.seconds
    fits = 0 <= message.minutes < 60 and 0 <= message.seconds < 60  # noqa: PLR2004 - clocks
    if not fits or not 0 <= seconds < _DAY or not 0 <= message.nanos < _NANOS:
        problem = "invalid time of day"
        raise ValueError(problem)
    micros: int = seconds * _SECOND + message.nanos // 1000
    return micros


def _timestamp(message: Any) -> int:
    if not _FIRST <= message.seconds <= _LAST or not 0 <= message.nanos < _NANOS:
        problem = "a timestamp is not in the years 1 to 9999"
        raise ValueError(problem)
    micros: int = message.seconds * _SECOND + message.nanos // 1000
    return micros


_READERS: dict[str, Callable[[Any], Any]] = {
    DATE: lambda it: date(it.year, it.month, it.day).toordinal() - _EPOCH,
    TIME: _time,
    TIMESTAMP: _timestamp,
}


def _fill_decimal(message: Any, value: Decimal, precision: int, scale: int) -> None:
    number = int(_DIGITS.scaleb(value, scale))
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    message.value = number.to_bytes(size, "big", signed=True)
    message.precision = precision
    message.scale = scale


def _fill_date(message: Any, value: int) -> None:
    if not _FIRST <= value * _DAY <= _LAST:
        problem = "a date is not in the years 1 to 9999"
        raise ValueError(problem)
    day = date.fromordinal(value + _EPOCH)
    message.year, message.month, message.day = day.year, day.month, day.day


def _fill_time(message: Any, value: int) -> None:
    seconds, micros = divmod(value, _SECOND)
    if not 0 <= seconds < _DAY:
        problem = "invalid time of day"
        raise ValueError(problem)
    message.hours, rest = divmod(seconds, 3600)
    message.minutes, message.seconds = divmod(rest, 60)
    message.nanos = micros * 1000


def _fill_timestamp(message: Any, value: int) -> None:
    seconds, micros = divmod(value, _SECOND)
    if not _FIRST <= seconds <= _LAST:
        problem = "a timestamp is not in the years 1 to 9999"
        raise ValueError(problem)
    message.seconds, message.nanos = seconds, micros * 1000


_FILLERS: dict[str, Callable[[Any, Any], None]] = {
    DATE: _fill_date,
    TIME: _fill_time,
    TIMESTAMP: _fill_timestamp,
}
