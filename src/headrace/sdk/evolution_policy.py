"""What a target does when the schema of what it is given changes: the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.sdk.config import Config

__all__ = ["ChangeKind", "EvolutionPolicy", "Handling"]


class ChangeKind(StrEnum):
    """The kinds of change between an old schema and a new one."""

    ADD = "add"
    """A field is there that was not."""
    WIDEN = "widen"
    """A field's type takes all the values that it took, and more; null is one of them."""
    NARROW = "narrow"
    """A field's type takes fewer values than it did, and no others."""
    RETYPE = "retype"
    """A field has another type, which is neither wider nor narrower."""
    RENAME = "rename"
    """A field has another name; this cannot be seen, only declared."""
    DROP = "drop"
    """A field is no longer there."""
    REORDER = "reorder"
    """The fields that were there stand in another order."""
    ANNOTATE = "annotate"
    """The name, version, doc, default or a parameter is another: the values are not."""


EVOLUTION_KINDS = tuple(kind for kind in ChangeKind if kind is not ChangeKind.ANNOTATE)
"""The kinds of change that have a policy: an annotation changes no values and is taken."""


class Handling(StrEnum):
    """What is done about a change; docs/how-to/handle-schema-changes.md has the table."""

    EVOLVE = "evolve"
    """The target follows the change."""
    LENIENT = "lenient"
    """The target takes old and new side by side; nothing that it has goes away."""
    IGNORE = "ignore"
    """The target stays as it is, and takes what fits."""
    REJECT = "reject"
    """The task stops, with nothing of the batch written."""


@dataclass(frozen=True, slots=True)
class EvolutionPolicy:
    """How a target handles each kind of change.

    Args:
        otherwise: How it handles the kinds that have no handling of their own.
        handlings: How it handles single kinds.
        renames: The old path of each field that has been renamed, and its new path.
    """

    otherwise: Handling = Handling.EVOLVE
    handlings: Mapping[ChangeKind, Handling] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Config) -> EvolutionPolicy:
        """Read the keys that begin with ``schema.evolution``."""
        given = {kind: config.find_str(f"schema.evolution.{kind}") for kind in EVOLUTION_KINDS}
        pairs = (text.partition(":") for text in config.get_list("schema.evolution.renames"))
        return cls(
            Handling(config.get_str("schema.evolution")),
            {kind: Handling(text) for kind, text in given.items() if text},
            {old.strip(): new.strip() for old, _, new in pairs},
        )

    @classmethod
    def agreed(cls, policies: Sequence[EvolutionPolicy]) -> EvolutionPolicy:
        """Return what all of these say; where they differ it follows every change."""
        first, *others = policies
        handlings: dict[ChangeKind, Handling] = {
            kind: first.of(kind)
            for kind in EVOLUTION_KINDS
            if all(other.of(kind) is first.of(kind) for other in others)
        }
        alike = all(other.renames == first.renames for other in others)
        return cls(handlings=handlings, renames=first.renames if alike else {})

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> EvolutionPolicy:
        """Read what `to_json` gave."""
        handlings = {ChangeKind(k): Handling(h) for k, h in told["handlings"].items()}
        return cls(Handling(told["otherwise"]), handlings, told["renames"])

    def to_json(self) -> dict[str, Any]:
        """Return the form that travels to other processes."""
        return {
            "otherwise": self.otherwise.value,
            "handlings": {kind.value: h.value for kind, h in self.handlings.items()},
            "renames": dict(self.renames),
        }

    def of(self, kind: ChangeKind) -> Handling:
        """Return how a kind of change is handled."""
        if kind is ChangeKind.ANNOTATE:
            return Handling.EVOLVE
        return self.handlings.get(kind, self.otherwise)
