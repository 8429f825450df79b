"""Writes the values of Arrow arrays into Protobuf messages, a column into each field."""

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
    from headrace_plugins.confluent.protobuf_converter import ProtoOptions
    from headrace_plugins.confluent.protobuf_types import ProtoField, ProtoType


Natives = Callable[[pa.Array], Sequence[Any]]
"""Converts an array to Python values that a message accepts, with None for null."""


@dataclass(frozen=True)
class Targets:
    """Messages to write into, each with its row.

    Args:
        messages: The messages.
        rows: The row number of each message.
        faults: Collects error messages by row.
    """

    messages: Sequence[Any]
    rows: Sequence[int]
    faults: dict[int, str]

    def fail(self, place: int, why: str) -> None:
        """Record why the value for a message does not fit."""
        self.faults[self.rows[place]] = why

    def within(self, places: Sequence[int], messages: Sequence[Any]) -> Targets:
        """Return targets for ``messages``, which are parts of the messages at ``places``."""
        return Targets(messages, [self.rows[place] for place in places], self.faults)


class Filler(ABC):
    """Writes values into messages, or into a field of messages."""

    @abstractmethod
    def fill(self, to: Targets, values: pa.Array) -> None:
        """Write a value into each message; skip nulls."""


@dataclass(frozen=True)
class SetField(Filler):
    """Sets a scalar field."""

    name: str
    natives: Natives
    path: str
    required: bool = False

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        name, pairs = self.name, zip(to.messages, self.natives(values), strict=True)
        for place, (message, value) in enumerate(pairs):
            if value is None:
                if self.required:
                    to.fail(place, f"The value at {self.path} is missing")
                continue
            try:
                setattr(message, name, value)
            except (TypeError, ValueError) as error:
                to.fail(place, f"{error}, at {self.path}")


@dataclass(frozen=True)
class FillField(Filler):
    """Fills a message field."""

    name: str
    filler: Filler
    path: str
    required: bool = False

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        if self.required:
            for place in _nulls(values):
                to.fail(place, f"The value at {self.path} is missing")
        places = _places(values)
        targets = [getattr(to.messages[place], self.name) for place in places]
        for target in targets:
            target.SetInParent()
        self.filler.fill(to.within(places, targets), values.drop_null())


@dataclass(frozen=True)
class AddItems(Filler):
    """Adds items to a repeated field."""

    name: str
    item: Natives | Filler
    path: str

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        counts = pc.list_value_length(values).fill_null(0).to_pylist()
        flat = values.flatten()
        owners = [place for place, count in enumerate(counts) for _ in range(count)]
        if flat.null_count:
            for item in _nulls(flat):
                to.fail(owners[item], f"There is a null in the list at {self.path}")
            owners = [owners[item] for item in _places(flat)]
            flat = flat.drop_null()
        if isinstance(self.item, Filler):
            targets = [getattr(to.messages[place], self.name).add() for place in owners]
            self.item.fill(to.within(owners, targets), flat)
            return
        lists = [getattr(each, self.name) for each in to.messages]
        for place, value in zip(owners, self.item(flat), strict=True):
            try:
                lists[place].append(value)
            except (TypeError, ValueError) as error:
                to.fail(place, f"{error}, at {self.path}")


@dataclass(frozen=True)
class PutEntries(Filler):
    """Puts entries into a map field."""

    name: str
    key: Natives
    value: Natives | Filler
    path: str

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        owners, keys, items = _entries(values)
        maps = [getattr(each, self.name) for each in to.messages]
        natives = self.key(keys)
        null = f"There is a null in the map at {self.path}"
        if isinstance(self.value, Filler):
            places = _places(items)
            targets = [maps[owners[place]][natives[place]] for place in places]
            own = to.within([owners[place] for place in places], targets)
            self.value.fill(own, items.drop_null())
            for place in _nulls(items):
                to.fail(owners[place], null)
            return
        for owner, key, value in zip(owners, natives, self.value(items), strict=True):
            try:
                maps[owner][key] = value
            except (TypeError, ValueError) as error:
                to.fail(owner, null if value is None else f"{error}, at {self.path}")


@dataclass(frozen=True)
class AddEntries(Filler):
    """Adds the entries of a map with keys that Protobuf's maps do not support."""

    name: str
    key: Filler
    value: Filler

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        owners, keys, items = _entries(values)
        added = [getattr(to.messages[place], self.name).add() for place in owners]
        own = to.within(owners, added)
        self.key.fill(own, keys)
        self.value.fill(own, items)


@dataclass(frozen=True)
class FillChoice(Filler):
    """Sets one field of a `oneof`, from a struct with exactly one field that is not null."""

    members: Sequence[Filler]
    path: str

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        places = _places(values)
        own = to.within(places, [to.messages[place] for place in places])
        columns = values.drop_null().flatten()
        for place, count in enumerate(_present(columns, len(places))):
            if count != 1:
                own.fail(place, f"Expected exactly one field, got {count}, at {self.path}")
        for member, column in zip(self.members, columns, strict=True):
            member.fill(own, column)


@dataclass(frozen=True)
class FillMessage(Filler):
    """Writes structs, none of them null, field by field.

    Args:
        parts: One filler for each field.
        choices: Groups of field positions; at most one field of a group may be set.
    """

    parts: Sequence[Filler]
    choices: Sequence[Sequence[int]] = ()

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        columns = values.flatten()
        for choice in self.choices:
            for place, count in enumerate(_present([columns[c] for c in choice], len(to.rows))):
                if count > 1:
                    to.fail(place, "More than one field of a oneof is set")
        for part, column in zip(self.parts, columns, strict=True):
            part.fill(to, column)


class FillLogical(Filler):
    """Writes values of a logical type, none of them null, into their messages."""

    def __init__(self, schema: Schema, path: str) -> None:
        """Create a filler for the logical type of ``schema``."""
        self._fill = message_filler(schema)
        self._path = path

    @override
    def fill(self, to: Targets, values: pa.Array) -> None:
        pairs = zip(to.messages, natives(values), strict=True)
        for place, (message, value) in enumerate(pairs):
            try:
                self._fill(message, value)
            except ValueError as error:
                to.fail(place, f"{error}, at {self._path}")


def natives(values: pa.Array) -> list[Any]:
    """Return Python values, with numbers for dates and times and None for null.

    Converts through NumPy, as ``to_pylist`` takes several times as long.
    """
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    made: list[Any] = []
    if pa.types.is_primitive(values.type):
        filled = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
        made = filled.to_numpy(zero_copy_only=False).tolist()
        for place in _nulls(values) if values.null_count else ():
            made[place] = None
    elif pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        try:
            made = values.to_numpy(zero_copy_only=False).tolist()
        except (UnicodeDecodeError, pa.ArrowException):
            # Spark's strings can be invalid UTF-8. Messages accept bytes for a string and check
            # their encoding.
            made = natives(values.cast(pa.binary()))
    else:
        made = values.to_pylist()
    return made


def unsigned(values: pa.Array) -> list[Any]:
    """Return the unsigned numbers with the same bits: Kafka Connect has no unsigned types."""
    return natives(values.view(pa.uint64()))


def _places(values: pa.Array) -> Sequence[int]:
    if not values.null_count:
        return range(len(values))
    places: list[int] = pc.indices_nonzero(values.is_valid()).to_pylist()
    return places


def _nulls(values: pa.Array) -> list[int]:
    places: list[int] = pc.indices_nonzero(values.is_null()).to_pylist()
    return places


def _entries(maps: pa.Array) -> tuple[list[int], pa.Array, pa.Array]:
    """Return the position of each entry's map, and all keys and values."""
    offsets = maps.drop_null().offsets.to_pylist()
    owners = [
        place
        for place, start, end in zip(_places(maps), offsets, offsets[1:], strict=False)
        for _ in range(start, end)
    ]
    valid, first = maps.drop_null(), offsets[0]
    return owners, valid.keys.slice(first, len(owners)), valid.items.slice(first, len(owners))


def _present(columns: Sequence[pa.Array], rows: int) -> list[int]:
    """Return for each row how many columns have a value."""
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
    """Return a filler of messages from records. Raises RecordError if they do not fit."""
    return _Planning(options).message(schema, type_, "")


class _Planning:
    def __init__(self, options: ProtoOptions) -> None:
        self._options = options

    def message(self, schema: Schema, type_: ProtoType, path: str) -> Filler:
        if schema.type is not Type.STRUCT and type_.name in WRAPPERS:
            value = _taken(schema, type_.fields[0].type, path)
            return SetField("value", value, path)
        if schema.type is not Type.STRUCT:
            raise _misfit(schema, type_, path)
        parts: list[Filler] = []
        part: Filler
        used: list[ProtoField] = []
        alone: dict[int, ProtoField] = {}
        for each in schema.fields:
            if is_union(each.schema):
                members = [
                    self._member(f.name, f.schema, type_, path) for f in each.schema.fields
                ]
                part = FillChoice([member for member, _ in members], _at(path, each.name))
                used += [field for _, field in members]
            else:
                part, field = self._member(each.name, each.schema, type_, path)
                used.append(field)
                alone[each.index] = field
            parts.append(part)
        lacking = [field.name for field in type_.fields if field.required and field not in used]
        if lacking:
            problem = (
                f"The records do not have the fields {', '.join(lacking)}, which "
                f"{type_.name} requires."
            )
            raise RecordError(problem=problem)
        oneofs = dict.fromkeys(field.oneof for field in alone.values() if field.oneof)
        choices = [[at for at, field in alone.items() if field.oneof == one] for one in oneofs]
        return FillMessage(parts, choices)

    def _member(
        self, name: str, schema: Schema, type_: ProtoType, path: str
    ) -> tuple[Filler, ProtoField]:
        own = scrubbed(name) if self._options.scrubs else name
        field = type_.field(own)
        if field is None:
            problem = f"The Protobuf message {type_.name} does not have the field {own}."
            raise RecordError(problem=problem)
        return self._part(schema, field, _at(path, name)), field

    def _part(self, schema: Schema, field: ProtoField, path: str) -> Filler:
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

    def _map(self, schema: Schema, field: ProtoField, path: str) -> Filler:
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


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _misfit(schema: Schema, type_: ProtoType, path: str) -> RecordError:
    kind, named = schema.name or schema.type.value, type_.name or type_.kind
    where = f" at {path}" if path else ""
    return RecordError(problem=f"Cannot write values of {kind} as Protobuf {named}{where}.")
