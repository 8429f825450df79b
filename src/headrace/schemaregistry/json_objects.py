"""What an object's newer JSON Schema refuses.

An object whose schema says nothing of further properties is open: it allows any. One with
`additionalProperties: false` is closed. One that has a schema for them is partly open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.schemaregistry.json_limits import Comparing, Finding, below, bounds
from headrace.schemaregistry.json_shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.schemaregistry.json_shapes import Node, Shape

_REST = "additionalProperties"
_UNEVALUATED = "unevaluatedProperties"


def object_differences(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
    """Return what the update refuses of the objects that the original allows."""
    return [
        *_required(ask, original, update),
        *below(_properties(ask, original, update), "properties"),
        *below(_dependencies(ask, original, update), "dependencies"),
        *rest_differences(ask, original, update, _REST, "ADDITIONAL_PROPERTIES"),
        *unevaluated_differences(ask, original, update, _UNEVALUATED),
        *bounds(original, update, "MAX_PROPERTIES", "MIN_PROPERTIES"),
    ]


def rest_differences(
    ask: Comparing, original: Shape, update: Shape, keyword: str, name: str
) -> list[Finding]:
    """Return what the schema of what is not listed refuses."""
    old, new = original.get(keyword), update.get(keyword)
    if (old is False) != (new is False):
        return [Finding(f"{name}_REMOVED", keyword)] if new is False else []
    before, after = _schema(original, keyword), _schema(update, keyword)
    if after is None:
        return []
    if before is None:
        return [Finding(f"{name}_NARROWED", keyword)]
    return below(ask.compare(before, after), keyword)


def unevaluated_differences(
    ask: Comparing, original: Shape, update: Shape, keyword: str
) -> list[Finding]:
    """Return what the schema of what no other keyword looked at refuses."""
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
    return below(ask.compare(before, after), keyword)


def is_open(ask: Comparing, shape: Shape, keyword: str, unevaluated: str) -> bool:
    """Say whether anything may stand where the schema lists nothing."""
    if isinstance(shape.get(keyword), dict) or shape.get(keyword) is False:
        return False
    if shape.get("patternProperties"):
        return False
    rest = shape.at(unevaluated) if shape.node.modern else None
    return rest is None or ask.shape(rest).kind is Kind.ANYTHING


def partial(ask: Comparing, shape: Shape, keyword: str, unevaluated: str) -> Node | None:
    """Return the schema of what is not listed, if it is neither open nor closed."""
    given = _schema(shape, keyword)
    if given is not None:
        return given
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


def _required(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
    found = []
    old, new = _named(original, "properties"), _named(update, "properties")
    for name in old:
        if name not in new or name in (original.get("required") or ()):
            continue
        wanted = name in (update.get("required") or ())
        if wanted and not _has_default(ask, update.node.inner(new[name])):
            found.append(Finding("REQUIRED_ATTRIBUTE_ADDED", f"required/{name}"))
    return found


def _has_default(ask: Comparing, node: Node) -> bool:
    raws = (node.raw, ask.shape(node).node.raw)
    return any(isinstance(raw, dict) and "default" in raw for raw in raws)


def _properties(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
    old, new = _named(original, "properties"), _named(update, "properties")
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            here = _removed(ask, original.node.inner(old[name]), update, name)
        elif name not in old:
            here = _added(ask, original, update, name, update.node.inner(new[name]))
        else:
            before, after = original.node.inner(old[name]), update.node.inner(new[name])
            here = ask.compare(before, after)
        found += below(here, name)
    return found


def _removed(ask: Comparing, before: Node, update: Shape, name: str) -> list[Finding]:
    if is_open(ask, update, _REST, _UNEVALUATED):
        return []
    cover = _cover(ask, update, name)
    if cover is None:
        if ask.shape(before).kind is Kind.NOTHING:
            return []
        return [Finding("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found = ask.compare(before, cover)
    why = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*found, Finding(why)] if found else []


def _added(
    ask: Comparing, original: Shape, update: Shape, name: str, after: Node
) -> list[Finding]:
    wanted = name in (update.get("required") or ()) and not _has_default(ask, after)
    if is_open(ask, original, _REST, _UNEVALUATED):
        if ask.shape(after).kind is Kind.ANYTHING:
            return []
        required = name in (update.get("required") or ())
        with_default = "_WITH_DEFAULT" if required and not wanted else ""
        kind = "REQUIRED" if required else "OPTIONAL"
        return [Finding(f"{kind}_PROPERTY{with_default}_ADDED_TO_OPEN_CONTENT_MODEL")]
    found = []
    cover = _cover(ask, original, name)
    if cover is not None and (changed := ask.compare(cover, after)):
        why = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        found += [*changed, Finding(why)]
    if wanted:
        found.append(Finding("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"))
    return found


def _cover(ask: Comparing, shape: Shape, name: str) -> Node | None:
    """Return the schema that a property has which the schema does not list."""
    for pattern, raw in _named(shape, "patternProperties").items():
        try:
            if re.search(pattern, name):
                return shape.node.inner(raw)
        except re.error:  # a pattern of another language covers nothing that we can tell
            continue
    return partial(ask, shape, _REST, _UNEVALUATED)


def _dependencies(ask: Comparing, original: Shape, update: Shape) -> list[Finding]:
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
            found += below(ask.compare(schemas_old[name], after), name)
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
