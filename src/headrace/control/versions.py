"""The configurations that a connector has had: what changed, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.sdk import HeadraceError
from headrace.sdk.errors import Category
from headrace.store import existing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.control.connectors import Connectors
    from headrace.model import ConfigVersion, Connector


class ConfigVersionNotFoundError(HeadraceError):
    """The connector has had no configuration of that number."""

    code: ClassVar[str] = "connector.version_not_found"
    category: ClassVar[Category] = Category.CONFIG


@dataclass(frozen=True)
class ConfigChange:
    """A key that differs between two configurations; None where one does not have it."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ConfigVersions:
    """The configurations of an installation's connectors. Any thread may use it."""

    connectors: Connectors

    def all(self, name: str) -> Sequence[ConfigVersion]:
        """Return them, newest first. Raises ConnectorNotFoundError."""
        return [self.connectors.masks.of(each) for each in self._kept(name)]

    def get(self, name: str, number: int) -> ConfigVersion:
        """Return one. Raises ConnectorNotFoundError or ConfigVersionNotFoundError."""
        return self.connectors.masks.of(self._find(name, number))

    def _kept(self, name: str) -> Sequence[ConfigVersion]:
        """Return them as they are, with passwords."""
        return existing(name, self.connectors.wanted.versions(name) or None)

    def _find(self, name: str, number: int) -> ConfigVersion:
        versions = self._kept(name)
        for version in versions:
            if version.version == number:
                return version
        problem = f"Connector {name} has no configuration version {number}."
        fix = f"Use a version from {versions[-1].version} to {versions[0].version}."
        raise ConfigVersionNotFoundError(problem, fix=fix, field="version")

    def changes(self, name: str, before: int, after: int) -> list[ConfigChange]:
        """Return the keys that differ between two, by name; a changed password is hidden twice.

        Raises ConnectorNotFoundError or ConfigVersionNotFoundError.
        """
        first, then = self._find(name, before).config, self._find(name, after).config
        shown = [self.connectors.masks.shown(each) for each in (first, then)]
        return [
            replace(each, before=shown[0].get(each.key), after=shown[1].get(each.key))
            for each in differences(first, then)
        ]

    def steps(self, name: str) -> list[tuple[ConfigVersion, list[str]]]:
        """Return all, newest first, with the keys that each changed."""
        versions = self._kept(name)
        older: list[Mapping[str, str]] = [*(each.config for each in versions[1:]), {}]
        return [
            (
                self.connectors.masks.of(each),
                [change.key for change in differences(before, each.config)],
            )
            for each, before in zip(versions, older, strict=True)
        ]

    def restore(self, name: str, number: int, by: str) -> Connector:
        """Give a connector a configuration that it has had, as its next version.

        The one that it has changes nothing. It is checked again: plugins may have changed.
        Raises ConnectorNotFoundError, ConfigVersionNotFoundError, or what is wrong with it.
        """
        return self.connectors.configure(name, self._find(name, number).config, by)[0]


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[ConfigChange]:
    """Return the keys that differ, by name."""
    keys = sorted({*before, *after})
    changes = (ConfigChange(key, before.get(key), after.get(key)) for key in keys)
    return [change for change in changes if change.before != change.after]
