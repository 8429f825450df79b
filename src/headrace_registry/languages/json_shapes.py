"""JSON Schemas as constraints of a value: one kind of value, or a combination of kinds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from referencing.jsonschema import DRAFT7

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from referencing import Specification
    from referencing._core import Resolver

    Raw: TypeAlias = bool | Mapping[str, Any]


class Kind(StrEnum):
    """The kind of a schema's constraint."""

    ANYTHING = "anything"
    NOTHING = "nothing"
    NULL = "null"
    BOOLEAN = "boolean"
    STRING = "string"
    NUMBER = "number"
    OBJECT = "object"
    ARRAY = "array"
    ENUM = "enum"
    CONST = "const"
    NOT = "not"
    CONDITION = "condition"
    COMBINED = "combined"


_BY_TYPE = {"integer": Kind.NUMBER, **{kind.value: kind for kind in Kind}}
_KEYWORDS = {
    Kind.STRING: {"minLength", "maxLength", "pattern", "format"},
    Kind.NUMBER: {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    Kind.OBJECT: {
        *("properties", "required", "minProperties", "maxProperties", "additionalProperties"),
        *("patternProperties", "propertyNames", "dependencies", "dependentRequired"),
        *("dependentSchemas", "unevaluatedProperties"),
    },
    Kind.ARRAY: {
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
        *("contains", "unevaluatedItems"),
    },
}
"""Keywords that imply the kind if the schema has no type."""


@dataclass(frozen=True, eq=False)
class Node:
    """A schema in its document, compared by identity.

    Args:
        raw: The schema as JSON.
        resolver: Resolves its references.
        draft: The draft's rules.
    """

    raw: Raw
    resolver: Resolver[Any]
    draft: Specification[Any]

    def inner(self, raw: Any) -> Node:
        """Return a schema that is nested in this one."""
        resource = self.draft.create_resource(raw)
        return Node(raw, self.resolver.in_subresource(resource), self.draft)

    def target(self) -> Node:
        """Return the schema itself, or the schema that its `$ref` refers to."""
        found, seen = self, 0
        while isinstance(found.raw, dict) and isinstance(found.raw.get("$ref"), str):
            resolved = found.resolver.lookup(found.raw["$ref"])
            found, seen = Node(resolved.contents, resolved.resolver, self.draft), seen + 1
            if seen > 100:  # noqa: PLR2004 - a circular chain of references
                return Node(True, self.resolver, self.draft)  # noqa: FBT003 - a schema
        return found

    @property
    def modern(self) -> bool:
        """Whether the draft has the keywords `unevaluatedProperties` and `unevaluatedItems`."""
        return self.prefixes or self.draft.name == "draft2019-09"

    @property
    def prefixes(self) -> bool:
        """Whether the draft lists an array's first items in `prefixItems`."""
        return self.draft.name == "draft2020-12"


@dataclass(frozen=True, eq=False)
class Shape:
    """A schema's constraint of a value, compared by identity.

    Args:
        kind: The kind of the constraint.
        node: The schema with its keywords.
        criterion: allOf, anyOf or oneOf of a combination.
        parts: The schemas of a combination, or the schema of a `not`.
    """

    kind: Kind
    node: Node
    criterion: str = ""
    parts: Sequence[Node | Shape] = ()

    def get(self, keyword: str) -> Any:
        """Return a keyword's value, None if it is missing."""
        return self.node.raw.get(keyword) if isinstance(self.node.raw, dict) else None

    def at(self, keyword: str) -> Node | None:
        """Return the schema of a keyword; None if its value is not a schema."""
        value = self.get(keyword)
        return self.node.inner(value) if isinstance(value, bool | dict) else None


def shape_of(node: Node) -> Shape:
    """Return a schema's constraint; a `$ref` in place of the schema is resolved."""
    node = node.target()
    if isinstance(node.raw, bool):
        return Shape(Kind.ANYTHING if node.raw else Kind.NOTHING, node)
    parts = [*_said(node, node.raw), *_typed(node, node.raw)]
    if not parts:
        return Shape(Kind.ANYTHING, node)
    return parts[0] if len(parts) == 1 else Shape(Kind.COMBINED, node, "allOf", parts)


def default_draft() -> Specification[Any]:
    """Return the default draft of schemas without `$schema`, as in Confluent's registry."""
    return DRAFT7


def _said(node: Node, raw: Mapping[str, Any]) -> list[Shape]:
    found = []
    if "enum" in raw:
        found.append(Shape(Kind.ENUM, node))
    for criterion in ("allOf", "anyOf", "oneOf"):
        if isinstance(raw.get(criterion), list):
            parts = [node.inner(each) for each in raw[criterion]]
            found.append(Shape(Kind.COMBINED, node, criterion, parts))
    if "not" in raw:
        found.append(Shape(Kind.NOT, node, parts=[node.inner(raw["not"])]))
    if "const" in raw:
        found.append(Shape(Kind.CONST, node))
    if "if" in raw:
        found.append(Shape(Kind.CONDITION, node))
    return found


def _typed(node: Node, raw: Mapping[str, Any]) -> list[Shape]:
    kind = raw.get("type")
    if isinstance(kind, str):
        # The validation skips schemas below keywords that are unknown to the draft.
        return [Shape(_BY_TYPE.get(kind, Kind.ANYTHING), node)]
    if isinstance(kind, list):
        said = {"enum", "allOf", "anyOf", "oneOf", "not", "const", "if"}
        rest = {key: value for key, value in raw.items() if key not in said}
        parts = [
            Shape(_BY_TYPE.get(str(each), Kind.ANYTHING), node.inner({**rest, "type": each}))
            for each in kind
        ]
        return [Shape(Kind.COMBINED, node, "anyOf", parts)]
    return [Shape(each, node) for each, keywords in _KEYWORDS.items() if keywords & set(raw)]
