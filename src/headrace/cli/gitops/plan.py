"""What has to be done with a server's connectors so that they are as files describe them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.control import Served

_REFERENCE = re.compile(r"\$\{[^}]+\}")
HIDDEN = "[hidden]"


class Kind(StrEnum):
    """What is done with a connector."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key that changes; None where it is not there. Secrets are hidden."""

    key: str
    before: str | None
    after: str | None

    def lines(self) -> list[str]:
        """Return it as lines of a diff."""
        old = [] if self.before is None else [f"    - {self.key}: {self.before}"]
        new = [] if self.after is None else [f"    + {self.key}: {self.after}"]
        return [*old, *new]


@dataclass(frozen=True, slots=True)
class There:
    """A connector as a server has it: its configuration and what is wanted of it."""

    config: Mapping[str, str]
    state: str


@dataclass(frozen=True, slots=True)
class Change:
    """What is done with one connector.

    Args:
        kind: What.
        name: With which.
        wanted: What it is to be; None where it is deleted.
        there: What it is; None where it is made.
        twin: The name of a connector of the same configuration that no file describes: this
            one seems to be it under another name.
    """

    kind: Kind
    name: str
    wanted: Served | None = None
    there: There | None = None
    twin: str | None = None

    @property
    def configures(self) -> bool:
        """Return whether the configuration changes."""
        if self.wanted is None or self.there is None:
            return self.wanted is not None
        return dict(self.wanted.config) != dict(self.there.config)

    @property
    def state(self) -> str | None:
        """Return the state that it is put into; None where that stays."""
        wanted = None if self.wanted is None else self.wanted.state
        return None if self.there is not None and wanted == self.there.state else wanted

    def keys(self, secret: Iterable[str] = ()) -> list[KeyChange]:
        """Return the keys that change, by name; values of those that are secret are hidden."""
        hidden = set(secret)
        old = {} if self.there is None else dict(self.there.config)
        new = {} if self.wanted is None else dict(self.wanted.config)
        if self.kind is Kind.DELETE:
            return []
        changes = [
            KeyChange(key, _shown(key, old.get(key), hidden), _shown(key, new.get(key), hidden))
            for key in sorted({*old, *new} - {"name"})
            if old.get(key) != new.get(key)
        ]
        if self.state is not None:
            before = None if self.there is None else self.there.state.lower()
            changes.append(KeyChange("(state)", before, self.state.lower()))
        return changes


@dataclass(frozen=True)
class Plan:
    """All that has to be done, by name; connectors that are as they should be are counted."""

    changes: Sequence[Change]
    unchanged: int
    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return it as people read it."""
        signs = {Kind.CREATE: "+", Kind.CHANGE: "~", Kind.DELETE: "-"}
        found: list[str] = []
        for change in self.changes:
            found.append(f"{signs[change.kind]} {change.kind} {change.name}")
            if change.twin is not None:
                found += [
                    f"    ! configured as {change.twin}: a new name has no offsets, so that",
                    "      all is read again from the beginning; to go on, keep the name",
                ]
            for key in change.keys(self.secrets.get(change.name, frozenset())):
                found += key.lines()
        return found

    def summary(self) -> str:
        """Return how many connectors each thing is done with."""
        numbers = [
            f"{sum(change.kind is kind for change in self.changes)} to {kind}"
            for kind in Kind
            if any(change.kind is kind for change in self.changes)
        ]
        return ", ".join([*numbers, f"{self.unchanged} unchanged"])

    def to_json(self) -> list[dict[str, Any]]:
        """Return it as values of JSON."""
        return [
            {
                "name": change.name,
                "action": change.kind.value,
                **({} if change.twin is None else {"same_config_as": change.twin}),
                "changes": [
                    {"key": key.key, "before": key.before, "after": key.after}
                    for key in change.keys(self.secrets.get(change.name, frozenset()))
                ],
            }
            for change in self.changes
        ]


def plan(wanted: Sequence[Served], there: Mapping[str, There], *, prune: bool) -> Plan:
    """Compare what files describe with what a server has.

    Args:
        wanted: What files describe, each name once.
        there: What the server has, by name.
        prune: Whether connectors that no file describes are deleted.
    """
    changes: list[Change] = []
    unchanged = 0
    described = {each.name for each in wanted}
    for each in sorted(wanted, key=lambda one: one.name):
        known = there.get(each.name)
        if known is None:
            change = Change(Kind.CREATE, each.name, each, twin=_twin(each, there, described))
        else:
            change = Change(Kind.CHANGE, each.name, each, known)
        if change.configures or change.state is not None:
            changes.append(change)
        else:
            unchanged += 1
    left = sorted(there.keys() - described) if prune else []
    changes += [Change(Kind.DELETE, name, None, there[name]) for name in left]
    return Plan(changes, unchanged)


def _twin(new: Served, there: Mapping[str, There], described: set[str]) -> str | None:
    """Return a connector with the configuration of a new one that no file describes."""
    own = _bare(new.config)
    for name in sorted(there.keys() - described):
        kept = _bare(there[name].config)
        if kept.keys() == own.keys() and all(
            own[key] == value or HIDDEN in value for key, value in kept.items()
        ):
            return name
    return None


def _bare(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key != "name"}


def _shown(key: str, value: str | None, hidden: set[str]) -> str | None:
    """Return a value; a secret is hidden unless it is only named."""
    if value is None or key not in hidden or _REFERENCE.fullmatch(value.strip()):
        return value
    return HIDDEN
