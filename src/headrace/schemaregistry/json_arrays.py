"""What an array's newer JSON Schema refuses."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from headrace.schemaregistry.json_limits import Comparing, Finding, below, bounds
from headrace.schemaregistry.json_objects import (
    is_open,
    partial,
    rest_differences,
    unevaluated_differences,
)
from headrace.schemaregistry.json_shapes import Kind

if TYPE_CHECKING:
    from headrace.schemaregistry.json_shapes import Node, Shape

_UNEVALUATED = "unevaluatedItems"


def array_differences(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
    """Return what the update refuses of the arrays that the original allows."""
    found = [*_all_items(ask, original, update), *_listed(ask, original, update)]
    if _rest(original) == _rest(update):
        found += rest_differences(ask, original, update, _rest(update), "ADDITIONAL_ITEMS")
    found += unevaluated_differences(ask, original, update, _UNEVALUATED)
    found += bounds(original, update, "MAX_ITEMS", "MIN_ITEMS")
    if original.node.modern and update.node.modern:
        found += bounds(original, update, "MAX_CONTAINS", "MIN_CONTAINS")
    if update.get("uniqueItems") and not original.get("uniqueItems"):
        found.append(Finding("UNIQUE_ITEMS_ADDED", "uniqueItems"))
    return found


def _rest(shape: Shape) -> str:
    """Return the keyword for the items after those that are listed."""
    prefixed = shape.node.prefixes and isinstance(shape.get("prefixItems"), list)
    return "items" if prefixed else "additionalItems"


def _every(shape: Shape) -> Node | None:
    """Return the schema that all items have."""
    return None if _rest(shape) == "items" else shape.at("items")


def _each(shape: Shape) -> list[Node]:
    """Return the schemas of the items that are listed one by one."""
    listed = shape.get("prefixItems") if _rest(shape) == "items" else shape.get("items")
    return [shape.node.inner(each) for each in listed] if isinstance(listed, list) else []


def _all_items(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
    before, after = _every(original), _every(update)
    if after is None:
        return []
    if before is None:
        return [Finding("SCHEMA_ADDED", "items")]
    return below(ask.compare(before, after), "items")


def _listed(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
    found = []
    for index, (before, after) in enumerate(zip_longest(_each(original), _each(update))):
        if after is None:
            here = _removed(ask, before, update)
        elif before is None:
            here = _added(ask, original, after)
        else:
            here = ask.compare(before, after)
        found += below(here, f"items/{index}")
    return found


def _removed(ask: Comparing, before: Node, update: Shape) -> list[Finding]:
    if is_open(ask, update, _rest(update), _UNEVALUATED):
        return []
    cover = partial(ask, update, _rest(update), _UNEVALUATED)
    if cover is None:
        if ask.shape(before).kind is Kind.NOTHING:
            return []
        return [Finding("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found = ask.compare(before, cover)
    why = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*found, Finding(why)] if found else []


def _added(ask: Comparing, original: Shape, after: Node) -> list[Finding]:
    if is_open(ask, original, _rest(original), _UNEVALUATED):
        if ask.shape(after).kind is Kind.ANYTHING:
            return []
        return [Finding("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")]
    cover = partial(ask, original, _rest(original), _UNEVALUATED)
    if cover is None:
        return []
    found = ask.compare(cover, after)
    why = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*found, Finding(why)] if found else []
