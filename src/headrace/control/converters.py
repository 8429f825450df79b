"""The converters that a definition names, and a definition with values for its references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.control.config_keys import below, errors_at, unknown_keys
from headrace.control.connector_settings import DEFAULT_HEADER_CONVERTER
from headrace.sdk import ConfigError, ConfigErrors, Converter
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart

if TYPE_CHECKING:
    from headrace.model import Definition, PluginSpec, StepSpec
    from headrace.plugins import References, Registry
    from headrace.sdk.config import Config


CONVERTER_PREFIXES = tuple(f"{part}.converter." for part in RecordPart)
"""What the keys of converters begin with."""


@dataclass(frozen=True)
class ConverterPlan:
    """A configured converter for one part."""

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
            raise errors_at(several.errors, f"{part}.converter") from several
        plans.append(ConverterPlan(part, plugin, config))
    return tuple(plans)


def unknown_converter_keys(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield the keys that no converter knows; all of its converters must be good."""
    for plan in plan_converters(definition, registry):
        keys, props = plan.plugin.config_def(), converter_props(definition, plan.part)
        yield from unknown_keys(keys, props, f"{plan.part}.converter")


def converter_props(definition: Definition, part: RecordPart) -> dict[str, str]:
    """Return a converter's keys, without their prefix."""
    props = below(definition.common, f"{part}.converter.")
    props.pop("plugin.version", None)
    return props | {CONVERTER_TYPE: part.value}


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
