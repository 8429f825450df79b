"""Finds where a newer JSON Schema rejects values that an older schema allows.

The rules, and the names of the differences, are those of Confluent's Schema Registry:
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html
Only differences that break compatibility are returned.

An object schema without `additionalProperties` is open: it allows any further property. With
`additionalProperties: false` it is closed. With a schema for them it is partially open.

A schema is compared as a constraint of a value: one kind of value, or a combination of kinds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

import re2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from referencing import Specification
    from referencing._core import Resolver

    Raw: TypeAlias = bool | Mapping[str, Any]

# RE2 takes linear time; Python's own engine may take exponential time, and blocks all threads.
_QUIET = re2.Options()
_QUIET.log_errors = False
_MORE_PROPERTIES = "additionalProperties"
_UNEVALUATED_PROPERTIES = "unevaluatedProperties"
_UNEVALUATED_ITEMS = "unevaluatedItems"


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


@dataclass(frozen=True)
class Finding:
    """A difference that breaks compatibility, with its name in Confluent's registry."""

    name: str
    path: str = ""
    """The path, relative to the compared schema."""

    def below(self, *path: str) -> Finding:
        """Return the finding with a path relative to a parent schema."""
        return replace(self, path="/".join((*path, self.path) if self.path else path))


def differences(original: Node, update: Node) -> list[Finding]:
    """Return where the update rejects values that the original allows."""
    known: frozenset[tuple[int, int]] = frozenset()
    while True:
        comparison = _Comparison(known)
        found = comparison.compare(original, update)
        # A recursive pair of schemas is assumed to be compatible while it is being compared.
        # If that turns out wrong, everything is compared again without the assumption.
        if comparison.exact or comparison.broken == known:
            return found
        known = comparison.broken


@dataclass
class _Comparison:
    """One comparison of two documents, each pair of schemas once."""

    known_broken: frozenset[tuple[int, int]]
    exact: bool = True
    _done: dict[tuple[int, int], list[Finding]] = field(default_factory=dict)
    _open: set[tuple[int, int]] = field(default_factory=set)
    _shapes: dict[int, tuple[Node, Shape]] = field(default_factory=dict)

    @property
    def broken(self) -> frozenset[tuple[int, int]]:
        return frozenset(pair for pair, found in self._done.items() if found)

    def compare(self, original: Node | Shape, update: Node | Shape) -> list[Finding]:
        """Return the differences, with paths relative to these schemas."""
        before, after = self.shape(original), self.shape(update)
        pair = (id(before.node.raw), id(after.node.raw))
        if isinstance(original, Shape) or isinstance(update, Shape):
            pair = (id(before), id(after))
        if pair in self._done:
            return self._done[pair]
        if pair in self._open:
            self.exact = False
            return [Finding("TYPE_CHANGED")] if pair in self.known_broken else []
        self._open.add(pair)
        found = self._compare(before, after)
        self._open.discard(pair)
        self._done[pair] = found
        return found

    def shape(self, schema: Node | Shape) -> Shape:
        """Return a schema's constraint, cached by the schema."""
        if isinstance(schema, Shape):
            return schema
        target = schema.target()
        cached = self._shapes.get(id(target.raw))
        if cached is None or isinstance(target.raw, bool):
            # The node is kept too, so that its id is not reused.
            cached = self._shapes[id(target.raw)] = (target, shape_of(target))
        return cached[1]

    def _compare(self, original: Shape, update: Shape) -> list[Finding]:
        if self._one_of_many(original, update):
            return []
        if original.kind is not update.kind:
            if original.kind is Kind.NOTHING or update.kind is Kind.ANYTHING:
                return []
            both = (original.get("connect.type"), update.get("connect.type"))
            # The JSON type of the JSON converter's Decimals may change; they stay bytes.
            return [] if both == ("bytes", "bytes") else [Finding("TYPE_CHANGED")]
        match original.kind:
            case Kind.OBJECT:
                return _object_differences(self, original, update)
            case Kind.ARRAY:
                return _array_differences(self, original, update)
            case Kind.COMBINED:
                return self._combined(original, update)
            case Kind.NOT:
                # The schema in `not` may only allow fewer values.
                back = self.compare(update.parts[0], original.parts[0])
                return [Finding("NOT_TYPE_EXTENDED", "not")] if back else []
            case _:
                return _simple(original, update)

    def _one_of_many(self, original: Shape, update: Shape) -> bool:
        """Return whether one part of a combination alone makes the schemas compatible."""
        combined = (original.kind is Kind.COMBINED, update.kind is Kind.COMBINED)
        if combined == (False, True):
            sums = len(update.parts) == 1 or update.criterion in {"anyOf", "oneOf"}
            return sums and any(not self.compare(original, part) for part in update.parts)
        if combined == (True, False):
            products = len(original.parts) == 1 or original.criterion == "allOf"
            return products and any(not self.compare(part, update) for part in original.parts)
        return False

    def _combined(self, original: Shape, update: Shape) -> list[Finding]:
        if not _widened(original, update):
            return [Finding("COMBINED_TYPE_CHANGED")]
        old, new = _distinct(original.parts), _distinct(update.parts)
        found = []
        if len(old) < len(new) and update.criterion == "allOf":
            found.append(Finding("PRODUCT_TYPE_EXTENDED"))
        if len(old) > len(new) and original.criterion in {"anyOf", "oneOf"}:
            found.append(Finding("SUM_TYPE_NARROWED"))
        fits = [
            [index for index, after in enumerate(new) if not self.compare(before, after)]
            for before in old
        ]
        if _largest_matching(fits) < min(len(old), len(new)):
            found.append(Finding("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
        return found


def _widened(original: Shape, update: Shape) -> bool:
    """Return whether the update's criterion allows everything that the original's does."""
    one_old, one_new = len(original.parts) == 1, len(update.parts) == 1
    return (
        update.criterion in {original.criterion, "anyOf"}
        or (one_old and (one_new or update.criterion == "oneOf"))
        or (one_new and original.criterion == "allOf")
    )


def _distinct(parts: Sequence[Node | Shape]) -> list[Node | Shape]:
    """Return the parts without duplicates."""
    found: list[Node | Shape] = []
    seen: list[tuple[Kind | None, Any]] = []
    for part in parts:
        shape = isinstance(part, Shape)
        mark = (part.kind, part.node.raw) if isinstance(part, Shape) else (None, part.raw)
        if mark not in seen or shape:
            found.append(part)
            seen.append(mark)
    return found


def _largest_matching(fits: list[list[int]]) -> int:
    """Return the size of a maximum bipartite matching (Kuhn's algorithm)."""
    taken: dict[int, int] = {}

    def place(who: int, tried: set[int]) -> bool:
        for what in fits[who]:
            if what not in tried:
                tried.add(what)
                if what not in taken or place(taken[what], tried):
                    taken[what] = who
                    return True
        return False

    return sum(place(who, set()) for who in range(len(fits)))


def _simple(original: Shape, update: Shape) -> list[Finding]:
    match original.kind:
        case Kind.STRING:
            found = _bounds(original, update, "MAX_LENGTH", "MIN_LENGTH")
            old, new = original.get("pattern"), update.get("pattern")
            if new is not None and old != new:
                how = "ADDED" if old is None else "CHANGED"
                found.append(Finding(f"PATTERN_{how}", "pattern"))
            return found
        case Kind.NUMBER:
            return _numbers(original, update)
        case Kind.ENUM:
            return _enumerated(original.get("enum"), update.get("enum"))
        case Kind.CONST:
            same = original.get("const") == update.get("const")
            return [] if same else [Finding("ENUM_ARRAY_CHANGED", "const")]
        case _:
            return []


def _numbers(original: Shape, update: Shape) -> list[Finding]:
    found = _bounds(original, update, "MAXIMUM", "MINIMUM")
    found += _bounds(original, update, "EXCLUSIVE_MAXIMUM", "EXCLUSIVE_MINIMUM")
    found += _number_steps(original.get("multipleOf"), update.get("multipleOf"))
    if original.get("type") != "integer" and update.get("type") == "integer":
        found.append(Finding("TYPE_NARROWED"))
    return found


def _enumerated(old: Sequence[Any], new: Sequence[Any]) -> list[Finding]:
    if all(each in new for each in old):
        return []
    narrowed = all(each in old for each in new)
    return [Finding(f"ENUM_ARRAY_{'NARROWED' if narrowed else 'CHANGED'}", "enum")]


def _object_differences(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    """Return where the update rejects objects that the original allows."""
    return [
        *_required(ask, original, update),
        *_below(_properties(ask, original, update), "properties"),
        *_below(_dependencies(ask, original, update), "dependencies"),
        *_rest_differences(ask, original, update, _MORE_PROPERTIES, "ADDITIONAL_PROPERTIES"),
        *_unevaluated_differences(ask, original, update, _UNEVALUATED_PROPERTIES),
        *_bounds(original, update, "MAX_PROPERTIES", "MIN_PROPERTIES"),
    ]


def _rest_differences(
    ask: _Comparison, original: Shape, update: Shape, keyword: str, name: str
) -> list[Finding]:
    """Return the differences in the schema for additional properties or items."""
    old, new = original.get(keyword), update.get(keyword)
    if (old is False) != (new is False):
        return [Finding(f"{name}_REMOVED", keyword)] if new is False else []
    before, after = _schema(original, keyword), _schema(update, keyword)
    if after is None:
        return []
    if before is None:
        return [Finding(f"{name}_NARROWED", keyword)]
    return _below(ask.compare(before, after), keyword)


def _unevaluated_differences(
    ask: _Comparison, original: Shape, update: Shape, keyword: str
) -> list[Finding]:
    """Return the differences in the schema for unevaluated properties or items."""
    if not (original.node.modern and update.node.modern):
        return []
    name = "UNEVALUATED_ITEMS" if keyword.endswith("Items") else "UNEVALUATED_PROPERTIES"
    after = update.at(keyword)
    if after is None:
        return []
    before = original.at(keyword)
    kind = ask.shape(after).kind
    old = Kind.ANYTHING if before is None else ask.shape(before).kind
    if old is Kind.NOTHING or (kind is Kind.ANYTHING and before is not None):
        return []
    if kind is Kind.NOTHING:
        return [Finding(f"{name}_REMOVED", keyword)]
    if old is Kind.ANYTHING or before is None:
        return [Finding(f"{name}_NARROWED", keyword)]
    return _below(ask.compare(before, after), keyword)


def _is_open(ask: _Comparison, shape: Shape, keyword: str, unevaluated: str) -> bool:
    """Return whether a schema allows any value for unlisted properties or items."""
    if isinstance(shape.get(keyword), dict) or shape.get(keyword) is False:
        return False
    if shape.get("patternProperties"):
        return False
    rest = shape.at(unevaluated) if shape.node.modern else None
    return rest is None or ask.shape(rest).kind is Kind.ANYTHING


def _partial(ask: _Comparison, shape: Shape, keyword: str, unevaluated: str) -> Node | None:
    """Return the schema for unlisted properties or items of a partially open schema."""
    partly = _schema(shape, keyword)
    if partly is not None:
        return partly
    if shape.get(keyword) is False or not shape.node.modern:
        return None
    rest = shape.at(unevaluated)
    if rest is None or ask.shape(rest).kind in {Kind.ANYTHING, Kind.NOTHING}:
        return None
    return rest


def _schema(shape: Shape, keyword: str) -> Node | None:
    return shape.at(keyword) if isinstance(shape.get(keyword), dict) else None


def _named(shape: Shape, keyword: str) -> Mapping[str, Any]:
    found = shape.get(keyword)
    return found if isinstance(found, dict) else {}


def _required(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    found = []
    old, new = _named(original, "properties"), _named(update, "properties")
    for name in old:
        if name not in new or name in (original.get("required") or ()):
            continue
        required = name in (update.get("required") or ())
        if required and not _has_default(ask, update.node.inner(new[name])):
            found.append(Finding("REQUIRED_ATTRIBUTE_ADDED", f"required/{name}"))
    return found


def _has_default(ask: _Comparison, node: Node) -> bool:
    raws = (node.raw, ask.shape(node).node.raw)
    return any(isinstance(raw, dict) and "default" in raw for raw in raws)


def _properties(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    old, new = _named(original, "properties"), _named(update, "properties")
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            is_open = _is_open(ask, update, _MORE_PROPERTIES, _UNEVALUATED_PROPERTIES)
            cover = None if is_open else _cover(ask, update, name)
            before = original.node.inner(old[name])
            here = [] if is_open else _removed(ask, "PROPERTY", before, cover)
        elif name not in old:
            here = _added_property(ask, original, update, name, update.node.inner(new[name]))
        else:
            before, after = original.node.inner(old[name]), update.node.inner(new[name])
            here = ask.compare(before, after)
        found += _below(here, name)
    return found


def _removed(ask: _Comparison, what: str, before: Node, cover: Node | None) -> list[Finding]:
    """Return the differences for a removed property or item that only ``cover`` may allow."""
    if cover is None:
        nothing = ask.shape(before).kind is Kind.NOTHING
        return [] if nothing else [Finding(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found = ask.compare(before, cover)
    why = f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*found, Finding(why)] if found else []


def _added_property(
    ask: _Comparison, original: Shape, update: Shape, name: str, after: Node
) -> list[Finding]:
    required = name in (update.get("required") or ())
    unfilled = required and not _has_default(ask, after)
    if _is_open(ask, original, _MORE_PROPERTIES, _UNEVALUATED_PROPERTIES):
        if ask.shape(after).kind is Kind.ANYTHING:
            return []
        with_default = "_WITH_DEFAULT" if required and not unfilled else ""
        kind = "REQUIRED" if required else "OPTIONAL"
        return [Finding(f"{kind}_PROPERTY{with_default}_ADDED_TO_OPEN_CONTENT_MODEL")]
    found = []
    cover = _cover(ask, original, name)
    if cover is not None and (changed := ask.compare(cover, after)):
        why = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        found += [*changed, Finding(why)]
    if unfilled:
        found.append(Finding("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"))
    return found


def _cover(ask: _Comparison, shape: Shape, name: str) -> Node | None:
    """Return the schema for a property that is not listed, if any."""
    for pattern, raw in _named(shape, "patternProperties").items():
        try:
            if re2.search(pattern, name, _QUIET):
                return shape.node.inner(raw)
        except re2.error:  # a pattern that RE2 does not support is ignored
            continue
    return _partial(ask, shape, _MORE_PROPERTIES, _UNEVALUATED_PROPERTIES)


def _dependencies(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    found = []
    old, new = _lists(original), _lists(update)
    for name, names in new.items():
        if name not in old:
            found.append(Finding("DEPENDENCY_ARRAY_ADDED", name))
        elif not names <= old[name]:
            how = "EXTENDED" if names > old[name] else "CHANGED"
            found.append(Finding(f"DEPENDENCY_ARRAY_{how}", name))
    schemas_old, schemas_new = _schemas(original), _schemas(update)
    for name, after in schemas_new.items():
        if name not in schemas_old:
            found.append(Finding("DEPENDENCY_SCHEMA_ADDED", name))
        else:
            found += _below(ask.compare(schemas_old[name], after), name)
    return found


def _lists(shape: Shape) -> dict[str, set[str]]:
    both = {**_named(shape, "dependencies"), **_named(shape, "dependentRequired")}
    return {name: set(value) for name, value in both.items() if isinstance(value, list)}


def _schemas(shape: Shape) -> dict[str, Node]:
    both = {**_named(shape, "dependencies"), **_named(shape, "dependentSchemas")}
    return {
        name: shape.node.inner(value)
        for name, value in both.items()
        if isinstance(value, bool | dict)
    }


def _array_differences(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    """Return where the update rejects arrays that the original allows."""
    found = [*_all_items(ask, original, update), *_listed(ask, original, update)]
    if _rest(original) == _rest(update):
        found += _rest_differences(ask, original, update, _rest(update), "ADDITIONAL_ITEMS")
    found += _unevaluated_differences(ask, original, update, _UNEVALUATED_ITEMS)
    found += _bounds(original, update, "MAX_ITEMS", "MIN_ITEMS")
    if original.node.modern and update.node.modern:
        found += _bounds(original, update, "MAX_CONTAINS", "MIN_CONTAINS")
    if update.get("uniqueItems") and not original.get("uniqueItems"):
        found.append(Finding("UNIQUE_ITEMS_ADDED", "uniqueItems"))
    return found


def _rest(shape: Shape) -> str:
    """Return the keyword for the items after the listed items."""
    prefixed = shape.node.prefixes and isinstance(shape.get("prefixItems"), list)
    return "items" if prefixed else "additionalItems"


def _every(shape: Shape) -> Node | None:
    """Return the common schema of all items, if any."""
    return None if _rest(shape) == "items" else shape.at("items")


def _each(shape: Shape) -> list[Node]:
    """Return the schemas of the listed items."""
    listed = shape.get("prefixItems") if _rest(shape) == "items" else shape.get("items")
    return [shape.node.inner(each) for each in listed] if isinstance(listed, list) else []


def _all_items(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    before, after = _every(original), _every(update)
    if after is None:
        return []
    if before is None:
        return [Finding("SCHEMA_ADDED", "items")]
    return _below(ask.compare(before, after), "items")


def _listed(ask: _Comparison, original: Shape, update: Shape) -> list[Finding]:
    found = []
    for index, (before, after) in enumerate(zip_longest(_each(original), _each(update))):
        if after is None:
            rest = _rest(update)
            is_open = _is_open(ask, update, rest, _UNEVALUATED_ITEMS)
            cover = None if is_open else _partial(ask, update, rest, _UNEVALUATED_ITEMS)
            here = [] if is_open else _removed(ask, "ITEM", before, cover)
        elif before is None:
            here = _added_item(ask, original, after)
        else:
            here = ask.compare(before, after)
        found += _below(here, f"items/{index}")
    return found


def _added_item(ask: _Comparison, original: Shape, after: Node) -> list[Finding]:
    if _is_open(ask, original, _rest(original), _UNEVALUATED_ITEMS):
        if ask.shape(after).kind is Kind.ANYTHING:
            return []
        return [Finding("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")]
    cover = _partial(ask, original, _rest(original), _UNEVALUATED_ITEMS)
    if cover is None:
        return []
    found = ask.compare(cover, after)
    why = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*found, Finding(why)] if found else []


def _below(found: Iterable[Finding], *path: str) -> list[Finding]:
    """Return findings with paths relative to a parent schema."""
    return [each.below(*path) for each in found]


def _bounds(original: Shape, update: Shape, most: str, least: str) -> list[Finding]:
    """Return the differences of an upper and a lower bound; their names are in upper case."""
    found = []
    for name, sign in ((most, 1), (least, -1)):
        first, *rest = name.lower().split("_")
        keyword = first + "".join(part.capitalize() for part in rest)
        old, new = original.get(keyword), update.get(keyword)
        if not _is_number(new):
            continue
        if not _is_number(old):
            found.append(Finding(f"{name}_ADDED", keyword))
        elif sign * (new - old) < 0:
            how = "DECREASED" if sign > 0 else "INCREASED"
            found.append(Finding(f"{name}_{how}", keyword))
    return found


def _number_steps(old: float | None, new: float | None) -> list[Finding]:
    """Return the differences of `multipleOf`: the old must be a multiple of the new."""
    if new is None or old == new:
        return []
    if old is None:
        return [Finding("MULTIPLE_OF_ADDED", "multipleOf")]
    if math.isclose(math.remainder(old, new), 0, abs_tol=1e-12):
        return []
    expanded = math.isclose(math.remainder(new, old), 0, abs_tol=1e-12)
    return [Finding(f"MULTIPLE_OF_{'EXPANDED' if expanded else 'CHANGED'}", "multipleOf")]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
