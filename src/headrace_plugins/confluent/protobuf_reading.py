"""What a Protobuf message is to Kafka Connect, as Confluent's converter has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.logical import MAX_PRECISION
from headrace_plugins.confluent.protobuf_types import (
    DATE_MESSAGE,
    DECIMAL_MESSAGE,
    MESSAGE,
    TIME_MESSAGE,
    TIMESTAMP_MESSAGE,
    WRAPPERS,
)

if TYPE_CHECKING:
    from headrace_plugins.confluent.protobuf_options import ProtoOptions
    from headrace_plugins.confluent.protobuf_types import ProtoField, ProtoType

_SPACE = "io.confluent.connect.protobuf"
ENUM_FACT = f"{_SPACE}.Enum"
UNION = f"{_SPACE}.Union"
TAG = f"{_SPACE}.Tag"
TYPE = f"{_SPACE}.Type"
WRAPPER = f"{_SPACE}.Wrapper"
CONNECT_TYPE = "connect.type"
SMALL = {"int8": Schema.int8(), "int16": Schema.int16()}
LOGICAL = {
    DATE_MESSAGE: Schema.date(),
    TIME_MESSAGE: Schema.time(),
    TIMESTAMP_MESSAGE: Schema.timestamp(),
}
UNKNOWN_SCALE = 18
"""The scale of a Decimal whose field does not tell it. To Confluent's converter it is 0, and
the values have others; here values have the scale of their schema, and 0 would fit few."""

_SCALARS = {
    "double": Schema.float64(),
    "float": Schema.float32(),
    "bool": Schema.boolean(),
    "string": Schema.string(),
    "bytes": Schema.bytes(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), Schema.int32()),
    **dict.fromkeys(
        ("int64", "uint64", "fixed64", "uint32", "fixed32", "sfixed64", "sint64"),
        Schema.int64(),
    ),
}
_PLAIN = {"int32", "int64", "double", "float", "bool", "string", "bytes"}


def connect_of(type_: ProtoType, options: ProtoOptions) -> Schema:
    """Return the schema of records that are a message."""
    if options.raw_wrappers and type_.name in WRAPPERS:
        return _SCALARS[WRAPPERS[type_.name]]
    return _Reading(options).message(type_)


def is_wrapped(type_: ProtoType, options: ProtoOptions) -> bool:
    """Return whether a field of this type is read as the value that its message wraps."""
    return options.wrappers and type_.kind == MESSAGE and type_.name in WRAPPERS


class _Reading:
    def __init__(self, options: ProtoOptions) -> None:
        self._options = options

    def message(self, type_: ProtoType) -> Schema:
        fields: dict[str, Schema] = {}
        for name, place in type_.oneofs:
            members = type_.oneof(name, place)
            if self._options.flat_unions:
                fields |= {each.name: self.field(each) for each in members}
            else:
                own = self._options.union_field(name, place)
                fields[own] = self._union(type_, name, members)
        rest = {each.name: self.field(each) for each in type_.fields if not each.oneof}
        if twice := fields.keys() & rest.keys():
            problem = f"The fields of {type_.name} have one name: {', '.join(sorted(twice))}."
            raise RecordError(problem=problem)
        fields |= rest
        return Schema.struct(fields, name=self._name(type_))

    def _union(self, type_: ProtoType, name: str, members: list[ProtoField]) -> Schema:
        told = f"{type_.name}.{name}" if self._options.enhanced else name
        fields = {each.name: self.field(each) for each in members}
        return Schema.struct(fields, name=f"{UNION}.{told}", optional=True)

    def field(self, field: ProtoField) -> Schema:
        """Return the schema of a field."""
        schema = self._value(field)
        if field.repeated:
            schema = Schema.array(schema.replaced(optional=True), optional=True)
        parameters = {**schema.parameters, TAG: str(field.number)}
        if field.oneof is not None and is_wrapped(field.type, self._options):
            parameters[WRAPPER] = "true"
        optional = schema.optional or self._is_optional(field)
        return schema.replaced(parameters=parameters, optional=optional)

    def _is_optional(self, field: ProtoField) -> bool:
        if field.oneof is not None:
            return True
        return field.optional if self._options.words else not self._options.wrappers

    def _name(self, type_: ProtoType) -> str:
        return type_.name if self._options.enhanced else type_.short_name

    def _value(self, field: ProtoField) -> Schema:
        type_ = field.type
        match type_.kind:
            case "message":
                return self._of_message(field).replaced(optional=True)
            case "map":
                return self._of_map(type_)
            case "enum":
                return self._of_enum(type_)
        small = field.facts.get(CONNECT_TYPE)
        if small in SMALL and type_.kind in {"int32", "sint32", "sfixed32"}:
            return SMALL[small]
        parameters = {} if type_.kind in _PLAIN else {TYPE: type_.kind}
        return _SCALARS[type_.kind].replaced(parameters=parameters)

    def _of_message(self, field: ProtoField) -> Schema:
        type_ = field.type
        if type_.name == DECIMAL_MESSAGE:
            return _decimal(field)
        if type_.name in LOGICAL:
            return LOGICAL[type_.name]
        if is_wrapped(type_, self._options):
            return _SCALARS[WRAPPERS[type_.name]]
        return self.message(type_)

    def _of_map(self, type_: ProtoType) -> Schema:
        key, value = (self.field(each) for each in type_.fields)
        name = self._name(type_).removesuffix("Entry")
        # What Guava makes of a name in camel case that ought to have underscores.
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        return Schema.map(key, value, name=name, optional=True)

    def _of_enum(self, type_: ProtoType) -> Schema:
        symbols = {f"{ENUM_FACT}.{name}": str(n) for name, n in type_.symbols.items()}
        make = Schema.int32 if self._options.enum_numbers else Schema.string
        parameters = {ENUM_FACT: type_.short_name, **symbols}
        return make(name=self._name(type_), parameters=parameters, optional=True)


def _decimal(field: ProtoField) -> Schema:
    precision, scale = (_whole(field.facts.get(key)) for key in ("precision", "scale"))
    known = precision is not None and 0 < precision <= MAX_PRECISION
    return Schema.decimal(
        UNKNOWN_SCALE if scale is None else scale, precision=precision if known else None
    )


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def is_union(schema: Schema) -> bool:
    """Return whether a schema is that of a `oneof`."""
    return schema.type is Type.STRUCT and (schema.name or "").startswith(UNION)
