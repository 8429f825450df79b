"""Definitions read from files and requests: Kafka Connect's JSON, or YAML with sections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    ScalarEvent,
)

from headrace.control.connector_settings import DEAD_LETTERS
from headrace.control.definition_forms import flat, from_kafka, from_sections, target_state
from headrace.model import Definition, PluginNotFoundError, PluginSpec, StepSpec
from headrace.plugins import PluginKind, Registry
from headrace.sdk import ConfigError, ConfigErrors

_Read = TypeVar("_Read")
_MAX_NODES = 100_000
"""The maximum number of values of a file after its aliases are expanded."""


def read_definitions(
    path: Path, is_source: Callable[[Mapping[str, str]], bool]
) -> list[Definition]:
    """Return the connectors that a file defines.

    A file contains one or more documents. A document with ``connector.class`` is in Kafka
    Connect's form, any other has the sections ``source:`` and ``sinks:``.

    Args:
        path: A ``.json``, ``.yaml`` or ``.yml`` file.
        is_source: Returns whether a configuration in Kafka's form is a source connector's.

    Raises:
        ConfigError: The file cannot be read or is not JSON or YAML.
        ConfigErrors: A document lacks a required key.
    """
    definitions = read_each(read_documents(path), lambda each: _definitions(each, is_source))
    if not definitions:
        raise ConfigError(
            problem=f"{path} defines no connector.", fix="Add a source and sinks.", field="file"
        )
    return definitions


def read_each(
    documents: Iterable[object], read: Callable[[object], Iterable[_Read]]
) -> list[_Read]:
    """Return the combined results of reading each document.

    Raises:
        ConfigErrors: Documents are not valid; contains the errors of all of them.
    """
    found: list[_Read] = []
    errors: list[ConfigError] = []
    for document in documents:
        try:
            found += read(document)
        except ConfigErrors as several:
            errors += several.errors
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors(errors)
    return found


def read_config(path: Path) -> Mapping[str, object]:
    """Return the single mapping in a JSON or YAML file, unchanged.

    Raises:
        ConfigError: The file cannot be read, is not JSON or YAML, or is not one mapping.
    """
    documents = read_documents(path)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        problem = f"{path} must contain one mapping of keys."
        raise ConfigError(problem, field="file", fix="Write key: value lines, or JSON.")
    return documents[0]


def _definitions(
    document: object, is_source: Callable[[Mapping[str, str]], bool]
) -> list[Definition]:
    if not isinstance(document, dict):
        problem = f"A definition must be a mapping of keys, got {type(document).__name__}."
        raise ConfigError(problem, fix="Begin with name: and source:.")
    inner = document.get("config")
    if "connector.class" in document or (isinstance(inner, dict) and "source" not in document):
        return [from_kafka(document, is_source)]
    return from_sections(document)


def read_documents(path: Path) -> Sequence[object]:
    """Return the documents of a JSON or YAML file; lists are flattened.

    Raises:
        ConfigError: The file cannot be read, or is not JSON or YAML.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise ConfigError(problem, field="file", fix="Check the path.") from error
    except UnicodeDecodeError as error:
        problem = f"{path} is not UTF-8: {error.reason} at byte {error.start}."
        raise ConfigError(problem, field="file", fix="Save it as UTF-8.") from error
    return documents_of(text, path)


def documents_of(text: str, path: Path) -> Sequence[object]:
    """Return the documents of the text of a file. Raises as ``read_documents``."""
    try:
        documents: list[Any] = [json.loads(text)] if _is_json(text, path) else _yaml(text, path)
    except RecursionError:
        problem = f"{path} nests too deeply."
        raise ConfigError(problem, field="file", fix="Reduce the nesting.") from None
    return [
        item
        for document in documents
        if document is not None
        for item in (document if isinstance(document, list) else [document])
    ]


def _is_json(text: str, path: Path) -> bool:
    try:
        json.loads(text)
    except ValueError as error:
        if path.suffix == ".json":
            problem = f"{path} is not JSON: {error}."
            raise ConfigError(problem, field="file", fix="Fix the syntax there.") from error
        return False
    return True


def _yaml(text: str, path: Path) -> list[Any]:
    try:
        _check_size(text, path)
        return list(YAML(typ="safe", pure=True).load_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"{path} is not YAML: {error.problem}{where}."
        raise ConfigError(problem, field="file", fix="Fix the syntax there.") from error
    except ValueError as error:  # e.g. a date that does not exist
        problem = f"{path} contains an invalid value: {error}."
        raise ConfigError(problem, field="file", fix="Check its dates and numbers.") from error


def _check_size(text: str, path: Path) -> None:
    """Raise ConfigError for a text whose aliases expand to too many values.

    A few lines can expand to billions of values ("billion laughs"), so they are counted before
    they are created.
    """
    if "&" not in text or "*" not in text:
        return
    sizes: dict[str, int] = {}
    stack: list[tuple[str | None, int]] = [(None, 0)]  # open collections: anchor and size
    for event in YAML(typ="safe", pure=True).parse(text):
        size = 1
        if isinstance(event, AliasEvent):
            size = sizes.get(event.anchor, _MAX_NODES)
        elif isinstance(event, CollectionStartEvent):
            stack.append((event.anchor, 1))
            continue
        elif isinstance(event, CollectionEndEvent):
            anchor, size = stack.pop()
            sizes |= {} if anchor is None else {anchor: size}
        elif isinstance(event, ScalarEvent) and event.anchor is not None:
            sizes[event.anchor] = 1
        anchor, before = stack[-1]
        stack[-1] = (anchor, before + size)
        if stack[-1][1] > _MAX_NODES:
            problem = f"{path} has more than {_MAX_NODES} values after expanding aliases."
            fix = "Use aliases less often."
            raise ConfigError(problem, field="file", fix=fix)


def check_names(definitions: Sequence[Definition]) -> None:
    """Raise ConfigErrors if two connectors have the same name."""
    names = [definition.name for definition in definitions]
    repeated = sorted({name for name in names if names.count(name) > 1})
    errors = [
        ConfigError(
            problem=f"Two connectors are named {name!r}.", field="name", fix="Rename one."
        )
        for name in repeated
    ]
    if errors:
        raise ConfigErrors(errors)


_AROUND = {"name", "config", "initial_state", "state", "tasks", "type"}
"""The keys allowed beside ``config``: all that a server returns for a connector."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """The wanted state of a connector on a server.

    Args:
        config: The configuration as strings, with the name.
        state: The target state: RUNNING, PAUSED or STOPPED; None to leave it unchanged.
        initial_state: The target state when the connector is created.
    """

    name: str
    config: Mapping[str, str]
    state: str | None = None
    initial_state: str | None = None


def served(documents: Iterable[object], registry: Registry) -> list[Served]:
    """Return the connectors that documents describe, in any form.

    The forms are: Kafka Connect's, flat or with ``config`` and optionally ``state``; the
    response of its REST API for ``/connectors?expand=info``; sections with a topic in between.

    Raises:
        ConfigErrors: Documents are not valid; contains all errors.
    """
    return read_each(documents, lambda each: _served(each, registry))


def _served(document: object, registry: Registry) -> list[Served]:
    if not isinstance(document, dict):
        problem = f"A connector must be a mapping of keys, got {type(document).__name__}."
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
        raise ConfigError(problem, field="name", fix="Add a unique name.")
    return name


def _enclosed(document: Mapping[str, object]) -> Served:
    unknown = sorted(document.keys() - _AROUND)
    if unknown:
        problem = f"Unknown key beside config: {', '.join(unknown)}."
        fix = "Move configuration keys below config."
        raise ConfigError(problem, field=unknown[0], fix=fix)
    inner = document["config"]
    assert isinstance(inner, dict)
    name = _name({"name": document.get("name") or inner.get("name")})
    if inner.get("name", name) != name:
        problem = f"The name {inner['name']!r} is not that of the connector, {name!r}."
        raise ConfigError(problem, field="config.name", fix="Remove it.")
    return Served(
        name=name,
        config={**flat(inner), "name": name},
        state=target_state(document.get("state"), "state"),
        initial_state=target_state(document.get("initial_state"), "initial_state"),
    )


def _flattened(definition: Definition, registry: Registry) -> Served:
    if definition.source is not None and definition.sinks:
        # A server takes Kafka's form, in which a connector is either a source or a sink.
        problem = (
            f"{definition.name} has no topic. Connectors on a server need a topic between "
            f"source and sinks."
        )
        raise ConfigError(problem, field="topic", fix="Add a topic: between source and sinks.")
    reads = definition.source is not None
    spec = definition.source or definition.sinks[0]
    topics = {"topic" if reads else "topics": ",".join(definition.topics)}
    # In Kafka's form dead letters need an explicit topic name.
    tolerates = definition.common.get("errors.tolerance") == "all"
    config = {
        "name": definition.name,
        "connector.class": _class(spec, registry, reads=reads),
        **({DEAD_LETTERS: f"{definition.name}.dlq"} if tolerates else {}),
        **definition.common,
        **topics,
        **spec.config,
        **_chain(definition.steps),
    }
    return Served(name=definition.name, config=config)


def _class(spec: PluginSpec, registry: Registry, *, reads: bool) -> str:
    """Return the class of a plugin if its short name is both a source and a sink."""
    try:
        registry.connector_kind(spec.plugin)
    except (ConfigError, PluginNotFoundError):
        kind = PluginKind.SOURCE if reads else PluginKind.SINK
        if spec.plugin in registry.names(kind):
            plugin = registry.source(spec.plugin) if reads else registry.sink(spec.plugin)
            return f"{plugin.__module__}.{plugin.__qualname__}"
    return spec.plugin  # the plugin may be installed only on the server


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
