"""Converts JSON Schemas to record schemas, and the JSON that follows them.

Both are as in Confluent's converter, and so are the property names that it writes into JSON
Schemas. The JSON is converted to the form of Kafka Connect's JSON converter. The two differ in
unions, which JSON Schema writes as the plain value, and in maps with keys other than strings,
which it writes as objects with a key and a value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from headrace.sdk import ConfigError, RecordError, Schema, Type
from headrace.sdk.connectjson import native_from_json, value_from_native
from headrace.sdk.schema import WHOLE_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from referencing import Registry

CONNECT_TYPE = "connect.type"
CONNECT_INDEX = "connect.index"
CONNECT_VERSION = "connect.version"
CONNECT_PARAMETERS = "connect.parameters"

NAMESPACE = "io.confluent.connect.json"
UNION = f"{NAMESPACE}.OneOf"
"""The name of the struct for a oneOf or an anyOf: only one of its fields has a value."""
ENUM = f"{NAMESPACE}.Enum"
"""The parameter that marks a string as an enum, and the prefix of those with its symbols."""

KEY, VALUE = "key", "value"
"""The members of the objects for the entries of a map with keys other than strings."""

NUMBERS: Mapping[Type, str] = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), "integer"),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), "number"),
}
"""JSON Schema's types of numbers; ``connect.type`` is the lowercase name of the type."""


def union_field(number: int) -> str:
    """Return the name of a field of a union."""
    return f"{UNION}.field.{number}"


def is_union(schema: Schema) -> bool:
    """Return whether a struct represents a union: a oneOf or an anyOf."""
    return schema.type is Type.STRUCT and schema.name == UNION


def is_object(schema: Schema) -> bool:
    """Return whether JSON Schema writes a map as an object, not as a list of entries."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional


_PAYLOAD_KINDS: Mapping[Type, tuple[type, ...]] = {
    **dict.fromkeys(WHOLE_NUMBERS, (int,)),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), (int, float, Decimal)),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (str, int, float, Decimal),
    Type.ARRAY: (list,),
}


def is_apart(schema: Schema) -> bool:
    """Return whether `payload` must convert the JSON of values."""
    if is_union(schema) or (schema.key_schema is not None and not is_object(schema)):
        return True
    parts = (schema.key_schema, schema.value_schema, *(f.schema for f in schema.fields))
    return any(part is not None and is_apart(part) for part in parts)


def payload(schema: Schema, tree: Any) -> Any:
    """Convert a JSON value to the form of Kafka Connect's JSON converter.

    Parts that do not fit the schema stay unchanged; the reader of that form rejects them.
    Raises RecordError if no member of a union fits.
    """
    if tree is None:
        return None
    if is_union(schema):
        return _of_union(schema, tree)
    if schema.fields and isinstance(tree, Mapping):
        return {f.name: payload(f.schema, tree.get(f.name)) for f in schema.fields}
    values = schema.value_schema
    if schema.key_schema is not None and values is not None:
        return _of_map(schema, schema.key_schema, values, tree)
    if values is not None and isinstance(tree, list):
        return [payload(values, item) for item in tree]
    return tree


def _of_map(schema: Schema, keys: Schema, values: Schema, tree: Any) -> Any:
    if is_object(schema):
        if not isinstance(tree, Mapping):
            raise RecordError(problem="A map with string keys must be a JSON object.")
        return {name: payload(values, item) for name, item in tree.items()}
    if not isinstance(tree, list):
        return tree
    for entry in tree:
        if not isinstance(entry, Mapping) or entry.keys() != {KEY, VALUE}:
            raise RecordError(problem="A map entry must be an object with a key and a value.")
    return [[payload(keys, one[KEY]), payload(values, one[VALUE])] for one in tree]


def _of_union(schema: Schema, tree: Any) -> dict[str, Any]:
    """Choose the first member that fits; for objects, the one with the most matching names."""
    best, known = None, -1
    for field in schema.fields:
        if field.schema.type is Type.STRUCT:
            names = {own.name for own in field.schema.fields}
            if isinstance(tree, Mapping) and len(names & tree.keys()) > known:
                best, known = field, len(names & tree.keys())
        elif _fits(field.schema, tree):
            best = field
            break
    if best is None:
        raise RecordError(problem=f"Did not find matching oneof field for data: {tree}")
    return {best.name: payload(best.schema, tree)}


def _fits(schema: Schema, tree: Any) -> bool:
    if schema.type is Type.MAP:
        return isinstance(tree, Mapping if is_object(schema) else list)
    return type(tree) in _PAYLOAD_KINDS[schema.type]


_NAMED: Mapping[str, Type] = {
    type_.value.lower(): type_
    for type_ in (
        *(Type.INT8, Type.INT16, Type.INT32, Type.INT64),
        *(Type.FLOAT32, Type.FLOAT64, Type.BYTES),
    )
}
# The keywords that imply a type if a schema does not specify one.
_HINTS: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "multipleOf"),
}


def schema_of_json_schema(
    text: str, references: Mapping[str, str], *, optional_unless_required: bool
) -> Schema:
    """Return the record schema of a JSON Schema; ``references`` are the texts it uses, by name.

    Raises RecordError, with the path, for a schema that record schemas cannot express.
    """
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - an extra

    try:
        raw = json.loads(text)
        node = _Node(raw, _resolver(raw, references))
        return _Reading(optional_unless_required).schema(node)
    except Unresolvable as error:
        raise RecordError(problem=f"Unknown reference {error.ref!r}.") from None
    except (RecursionError, ValueError) as error:
        raise RecordError(problem=f"The JSON Schema cannot be read: {error}") from error
    except ConfigError as error:
        raise RecordError(problem=error.problem, field=error.field) from error


def _resolver(raw: Any, references: Mapping[str, str]) -> Any:
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - an extra

    known: Registry[Any] = REGISTRY
    own = _draft(raw)
    identity = own.id_of(raw) or ""
    for name, text in references.items():
        used = json.loads(text)
        resource = _draft(used).create_resource(used)
        known = known.with_resources([(name, resource), (urljoin(identity, name), resource)])
    return known.resolver_with_root(own.create_resource(raw))


def _draft(raw: Any) -> Any:
    from referencing.jsonschema import DRAFT7, specification_with  # noqa: PLC0415 - an extra

    named = raw.get("$schema") if isinstance(raw, Mapping) else None
    return specification_with(named, default=DRAFT7) if named else DRAFT7


@dataclass(frozen=True)
class _Node:
    """A JSON Schema inside another, with the resolver of its references."""

    raw: Any
    resolver: Any
    path: str = ""
    around: tuple[int, ...] = ()

    def inner(self, raw: Any, step: str = "") -> _Node:
        path = f"{self.path}.{step}".strip(".") if step else self.path
        return replace(self, raw=raw, path=path)

    def target(self) -> _Node:
        """Follow references. Raises RecordError if they are recursive."""
        node = self
        while isinstance(node.raw, Mapping) and isinstance(node.raw.get("$ref"), str):
            found = node.resolver.lookup(node.raw["$ref"])
            if id(found.contents) in node.around:
                raise self.refused(
                    problem="The schema contains itself; Spark has no recursive types."
                )
            around = (*node.around, id(found.contents))
            node = replace(node, raw=found.contents, resolver=found.resolver, around=around)
        if not isinstance(node.raw, Mapping) or not node.raw:
            raise self.refused(problem="The schema does not describe its values.")
        return node

    def value_of(self, name: str, kind: type) -> Any:
        """Return the value of a keyword; None if it is not of the given type."""
        value = self.raw.get(name)
        return value if type(value) is kind else None

    def members(self, name: str) -> list[_Node]:
        return [self.inner(raw) for raw in self.value_of(name, list) or ()]

    def refused(self, *, problem: str) -> RecordError:
        text = f"Unsupported JSON Schema: {problem}"
        return RecordError(problem=text, field=self.path or None)


def _is_null(node: _Node) -> bool:
    return isinstance(node.raw, Mapping) and node.raw.get("type") == "null"


@dataclass(frozen=True)
class _Reading:
    optional_unless_required: bool

    def schema(self, start: _Node, *, optional: bool = False) -> Schema:
        node = start.target()
        if properties := self._properties(node):
            return self._finished(node, self._struct(node, properties), optional=optional)
        for word in ("oneOf", "anyOf"):
            if choices := node.members(word):
                return self._choice(node, choices, optional=optional)
        if parts := node.members("allOf"):
            return self._all(node, parts, optional=optional)
        kinds = self._kinds(node)
        if len(kinds) > 1:
            choices = [node.inner({**node.raw, "type": kind}) for kind in kinds]
            return self._choice(node, choices, optional=optional)
        found = _KINDS.get(kinds[0]) if kinds else None
        if found is None:
            raise node.refused(problem=f"There is no record type for {kinds or 'its values'}.")
        return self._finished(node, found(self, node), optional=optional)

    def _kinds(self, node: _Node) -> list[str]:
        kind = node.raw.get("type")
        if isinstance(kind, list):
            return [str(one) for one in kind]
        if isinstance(kind, str):
            return [kind]
        if isinstance(node.raw.get("enum"), list):
            return ["string"]
        if "const" in node.raw:
            return [_CONSTANTS.get(type(node.raw["const"]), "object")]
        return [kind for kind, words in _HINTS.items() if node.raw.keys() & set(words)][:1]

    def _choice(self, node: _Node, choices: Sequence[_Node], *, optional: bool) -> Schema:
        some = [choice for choice in choices if not _is_null(choice)]
        optional = optional or len(some) < len(choices)
        if len(some) == 1 and len(choices) > 1:
            return self.schema(some[0], optional=optional)
        fields = {
            union_field(number): self.schema(choice, optional=True)
            for number, choice in enumerate(some)
        }
        return self._finished(node, Schema.struct(fields, name=UNION), optional=optional)

    def _all(self, node: _Node, parts: Sequence[_Node], *, optional: bool) -> Schema:
        """Read the most specific part: choices first; the last of several, as Confluent's."""
        reached = [part.target() for part in parts]
        for words in (("oneOf", "anyOf", "allOf"), ("enum",), ("type",), ()):
            found = [part for part in reached if not words or part.raw.keys() & set(words)]
            if found:
                own = {key: value for key, value in node.raw.items() if key != "allOf"}
                last = replace(found[-1], raw={**own, **found[-1].raw})
                return self.schema(last, optional=optional)
        raise node.refused(problem="The allOf is empty.")

    def _properties(self, node: _Node) -> dict[str, tuple[_Node, bool]]:
        """Return an object's properties, including allOf's, and whether each is required."""
        if node.raw.get(CONNECT_TYPE) == "map":
            return {}
        found: dict[str, tuple[_Node, bool]] = {}
        for part in node.members("allOf"):
            found |= self._properties(part.target())
        required = set(node.value_of("required", list) or ())
        for name, raw in (node.value_of("properties", dict) or {}).items():
            found[name] = (node.inner(raw, name), name in required)
        return found

    def _struct(self, node: _Node, properties: Mapping[str, tuple[_Node, bool]]) -> Schema:
        def place(item: tuple[int, str]) -> tuple[int, int]:
            number, name = item
            raw = properties[name][0].raw
            index = raw.get(CONNECT_INDEX) if isinstance(raw, Mapping) else None
            return (index if isinstance(index, int) else number, number)

        fields = {}
        for _, name in sorted(enumerate(properties), key=place):
            inner, required = properties[name]
            optional = self.optional_unless_required and not required
            fields[name] = self.schema(inner, optional=optional)
        return Schema.struct(fields)

    def array(self, node: _Node) -> Schema:
        items = node.value_of("items", dict)
        if items is None:
            raise node.refused(problem="Array schema did not specify the items type.")
        own = node.inner(items, "[]").target()
        pair = own.value_of("properties", dict) or {}
        if node.raw.get(CONNECT_TYPE) == "map" and pair.keys() == {KEY, VALUE}:
            keys, values = (self.schema(own.inner(pair[name], name)) for name in (KEY, VALUE))
            return Schema.map(keys, values)
        return Schema.array(self.schema(node.inner(items, "[]")))

    def object(self, node: _Node) -> Schema:
        values = node.value_of("additionalProperties", dict)
        if values is None:
            raise node.refused(
                problem="An object without properties cannot be converted to a column."
            )
        return Schema.map(Schema.string(), self.schema(node.inner(values, "{}")))

    def integer(self, node: _Node) -> Schema:
        return self.number(node, Type.INT64)

    def number(self, node: _Node, plain: Type = Type.FLOAT64) -> Schema:
        named = node.raw.get(CONNECT_TYPE)
        if named is not None and named not in _NAMED:
            raise node.refused(problem=f"Unsupported type {named}")
        return Schema(_NAMED.get(named, plain))

    def string(self, node: _Node) -> Schema:
        if node.raw.get(CONNECT_TYPE) == "bytes":
            return Schema(Type.BYTES)
        symbols = node.value_of("enum", list)
        names = [str(symbol) for symbol in symbols or () if symbol is not None]
        parameters = {f"{ENUM}.{name}": name for name in names}
        return Schema.string(parameters={ENUM: "", **parameters} if names else {})

    def boolean(self, _: _Node) -> Schema:
        return Schema(Type.BOOLEAN)

    def _finished(self, node: _Node, bare: Schema, *, optional: bool) -> Schema:
        """Add the metadata of a JSON Schema: name, version, doc, parameters and default."""
        parameters = {
            str(name): str(value)
            for name, value in (node.value_of(CONNECT_PARAMETERS, dict) or {}).items()
        }
        schema = bare.replaced(
            name=bare.name or node.value_of("title", str),
            version=node.value_of(CONNECT_VERSION, int),
            doc=node.value_of("description", str),
            parameters={**bare.parameters, **parameters},
            optional=optional,
        )
        default = node.raw.get("default")
        if default is None:
            return schema
        native = native_from_json(schema, payload(schema, default), path=node.path)
        return schema.replaced(default=value_from_native(schema, native))


_KINDS: Mapping[str, Callable[[_Reading, _Node], Schema]] = {
    "object": _Reading.object,
    "array": _Reading.array,
    "integer": _Reading.integer,
    "number": _Reading.number,
    "string": _Reading.string,
    "boolean": _Reading.boolean,
}
_CONSTANTS: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
}
