"""Validates a connector's flat configuration, and masks its secrets for display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from headrace.control.connector_settings import sink_def, source_def
from headrace.control.definition_forms import chain_names, from_kafka
from headrace.control.validation import Findings, check_definition
from headrace.evolution import plugin_keys
from headrace.model import ConfigVersion, Connector, Definition, PluginNotFoundError, TaskConfig
from headrace.plugins import HIDDEN, Registry
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.config import (
    ConfigDef,
    ConfigInfos,
    ConfigKey,
    ConfigType,
    ConfigValue,
)
from headrace.sdk.converter import RecordPart
from headrace.sdk.sensitive import is_sensitive, masked, secrets_in

if TYPE_CHECKING:
    from headrace.sdk import Connector as Plugin
    from headrace.sdk.config import Config


def config_infos(config: Mapping[str, str], registry: Registry) -> ConfigInfos:
    """Validate a connector's configuration; return each key with its value and its errors.

    Raises:
        ConfigError: The class is not set.
        PluginNotFoundError: The class does not exist.
    """
    plugin = config.get("connector.class", "")
    if not plugin:
        names = ", ".join(f"{key!r}" for key in config)
        problem = f"Connector config with the keys {names} contains no connector type"
        raise ConfigError(problem, field="connector.class", fix="Set it to a plugin.")
    keys = _keys(plugin, config, registry)
    values, unresolved = registry.references.values(config)
    infos = keys.infos(plugin, values)
    wrong = {error.field: error for error in unresolved}
    shown = [_shown(value, config, values, wrong) for value in infos.values]
    hidden = [_without_secrets(value, registry) for value in shown]
    found = _checked(config, registry)
    return replace(infos, values=_with_others(hidden, found.errors), warnings=found.warnings)


def all_keys(config: Mapping[str, str], registry: Registry) -> ConfigDef:
    """Return the keys of a connector's plugin and chain. Raises PluginNotFoundError."""
    return _keys(config.get("connector.class", ""), config, registry)


def definition_of(connector: Connector, registry: Registry) -> Definition:
    """Return the definition of a connector's configuration. Raises its errors."""
    document = {"name": connector.name, "config": dict(connector.config)}
    return from_kafka(document, registry.reads)


def configured_plugin(connector: Connector, registry: Registry) -> tuple[type[Plugin], Config]:
    """Return the plugin of a stored connector, and its configuration with its name.

    References are resolved, so callers must mask derived output with ``References.shown``.
    Errors are masked at the API boundary.
    """
    definition = definition_of(connector, registry)
    spec = definition.source or definition.sinks[0]
    find = registry.sink if definition.source is None else registry.source
    plugin: type[Plugin] = find(spec.plugin)
    props = registry.references.resolved(plugin_keys(spec.config), spec.field)
    return plugin, plugin.config_def().parse({**props, "name": connector.name})


def plugin_keys_of(name: str, registry: Registry) -> ConfigDef:
    """Return a plugin's own keys, without the common keys of connectors."""
    [first, *_] = registry.find(name.partition("$")[0])
    return first.config_def()


def _keys(plugin: str, config: Mapping[str, str], registry: Registry) -> ConfigDef:
    reads = registry.reads({**config, "connector.class": plugin})
    common = source_def() if reads else sink_def()
    own = (registry.source(plugin) if reads else registry.sink(plugin)).config_def()
    keys = common.merged(own)
    for alias in chain_names(config, "transforms"):
        group = f"Transforms: {alias}"
        keys = keys.embed(f"transforms.{alias}.", group, 0, _step_keys(alias, config, registry))
    for alias in chain_names(config, "predicates"):
        group, prefix = f"Predicates: {alias}", f"predicates.{alias}."
        keys = keys.embed(prefix, group, 0, _predicate_keys(prefix, config, registry))
    return keys


def _step_keys(alias: str, config: Mapping[str, str], registry: Registry) -> ConfigDef:
    prefix = f"transforms.{alias}."
    keys = _type_keys("The transform.")
    name = config.get(f"{prefix}type", "").partition("$")[0]
    with suppress(PluginNotFoundError):  # reported as an error of the type key
        keys = keys.merged(registry.transform(name).config_def())
    return keys.define(
        "predicate", ConfigType.STRING, "", doc="The predicate that selects records."
    ).define(
        "negate",
        ConfigType.BOOLEAN,
        default=False,
        doc="Whether to apply the transform where the predicate is false.",
    )


def _predicate_keys(prefix: str, config: Mapping[str, str], registry: Registry) -> ConfigDef:
    keys = _type_keys("The predicate.")
    with suppress(PluginNotFoundError):
        keys = keys.merged(registry.predicate(config.get(f"{prefix}type", "")).config_def())
    return keys


def _type_keys(doc: str) -> ConfigDef:
    version = "The version of the plugin; Headrace has one version of each."
    return (
        ConfigDef()
        .define("type", ConfigType.CLASS, doc=doc)
        .define("plugin.version", ConfigType.STRING, None, doc=version)
    )


def _shown(
    value: ConfigValue,
    config: Mapping[str, str],
    values: Mapping[str, str],
    wrong: Mapping[str | None, ConfigError],
) -> ConfigValue:
    """Return a key with the reference from the configuration instead of its value."""
    name = value.name
    if name in wrong:
        return replace(value, value=config[name], errors=(wrong[name],))
    if config.get(name) != values.get(name):
        return replace(value, value=config[name])
    return value


def _without_secrets(value: ConfigValue, registry: Registry) -> ConfigValue:
    references = registry.references
    errors = tuple(references.secrets.clean(error) for error in value.errors)
    shown = value.value
    if isinstance(shown, str):
        shown = masked(shown, references.is_only)
    return replace(value, value=shown, errors=errors)


def _checked(config: Mapping[str, str], registry: Registry) -> Findings:
    try:
        definition = from_kafka({"config": dict(config)}, registry.reads)
    except ConfigErrors as several:
        return Findings(several.errors, ())
    except ConfigError as error:
        return Findings((error,), ())
    return check_definition(definition, registry)


def _with_others(
    values: Iterable[ConfigValue], errors: Iterable[HeadraceError]
) -> list[ConfigValue]:
    """Return the values, with the errors added to keys that have no errors yet."""
    by_name = {value.name: value for value in values}
    known = {name for name, value in by_name.items() if value.errors}
    for error in errors:
        name = error.field or "name"
        if name not in known:
            value = by_name.get(name, ConfigValue(name=name, visible=False))
            more = ConfigError(error.problem, fix=error.fix, field=name)
            by_name[name] = replace(value, errors=(*value.errors, more))
    return list(by_name.values())


_CACHED = 4096
"""How many masked configurations are cached: consoles request all of them repeatedly."""
Configured = TypeVar("Configured", "Connector", "ConfigVersion")


class Masks:
    """Masks plain-text passwords in configurations.

    Secrets are the values of keys of type PASSWORD; the values of undefined keys with a
    sensitive name; and in all other values the parts that `headrace.sdk.sensitive` finds, such
    as passwords in URLs. References are not masked.
    Guarantee 6: the control plane returns only masked configurations.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._masked = lru_cache(maxsize=_CACHED)(self._mask)

    def shown(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return a configuration with its passwords replaced by `[hidden]`."""
        return dict(self._masked(tuple(config.items())))

    def of(self, found: Configured) -> Configured:
        return replace(found, config=self.shown(found.config))

    def of_task(self, task: TaskConfig, connector: Mapping[str, str]) -> TaskConfig:
        plugin = connector.get("connector.class", "")
        shown = self.shown({**task.config, "connector.class": plugin})
        return replace(task, config={key: shown[key] for key in task.config})

    def restored(self, sent: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """Return a configuration with masked values replaced by the stored ones.

        So a client that reads a configuration, edits it and sends it back keeps the passwords.
        Raises ConfigError if a masked value has no stored value.
        """
        shown = self.shown(stored)
        config = {
            key: stored[key] if key in stored and value == shown[key] else value
            for key, value in sent.items()
        }
        for key, value in config.items():
            if HIDDEN in value and stored.get(key) != value:
                problem = f"{HIDDEN} stands for a stored value, but none is stored."
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
    """Return the plain-text passwords in a configuration, including those inside values."""
    keys = _defined(config, registry)
    for key, value in config.items():
        inside = secrets_in(value)
        if _is_secret(key, keys):
            found = [value, *inside]
        else:  # a literal in a query or in code may be a common word, which must not be masked
            found = [] if any(map(str.isspace, value)) else inside
        yield from (each for each in found if not registry.references.has_any(each))


def _is_secret(key: str, keys: Mapping[str, ConfigKey]) -> bool:
    known = keys.get(key)
    return is_sensitive(key) if known is None else known.type is ConfigType.PASSWORD


def _defined(config: Mapping[str, str], registry: Registry) -> Mapping[str, ConfigKey]:
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
