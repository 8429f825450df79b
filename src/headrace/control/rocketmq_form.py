"""A connector's configuration in RocketMQ Connect's words, and in Kafka Connect's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.control.definition_forms import names
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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


def from_rocketmq(given: Mapping[str, str], is_source: Callable[[str], bool]) -> dict[str, str]:
    """Return a configuration in Kafka Connect's words, in which Headrace keeps it.

    Keys that are the same in both, a plugin's own and Kafka Connect's, stay as they are.

    Raises:
        ConfigError: It has no class, a sink has no topics, or it asks for what is not there.
        PluginNotFoundError: The class is not there.
    """
    plugin = given.get("connector.class", "")
    if not plugin:
        problem = "Request config key: connector.class"
        raise ConfigError(problem, field="connector.class", fix="Name the plugin.")
    if given.get(_DIRECT, "").lower() == "true":
        problem = "A copy without a topic in between cannot be made by this API."
        fix = "Leave it out, and create a source and a sink of its topic."
        raise ConfigError(problem, field=_DIRECT, fix=fix)
    config = {_kafka_key(key, given): _kafka_value(key, text) for key, text in given.items()}
    if not is_source(plugin) and not {"topics", "topics.regex"} & config.keys():
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
    steps = {f"transforms.{step}.type": step for step in _steps(config)}
    shown = {
        **_BACK,
        **{key: f"transforms.{step}.class" for key, step in steps.items()},
    }
    if text in shown:
        return shown[text]
    # A word such as `topic` may be just that in a sentence.
    dotted = "|".join(re.escape(key) for key in shown if "." in key)
    return re.sub(rf"(?<![\w.])({dotted})(?![\w.]\w)", lambda found: shown[found[0]], text)


def _steps(config: Mapping[str, str]) -> list[str]:
    return names(config.get("transforms", ""))


def _kafka_key(key: str, given: Mapping[str, str]) -> str:
    known = _KEYS.get(key) or _OTHER_KEYS.get(key)
    if known is not None:
        return known
    step = key.removeprefix("transforms.").removesuffix(".class")
    return f"transforms.{step}.type" if _is_class(key, step, given) else key


def _rocketmq_key(key: str, config: Mapping[str, str]) -> str:
    if key in _BACK and (key != "topics.start" or config[key] in _ENDS):
        return _BACK[key]
    step = key.removeprefix("transforms.").removesuffix(".type")
    is_type = key == f"transforms.{step}.type" and step in _steps(config)
    return f"transforms.{step}.class" if is_type else key


def _is_class(key: str, step: str, given: Mapping[str, str]) -> bool:
    """Say whether a key names the class of a step."""
    return key == f"transforms.{step}.class" and step in _steps(given)


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
