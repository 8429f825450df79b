"""Converts record schemas to Protobuf schemas and back, as Confluent's converter does."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.schema import DECIMAL, MAX_PRECISION, PRECISION, SCALE, VARIANT
from headrace_plugins.confluent.protobuf_types import (
    DATE_MESSAGE,
    DECIMAL_MESSAGE,
    MESSAGE,
    TIME_MESSAGE,
    TIMESTAMP_MESSAGE,
    WRAPPERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace_plugins.confluent.protobuf_converter import ProtoOptions
    from headrace_plugins.confluent.protobuf_types import ProtoField, ProtoType


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def scrubbed(name: str) -> str:
    """Return a name that Protobuf allows; a valid name stays unchanged.

    As in Confluent's converter, characters other than letters, digits and underscores are
    URL-encoded, with underscores instead of percent signs.
    """
    if _NAME.fullmatch(name):
        return name
    # Java's URLEncoder keeps the asterisk and encodes the tilde.
    encoded = quote_plus(name, safe="*").replace("~", "%7E")
    if encoded[:1].isdigit() or encoded.startswith("_"):
        encoded = f"x{encoded}"
    return re.sub(r"[^A-Za-z0-9_]", "_", encoded)


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
"""The scale of a Decimal whose field does not specify one. Confluent's converter uses 0, and
its values have other scales; here values have their schema's scale, and few would fit 0."""

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
    """Return the record schema of a message."""
    if options.raw_wrappers and type_.name in WRAPPERS:
        return _SCALARS[WRAPPERS[type_.name]]
    return _Reading(options).message(type_)


def is_wrapped(type_: ProtoType, options: ProtoOptions) -> bool:
    """Return whether a field of this type is a wrapper message that is read as its value."""
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
            problem = (
                f"{type_.name} has several fields with the same name: "
                f"{', '.join(sorted(twice))}."
            )
            raise RecordError(problem=problem)
        fields |= rest
        return Schema.struct(fields, name=self._name(type_))

    def _union(self, type_: ProtoType, name: str, members: list[ProtoField]) -> Schema:
        named = f"{type_.name}.{name}" if self._options.enhanced else name
        fields = {each.name: self.field(each) for each in members}
        return Schema.struct(fields, name=f"{UNION}.{named}", optional=True)

    def field(self, field: ProtoField) -> Schema:
        """Return the schema of a field."""
        schema = self._value(field)
        if field.repeated:
            schema = Schema.array(schema.replaced(optional=True), optional=True)
        parameters = {**schema.parameters, TAG: str(field.number)}
        if field.oneof is not None and is_wrapped(field.type, self._options):
            parameters[WRAPPER] = "true"
        words, wrappers = self._options.words, self._options.wrappers
        marked = field.optional if words else not wrappers
        optional = schema.optional or field.oneof is not None or marked
        return schema.replaced(parameters=parameters, optional=optional)

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
        # As Guava converts a name from camel case to underscores.
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        return Schema.map(key, value, name=name, optional=True)

    def _of_enum(self, type_: ProtoType) -> Schema:
        symbols = {f"{ENUM_FACT}.{name}": str(n) for name, n in type_.symbols.items()}
        make = Schema.int32 if self._options.enum_numbers else Schema.string
        parameters = {ENUM_FACT: type_.short_name, **symbols}
        return make(name=self._name(type_), parameters=parameters, optional=True)


def _decimal(field: ProtoField) -> Schema:
    found: dict[str, int] = {}
    for key in ("precision", "scale"):
        with suppress(KeyError, ValueError):
            found[key] = int(field.facts[key])
    known = 0 < found.get("precision", 0) <= MAX_PRECISION
    return Schema.decimal(
        found.get("scale", UNKNOWN_SCALE), precision=found["precision"] if known else None
    )


def is_union(schema: Schema) -> bool:
    """Return whether a schema represents a `oneof`."""
    return schema.type is Type.STRUCT and (schema.name or "").startswith(UNION)


_UNNAMED = "ConnectDefault"
_WORDS = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_SAME_TYPE = {
    "int32": {"sint32", "sfixed32"},
    "int64": {"uint32", "fixed32", "uint64", "fixed64", "sint64", "sfixed64"},
}
_SMALL = {Type.INT8: "int8", Type.INT16: "int16"}
_WRAPPED = {word: name for name, word in WRAPPERS.items()}
_WRAPPED |= {"fixed32": _WRAPPED["uint32"], "fixed64": _WRAPPED["uint64"]}
_KEYS = {Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING}
_LOGICAL = {schema.name: name for name, schema in LOGICAL.items()}
_FILES = {
    DECIMAL_MESSAGE: "confluent/type/decimal.proto",
    "google.type.Date": "google/type/date.proto",
    "google.type.TimeOfDay": "google/type/timeofday.proto",
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    **dict.fromkeys(WRAPPERS, "google/protobuf/wrappers.proto"),
}
_META = "confluent/meta.proto"


@dataclass(frozen=True)
class Written:
    """The text of a .proto file, and the full name of the message for the records."""

    text: str
    name: str


def proto_of(schema: Schema, options: ProtoOptions) -> Written:
    """Return a .proto file for records of a schema. Raises RecordError if there is none."""
    if schema.type is Type.STRUCT:
        return _Writing(options).file(schema)
    if schema.type not in _WORDS or (schema.is_logical and schema.name != VARIANT):
        kind = schema.name or schema.type.value
        raise RecordError(problem=f"Cannot write records of {kind} as a Protobuf message.")
    return Written(_wrappers(), _WRAPPED[_WORDS[schema.type]])


def _wrappers() -> str:
    """Return the text of the file with the wrapper messages."""
    lines = ['syntax = "proto3";', "package google.protobuf;"]
    for name, word in WRAPPERS.items():
        lines += ["", f"message {name.rpartition('.')[2]} {{", f"  {word} value = 1;", "}"]
    return "\n".join(lines) + "\n"


@dataclass
class _Scope:
    """The names defined in a message that is being written, and in the enclosing messages."""

    around: _Scope | None = None
    known: dict[str, Schema] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def has(self, name: str, schema: Schema) -> bool:
        """Return whether a name is defined; raise RecordError if with another schema."""
        if name in self.known:
            if _nature(self.known[name]) != _nature(schema):
                problem = f"Two different schemas have the name {name}."
                raise RecordError(problem=problem)
            return True
        return self.around is not None and self.around.is_known_as(name, schema)

    def is_known_as(self, name: str, schema: Schema) -> bool:
        if name in self.known:
            return _nature(self.known[name]) == _nature(schema)
        return self.around is not None and self.around.is_known_as(name, schema)


def _nature(schema: Schema) -> Schema:
    """Return a schema without the parameters of the field that uses it."""
    facts = {key: v for key, v in schema.parameters.items() if key not in {TAG, WRAPPER}}
    return schema.bare().replaced(parameters=facts)


class _Writing:
    def __init__(self, options: ProtoOptions) -> None:
        self._options = options
        self._imports: set[str] = set()
        self._unnamed = count(1)
        self._space: list[str] = []

    def file(self, schema: Schema) -> Written:
        parts = [self._allowed(part) for part in self._full(schema).split(".")]
        space, name = ".".join(parts[:-1]), parts[-1]
        self._space = parts[:-1]
        body = self._message(name, schema, None)
        head = ['syntax = "proto3";', *([f"package {space};"] if space else [])]
        imports = [f'import "{path}";' for path in sorted(self._imports)]
        blocks = [head, imports, body]
        text = "\n\n".join("\n".join(block) for block in blocks if block)
        return Written(text + "\n", ".".join(parts))

    def _full(self, schema: Schema) -> str:
        return schema.name or f"{_UNNAMED}{next(self._unnamed)}"

    def _allowed(self, name: str) -> str:
        name = scrubbed(name) if self._options.scrubs else name
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            problem = f"Protobuf does not allow the name {name}; see scrub.invalid.names."
            raise RecordError(problem=problem)
        return name

    def _message(self, name: str, schema: Schema, around: _Scope | None) -> list[str]:
        scope = _Scope(around)
        numbers = _numbers(schema)
        fields: list[str] = []
        for each in schema.fields:
            if is_union(each.schema):
                members = [
                    self._field(f.name, f.schema, scope, numbers, in_choice=True)
                    for f in each.schema.fields
                ]
                own = (each.schema.name or "").removeprefix(f"{UNION}.").rpartition(".")[2]
                fields += _block(f"oneof {self._allowed(own or each.name)}", members)
            else:
                fields.append(self._field(each.name, each.schema, scope, numbers))
        return _block(f"message {name}", [*fields, *scope.lines])

    def _field(
        self,
        name: str,
        schema: Schema,
        scope: _Scope,
        numbers: Iterator[int],
        *,
        in_choice: bool = False,
    ) -> str:
        own, tag = self._allowed(name), schema.parameters.get(TAG)
        label, value = "", schema
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            label, value = "repeated ", schema.value_schema
        elif schema.key_schema is not None and schema.key_schema.type not in _KEYS:
            label = "repeated "
        elif schema.key_schema is None and schema.optional and not in_choice:
            label = "optional " if self._options.words else ""
        marked = not in_choice or value.parameters.get(WRAPPER) == "true"
        wraps = self._options.wrappers and value.optional and marked
        kind, facts = self._type(own, value, scope, wraps=wraps)
        number = int(tag) if tag is not None and tag.isdecimal() else next(numbers)
        return f"{label}{kind} {own} = {number}{self._facts(facts)};"

    def _facts(self, facts: Mapping[str, str]) -> str:
        if not facts:
            return ""
        self._imports.add(_META)
        pairs = ", ".join(
            f"{{key: {json.dumps(key)}, value: {json.dumps(value)}}}"
            for key, value in facts.items()
        )
        return f" [(confluent.field_meta) = {{params: [{pairs}]}}]"

    def _type(
        self, name: str, schema: Schema, scope: _Scope, *, wraps: bool
    ) -> tuple[str, Mapping[str, str]]:
        if schema.is_logical and schema.name != VARIANT:
            return self._of_logical(schema)
        match schema.type:
            case Type.STRUCT if not is_union(schema):
                return self._of_struct(name, schema, scope), {}
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                return self._of_map(name, schema, scope), {}
            case Type.ARRAY | Type.MAP | Type.STRUCT:
                problem = (
                    f"Protobuf does not support a {schema.type.value.lower()} in an array or a "
                    "map."
                )
                raise RecordError(problem=problem, field=name)
        if ENUM_FACT in schema.parameters and schema.type in {Type.STRING, Type.INT32}:
            return self._of_enum(schema, scope), {}
        word = _WORDS[schema.type]
        own = schema.parameters.get(TYPE, word)
        word = own if own in _SAME_TYPE.get(word, ()) else word
        small = _SMALL.get(schema.type)
        facts = {} if small is None else {CONNECT_TYPE: small}
        if not wraps:
            return word, facts
        wrapper = _WRAPPED.get(word, _WRAPPED[_WORDS[schema.type]])
        return self._imported(wrapper), facts

    def _imported(self, name: str) -> str:
        self._imports.add(_FILES[name])
        # A leading dot makes the name absolute. Needed if the own package contains its first
        # part, which would otherwise be resolved inside that package.
        return f".{name}" if name.partition(".")[0] in self._space else name

    def _of_logical(self, schema: Schema) -> tuple[str, Mapping[str, str]]:
        if schema.name != DECIMAL:
            return self._imported(_LOGICAL[schema.name]), {}
        words = {"precision": PRECISION, "scale": SCALE}
        facts = {
            word: schema.parameters[key]
            for word, key in words.items()
            if key in schema.parameters
        }
        return self._imported(DECIMAL_MESSAGE), facts

    def _of_struct(self, field_name: str, schema: Schema, scope: _Scope) -> str:
        name = self._allowed(self._full(schema).rpartition(".")[2])
        # A field and a nested message of the same message need different names.
        name = f"{name}Message" if name == field_name else name
        if not scope.has(name, schema):
            scope.known[name] = schema
            scope.lines += self._message(name, schema, scope)
        return name

    def _of_map(self, field_name: str, schema: Schema, scope: _Scope) -> str:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        if keys.type in _KEYS and not keys.is_logical and ENUM_FACT not in keys.parameters:
            key, _ = self._type(field_name, keys, scope, wraps=False)
            value, _ = self._type(field_name, values, scope, wraps=False)
            return f"map<{key}, {value}>"
        name = "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"
        entry = Schema.struct({"key": keys, "value": values})
        if not scope.has(name, entry):
            scope.known[name] = entry
            scope.lines += self._message(name, entry, scope)
        return name

    def _of_enum(self, schema: Schema, scope: _Scope) -> str:
        name = self._allowed((schema.name or schema.parameters[ENUM_FACT]).rpartition(".")[2])
        if scope.has(name, schema):
            return name
        scope.known[name] = schema
        prefix = f"{ENUM_FACT}."
        symbols = {
            self._allowed(key.removeprefix(prefix)): int(number)
            for key, number in schema.parameters.items()
            if key.startswith(prefix)
        }
        # The first symbol must be zero; the order of the others does not matter.
        ordered = sorted(symbols.items(), key=lambda pair: pair[1] != 0)
        lines = [f"{symbol} = {number};" for symbol, number in ordered]
        if len(set(symbols.values())) < len(symbols):
            lines.insert(0, "option allow_alias = true;")
        scope.lines += _block(f"enum {name}", lines)
        return name


def _block(head: str, lines: list[str]) -> list[str]:
    return [f"{head} {{", *(f"  {line}" for line in lines), "}"]


def _numbers(schema: Schema) -> Iterator[int]:
    """Yield the field numbers that no field of a message specifies itself."""
    members = [f.schema for f in schema.fields]
    members += [f.schema for each in members if is_union(each) for f in each.fields]
    taken = {int(tag) for m in members if (tag := m.parameters.get(TAG, "")).isdecimal()}
    return (number for number in count(1) if number not in taken)
