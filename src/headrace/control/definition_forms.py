"""The forms of a definition: Kafka Connect's, RocketMQ Connect's, and our own sections."""

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
    """Return ``{"a": {"b": [1, True]}}`` as ``{"a.b": "1,true"}``; nulls are left out."""
    result: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            result |= flat(value, f"{name}.")
        elif value is not None:
            result[name] = text(value)
    return result


def text(value: object) -> str:
    """Return a scalar or a list as Kafka's configuration would have it.

    That is a text with commas for a list of scalars, and JSON for one that holds maps.
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
        # What only YAML has, such as dates, is a text.
        return json.dumps(value, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        problem = "Unsupported number in a list: JSON has no NaN and no infinity."
        fix = "Use a finite number, or a string in quotes."
        raise ConfigError(problem, fix=fix) from error


def target_state(value: object, field: str) -> TargetState | None:
    """Read a target state, in whatever case; None if it is not given. Raises ConfigError."""
    if value is None:
        return None
    state = text(value).upper()
    if state not in list(TargetState):
        fix = f"Use one of: {', '.join(TargetState)}."
        problem = f"Invalid {field} {value!r}."
        raise ConfigError(problem, field=field, fix=fix)
    return TargetState(state)


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


def from_kafka(
    document: Mapping[str, object], is_source: Callable[[Mapping[str, str]], bool]
) -> Definition:
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
        own = below(config, f"transforms.{alias}.")
        kind = own.pop("type", "")
        predicate = own.pop("predicate", None)
        negate = own.pop("negate", "false").lower() == "true"
        own.pop("plugin.version", None)
        place = f"transforms.{alias}"
        if not kind:
            fix = "Name the transform."
            errors.append(ConfigError(problem="Has no type.", field=f"{place}.type", fix=fix))
        of_predicate = below(config, f"predicates.{predicate}.") if predicate else {}
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


_MISSING = "Missing required key."
_SECTIONS = {"name", "source", "sinks", "sink", "transforms", "topic", "topics"}


class _Reader:
    """Reads one document and gathers everything that is wrong with it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.errors: list[ConfigError] = []

    def fail(self, field: str, problem: str, fix: str) -> None:
        self.errors.append(ConfigError(problem, field=field, fix=fix))

    def miss(self, key: str, fix: str) -> None:
        """Note that a key at the top is missing, or is misspelt."""
        others = [str(each) for each in self.document if each not in _SECTIONS]
        close = get_close_matches(key, others, n=1)
        self.fail(key, _MISSING, f"Rename {close[0]} to {key}." if close else fix)

    def mapping(self, value: object, place: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return dict(value)
        self.fail(place, "Expected a section of keys.", "Write key: value lines below it.")
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
    """Read the chain in a ``transforms:`` section.

    Raises:
        ConfigErrors: It is not a list of steps that have a type and a name of their own.
    """
    reader = _Reader({})
    steps = reader.steps(value, "transforms")
    if reader.errors:
        raise ConfigErrors(reader.errors)
    return steps


def from_sections(document: Mapping[str, Any]) -> list[Definition]:
    """Read ``source:``, ``sinks:``, ``transforms:`` and, for a flow through one, ``topic:``.

    Without a topic it is one direct connector. With a topic it is a source connector of
    the given name and a sink connector for each sink, called ``<name>-sink`` (and
    ``<name>-sink-2`` and so on). The transforms at the top run before the topic, those of
    a sink after it.
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
        reader.fail("predicates", "A predicate is a part of its transform.", fix)
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
        reader.fail("topics", "A source writes to one topic.", "Leave one of them.")
    if source is not None and not topics and any(of_sinks):
        fix = "Move them to the top, or add a topic: between the source and the sinks."
        reader.fail("sinks", "A direct copy has one chain of transforms.", fix)


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
"""What its documents call some keys beside the names in its code."""
_BACK = {ours: theirs for theirs, ours in _KEYS.items()}
_STARTS = {"CONSUME_FROM_FIRST_OFFSET": "earliest", "CONSUME_FROM_LAST_OFFSET": "latest"}
_ENDS = {ours: theirs for theirs, ours in _STARTS.items()}
_DIRECT = "connector.direct.enable"


def from_rocketmq(
    sent: Mapping[str, str], is_source: Callable[[Mapping[str, str]], bool]
) -> dict[str, str]:
    """Return a configuration in Kafka Connect's words, in which Headrace keeps it.

    Keys that are the same in both, a plugin's own and Kafka Connect's, stay as they are.

    Raises:
        ConfigError: It has no class, a sink has no topics, or it asks for what is not there.
        PluginNotFoundError: The class is not there.
    """
    plugin = sent.get("connector.class", "")
    if not plugin:
        problem = "Request config key: connector.class"
        raise ConfigError(problem, field="connector.class", fix="Name the plugin.")
    if sent.get(_DIRECT, "").lower() == "true":
        problem = "A copy without a topic in between cannot be made by this API."
        fix = "Leave it out, and create a source and a sink of its topic."
        raise ConfigError(problem, field=_DIRECT, fix=fix)
    config = {_kafka_key(key, sent): _kafka_value(key, text) for key, text in sent.items()}
    if not is_source(config) and not {"topics", "topics.regex"} & config.keys():
        problem = f"Config {_TOPICS} cannot be empty"
        raise ConfigError(problem, field=_TOPICS, fix="Name the topics that it reads.")
    return config


def to_rocketmq(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration as RocketMQ Connect words it; its name is not among its keys."""
    return {
        _rocketmq_key(key, config): _rocketmq_value(key, text)
        for key, text in config.items()
        if key != "name"
    }


def in_rocketmq_words(text: str, config: Mapping[str, str]) -> str:
    """Return a key, or a sentence about some, with RocketMQ Connect's names of keys."""
    steps = names(config.get("transforms", ""))
    shown = _BACK | {f"transforms.{step}.type": f"transforms.{step}.class" for step in steps}
    if text in shown:
        return shown[text]
    # A word such as `topic` may be just that in a sentence.
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
    """Return the key of a transform's class with its other ending, and any other as it is."""
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
