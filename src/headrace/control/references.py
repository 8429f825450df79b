"""A definition with values in place of its references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from headrace.model import Definition, PluginSpec, StepSpec
    from headrace.plugins import References


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
