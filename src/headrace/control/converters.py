"""The converters that a definition names, and a definition with values for its references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.control.connector_settings import DEFAULT_HEADER_CONVERTER
from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model import Definition, PluginSpec, StepSpec
    from headrace.plugins import References, Registry
    from headrace.sdk import Converter
    from headrace.sdk.config import Config


CONVERTER_PREFIXES = tuple(f"{part}.converter." for part in RecordPart)
"""What the keys of converters begin with."""


@dataclass(frozen=True)
class ConverterPlan:
    """A configured converter for one part.

    Args:
        part: The part.
        plugin: Its class.
        config: Its own keys.
    """

    part: RecordPart
    plugin: type[Converter]
    config: Config


def plan_converters(definition: Definition, registry: Registry) -> tuple[ConverterPlan, ...]:
    """Return the converters that the definition sets; raise what is wrong with them.

    Where a key or a value is converted headers are as well, if need be by the default.
    """
    plans: list[ConverterPlan] = []
    for part in RecordPart:
        name = definition.common.get(f"{part}.converter")
        if not name and plans and part is RecordPart.HEADER:
            name = DEFAULT_HEADER_CONVERTER
        if not name:
            continue
        plugin = registry.converter(name, field=f"{part}.converter")
        if part not in plugin.parts:
            parts = " and ".join(sorted(plugin.parts))
            raise ConfigError(
                problem=f"{name} does not convert a {part}.",
                field=f"{part}.converter",
                fix=f"It is for: {parts}. Choose another.",
            )
        try:
            config = plugin.config_def().parse(converter_props(definition, part))
        except ConfigErrors as several:
            raise ConfigErrors(
                ConfigError(error.problem, fix=error.fix, field=_at(part, error.field))
                for error in several.errors
            ) from several
        plans.append(ConverterPlan(part, plugin, config))
    return tuple(plans)


def unknown_keys(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield the keys that no converter knows; all of its converters must be good."""
    for plan in plan_converters(definition, registry):
        keys = plan.plugin.config_def()
        for name, close in keys.unknown(converter_props(definition, plan.part)):
            known = ", ".join(keys.keys) or "none"
            fix = f"Did you mean {close}?" if close else f"Known keys: {known}."
            yield ConfigError("Unknown key.", field=_at(plan.part, name), fix=fix)


def converter_props(definition: Definition, part: RecordPart) -> dict[str, str]:
    """Return a converter's keys, without their prefix."""
    prefix = f"{part}.converter."
    props = {
        key.removeprefix(prefix): value
        for key, value in definition.common.items()
        if key.startswith(prefix)
    }
    props.pop("plugin.version", None)
    return props | {CONVERTER_TYPE: part.value}


def _at(part: RecordPart, key: str | None) -> str:
    return ".".join(piece for piece in (f"{part}.converter", key) if piece)


def resolved(definition: Definition, references: References) -> Definition:
    """Return a definition with the values that its plugins are to have.

    Called where a definition is checked and where its tasks are planned, and nowhere else:
    what is stored and shown keeps its references.

    Raises:
        ConfigErrors: With every reference that has no value.
    """
    found, errors = resolvable(definition, references)
    if errors:
        raise ConfigErrors(errors)
    return found


def resolvable(
    definition: Definition, references: References
) -> tuple[Definition, list[ConfigError]]:
    """Return the same, and what is wrong; keys that are wrong are as they were."""
    errors: list[ConfigError] = []

    def put(config: Mapping[str, str], name: Callable[[str], str] = str) -> dict[str, str]:
        values, wrong = references.values(config, name)
        errors.extend(wrong)
        return values

    def plugin(spec: PluginSpec) -> PluginSpec:
        return replace(spec, config=put(spec.config, spec.field))

    def step(spec: StepSpec) -> StepSpec:
        prefix = f"predicates.{spec.predicate_alias}"
        return replace(
            spec,
            config=put(spec.config, lambda key: f"{spec.place}.{key}"),
            predicate_config=put(spec.predicate_config, lambda key: f"{prefix}.{key}"),
        )

    source = None if definition.source is None else plugin(definition.source)
    sinks = tuple(plugin(sink) for sink in definition.sinks)
    steps = tuple(step(each) for each in definition.steps)
    topics = put(
        {str(n): topic for n, topic in enumerate(definition.topics)},
        lambda _: "topics" if definition.source is None else "topic",
    )
    found = replace(
        definition,
        source=source,
        sinks=sinks,
        steps=steps,
        topics=tuple(
            each.strip()
            for topic in topics.values()
            for each in topic.split(",")
            if each.strip()
        ),
        common=put(definition.common),
    )
    return found, errors
