"""Limits in JSON Schemas: a newer one may loosen them, and not tighten or add them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.schemaregistry.json_shapes import Node, Shape


@dataclass(frozen=True)
class Finding:
    """A difference that breaks compatibility.

    Args:
        name: What it is, as Confluent's registry calls it.
        path: Where it is, below the schema that was compared.
    """

    name: str
    path: str = ""

    def below(self, *path: str) -> Finding:
        """Return the finding as it is seen from further up."""
        return replace(self, path="/".join((*path, self.path) if self.path else path))


class Comparing(Protocol):
    """Compares schemas inside those that are being compared."""

    def compare(self, original: Node | Shape, update: Node | Shape) -> list[Finding]:
        """Return the differences, with paths that begin at the two."""

    def shape(self, schema: Node | Shape) -> Shape:
        """Return what a schema says."""


def below(found: Iterable[Finding], *path: str) -> list[Finding]:
    """Return findings as they are seen from further up."""
    return [each.below(*path) for each in found]


def moved(keyword: str, name: str, how: str) -> Finding:
    """Return the finding of a keyword whose value changed in a way that breaks."""
    return Finding(f"{name}_{how}", keyword)


def bounds(original: Shape, update: Shape, most: str, least: str) -> list[Finding]:
    """Return what an upper and a lower bound break.

    Args:
        original: The older schema.
        update: The newer schema.
        most: The upper bound's keyword, in upper case with underscores.
        least: The lower bound's.
    """
    found = []
    for name, sign in ((most, 1), (least, -1)):
        keyword = _camel(name)
        old, new = original.get(keyword), update.get(keyword)
        if not _is_number(new):
            continue
        if not _is_number(old):
            found.append(moved(keyword, name, "ADDED"))
        elif sign * (new - old) < 0:
            found.append(moved(keyword, name, "DECREASED" if sign > 0 else "INCREASED"))
    return found


def number_steps(old: float | None, new: float | None) -> list[Finding]:
    """Return what `multipleOf` breaks: every multiple of the old must be one of the new."""
    if new is None or old == new:
        return []
    if old is None:
        return [moved("multipleOf", "MULTIPLE_OF", "ADDED")]
    if math.isclose(math.remainder(old, new), 0, abs_tol=1e-12):
        return []
    expanded = math.isclose(math.remainder(new, old), 0, abs_tol=1e-12)
    return [moved("multipleOf", "MULTIPLE_OF", "EXPANDED" if expanded else "CHANGED")]


def _camel(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(part.capitalize() for part in rest)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
