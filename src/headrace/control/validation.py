"""Checks a definition and says everything that is wrong with it at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.control.converting import CONVERTER_PREFIXES, unknown_keys
from headrace.control.evolution_keys import evolution_keys, plugin_keys
from headrace.control.meanings import not_allowed, references_in_names, wrong_topics
from headrace.control.references import resolvable
from headrace.control.runtime_keys import common_def, common_props
from headrace.model import Definition, PluginNotFoundError
from headrace.plugins import PluginTimeoutError, within
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.config import Password, evolution_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.model import PluginSpec, StepSpec
    from headrace.plugins import Registry
    from headrace.sdk import Connector
    from headrace.sdk.config import ConfigDef


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found."""

    errors: tuple[HeadraceError, ...]
    warnings: tuple[HeadraceError, ...]


def check_definition(definition: Definition, registry: Registry) -> Findings:
    """Return all errors and warnings, each with its field and what to do about it.

    The values of references are checked too, and not shown.
    """
    in_names = references_in_names(definition, registry) if registry.references.serving else ()
    named = list(in_names)
    definition, unresolved = resolvable(definition, registry.references)
    check = _Check(definition, registry)
    check.errors += named
    check.common()
    check.converters()
    if definition.source is not None:
        check.connector(definition.source, registry.source)
    for sink in definition.sinks:
        check.connector(sink, registry.sink)
    for step in definition.steps:
        check.step(step)
    check.meanings()
    # What a plugin makes of the text of a reference says nothing.
    fields = {error.field for error in unresolved}
    errors = [*unresolved, *(each for each in check.errors if each.field not in fields)]
    secrets = registry.references.secrets
    return Findings(
        tuple(secrets.clean(each) for each in errors),
        tuple(secrets.clean(each) for each in check.warnings),
    )


def check_steps(steps: Iterable[StepSpec], registry: Registry) -> Findings:
    """Return all errors and warnings of a chain that stands by itself."""
    chain = tuple(steps)
    check = _Check(Definition("chain", steps=chain), registry)
    for step in chain:
        check.step(step)
    check.errors += not_allowed(Definition("chain", steps=chain), registry)
    return Findings(tuple(check.errors), tuple(check.warnings))


class _Check:
    def __init__(self, definition: Definition, registry: Registry) -> None:
        self._definition = definition
        self._registry = registry
        self.errors: list[HeadraceError] = []
        self.warnings: list[HeadraceError] = []

    def common(self) -> None:
        keys, props = common_def(self._definition), common_props(self._definition)
        self._parse(keys, props, "")
        if self._definition.strict:
            prefixes = ("errors.", "topic.creation.", *CONVERTER_PREFIXES)
            self._unknown(keys, props, "", prefixes=prefixes)

    def converters(self) -> None:
        found = self.errors if self._definition.strict else self.warnings
        try:
            found.extend(unknown_keys(self._definition, self._registry))
        except ConfigErrors as several:
            self._extend(several.errors, "")
        except (ConfigError, PluginNotFoundError) as error:
            self.errors.append(error)

    def connector(self, spec: PluginSpec, find: Callable[..., type[Connector]]) -> None:
        place = spec.field("connector") if spec.place else "connector.class"
        try:
            plugin = find(spec.plugin, field=place)
        except PluginNotFoundError as error:
            self.errors.append(error)
            return
        keys, props = plugin.config_def(), plugin_keys(spec.config)
        config = self._parse(keys, props, spec.place)
        self._unknown(keys, props, spec.place, prefixes=("connector.class", "topic"))
        if config is not None:
            limit, parsed = self._registry.patience, keys.parse(props)
            try:
                wrong = within(limit, "headrace-check", lambda: [*plugin.check(parsed)])
            except PluginTimeoutError:
                self.errors.append(PluginTimeoutError(limit, field=place))
            else:
                self._extend(wrong, spec.place)
        self._section(evolution_config(), evolution_keys(spec.config), spec.place)

    def meanings(self) -> None:
        """Check paths, code and names of topics, of keys of which nothing is wrong yet."""
        fields = {error.field for error in self.errors}
        found = [
            *not_allowed(self._definition, self._registry),
            *wrong_topics(self._definition, self._registry),
        ]
        self.errors += [error for error in found if error.field not in fields]

    def _section(self, keys: ConfigDef, props: Mapping[str, str], place: str) -> None:
        self._parse(keys, props, place)
        self._unknown(keys, props, place)

    def step(self, step: StepSpec) -> None:
        name, _, part = step.transform.partition("$")
        try:
            transform = self._registry.transform(name, field=f"{step.place}.type")
            if part not in {"", "Key", "Value"} or (part and not transform.parts):
                fix = (
                    f"Write {name} without ${part}."
                    if not transform.parts
                    else "Use $Key or $Value."
                )
                problem = f"{name} has no ${part}."
                self.errors.append(ConfigError(problem, field=f"{step.place}.type", fix=fix))
            self._parse(transform.config_def(), step.config, step.place)
            self._unknown(transform.config_def(), step.config, step.place)
            if step.predicate is not None:
                place = f"{step.place}.predicate"
                predicate = self._registry.predicate(step.predicate, field=place)
                self._parse(predicate.config_def(), step.predicate_config, place)
        except PluginNotFoundError as error:
            self.errors.append(error)
        if step.negate and step.predicate is None:
            fix = "Add a predicate, or remove negate."
            problem = "Negate needs a predicate."
            self.errors.append(ConfigError(problem, field=f"{step.place}.negate", fix=fix))

    def _parse(self, keys: ConfigDef, props: Mapping[str, str], place: str) -> object | None:
        try:
            config = keys.parse(props)
        except ConfigErrors as several:
            self._extend(several.errors, place)
            return None
        passwords = (each.value for each in config.values() if isinstance(each, Password))
        self._registry.references.secrets.remember(passwords)
        return config

    def _unknown(
        self,
        keys: ConfigDef,
        props: Mapping[str, str],
        place: str,
        prefixes: Sequence[str] = (),
    ) -> None:
        found = self.errors if self._definition.strict else self.warnings
        for name, close in keys.unknown(props, prefixes=prefixes):
            known = ", ".join(keys.keys) or "none"
            fix = f"Did you mean {close}?" if close else f"Known keys: {known}."
            found.append(
                ConfigError(problem="Is not a known key.", field=_at(place, name), fix=fix)
            )

    def _extend(self, errors: Iterable[ConfigError], place: str) -> None:
        for error in errors:
            field = _at(place, error.field)
            self.errors.append(ConfigError(error.problem, fix=error.fix, field=field))


def _at(place: str, field: str | None) -> str:
    return ".".join(part for part in (place, field) if part)
