"""Which fields of a message the values of a schema go into."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.sdk import RecordError, Type
from headrace.sdk.logical import DECIMAL, VARIANT
from headrace_plugins.confluent.protobuf_filling import (
    AddEntries,
    AddItems,
    FillChoice,
    Filler,
    FillField,
    FillLogical,
    FillMessage,
    FillWrapper,
    PutEntries,
    SetField,
    natives,
    unsigned,
)
from headrace_plugins.confluent.protobuf_names import scrubbed
from headrace_plugins.confluent.protobuf_reading import LOGICAL, is_union
from headrace_plugins.confluent.protobuf_types import (
    DECIMAL_MESSAGE,
    ENUM,
    MAP,
    MESSAGE,
    WRAPPERS,
)

if TYPE_CHECKING:
    from headrace.sdk import Schema
    from headrace_plugins.confluent.protobuf_filling import Natives, Part
    from headrace_plugins.confluent.protobuf_options import ProtoOptions
    from headrace_plugins.confluent.protobuf_types import ProtoField, ProtoType

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
    return RecordError(problem=f"Values of {kind} are no Protobuf {named}{where}.")
