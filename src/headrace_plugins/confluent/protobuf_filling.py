"""Protobuf messages of the values in Arrow arrays, and which field each column fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import RecordError, Type
from headrace.sdk.schema import DECIMAL, VARIANT
from headrace_plugins.confluent.protobuf_schemas import LOGICAL, is_union, scrubbed
from headrace_plugins.confluent.protobuf_types import (
    DECIMAL_MESSAGE,
    ENUM,
    MAP,
    MESSAGE,
    WRAPPERS,
    message_filler,
)

if TYPE_CHECKING:
    from headrace.sdk import Schema
    from headrace_plugins.confluent.protobuf_options import ProtoOptions
    from headrace_plugins.confluent.protobuf_types import ProtoField, ProtoType


Faults = dict[int, str]
Natives = Callable[[pa.Array], Sequence[Any]]
"""Gives values as a message takes them, None for null."""


class Filler(ABC):
    """Writes values into messages that are there for them."""

    @abstractmethod
    def fill(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        """Write as many values, of which none is null.

        Args:
            messages: What to write into.
            values: What to write.
            rows: The row that each belongs to.
            faults: Where to say of a row why a value of it does not fit.
        """


class Part(ABC):
    """Writes values into a field of messages."""

    @abstractmethod
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        """Write as many values; see ``Filler.fill``. Where one is null nothing is written."""


@dataclass(frozen=True)
class SetField(Part):
    """Sets a field that is no message."""

    name: str
    natives: Natives
    path: str
    required: bool = False

    @override
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        name = self.name
        for message, value, row in zip(messages, self.natives(values), rows, strict=True):
            if value is None:
                if self.required:
                    faults[row] = f"There is no value at {self.path}"
                continue
            try:
                setattr(message, name, value)
            except (TypeError, ValueError) as error:
                faults[row] = f"{error}, at {self.path}"


@dataclass(frozen=True)
class FillField(Part):
    """Fills a field that is a message."""

    name: str
    filler: Filler
    path: str
    required: bool = False

    @override
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        if self.required and values.null_count:
            missing = pc.indices_nonzero(values.is_null()).to_pylist()
            faults |= {rows[place]: f"There is no value at {self.path}" for place in missing}
        places = _places(values)
        targets = [getattr(messages[place], self.name) for place in places]
        for target in targets:
            target.SetInParent()
        self.filler.fill(targets, values.drop_null(), [rows[p] for p in places], faults)


@dataclass(frozen=True)
class AddItems(Part):
    """Adds to a field with any number of values."""

    name: str
    item: Natives | Filler
    path: str

    @override
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        counts = _counts(values)
        flat = values.flatten()
        owners = [place for place, count in enumerate(counts) for _ in range(count)]
        if flat.null_count:
            for item in pc.indices_nonzero(flat.is_null()).to_pylist():
                faults[rows[owners[item]]] = f"There is a null in the list at {self.path}"
            owners = [owners[item] for item in _places(flat)]
            flat = flat.drop_null()
        if isinstance(self.item, Filler):
            targets = [getattr(messages[place], self.name).add() for place in owners]
            self.item.fill(targets, flat, [rows[place] for place in owners], faults)
            return
        lists = [getattr(each, self.name) for each in messages]
        for place, value in zip(owners, self.item(flat), strict=True):
            try:
                lists[place].append(value)
            except (TypeError, ValueError) as error:
                faults[rows[place]] = f"{error}, at {self.path}"


@dataclass(frozen=True)
class PutEntries(Part):
    """Puts entries into a map."""

    name: str
    key: Natives
    value: Natives | Filler
    path: str

    @override
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        owners, keys, items = _entries(values)
        maps = [getattr(each, self.name) for each in messages]
        natives = self.key(keys)
        if isinstance(self.value, Filler):
            places = _places(items)
            missing = items.is_null()
            targets = [maps[owners[place]][natives[place]] for place in places]
            own = [rows[owners[place]] for place in places]
            self.value.fill(targets, items.drop_null(), own, faults)
            for place in pc.indices_nonzero(missing).to_pylist():
                faults[rows[owners[place]]] = f"There is a null in the map at {self.path}"
            return
        for owner, key, value in zip(owners, natives, self.value(items), strict=True):
            try:
                maps[owner][key] = value
            except (TypeError, ValueError) as error:
                null = f"There is a null in the map at {self.path}"
                faults[rows[owner]] = null if value is None else f"{error}, at {self.path}"


@dataclass(frozen=True)
class AddEntries(Part):
    """Adds the entries of a map whose keys are none in Protobuf's maps."""

    name: str
    key: Part
    value: Part

    @override
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        owners, keys, items = _entries(values)
        targets = [getattr(messages[place], self.name).add() for place in owners]
        own = [rows[place] for place in owners]
        self.key.put(targets, keys, own, faults)
        self.value.put(targets, items, own, faults)


@dataclass(frozen=True)
class FillChoice(Part):
    """Sets one of the fields of a `oneof`, from a struct of which one field is not null."""

    members: Sequence[Part]
    path: str

    @override
    def put(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        places = _places(values)
        own = [rows[place] for place in places]
        columns = values.drop_null().flatten()
        for place, count in enumerate(_given(columns, len(own))):
            if count != 1:
                faults[own[place]] = f"{count} fields are given, and not one, at {self.path}"
        targets = [messages[place] for place in places]
        for member, column in zip(self.members, columns, strict=True):
            member.put(targets, column, own, faults)


@dataclass(frozen=True)
class FillMessage(Filler):
    """Writes structs, each part of which is for a field of theirs.

    Args:
        parts: One for each field.
        choices: Sets of fields, by their places, of which one may be given.
    """

    parts: Sequence[Part]
    choices: Sequence[Sequence[int]] = ()

    @override
    def fill(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        columns = values.flatten()
        for choice in self.choices:
            for place, count in enumerate(_given([columns[c] for c in choice], len(rows))):
                if count > 1:
                    faults[rows[place]] = "Several fields of a oneof are given"
        for part, column in zip(self.parts, columns, strict=True):
            part.put(messages, column, rows, faults)


@dataclass(frozen=True)
class FillWrapper(Filler):
    """Writes values into messages that wrap one."""

    part: Part

    @override
    def fill(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        self.part.put(messages, values, rows, faults)


class FillLogical(Filler):
    """Writes values of a logical type into their messages."""

    def __init__(self, schema: Schema, path: str) -> None:
        """Take the type's schema."""
        self._fill = message_filler(schema)
        self._path = path

    @override
    def fill(
        self, messages: Sequence[Any], values: pa.Array, rows: Sequence[int], faults: Faults
    ) -> None:
        for message, value, row in zip(messages, natives(values), rows, strict=True):
            try:
                self._fill(message, value)
            except ValueError as error:
                faults[row] = f"{error}, at {self._path}"


def natives(values: pa.Array) -> list[Any]:
    """Return values as Python has them, dates and times as numbers, None for null.

    By way of NumPy, as ``to_pylist`` takes several times as long.
    """
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    made: list[Any] = []
    if pa.types.is_primitive(values.type):
        filled = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
        made = filled.to_numpy(zero_copy_only=False).tolist()
        if values.null_count:
            for place in pc.indices_nonzero(values.is_null()).to_pylist():
                made[place] = None
    elif pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        try:
            made = values.to_numpy(zero_copy_only=False).tolist()
        except (UnicodeDecodeError, pa.ArrowException):
            # Spark has texts that are none; messages take bytes for a text if they are one.
            made = natives(values.cast(pa.binary()))
    else:
        made = values.to_pylist()
    return made


def unsigned(values: pa.Array) -> list[Any]:
    """Return numbers with the same bits: Kafka Connect has no type for unsigned ones."""
    return natives(values.view(pa.uint64()))


def _places(values: pa.Array) -> Sequence[int]:
    if not values.null_count:
        return range(len(values))
    places: list[int] = pc.indices_nonzero(values.is_valid()).to_pylist()
    return places


def _counts(lists: pa.Array) -> list[int]:
    counts: list[int] = pc.list_value_length(lists).fill_null(0).to_pylist()
    return counts


def _entries(maps: pa.Array) -> tuple[list[int], pa.Array, pa.Array]:
    """Return to which map each entry belongs, and all keys and values."""
    offsets = maps.drop_null().offsets.to_pylist()
    owners = [
        place
        for place, start, end in zip(_places(maps), offsets, offsets[1:], strict=False)
        for _ in range(start, end)
    ]
    kept, first = maps.drop_null(), offsets[0]
    return owners, kept.keys.slice(first, len(owners)), kept.items.slice(first, len(owners))


def _given(columns: Sequence[pa.Array], rows: int) -> list[int]:
    """Return how many of the columns have a value in each row."""
    total = pa.repeat(pa.scalar(0, pa.int64()), rows)
    for column in columns:
        total = pc.add(total, column.is_valid().cast(pa.int64()))
    counts: list[int] = total.to_pylist()
    return counts


_INTS = {Type.INT8, Type.INT16, Type.INT32}
_LONGS = _INTS | {Type.INT64}
_TAKEN = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INTS),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), _LONGS),
    **dict.fromkeys(("uint64", "fixed64"), _LONGS),
    "float": {Type.FLOAT32},
    "double": {Type.FLOAT32, Type.FLOAT64},
    "bool": {Type.BOOLEAN},
    "string": {Type.STRING},
    "bytes": {Type.BYTES},
    ENUM: {Type.STRING, Type.INT32},
}
_MESSAGES = {schema.name: name for name, schema in LOGICAL.items()} | {DECIMAL: DECIMAL_MESSAGE}


def record_filler(schema: Schema, type_: ProtoType, options: ProtoOptions) -> Filler:
    """Return what writes records of a schema into messages.

    Raises:
        RecordError: Records of the schema do not fit into the message.
    """
    return _Planning(options).message(schema, type_, "")


class _Planning:
    def __init__(self, options: ProtoOptions) -> None:
        self._options = options

    def message(self, schema: Schema, type_: ProtoType, path: str) -> Filler:
        if schema.type is not Type.STRUCT and type_.name in WRAPPERS:
            value = _taken(schema, type_.fields[0].type, path)
            return FillWrapper(SetField("value", value, path))
        if schema.type is not Type.STRUCT:
            raise _misfit(schema, type_, path)
        parts: list[Part] = []
        used: list[ProtoField] = []
        alone: dict[int, ProtoField] = {}
        for each in schema.fields:
            if is_union(each.schema):
                part, own = self._choice(each.name, each.schema, type_, path)
                used += own
            else:
                part, field = self._member(each.name, each.schema, type_, path)
                used.append(field)
                alone[each.index] = field
            parts.append(part)
        lacking = [field.name for field in type_.fields if field.required and field not in used]
        if lacking:
            problem = f"The records lack {', '.join(lacking)}, which {type_.name} requires."
            raise RecordError(problem=problem)
        return FillMessage(parts, _choices(alone))

    def _choice(
        self, name: str, schema: Schema, type_: ProtoType, path: str
    ) -> tuple[Part, list[ProtoField]]:
        members = [self._member(f.name, f.schema, type_, path) for f in schema.fields]
        part = FillChoice([part for part, _ in members], _at(path, name))
        return part, [field for _, field in members]

    def _member(
        self, name: str, schema: Schema, type_: ProtoType, path: str
    ) -> tuple[Part, ProtoField]:
        own = scrubbed(name) if self._options.scrubs else name
        field = type_.field(own)
        if field is None:
            problem = f"The Protobuf message {type_.name} lacks the field {own}."
            raise RecordError(problem=problem)
        return self._part(schema, field, _at(path, name)), field

    def _part(self, schema: Schema, field: ProtoField, path: str) -> Part:
        if field.repeated and schema.type is Type.ARRAY and schema.value_schema is not None:
            return AddItems(
                field.name, self._value(schema.value_schema, field.type, path), path
            )
        if field.type.kind == MAP and schema.key_schema is not None:
            return self._map(schema, field, path)
        if field.repeated or field.type.kind == MAP:
            raise _misfit(schema, field.type, path)
        value = self._value(schema, field.type, path)
        if isinstance(value, Filler):
            return FillField(field.name, value, path, required=field.required)
        return SetField(field.name, value, path, required=field.required)

    def _map(self, schema: Schema, field: ProtoField, path: str) -> Part:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        key_field, value_field = (replace(each, required=True) for each in field.type.fields)
        if not field.type.native:
            key = self._part(keys, key_field, path)
            return AddEntries(field.name, key, self._part(values, value_field, path))
        native_keys = _taken(keys, key_field.type, path)
        value = self._value(values, value_field.type, path)
        return PutEntries(field.name, native_keys, value, path)

    def _value(self, schema: Schema, type_: ProtoType, path: str) -> Natives | Filler:
        if schema.is_logical and schema.name != VARIANT:
            if _MESSAGES[schema.name] != type_.name:
                raise _misfit(schema, type_, path)
            return FillLogical(schema, path)
        if type_.kind == MESSAGE:
            return self.message(schema, type_, path)
        return _taken(schema, type_, path)


def _taken(schema: Schema, type_: ProtoType, path: str) -> Natives:
    if schema.type not in _TAKEN.get(type_.kind, ()):
        raise _misfit(schema, type_, path)
    if type_.kind in {"uint64", "fixed64"} and schema.type is Type.INT64:
        return unsigned
    return natives


def _choices(alone: dict[int, ProtoField]) -> list[list[int]]:
    """Return the places of fields that a `oneof` has, where they are fields of the struct."""
    oneofs = dict.fromkeys(field.oneof for field in alone.values() if field.oneof is not None)
    return [[at for at, field in alone.items() if field.oneof == one] for one in oneofs]


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _misfit(schema: Schema, type_: ProtoType, path: str) -> RecordError:
    kind, named = schema.name or schema.type.value, type_.name or type_.kind
    where = f" at {path}" if path else ""
    return RecordError(problem=f"Cannot write values of {kind} as Protobuf {named}{where}.")
