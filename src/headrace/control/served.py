"""Turns documents into what a server takes: a name and a flat map of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.control.files import read_each
from headrace.control.flat import flat, text
from headrace.control.yaml_form import from_sections
from headrace.model import PluginNotFoundError, TargetState
from headrace.plugins import PluginKind
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.model import Definition, PluginSpec, StepSpec
    from headrace.plugins import Registry

_AROUND = {"name", "config", "initial_state", "state", "tasks", "type"}
"""What may stand around a configuration: all that a server tells of a connector too."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A connector as a server is to have it.

    Args:
        name: Its name.
        config: Its configuration, as texts, with the name.
        state: What it is to be: RUNNING, PAUSED or STOPPED; None where that is left alone.
        initial_state: What it is to be when it is made.
    """

    name: str
    config: Mapping[str, str]
    state: str | None = None
    initial_state: str | None = None


def served(documents: Iterable[object], registry: Registry) -> list[Served]:
    """Return the connectors that documents describe, in any form.

    They are in Kafka Connect's form, flat or with ``config`` and perhaps ``state``; or what its
    REST API gives for ``/connectors?expand=info``; or have sections with a topic between.

    Raises:
        ConfigErrors: With everything that is wrong with them.
    """
    return read_each(documents, lambda each: _served(each, registry))


def _served(document: object, registry: Registry) -> list[Served]:
    if not isinstance(document, dict):
        problem = f"A connector is a mapping of keys, not {type(document).__name__}."
        raise ConfigError(problem, fix="Begin with name: and connector.class:.")
    if document and all(isinstance(e, dict) and "info" in e for e in document.values()):
        return [_enclosed(each["info"]) for each in document.values()]
    if isinstance(document.get("config"), dict) and "source" not in document:
        return [_enclosed(document)]
    if "connector.class" in document:
        return [Served(name=_name(document), config=flat(document))]
    return [_flattened(each, registry) for each in from_sections(document)]


def _name(document: Mapping[str, object]) -> str:
    name = str(document.get("name") or "")
    if not name:
        problem = "The connector has no name."
        raise ConfigError(problem, field="name", fix="Add a name: it must be unique.")
    return name


def _enclosed(document: Mapping[str, object]) -> Served:
    unknown = sorted(document.keys() - _AROUND)
    if unknown:
        problem = f"Is no key beside config: {', '.join(unknown)}."
        fix = "Move keys of the configuration below config."
        raise ConfigError(problem, field=unknown[0], fix=fix)
    inner = document["config"]
    assert isinstance(inner, dict)
    name = _name({"name": document.get("name") or inner.get("name")})
    if inner.get("name", name) != name:
        problem = f"The configuration's name is {inner['name']!r}, the connector's {name!r}."
        raise ConfigError(problem, field="config.name", fix="Leave it out.")
    return Served(
        name=name,
        config={**flat(inner), "name": name},
        state=_state(document, "state"),
        initial_state=_state(document, "initial_state"),
    )


def _state(document: Mapping[str, object], key: str) -> str | None:
    value = document.get(key)
    if value is None:
        return None
    state = text(value).upper()
    if state not in list(TargetState):
        fix = f"Use one of: {', '.join(TargetState)}."
        problem = f"{value!r} is no state to be in."
        raise ConfigError(problem, field=key, fix=fix)
    return state


def _flattened(definition: Definition, registry: Registry) -> Served:
    if definition.source is not None and definition.sinks:
        # Kafka's form, which a server takes, has no connector that is both.
        problem = f"{definition.name} has no topic, and a server's connectors meet in topics."
        raise ConfigError(problem, field="topic", fix="Add a topic: between source and sinks.")
    reads = definition.source is not None
    spec = definition.source or definition.sinks[0]
    topics = {"topic" if reads else "topics": ",".join(definition.topics)}
    config = {
        "name": definition.name,
        "connector.class": _class(spec, registry, reads=reads),
        **definition.common,
        **topics,
        **spec.config,
        **_chain(definition.steps),
    }
    return Served(name=definition.name, config=config)


def _class(spec: PluginSpec, registry: Registry, *, reads: bool) -> str:
    """Return a class that says whether it reads, which a short name may leave open."""
    try:
        registry.connector_kind(spec.plugin)
    except (ConfigError, PluginNotFoundError):
        kind = PluginKind.SOURCE if reads else PluginKind.SINK
        if spec.plugin in registry.names(kind):
            plugin = registry.source(spec.plugin) if reads else registry.sink(spec.plugin)
            return f"{plugin.__module__}.{plugin.__qualname__}"
    return spec.plugin  # the server may have what is not installed here


def _chain(steps: Iterable[StepSpec]) -> dict[str, str]:
    config: dict[str, str] = {}
    names: list[str] = []
    predicates: list[str] = []
    for step in steps:
        names.append(step.alias)
        prefix = f"transforms.{step.alias}."
        config[f"{prefix}type"] = step.transform
        config |= {f"{prefix}{key}": value for key, value in step.config.items()}
        if step.predicate is not None:
            predicates.append(step.predicate_alias)
            config[f"{prefix}predicate"] = step.predicate_alias
            config |= {f"{prefix}negate": "true"} if step.negate else {}
            of_predicate = {"type": step.predicate, **step.predicate_config}
            start = f"predicates.{step.predicate_alias}."
            config |= {f"{start}{key}": value for key, value in of_predicate.items()}
    lists = {"transforms": names, "predicates": predicates}
    return {**{key: ",".join(each) for key, each in lists.items() if each}, **config}
