"""Converts record schemas to Avro schemas and back, as Confluent's converter does."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.connectjson import connect_schema, json_from_native, native_from_value
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    LOGICAL_BASES,
    TIME,
    TIMESTAMP,
    decimal_parameters,
    precision_of,
    scale_of,
)
from headrace.sdk.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator


SIMPLE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
MAX_DIGITS = 38
"""The maximum precision of Spark's decimals."""
_DEEP = 60


@dataclass(frozen=True)
class AvroField:
    """A field of a record; ``has_default`` distinguishes a null default from none."""

    name: str
    type: AvroType
    doc: str | None = None
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True)
class AvroType:
    """An Avro schema.

    Args:
        kind: Avro's name of the type.
        name: The full name of a record, an enum or a fixed.
        facts: The JSON object of the schema, with all its properties.
        fields: The fields of a record.
        parts: The type of an array's items or a map's values; the branches of a union.
    """

    kind: str
    name: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()

    @property
    def logical(self) -> str | None:
        """The logical type, if it is valid for the type; Avro ignores others."""
        name = self.facts.get("logicalType")
        return name if name in _LOGICAL_KINDS.get(self.kind, ()) else None

    @property
    def optional_part(self) -> AvroType | None:
        """The other type of a union of null and one other type, else None."""
        if self.kind != "union" or len(self.parts) != 2:  # noqa: PLR2004 - null and another
            return None
        others = self.branches
        return others[0] if len(others) == 1 else None

    @property
    def branches(self) -> tuple[AvroType, ...]:
        """The branches of a union except null."""
        return tuple(part for part in self.parts if part.kind != "null")

    @property
    def only_part(self) -> AvroType | None:
        """The type of a union of only one type, else None."""
        return self.parts[0] if self.kind == "union" and len(self.parts) == 1 else None

    @property
    def is_nullable(self) -> bool:
        """Whether null is a valid value."""
        return self.kind == "null" or any(part.kind == "null" for part in self.parts)

    @property
    def is_entry(self) -> bool:
        """Whether it is an array that represents a map with keys other than strings."""
        if self.kind != "array" or self.parts[0].kind != "record":
            return False
        entry = self.parts[0]
        named = entry.name == "io.confluent.connect.avro.MapEntry"
        internal = entry.facts.get("connect.internal.type") == "MapEntry"
        return (named or internal) and [f.name for f in entry.fields] == ["key", "value"]

    @property
    def digits(self) -> tuple[int, int]:
        """The precision, at most 38, and the scale of a decimal."""
        precision = self.facts.get("precision")
        scale = self.facts.get("scale", 0)
        known = precision if isinstance(precision, int) else MAX_DIGITS
        return min(known, MAX_DIGITS), scale if isinstance(scale, int) else 0


_LOGICAL_KINDS = {
    "bytes": ("decimal",),
    "fixed": ("decimal",),
    "int": ("date", "time-millis"),
    "long": ("timestamp-millis", "timestamp-micros", "time-micros"),
}


def parse_avro(text: str, references: Mapping[str, str] | None = None) -> AvroType:
    """Parse a schema in JSON. ``references`` are the schemas it uses, dependencies first.

    Raises RecordError if the schema is invalid, or recursive, which columns do not support.
    """
    parser = _Parser()
    try:
        for other in (references or {}).values():
            parser.type(json.loads(other), "", 0)
        return parser.type(json.loads(text), "", 0)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(problem=f"Invalid Avro schema: {error!r}.") from error


class _Parser:
    def __init__(self) -> None:
        self._known: dict[str, AvroType | None] = {}

    def type(self, tree: Any, space: str, depth: int) -> AvroType:
        if depth > _DEEP:
            raise RecordError(problem="The Avro schema is nested too deeply.")
        if isinstance(tree, list):
            parts = tuple(self.type(part, space, depth + 1) for part in tree)
            return AvroType("union", parts=parts)
        if isinstance(tree, str):
            return AvroType(tree) if tree in SIMPLE else self._named(tree, space)
        kind = tree["type"]
        if not isinstance(kind, str) or (kind not in SIMPLE | NAMED | {"array", "map"}):
            return self.type(kind, space, depth + 1)
        if kind in NAMED:
            return self._definition(tree, kind, space, depth)
        if kind in SIMPLE:
            return AvroType(kind, facts=tree)
        part = self.type(tree["items" if kind == "array" else "values"], space, depth + 1)
        return AvroType(kind, facts=tree, parts=(part,))

    def _named(self, name: str, space: str) -> AvroType:
        for full in (_full(name, space), name):
            if full in self._known:
                found = self._known[full]
                if found is None:
                    raise RecordError(problem=f"The Avro schema {full} contains itself.")
                return found
        raise RecordError(problem=f"The Avro schema does not define {name}.")

    def _definition(
        self, tree: Mapping[str, Any], kind: str, space: str, depth: int
    ) -> AvroType:
        own = tree.get("namespace")
        name = _full(tree["name"], space if own is None else own)
        self._known[name] = None
        fields = []
        if kind in {"record", "error"}:
            inner = name.rpartition(".")[0]
            fields = [self._field(each, inner, depth) for each in tree["fields"]]
            folded = {each.name.lower() for each in fields}
            if len(folded) != len(fields):
                raise RecordError(problem=f"Field names of {name} differ only in case.")
        elif kind == "fixed":
            int(tree["size"])
        else:
            list(tree["symbols"])
        kind = "record" if kind == "error" else kind
        made = AvroType(kind, name, tree, tuple(fields))
        self._known[name] = made
        return made

    def _field(self, tree: Mapping[str, Any], space: str, depth: int) -> AvroField:
        return AvroField(
            name=str(tree["name"]),
            type=self.type(tree["type"], space, depth + 1),
            doc=tree.get("doc"),
            default=tree.get("default"),
            has_default="default" in tree,
        )


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def engine_tree(type_: AvroType, names: Iterator[int] | None = None) -> Any:
    """Return a schema with the same encoding that Spark maps to exact column types.

    Names are replaced, as Spark does not need them. The branches of a union of several types
    become records with one field ``x``, as Spark would merge some of them. Logical types that
    Spark does not know are removed.
    """
    names = count() if names is None else names
    own = f"t{next(names)}"
    match type_.kind:
        case "record":
            fields = [
                {"name": f.name, "type": engine_tree(f.type, names)} for f in type_.fields
            ]
            return {"type": "record", "name": own, "fields": fields}
        case "enum":
            return {"type": "enum", "name": own, "symbols": type_.facts["symbols"]}
        case "fixed":
            return {
                "type": "fixed",
                "name": own,
                "size": type_.facts["size"],
                **_spark_facts(type_),
            }
        case "array":
            return {"type": "array", "items": engine_tree(type_.parts[0], names)}
        case "map":
            return {"type": "map", "values": engine_tree(type_.parts[0], names)}
        case "union":
            branches = []
            for part in type_.parts:
                tree = engine_tree(part, names)
                if len(type_.branches) > 1 and part.kind != "null":
                    fields = [{"name": "x", "type": tree}]
                    tree = {"type": "record", "name": f"t{next(names)}", "fields": fields}
                branches.append(tree)
            return branches
        case _:
            return {"type": type_.kind, **_spark_facts(type_)}


def _spark_facts(type_: AvroType) -> dict[str, Any]:
    """Return the properties of a type that Spark reads."""
    logical = type_.logical
    if logical == "decimal":
        precision, scale = type_.digits
        return {"logicalType": logical, "precision": precision, "scale": scale}
    if logical in {"date", "timestamp-millis", "timestamp-micros"}:
        return {"logicalType": logical}
    return {}


UNION = "io.confluent.connect.avro.Union"
ENUM = "io.confluent.connect.avro.Enum"
UNNAMED = "io.confluent.connect.avro.ConnectDefault"
FIXED_SIZE = "connect.fixed.size"
LEGACY_PRECISION = 64
"""The precision that Confluent's converter writes for a Decimal of unknown precision."""

_TYPES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    "date": DATE,
    "time-millis": TIME,
    "time-micros": TIME,
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
}
_MICROS = frozenset({"time-micros", "timestamp-micros"})
_SMALL = frozenset({"int8", "int16"})


def connect_of(type_: AvroType, *, enhanced: bool = False) -> Schema:
    """Return the record schema of an Avro type.

    If ``enhanced``, the fields of unions are named by the full names of the branches. Raises
    RecordError if the type is not supported or a default does not fit.
    """
    schema = connect_schema(_Reading(enhanced=enhanced).tree(type_))
    assert schema is not None
    return schema


def member_name(type_: AvroType, *, enhanced: bool) -> str:
    """Return the name of the field for a branch of a union."""
    if type_.name is None:
        return type_.kind
    return type_.name if enhanced else type_.name.rpartition(".")[2]


class _Reading:
    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced

    def tree(self, type_: AvroType) -> dict[str, Any]:
        """Return the schema in Kafka Connect's JSON form."""
        if type_.kind == "union":
            return self._union(type_)
        return {**self._plain(type_), **self._facts(type_)}

    def _union(self, type_: AvroType) -> dict[str, Any]:
        if (only := type_.only_part) is not None:
            return self.tree(only)
        if (part := type_.optional_part) is not None:
            return {**self.tree(part), "optional": True}
        names = [member_name(part, enhanced=self._enhanced) for part in type_.branches]
        if not names or len(set(names)) != len(names):
            raise RecordError(problem=f"The branches of a union need different names: {names}.")
        fields = [
            {**self.tree(part), "optional": True, "field": name}
            for name, part in zip(names, type_.branches, strict=True)
        ]
        tree = {"type": "struct", "name": UNION, "fields": fields}
        return {**tree, "optional": type_.is_nullable}

    def _plain(self, type_: AvroType) -> dict[str, Any]:
        if type_.is_entry:
            key, value = (field.type for field in type_.parts[0].fields)
            return {"type": "map", "keys": self.tree(key), "values": self.tree(value)}
        match type_.kind:
            case "record":
                fields = [self._field(field) for field in type_.fields]
                return {"type": "struct", "fields": fields}
            case "array":
                return {"type": "array", "items": self.tree(type_.parts[0])}
            case "map":
                values = self.tree(type_.parts[0])
                return {"type": "map", "keys": {"type": "string"}, "values": values}
            case "null":
                problem = "Standalone null schemas are not supported by this converter"
                raise RecordError(problem=problem)
            case _:
                return self._scalar(type_)

    def _scalar(self, type_: AvroType) -> dict[str, Any]:
        tree: dict[str, Any] = {"type": _TYPES[type_.kind]}
        logical, small = type_.logical, type_.facts.get("connect.type")
        if logical == "decimal":
            _, scale = type_.digits
            precision = type_.facts.get("precision")
            known = isinstance(precision, int) and 0 < precision <= MAX_DIGITS
            tree["parameters"] = decimal_parameters(scale, precision if known else None)
            tree |= {"name": DECIMAL, "version": 1}
        elif logical is not None:
            name = _LOGICAL[logical]
            tree = {"type": LOGICAL_BASES[name].value.lower(), "name": name, "version": 1}
        elif type_.kind == "int" and small in _SMALL:
            tree["type"] = small
        if type_.kind == "fixed" and logical is None:
            tree["parameters"] = {FIXED_SIZE: str(type_.facts["size"])}
        if type_.kind == "enum":
            symbols = {f"{ENUM}.{symbol}": symbol for symbol in type_.facts["symbols"]}
            tree["parameters"] = {ENUM: str(type_.name), **symbols}
        return tree

    def _facts(self, type_: AvroType) -> dict[str, Any]:
        facts = type_.facts
        tree: dict[str, Any] = {}
        doc = facts.get("doc", facts.get("connect.doc"))
        if isinstance(doc, str):
            tree["doc"] = doc
        if isinstance(facts.get("connect.version"), int):
            tree["version"] = facts["connect.version"]
        if isinstance(facts.get("connect.parameters"), dict):
            plain = self._scalar(type_).get("parameters", {}) if type_.kind in _TYPES else {}
            tree["parameters"] = {**plain, **facts["connect.parameters"]}
        name = facts.get("connect.name", type_.name)
        if isinstance(name, str) and type_.logical is None and not name.startswith(UNNAMED):
            tree["name"] = name
        if facts.get("connect.default") is not None:
            tree["default"] = self._default(type_, facts["connect.default"])
        return tree

    def _field(self, field: AvroField) -> dict[str, Any]:
        tree = {**self.tree(field.type), "field": field.name}
        if isinstance(field.doc, str):
            tree["doc"] = field.doc
        if field.has_default and field.default is not None:
            tree["default"] = self._default(field.type, field.default)
        return tree

    def _default(self, type_: AvroType, value: Any) -> Any:
        """Return a default in Kafka Connect's JSON form."""
        if value is None:
            return None
        if type_.kind in {"bytes", "fixed"} and isinstance(value, str):
            return base64.b64encode(value.encode("latin-1")).decode()
        if type_.logical in _MICROS and isinstance(value, int):
            return value // 1000
        match type_.kind:
            case "union":
                return self._of_union(type_, value)
            case "record" if isinstance(value, dict):
                return {
                    field.name: self._default(field.type, value.get(field.name, field.default))
                    for field in type_.fields
                }
            case "array" if isinstance(value, list):
                return self._of_array(type_, value)
            case "map" if isinstance(value, dict):
                return {key: self._default(type_.parts[0], item) for key, item in value.items()}
            case _:
                return value

    def _of_union(self, type_: AvroType, value: Any) -> Any:
        one = type_.only_part or type_.optional_part
        if one is not None:
            return self._default(one, value)
        # The default of a union belongs to its first branch.
        names = [member_name(part, enhanced=self._enhanced) for part in type_.branches]
        first = {names[0]: self._default(type_.branches[0], value)}
        return dict.fromkeys(names) | first

    def _of_array(self, type_: AvroType, value: list[Any]) -> Any:
        items = [self._default(type_.parts[0], item) for item in value]
        if not type_.is_entry:
            return items
        pairs = [[item["key"], item["value"]] for item in items]
        return dict(pairs) if type_.parts[0].fields[0].type.kind == "string" else pairs


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE, _, _DEFAULT_NAME = UNNAMED.rpartition(".")
_KINDS = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_SMALL_NAMES = {Type.INT8: "int8", Type.INT16: "int16"}
_LOGICAL_NAMES = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}


def avro_of(schema: Schema, *, enhanced: bool = False, facts: bool = True) -> Any:
    """Return an Avro schema, as a JSON tree, for the non-null values of a schema.

    With ``enhanced``, strings that came from an enum become an enum again. With ``facts``,
    additional properties store what Avro has no syntax for. Raises RecordError for a name that
    Avro does not allow.
    """
    return _Writing(enhanced=enhanced, facts=facts).base(schema)


class _Writing:
    def __init__(self, *, enhanced: bool, facts: bool) -> None:
        self._enhanced = enhanced
        self._facts = facts
        self._unnamed = 0
        self._entries = 0
        self._known: dict[str, Schema] = {}
        self._defined: set[str] = set()

    def type(self, schema: Schema) -> Any:
        """Return the type, a union with null if the schema is optional."""
        if schema.name == UNION and schema.type is Type.STRUCT:
            return self._union(schema)
        base = self.base(schema)
        if not schema.optional:
            return base
        # The default of a union belongs to its first branch.
        return ["null", base] if schema.default is None else [base, "null"]

    def base(self, schema: Schema) -> Any:
        """Return the type without null."""
        if schema.name == UNION and schema.type is Type.STRUCT:
            return self._union(schema.replaced(optional=False))
        match schema.type:
            case Type.STRUCT:
                return self._record(schema)
            case Type.ARRAY if schema.value_schema is not None:
                tree = {"type": "array", "items": self.type(schema.value_schema)}
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                tree = self._map(schema.key_schema, schema.value_schema)
            case _:
                return self._scalar(schema)
        return self._with_facts(tree, schema)

    def _union(self, schema: Schema) -> list[Any]:
        branches = [self.base(field.schema) for field in schema.fields]
        return ["null", *branches] if schema.optional else branches

    def _record(self, schema: Schema) -> Any:
        name = schema.name
        if name is None:
            self._unnamed += 1
            name = f"{UNNAMED}{self._unnamed if self._unnamed > 1 else ''}"
        elif self._is_defined(name, schema):
            return name
        space, _, own = name.rpartition(".")
        for part in (*filter(None, space.split(".")), own):
            _check(part)
        tree: dict[str, Any] = {"type": "record", "name": own}
        if space:
            tree["namespace"] = space
        tree["fields"] = [self._field(f.name, f.schema) for f in schema.fields]
        return self._with_facts(tree, schema)

    def _is_defined(self, name: str, schema: Schema) -> bool:
        """Return whether a name is already defined; Avro allows one definition per name."""
        known = self._known.setdefault(name, schema.bare())
        if known != schema.bare():
            raise RecordError(problem=f"Two different schemas have the name {name}.")
        defined = name in self._defined
        self._defined.add(name)
        return defined

    def _field(self, name: str, schema: Schema) -> dict[str, Any]:
        _check(name)
        tree = {"name": name, "type": self.type(schema)}
        if schema.doc is not None and self._facts:
            tree["doc"] = schema.doc
        if schema.default is not None:
            tree["default"] = _default(schema, schema.default)
        elif schema.optional and tree["type"][0] == "null":
            tree["default"] = None
        return tree

    def _map(self, keys: Schema, values: Schema) -> dict[str, Any]:
        if keys.type is Type.STRING and not keys.optional and not keys.is_logical:
            return {"type": "map", "values": self.type(values)}
        self._entries += 1
        number = self._entries if self._entries > 1 else ""
        entry = {
            "type": "record",
            "name": f"MapEntry{number}",
            "namespace": _SPACE,
            "fields": [
                {"name": "key", "type": self.type(keys)},
                {"name": "value", "type": self.type(values)},
            ],
            "connect.internal.type": "MapEntry",
        }
        return {"type": "array", "items": entry}

    def _scalar(self, schema: Schema) -> Any:
        tree: dict[str, Any] = {"type": _KINDS[schema.type]}
        if self._enhanced and ENUM in schema.parameters and schema.type is Type.STRING:
            prefix = f"{ENUM}."
            symbols = [s for key, s in schema.parameters.items() if key.startswith(prefix)]
            if self._is_defined(schema.parameters[ENUM], schema):
                return schema.parameters[ENUM]
            tree = {"type": "enum", "name": schema.parameters[ENUM], "symbols": symbols}
        elif FIXED_SIZE in schema.parameters and schema.name is not None:
            size = int(schema.parameters[FIXED_SIZE])
            if self._is_defined(schema.name, schema):
                return schema.name
            tree = {"type": "fixed", "name": schema.name, "size": size}
        if schema.type in _SMALL_NAMES and self._facts:
            tree["connect.type"] = _SMALL_NAMES[schema.type]
        tree = self._with_facts(tree, schema)
        return tree["type"] if len(tree) == 1 else tree

    def _with_facts(self, tree: dict[str, Any], schema: Schema) -> dict[str, Any]:
        if self._facts:
            # Later uses of a name repeat its definition, whose default would not fit them.
            default = None if "name" in tree else _default(schema, schema.default)
            facts: Mapping[str, Any] = {
                "connect.doc": schema.doc,
                "connect.version": schema.version,
                "connect.parameters": dict(schema.parameters) or None,
                "connect.default": default,
                "connect.name": schema.name,
            }
            tree |= {key: fact for key, fact in facts.items() if fact is not None}
        if schema.is_logical:
            tree |= _logical(schema)
        return tree


def _logical(schema: Schema) -> dict[str, Any]:
    if schema.name != DECIMAL:
        name = _LOGICAL_NAMES.get(str(schema.name))
        return {} if name is None else {"logicalType": name}
    scale, precision = scale_of(schema.parameters) or 0, precision_of(schema.parameters)
    digits = LEGACY_PRECISION if precision is None else precision
    if not 0 <= scale <= digits:
        raise RecordError(
            problem=f"Avro does not support decimals of precision {digits} and scale {scale}."
        )
    return {"logicalType": "decimal", "precision": digits, "scale": scale}


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RecordError(problem=f"Illegal character in: {name}")


def _default(schema: Schema, value: Any) -> Any:
    """Return a default in Avro's JSON form."""
    if schema.is_logical and schema.name in _LOGICAL_DEFAULTS:
        return None if value is None else _LOGICAL_DEFAULTS[str(schema.name)](schema, value)
    match value:
        case Struct():
            return {
                field.name: _default(field.schema, value.get_without_default(field))
                for field in value.schema.fields
            }
        case bytes():
            return value.decode("latin-1")
        case Mapping() if schema.value_schema is not None and schema.key_schema is not None:
            keys, values = schema.key_schema, schema.value_schema
            if keys.type is Type.STRING and not keys.optional:
                return {key: _default(values, item) for key, item in value.items()}
            return [
                {"key": _default(keys, key), "value": _default(values, item)}
                for key, item in value.items()
            ]
        case list() | tuple() if schema.value_schema is not None:
            return [_default(schema.value_schema, item) for item in value]
        case float():
            return json_from_native(schema, value)
        case _:
            return value


def _decimal_default(schema: Schema, value: Decimal) -> str:
    number = int(value.scaleb(scale_of(schema.parameters) or 0))
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True).decode("latin-1")


_LOGICAL_DEFAULTS: Mapping[str, Callable[[Schema, Any], Any]] = {
    DECIMAL: _decimal_default,
    **dict.fromkeys(
        (DATE, TIME, TIMESTAMP),
        lambda schema, value: json_from_native(schema, native_from_value(schema, value)),
    ),
}
