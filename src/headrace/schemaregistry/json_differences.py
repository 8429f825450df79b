"""What in a newer JSON Schema refuses values that an older one allows.

The rules, and the names of the differences, are those of Confluent's Schema Registry:
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html
Only differences that break compatibility are returned; the others are no findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.schemaregistry.json_arrays import array_differences
from headrace.schemaregistry.json_limits import Finding, bounds, moved, number_steps
from headrace.schemaregistry.json_objects import object_differences
from headrace.schemaregistry.json_shapes import Kind, Node, Shape, shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def differences(original: Node, update: Node) -> list[Finding]:
    """Return what the update refuses of what the original allows."""
    known: frozenset[tuple[int, int]] = frozenset()
    while True:
        comparison = _Comparison(known)
        found = comparison.compare(original, update)
        # A pair of schemas that contain themselves was taken for compatible while it was
        # being compared. If it is not, whatever relied on that is compared again.
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
        """Return the differences, with paths that begin here."""
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
        if isinstance(schema, Shape):
            return schema
        target = schema.target()
        kept = self._shapes.get(id(target.raw))
        if kept is None or isinstance(target.raw, bool):
            # The node is kept too, so that the id stays its own.
            kept = self._shapes[id(target.raw)] = (target, shape_of(target))
        return kept[1]

    def _compare(self, original: Shape, update: Shape) -> list[Finding]:
        if self._one_of_many(original, update):
            return []
        if original.kind is not update.kind:
            if original.kind is Kind.NOTHING or update.kind is Kind.ANYTHING:
                return []
            both = (original.get("connect.type"), update.get("connect.type"))
            # Decimals of the JSON converter changed their type; they are bytes all the same.
            return [] if both == ("bytes", "bytes") else [Finding("TYPE_CHANGED")]
        match original.kind:
            case Kind.OBJECT:
                return object_differences(self, original, update)
            case Kind.ARRAY:
                return array_differences(self, original, update)
            case Kind.COMBINED:
                return self._combined(original, update)
            case Kind.NOT:
                # What must not match may only shrink.
                back = self.compare(update.parts[0], original.parts[0])
                return [Finding("NOT_TYPE_EXTENDED", "not")] if back else []
            case _:
                return _simple(original, update)

    def _one_of_many(self, original: Shape, update: Shape) -> bool:
        """Say whether a combination has a part that settles the matter alone."""
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
    """Say whether the update's criterion allows what the original's does."""
    one_old, one_new = len(original.parts) == 1, len(update.parts) == 1
    return (
        update.criterion in {original.criterion, "anyOf"}
        or (one_old and (one_new or update.criterion == "oneOf"))
        or (one_new and original.criterion == "allOf")
    )


def _distinct(parts: Sequence[Node | Shape]) -> list[Node | Shape]:
    """Return the parts without those that are written twice."""
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
    """Return how many can be given one each of what fits them (Kuhn's algorithm)."""
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
            return [
                *bounds(original, update, "MAX_LENGTH", "MIN_LENGTH"),
                *_pattern(original, update),
            ]
        case Kind.NUMBER:
            return _numbers(original, update)
        case Kind.ENUM:
            return _enumerated(original.get("enum"), update.get("enum"))
        case Kind.CONST:
            same = original.get("const") == update.get("const")
            return [] if same else [Finding("ENUM_ARRAY_CHANGED", "const")]
        case _:
            return []


def _pattern(original: Shape, update: Shape) -> list[Finding]:
    old, new = original.get("pattern"), update.get("pattern")
    if new is None or old == new:
        return []
    return [Finding("PATTERN_ADDED" if old is None else "PATTERN_CHANGED", "pattern")]


def _numbers(original: Shape, update: Shape) -> list[Finding]:
    found = bounds(original, update, "MAXIMUM", "MINIMUM")
    found += bounds(original, update, "EXCLUSIVE_MAXIMUM", "EXCLUSIVE_MINIMUM")
    found += number_steps(original.get("multipleOf"), update.get("multipleOf"))
    if original.get("type") != "integer" and update.get("type") == "integer":
        found.append(Finding("TYPE_NARROWED"))
    return found


def _enumerated(old: Sequence[Any], new: Sequence[Any]) -> list[Finding]:
    if all(each in new for each in old):
        return []
    narrowed = all(each in old for each in new)
    return [moved("enum", "ENUM_ARRAY", "NARROWED" if narrowed else "CHANGED")]
