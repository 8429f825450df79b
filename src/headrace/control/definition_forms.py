"""Parses definitions: in Kafka Connect's or RocketMQ Connect's form, or in our sections."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from headrace.control.connector_settings import sink_def, source_def
from headrace.control.validation import CONVERTER_PREFIXES, below
from headrace.model import Definition, PluginSpec, StepSpec, TargetState
from headrace.sdk import ConfigError, ConfigErrors


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return ``{"a": {"b": [1, True]}}`` as ``{"a.b": "1,true"}``, without nulls."""
    result: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            result |= flat(value, f"{name}.")
        elif value is not None:
            result[name] = text(value)
    return result


def text(value: object) -> str:
    """Return a scalar or a list as a string of a Kafka configuration.

    A list of scalars is separated by commas; a list that contains maps becomes JSON.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        problem = f"Unsupported number {value}."
        raise ConfigError(problem, fix="Use a finite number, or a string in quotes.")
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, dict) for item in value):
            return _json(value)
        return ",".join(text(item) for item in value)
    return str(value)


def _json(value: object) -> str:
    try:
        # Types that JSON does not have, such as YAML's dates, become strings.
        return json.dumps(value, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        problem = "Unsupported number in a list: JSON has no NaN and no infinity."
        fix = "Use a finite number, or a string in quotes."
        raise ConfigError(problem, fix=fix) from error


def target_state(value: object, field: str) -> TargetState | None:
    """Parse a target state in any case; return None for None. Raises ConfigError."""
    if value is None:
        return None
    state = text(value).upper()
    if state not in list(TargetState):
        fix = f"Use one of: {', '.join(TargetState)}."
        problem = f"Invalid {field} {value!r}."
        raise ConfigError(problem, field=field, fix=fix)
    return TargetState(state)


MAX_STEPS = 200
"""The maximum number of transforms, and of predicates, of a chain."""
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


def check_addressable(name: str) -> None:
    """Raise ConfigError for . and ..: clients remove them from a path, even if encoded."""
    if name in {".", ".."}:
        problem = f"The name {name} cannot be part of a URL."
        raise ConfigError(problem, field="name", fix="Use another name.")


def from_kafka(
    document: Mapping[str, object], is_source: Callable[[Mapping[str, str]], bool]
) -> Definition:
    """Parse ``{"name", "config": {...}}``, or a flat map that contains the name."""
    inner = document.get("config")
    config = flat(inner if isinstance(inner, dict) else document)
    name = str(document.get("name") or config.get("name") or "")
    config["name"] = name
    if not name:
        fix = "Add a unique name."
        raise ConfigError(problem="The connector has no name.", field="name", fix=fix)
    plugin = config.get("connector.class", "")
    if not plugin:
        fix = "Set it to the source or sink plugin."
        raise ConfigError(
            problem="The connector class is not set.", field="connector.class", fix=fix
        )
    source = is_source(config)
    keys = (source_def() if source else sink_def()).keys
    common = {
        key: value
        for key, value in config.items()
        if key in keys or key.startswith(("errors.", *CONVERTER_PREFIXES))
    }
    own = {
        key: value
        for key, value in config.items()
        if key not in keys and not key.startswith(_NOT_OWN)
    }
    own["connector.class"] = plugin  # some plugins behave differently for some class names
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
    """Parse the chain that ``transforms`` lists, from a flat map of strings.

    Raises:
        ConfigErrors: A step has no type, or its predicate is not defined.
    """
    errors: list[ConfigError] = []
    steps = []
    defined = chain_names(config, "predicates")
    for alias in chain_names(config, "transforms"):
        own = below(config, f"transforms.{alias}.")
        kind = own.pop("type", "")
        predicate = own.pop("predicate", None)
        negate = own.pop("negate", "false").lower() == "true"
        own.pop("plugin.version", None)
        place = f"transforms.{alias}"
        if not kind:
            fix = "Set it to a transform, such as Cast."
            errors.append(ConfigError(problem="Not set.", field=f"{place}.type", fix=fix))
        of_predicate = below(config, f"predicates.{predicate}.") if predicate else {}
        predicate_kind = of_predicate.pop("type", None)
        if predicate and (predicate not in defined or not predicate_kind):
            problem = f"The predicate {predicate!r} is not defined."
            fix = f"Add it to predicates, and set predicates.{predicate}.type."
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


def chain_names(config: Mapping[str, str], key: str) -> list[str]:
    """Return the names of a chain's ``transforms`` or ``predicates``.

    Raises ConfigError for more than ``MAX_STEPS``: each transform is a step of every query, and
    checking thousands would keep a server busy for minutes.
    """
    found = names(config.get(key, ""))
    if len(found) > MAX_STEPS:
        raise too_many(len(found), key)
    return found


def too_many(count: int, field: str) -> ConfigError:
    """Return the error of a chain with too many steps."""
    problem = f"There are {count} {field}; at most {MAX_STEPS} are allowed."
    fix = "Combine steps into one Sql or Python transform, or split the connector at a topic."
    return ConfigError(problem, field=field, fix=fix)


def names(text: str) -> list[str]:
    """Return the names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


_MISSING = "Missing required key."
_SECTIONS = {"name", "source", "sinks", "sink", "transforms", "topic", "topics"}


class _Reader:
    """Parses one document and collects all errors."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.errors: list[ConfigError] = []

    def fail(self, field: str, problem: str, fix: str) -> None:
        self.errors.append(ConfigError(problem, field=field, fix=fix))

    def miss(self, key: str, fix: str) -> None:
        """Add an error for a missing or misspelt top-level key."""
        others = [str(each) for each in self.document if each not in _SECTIONS]
        close = get_close_matches(key, others, n=1)
        self.fail(key, _MISSING, f"Rename {close[0]} to {key}." if close else fix)

    def mapping(self, value: object, place: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return dict(value)
        self.fail(place, "Expected a mapping.", "Write key: value lines below it.")
        return {}

    def plugin(self, value: object, place: str) -> PluginSpec:
        if isinstance(value, str):
            return PluginSpec(value, {}, place)
        section = self.mapping(value, place)
        name = section.pop("connector", None) or section.pop("connector.class", None)
        if section and not name:
            self.fail(f"{place}.connector", _MISSING, "Name the plugin, such as file.")
        section.pop("transforms", None)
        return PluginSpec(str(name or ""), flat(section), place)

    def steps(self, value: object, place: str) -> tuple[StepSpec, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(place, "Expected a list.", "Begin each transform with '- type:'.")
            return ()
        if len(value) > MAX_STEPS:
            self.errors.append(too_many(len(value), place))
            return ()
        steps = [self.step(item, f"{place}[{n}]", n) for n, item in enumerate(value)]
        aliases = [step.alias for step in steps]
        for n, alias in enumerate(aliases):
            if alias in aliases[:n]:
                self.fail(f"{place}[{n}].name", f"{alias!r} is used twice.", "Choose another.")
        return tuple(steps)

    def step(self, value: object, place: str, number: int) -> StepSpec:
        section = {"type": value} if isinstance(value, str) else self.mapping(value, place)
        kind = str(section.pop("type", ""))
        if not kind:
            self.fail(f"{place}.type", _MISSING, "Name the transform, such as Cast.")
        alias = str(
            section.pop("name", "")
            or f"{kind.split('$', maxsplit=1)[0].rsplit('.', maxsplit=1)[-1]}{number + 1}"
        )
        negate = section.pop("negate", False) is True
        predicate = section.pop("predicate", None)
        if isinstance(predicate, str):
            predicate = {"type": "Condition", "condition": predicate}
        of_predicate = self.mapping(predicate, f"{place}.predicate") if predicate else {}
        predicate_kind = of_predicate.pop("type", None)
        return StepSpec(
            alias,
            kind,
            flat(section),
            predicate=text(predicate_kind) if predicate_kind else None,
            predicate_alias=f"{alias}-predicate" if predicate_kind else "",
            predicate_config=flat(of_predicate),
            negate=negate,
            place=place,
        )


def section_steps(value: object) -> tuple[StepSpec, ...]:
    """Parse the chain in a ``transforms:`` section.

    Raises:
        ConfigErrors: The value is not a list of steps, each with a type and a unique name.
    """
    reader = _Reader({})
    steps = reader.steps(value, "transforms")
    if reader.errors:
        raise ConfigErrors(reader.errors)
    return steps


def from_sections(document: Mapping[str, Any]) -> list[Definition]:
    """Parse ``source:``, ``sinks:``, ``transforms:`` and, optionally, ``topic:``.

    Without a topic the result is one direct connector. With a topic it is a source connector
    of the given name and a sink connector for each sink, named ``<name>-sink`` (and
    ``<name>-sink-2`` and so on). Top-level transforms run before the topic, transforms of a
    sink after it.
    """
    reader = _Reader(document)
    name = str(document.get("name") or "")
    if not name:
        reader.miss("name", "Add a name that is unique in the store.")
    common = flat({key: value for key, value in document.items() if key not in _SECTIONS})
    source = reader.plugin(document["source"], "source") if "source" in document else None
    sections = document.get("sinks", document.get("sink", []))
    sections = sections if isinstance(sections, list) else [sections]
    sinks = [reader.plugin(value, f"sinks[{n}]") for n, value in enumerate(sections)]
    of_sinks = [
        reader.steps(
            value.get("transforms") if isinstance(value, dict) else None,
            f"sinks[{n}].transforms",
        )
        for n, value in enumerate(sections)
    ]
    named = document.get("topics", document.get("topic")) or []
    topics = tuple(map(str, named if isinstance(named, list) else [named]))
    steps = reader.steps(document.get("transforms"), "transforms")
    _check_sections(reader, source, sinks, topics, of_sinks)
    if "predicates" in document:
        fix = (
            'Write it into the transform, as predicate: "id > 7", or as a section with a type.'
        )
        reader.fail("predicates", "Predicates are defined inside their transforms.", fix)
    if reader.errors:
        raise ConfigErrors(reader.errors)
    if not topics:
        return [Definition(name, source, tuple(sinks), (), steps, common)]
    definitions = []
    if source is not None:
        definitions.append(Definition(name, source, (), topics, steps, common))
    for n, (sink, own) in enumerate(zip(sinks, of_sinks, strict=True)):
        suffix = "-sink" if n == 0 else f"-sink-{n + 1}"
        sink_name = f"{name}{suffix}" if source is not None or n else name
        sink_steps = own if source is not None else (*steps, *own)
        definitions.append(Definition(sink_name, None, (sink,), topics, sink_steps, common))
    return definitions


def _check_sections(
    reader: _Reader,
    source: PluginSpec | None,
    sinks: Sequence[PluginSpec],
    topics: Sequence[str],
    of_sinks: Sequence[Sequence[StepSpec]],
) -> None:
    if source is None and not topics:
        reader.miss("source", "Add a source:, or a topic: to read from.")
    if not sinks and not topics:
        reader.miss("sinks", "Add at least one sink, or a topic: to write to.")
    if source is not None and len(topics) > 1:
        reader.fail("topics", "A source writes to one topic.", "Keep one of them.")
    if source is not None and not topics and any(of_sinks):
        fix = "Move them to the top level, or add a topic: between the source and the sinks."
        reader.fail("sinks", "Sinks without a topic cannot have transforms of their own.", fix)


_TOPIC, _TOPICS = "connect.topicname", "connect.topicnames"
_KEYS = {
    "max.tasks": "tasks.max",
    _TOPIC: "topic",
    _TOPICS: "topics",
    "errors.deadletterqueue.context.properties.enable": (
        "errors.deadletterqueue.context.headers.enable"
    ),
    "consume.from.where": "topics.start",
}
_OTHER_KEYS = {
    "max-task": "tasks.max",
    "max.task": "tasks.max",
    "connect-topicname": "topic",
}
"""Alternative names of some keys, used in RocketMQ Connect's documentation."""
_BACK = {ours: theirs for theirs, ours in _KEYS.items()}
_STARTS = {"CONSUME_FROM_FIRST_OFFSET": "earliest", "CONSUME_FROM_LAST_OFFSET": "latest"}
_ENDS = {ours: theirs for theirs, ours in _STARTS.items()}
_DIRECT = "connector.direct.enable"


def from_rocketmq(
    sent: Mapping[str, str], is_source: Callable[[Mapping[str, str]], bool]
) -> dict[str, str]:
    """Return a configuration with Kafka Connect's keys and values, as Headrace stores it.

    A plugin's own keys and Kafka Connect's keys stay unchanged.

    Raises:
        ConfigError: The class is not set, a sink has no topics, or a value is not supported.
        PluginNotFoundError: The class does not exist.
    """
    plugin = sent.get("connector.class", "")
    if not plugin:
        problem = "Request config key: connector.class"
        raise ConfigError(problem, field="connector.class", fix="Set it to a plugin.")
    if sent.get(_DIRECT, "").lower() == "true":
        problem = "This API does not support copies without a topic in between."
        fix = "Remove it, and create a source and a sink connector with the same topic."
        raise ConfigError(problem, field=_DIRECT, fix=fix)
    config = {_kafka_key(key, sent): _kafka_value(key, text) for key, text in sent.items()}
    if not is_source(config) and not {"topics", "topics.regex"} & config.keys():
        problem = f"Config {_TOPICS} cannot be empty"
        raise ConfigError(problem, field=_TOPICS, fix="Set it to the topics to read.")
    return config


def to_rocketmq(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration with RocketMQ Connect's keys and values, without the name."""
    return {
        _rocketmq_key(key, config): _rocketmq_value(key, text)
        for key, text in config.items()
        if key != "name"
    }


def in_rocketmq_words(text: str, config: Mapping[str, str]) -> str:
    """Return a key, or a sentence that mentions keys, with RocketMQ Connect's key names."""
    steps = names(config.get("transforms", ""))
    shown = _BACK | {f"transforms.{step}.type": f"transforms.{step}.class" for step in steps}
    if text in shown:
        return shown[text]
    # Keys without a dot, such as `topic`, may be ordinary words in a sentence.
    dotted = "|".join(re.escape(key) for key in shown if "." in key)
    return re.sub(rf"(?<![\w.])({dotted})(?![\w.]\w)", lambda found: shown[found[0]], text)


def _kafka_key(key: str, sent: Mapping[str, str]) -> str:
    known = _KEYS.get(key) or _OTHER_KEYS.get(key)
    return known or _step_key(key, sent, "class", "type")


def _rocketmq_key(key: str, config: Mapping[str, str]) -> str:
    if key in _BACK and (key != "topics.start" or config[key] in _ENDS):
        return _BACK[key]
    return _step_key(key, config, "type", "class")


def _step_key(key: str, config: Mapping[str, str], had: str, has: str) -> str:
    """Return a key with the suffix ``had`` replaced by ``has`` if it is a transform's class."""
    step = key.removeprefix("transforms.").removesuffix(f".{had}")
    is_class = key == f"transforms.{step}.{had}" and step in names(config.get("transforms", ""))
    return f"transforms.{step}.{has}" if is_class else key


def _kafka_value(key: str, text: str) -> str:
    if key == _TOPICS:
        return ",".join(each.strip() for each in text.split(";") if each.strip())
    if key == "consume.from.where":
        if text not in _STARTS:
            problem = f"Invalid start position {text!r}."
            fix = f"Use one of: {', '.join(_STARTS)}."
            raise ConfigError(problem, field=key, fix=fix)
        return _STARTS[text]
    return text


def _rocketmq_value(key: str, text: str) -> str:
    if key == "topics":
        return ";".join(names(text))
    return _ENDS.get(text, text) if key == "topics.start" else text
