"""The keys that every source connector, and every sink connector, takes beside its own."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from headrace.sdk.config.definition import ConfigDef
from headrace.sdk.config.key import Importance, Width
from headrace.sdk.config.parsing import ConfigType, shown
from headrace.sdk.config.regex import java_regex
from headrace.sdk.config.shared_keys import COMMON, ERRORS, connector_config
from headrace.sdk.config.validators import (
    CaseInsensitiveValidString,
    NonEmptyString,
    NullOr,
    Range,
    Regex,
    unique,
)
from headrace.sdk.errors import ConfigError

__all__ = ["sink_connector_config", "source_connector_config"]

_ONCE = "Exactly Once Support"

_TOPICS = "topics"
_REGEX = "topics.regex"
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"


@cache
def source_connector_config() -> ConfigDef:
    """Give the keys that every source connector takes beside its own."""
    return _with_source_keys(connector_config())


@cache
def sink_connector_config() -> ConfigDef:
    """Give the keys that every sink connector takes beside its own, with their rules."""
    return _with_sink_keys(connector_config())


def _with_source_keys(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "topic.creation.groups",
            ConfigType.LIST,
            "",
            validator=unique("topic creation groups"),
            importance=Importance.LOW,
            doc="Names for groups of new topics; each is configured by the keys that begin "
            "with topic.creation, its name, and a dot.",
            group="Topic Creation",
            order=1,
            width=Width.LONG,
            display_name="Topic Creation Groups",
        )
        .define(
            "exactly.once.support",
            ConfigType.STRING,
            "requested",
            validator=CaseInsensitiveValidString("REQUIRED", "REQUESTED"),
            doc="required refuses a connector that cannot give each record exactly once.",
            group=_ONCE,
            order=2,
            width=Width.SHORT,
            display_name="Exactly once support",
        )
        .define(
            "transaction.boundary",
            ConfigType.STRING,
            "poll",
            validator=CaseInsensitiveValidString("INTERVAL", "POLL", "CONNECTOR"),
            doc="What is written in one transaction: what one poll gives, what an interval "
            "brings, or what the connector says.",
            group=_ONCE,
            order=3,
            width=Width.SHORT,
            display_name="Transaction Boundary",
        )
        .define(
            "transaction.boundary.interval.ms",
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=0)),
            importance=Importance.LOW,
            doc="The interval for transaction.boundary, in milliseconds.",
            group=_ONCE,
            order=4,
            width=Width.SHORT,
            display_name="Transaction boundary interval",
        )
        .define(
            "offsets.storage.topic",
            ConfigType.STRING,
            None,
            validator=NonEmptyString(),
            importance=Importance.LOW,
            doc="Accepted for Kafka Connect's sake; positions are kept in the store.",
            group="offsets.topic",
            order=1,
            width=Width.LONG,
            display_name="Offsets topic",
        )
    )


def _with_sink_keys(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            _TOPICS,
            ConfigType.LIST,
            "",
            importance=Importance.HIGH,
            doc="The topics to read. Either this or topics.regex is needed.",
            group=COMMON,
            order=4,
            width=Width.LONG,
            display_name="Topics",
        )
        .define(
            _REGEX,
            ConfigType.STRING,
            "",
            validator=Regex(),
            importance=Importance.HIGH,
            doc="A regular expression for the whole names of the topics to read.",
            group=COMMON,
            order=4,
            width=Width.LONG,
            display_name="Topics regex",
        )
        .define(
            _DEAD_LETTERS,
            ConfigType.STRING,
            "",
            doc="The topic that takes records that failed; none if empty.",
            group=ERRORS,
            order=6,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Name",
        )
        .define(
            "errors.deadletterqueue.topic.replication.factor",
            ConfigType.SHORT,
            3,
            doc="The replication factor that a broker gives a new dead-letter topic.",
            group=ERRORS,
            order=7,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Replication Factor",
        )
        .define(
            "errors.deadletterqueue.context.headers.enable",
            ConfigType.BOOLEAN,
            default=False,
            doc="Whether dead letters carry headers that tell the error, whose keys begin "
            "with __connect.errors.",
            group=ERRORS,
            order=8,
            width=Width.MEDIUM,
            display_name="Enable Error Context Headers",
        )
        .rule(_topics_rule)
        .rule(_dead_letter_rule)
    )


def _text(props: Mapping[str, Any], key: str) -> str:
    value = props.get(key)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value.strip() if isinstance(value, str) else ""


def _topics_rule(props: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Exactly one of the two keys that name topics is set."""
    given = [key for key in (_TOPICS, _REGEX) if _text(props, key)]
    if len(given) == 1:
        return
    problem = (
        f"{_TOPICS} and {_REGEX} are mutually exclusive options, but both are set."
        if given
        else f"Must configure one of {_TOPICS} or {_REGEX}"
    )
    for key in (_TOPICS, _REGEX):
        yield ConfigError(
            problem=problem,
            fix="Name the topics in one of the two, and leave the other out.",
            field=key,
        )


def _dead_letter_rule(props: Mapping[str, Any]) -> Iterator[ConfigError]:
    """A sink that reads its own dead letters would never end."""
    dead_letters = _text(props, _DEAD_LETTERS)
    if not dead_letters:
        return
    fix = f"Choose another topic in {_DEAD_LETTERS}."
    topics = [topic for topic in (t.strip() for t in _text(props, _TOPICS).split(",")) if topic]
    if dead_letters in topics:
        yield ConfigError(
            problem=f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('{_TOPICS}={shown(topics)}') consumed by the connector",
            fix=fix,
            field=_TOPICS,
        )
    if _matches(_text(props, _REGEX), dead_letters):
        yield ConfigError(
            problem=f"The DLQ topic '{dead_letters}' may not be matched by the regex for the "
            f"topics ('{_REGEX}={_text(props, _REGEX)}') consumed by the connector",
            fix=fix,
            field=_REGEX,
        )


def _matches(pattern: str, topic: str) -> bool:
    try:
        return bool(pattern) and java_regex(pattern).fullmatch(topic) is not None
    except re.error:
        # The key's own check tells of it.
        return False
