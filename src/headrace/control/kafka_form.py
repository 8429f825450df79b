"""Kafka Connect's form of a definition: one flat map of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.control.converting import CONVERTER_PREFIXES
from headrace.control.flat import flat
from headrace.control.runtime_keys import sink_def, source_def
from headrace.model import Definition, PluginSpec, StepSpec
from headrace.sdk import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_STEPS = 200
"""How many transforms, and how many predicates, a chain may have."""
_NOT_OWN = (
    "transforms.",
    "predicates.",
    *CONVERTER_PREFIXES,
    "producer.override.",
    "consumer.override.",
    "admin.override.",
    "errors.",
    "topic.creation.",
)


def from_kafka(document: Mapping[str, object], is_source: Callable[[str], bool]) -> Definition:
    """Read ``{"name", "config": {...}}`` or one flat map that has a name."""
    inner = document.get("config")
    config = flat(inner if isinstance(inner, dict) else document)
    name = str(document.get("name") or config.get("name") or "")
    config["name"] = name
    if not name:
        fix = "Add a name: it must be unique."
        raise ConfigError(problem="The connector has no name.", field="name", fix=fix)
    plugin = config.get("connector.class", "")
    if not plugin:
        fix = "Name the plugin that reads or writes."
        raise ConfigError(
            problem="The connector names no class.", field="connector.class", fix=fix
        )
    source = is_source(plugin)
    keys = (source_def() if source else sink_def()).keys
    common = {
        key: value
        for key, value in config.items()
        if key in keys or key.startswith(CONVERTER_PREFIXES)
    }
    own = {
        key: value
        for key, value in config.items()
        if key not in keys and not key.startswith(_NOT_OWN)
    }
    own["connector.class"] = plugin  # some plugins behave as the class of that name does
    spec = PluginSpec(plugin, own)
    topics = config.get("topic", name) if source else config.get("topics", "")
    return Definition(
        name=name,
        source=spec if source else None,
        sinks=() if source else (spec,),
        topics=tuple(topic.strip() for topic in topics.split(",") if topic.strip()),
        steps=kafka_steps(config),
        common=common,
        strict=False,
    )


def kafka_steps(config: Mapping[str, str]) -> tuple[StepSpec, ...]:
    """Read the chain that ``transforms`` names, from a flat map of texts.

    Raises:
        ConfigErrors: A step has no type, or names a predicate that is not there.
    """
    errors: list[ConfigError] = []
    steps = []
    defined = chain_names(config, "predicates")
    for alias in chain_names(config, "transforms"):
        own = _own(config, f"transforms.{alias}.")
        kind = own.pop("type", "")
        predicate = own.pop("predicate", None)
        negate = own.pop("negate", "false").lower() == "true"
        own.pop("plugin.version", None)
        place = f"transforms.{alias}"
        if not kind:
            fix = "Name the transform."
            errors.append(ConfigError(problem="Has no type.", field=f"{place}.type", fix=fix))
        of_predicate = _own(config, f"predicates.{predicate}.") if predicate else {}
        predicate_kind = of_predicate.pop("type", None)
        if predicate and (predicate not in defined or not predicate_kind):
            problem = f"No predicate is called {predicate!r}."
            fix = f"Add it to predicates, with predicates.{predicate}.type."
            errors.append(ConfigError(problem, field=f"{place}.predicate", fix=fix))
        steps.append(
            StepSpec(
                alias,
                kind,
                own,
                predicate=predicate_kind,
                predicate_alias=predicate or "",
                predicate_config=of_predicate,
                negate=negate,
                place=place,
            )
        )
    if errors:
        raise ConfigErrors(errors)
    return tuple(steps)


def _own(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value
        for key, value in config.items()
        if key.startswith(prefix)
    }


def chain_names(config: Mapping[str, str], key: str) -> list[str]:
    """Return the names of a chain's ``transforms`` or ``predicates``.

    Raises ConfigError for more than anybody writes: each is a step of every query, and checking
    thousands would keep a server busy for minutes.
    """
    found = names(config.get(key, ""))
    if len(found) > MAX_STEPS:
        raise too_many(len(found), key)
    return found


def too_many(count: int, field: str) -> ConfigError:
    """Return the error of a chain with too many steps."""
    problem = f"There are {count} {field}, and a chain has at most {MAX_STEPS}."
    fix = "Write several steps as one, with Sql or Python, or divide the connector at a topic."
    return ConfigError(problem, field=field, fix=fix)


def names(text: str) -> list[str]:
    """Return the names in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
