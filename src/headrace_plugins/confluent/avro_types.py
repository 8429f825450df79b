"""Avro schemas as trees without names to look up, and as Spark's functions take them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace.sdk import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SIMPLE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
MAX_DIGITS = 38
"""Spark's decimals have no more."""
_DEEP = 60


@dataclass(frozen=True)
class AvroField:
    """A field of a record; ``has_default`` as null may be one."""

    name: str
    type: AvroType
    doc: str | None = None
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True)
class AvroType:
    """An Avro schema.

    Args:
        kind: Avro's word for the type.
        name: The full name of a record, an enum or a fixed.
        facts: The JSON object that it was given as, with all its properties.
        fields: A record's.
        parts: The items of an array, the values of a map, the branches of a union.
    """

    kind: str
    name: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()

    @property
    def logical(self) -> str | None:
        """The logical type, if it goes with the type; Avro ignores any other."""
        name = self.facts.get("logicalType")
        return name if name in _LOGICAL.get(self.kind, ()) else None

    @property
    def optional_part(self) -> AvroType | None:
        """What a union of null and one other type is, when it is not null."""
        if self.kind != "union" or len(self.parts) != 2:  # noqa: PLR2004 - null and another
            return None
        others = self.branches
        return others[0] if len(others) == 1 else None

    @property
    def branches(self) -> tuple[AvroType, ...]:
        """The branches of a union but null."""
        return tuple(part for part in self.parts if part.kind != "null")

    @property
    def only_part(self) -> AvroType | None:
        """What a union of one type is."""
        return self.parts[0] if self.kind == "union" and len(self.parts) == 1 else None

    @property
    def is_nullable(self) -> bool:
        """Whether null is a value."""
        return self.kind == "null" or any(part.kind == "null" for part in self.parts)

    @property
    def is_entry(self) -> bool:
        """Whether it is an array that stands for a map whose keys are no texts."""
        if self.kind != "array" or self.parts[0].kind != "record":
            return False
        entry = self.parts[0]
        named = entry.name == "io.confluent.connect.avro.MapEntry"
        internal = entry.facts.get("connect.internal.type") == "MapEntry"
        return (named or internal) and [f.name for f in entry.fields] == ["key", "value"]

    @property
    def digits(self) -> tuple[int, int]:
        """The precision and the scale of a decimal; precision 38 where it is more."""
        precision = self.facts.get("precision")
        scale = self.facts.get("scale", 0)
        known = precision if isinstance(precision, int) else MAX_DIGITS
        return min(known, MAX_DIGITS), scale if isinstance(scale, int) else 0


_LOGICAL = {
    "bytes": ("decimal",),
    "fixed": ("decimal",),
    "int": ("date", "time-millis"),
    "long": ("timestamp-millis", "timestamp-micros", "time-micros"),
}


def parse_avro(text: str, references: Mapping[str, str] | None = None) -> AvroType:
    """Parse a schema.

    Args:
        text: The schema in JSON.
        references: The texts that it refers to, dependencies first.

    Raises:
        RecordError: It is no schema, or one that has no columns: a recursive one.
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
            raise RecordError(problem="The Avro schema is too deep.")
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
        raise RecordError(problem=f"The Avro schema does not say what {name} is.")

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
                raise RecordError(problem=f"Fields of {name} differ in nothing but case.")
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
    """Return a schema with the same bytes, in words that Spark has exact columns for.

    Names are replaced, as Spark needs none; the branches of a union of several types become
    records of one field ``x``, as Spark would merge some of them; and what is no logical
    type to Spark loses that property.
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
            return {"type": "fixed", "name": own, "size": type_.facts["size"], **_told(type_)}
        case "array":
            return {"type": "array", "items": engine_tree(type_.parts[0], names)}
        case "map":
            return {"type": "map", "values": engine_tree(type_.parts[0], names)}
        case "union":
            return _engine_union(type_, names)
        case _:
            return {"type": type_.kind, **_told(type_)}


def _engine_union(type_: AvroType, names: Iterator[int]) -> list[Any]:
    branches = []
    boxed = len(type_.branches) > 1
    for part in type_.parts:
        tree = engine_tree(part, names)
        if boxed and part.kind != "null":
            fields = [{"name": "x", "type": tree}]
            tree = {"type": "record", "name": f"t{next(names)}", "fields": fields}
        branches.append(tree)
    return branches


def _told(type_: AvroType) -> dict[str, Any]:
    logical = type_.logical
    if logical == "decimal":
        precision, scale = type_.digits
        return {"logicalType": logical, "precision": precision, "scale": scale}
    if logical in {"date", "timestamp-millis", "timestamp-micros"}:
        return {"logicalType": logical}
    return {}
