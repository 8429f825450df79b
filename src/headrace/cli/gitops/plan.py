"""The plan of changes that make a server's connectors match definition files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.cli.formats import diff_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.control import Served

_REFERENCE = re.compile(r"\$\{[^}]+\}")
HIDDEN = "[hidden]"


class Kind(StrEnum):
    """The action on a connector."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class KeyChange(NamedTuple):
    """A changed key; None means that it is absent. Secrets are hidden."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class There:
    """A connector on the server: its configuration and its target state."""

    config: Mapping[str, str]
    state: str


@dataclass(frozen=True, slots=True)
class Change:
    """The planned change of one connector.

    Args:
        kind: The action.
        name: The connector.
        target: The new definition; None for a deletion.
        there: The current state on the server; None for a creation.
        twin: The name of a connector with the same configuration that no file defines:
            probably this connector was renamed.
    """

    kind: Kind
    name: str
    target: Served | None = None
    there: There | None = None
    twin: str | None = None

    @property
    def configures(self) -> bool:
        if self.target is None or self.there is None:
            return self.target is not None
        return dict(self.target.config) != dict(self.there.config)

    @property
    def state(self) -> str | None:
        """The new target state; None if it does not change."""
        target = None if self.target is None else self.target.state
        return None if self.there is not None and target == self.there.state else target

    def keys(self, secret: Iterable[str] = ()) -> list[KeyChange]:
        """Return the changed keys by name; the values of ``secret`` keys are hidden."""
        hidden = set(secret)
        old = {} if self.there is None else dict(self.there.config)
        new = {} if self.target is None else dict(self.target.config)
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
    """All changes, ordered by name, and the number of unchanged connectors."""

    changes: Sequence[Change]
    unchanged: int
    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        signs = {Kind.CREATE: "+", Kind.CHANGE: "~", Kind.DELETE: "-"}
        found: list[str] = []
        for change in self.changes:
            found.append(f"{signs[change.kind]} {change.kind} {change.name}")
            if change.twin is not None:
                found += [
                    f"    ! same configuration as {change.twin}: a new name has no offsets, so",
                    "      everything is read from the beginning; keep the name to continue",
                ]
            for key in self._keys(change):
                found += (f"    {line}" for line in diff_lines(*key))
        return found

    def summary(self) -> str:
        numbers = [
            f"{sum(change.kind is kind for change in self.changes)} to {kind}"
            for kind in Kind
            if any(change.kind is kind for change in self.changes)
        ]
        return ", ".join([*numbers, f"{self.unchanged} unchanged"])

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": change.name,
                "action": change.kind.value,
                **({} if change.twin is None else {"same_config_as": change.twin}),
                "changes": [key._asdict() for key in self._keys(change)],
            }
            for change in self.changes
        ]

    def _keys(self, change: Change) -> list[KeyChange]:
        return change.keys(self.secrets.get(change.name, frozenset()))


def plan(described: Sequence[Served], there: Mapping[str, There], *, prune: bool) -> Plan:
    """Compare definitions with unique names to a server's connectors.

    With ``prune`` the plan deletes connectors that no file defines.
    """
    changes: list[Change] = []
    unchanged = 0
    names = {each.name for each in described}
    for each in sorted(described, key=lambda one: one.name):
        known = there.get(each.name)
        if known is None:
            change = Change(Kind.CREATE, each.name, each, twin=_twin(each, there, names))
        else:
            change = Change(Kind.CHANGE, each.name, each, known)
        if change.configures or change.state is not None:
            changes.append(change)
        else:
            unchanged += 1
    left = sorted(there.keys() - names) if prune else []
    changes += [Change(Kind.DELETE, name, None, there[name]) for name in left]
    return Plan(changes, unchanged)


def _twin(new: Served, there: Mapping[str, There], described: set[str]) -> str | None:
    """Return a connector that no file defines and that has the configuration of a new one."""
    own = _bare(new.config)
    for name in sorted(there.keys() - described):
        other = _bare(there[name].config)
        if other.keys() == own.keys() and all(
            own[key] == value or HIDDEN in value for key, value in other.items()
        ):
            return name
    return None


def _bare(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key != "name"}


def _shown(key: str, value: str | None, hidden: set[str]) -> str | None:
    """Return a value; a secret is hidden unless the value is only a reference."""
    if value is None or key not in hidden or _REFERENCE.fullmatch(value.strip()):
        return value
    return HIDDEN
