"""Passwords in configurations, hidden wherever a configuration is shown."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from headrace.control.infos import all_keys
from headrace.plugins import HIDDEN
from headrace.sdk import ConfigError, HeadraceError
from headrace.sdk.config import ConfigType
from headrace.sdk.converter import RecordPart
from headrace.sdk.sensitive import is_sensitive, masked, secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.model import ConfigVersion, Connector, TaskConfig
    from headrace.plugins import Registry
    from headrace.sdk.config import ConfigKey

__all__ = ["Masks", "secrets_of"]

_KEPT = 4096
"""How many masked configurations are kept: consoles ask for all of them again and again."""
Configured = TypeVar("Configured", "Connector", "ConfigVersion")


class Masks:
    """Shows configurations without the passwords that they hold in plain.

    Secret are the values of keys whose type is PASSWORD; of keys that nobody defines, those
    that sound so; and of all others, what `headrace.sdk.sensitive` finds in their texts, such
    as passwords in addresses. References are shown.
    Guarantee 6: the control plane gives out no configuration that has not been here.
    """

    def __init__(self, registry: Registry) -> None:
        """Know the keys of these plugins."""
        self._registry = registry
        self._masked = lru_cache(maxsize=_KEPT)(self._mask)

    def shown(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return a configuration with `[hidden]` in place of its passwords."""
        return dict(self._masked(tuple(config.items())))

    def of(self, found: Configured) -> Configured:
        """Return a connector, or a version of its configuration, to be shown."""
        return replace(found, config=self.shown(found.config))

    def of_task(self, task: TaskConfig, connector: Mapping[str, str]) -> TaskConfig:
        """Return a task to be shown, given the configuration of its connector."""
        plugin = connector.get("connector.class", "")
        shown = self.shown({**task.config, "connector.class": plugin})
        return replace(task, config={key: shown[key] for key in task.config})

    def restored(self, given: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
        """Return a configuration with what is kept in place of what was shown.

        So whoever reads a configuration, changes it and sends it back, changes no password.
        Raises ConfigError where nothing is kept.
        """
        shown = self.shown(kept)
        config = {
            key: kept[key] if key in kept and value == shown[key] else value
            for key, value in given.items()
        }
        for key, value in config.items():
            if HIDDEN in value and kept.get(key) != value:
                problem = f"{HIDDEN} stands for a value that is kept, and none is."
                raise ConfigError(problem, field=key, fix="Write the value, or a reference.")
        return config

    def _mask(self, items: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        config = dict(items)
        keys = _defined(config, self._registry)
        return tuple((key, self._value(key, value, keys)) for key, value in items)

    def _value(self, key: str, value: str, keys: Mapping[str, ConfigKey]) -> str:
        references = self._registry.references
        if not value or references.is_only(value):
            return value
        return HIDDEN if _is_secret(key, keys) else masked(value, references.is_only)


def secrets_of(config: Mapping[str, str], registry: Registry) -> Iterable[str]:
    """Return the passwords that a configuration holds in plain, also inside its texts."""
    keys = _defined(config, registry)
    for key, value in config.items():
        inside = secrets_in(value)
        if _is_secret(key, keys):
            found = [value, *inside]
        else:  # what a query or code compares with would hide words of every text
            found = [] if any(map(str.isspace, value)) else inside
        yield from (each for each in found if not registry.references.has_any(each))


def _is_secret(key: str, keys: Mapping[str, ConfigKey]) -> bool:
    known = keys.get(key)
    return is_sensitive(key) if known is None else known.type is ConfigType.PASSWORD


def _defined(config: Mapping[str, str], registry: Registry) -> Mapping[str, ConfigKey]:
    """Return the keys that the plugins of a configuration define, as far as they are there."""
    found: dict[str, ConfigKey] = {}
    with suppress(HeadraceError):
        found |= all_keys(config, registry).keys
    for part in RecordPart:
        prefix = f"{part}.converter"
        with suppress(HeadraceError):
            if name := config.get(prefix):
                own = registry.converter(name).config_def().keys
                found |= {f"{prefix}.{key}": defined for key, defined in own.items()}
    return found
