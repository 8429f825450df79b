"""The keys of a definition that the runtime itself reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.control.error_keys import (
    CONTEXT_HEADERS,
    DEAD_LETTERS,
    limits_of,
    with_dead_letters,
    with_limits,
)
from headrace.control.restart_keys import restarts_of, with_restarts
from headrace.control.topic_creation import retention_of, with_topic_creation
from headrace.sdk import ReadLimit
from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Lambda,
    invalid,
    sink_connector_config,
    source_connector_config,
)

if TYPE_CHECKING:
    from headrace.model import Definition, RestartKeys, ToleranceLimits, TopicRetention
    from headrace.sdk.config import Config

_START = "topics.start"
_RETRIES = "errors.retry.timeout"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What happens to records that fail, and to a task whose system is away.

    Args:
        tolerant: Whether a task goes on when a record fails.
        dead_letter_topic: Where failed records go then; None: they are skipped.
        context_headers: Whether dead letters have Kafka Connect's headers.
        log: Whether failed records are logged.
        log_messages: Whether the log says which they are.
        limits: How many may fail.
        retry_timeout: How long temporary failures are retried; None for ever.
        retry_given: Whether the definition says that itself.
        retry_delay_max: The longest wait between two tries.
    """

    tolerant: bool
    dead_letter_topic: str | None
    context_headers: bool
    log: bool
    log_messages: bool
    limits: ToleranceLimits
    retry_timeout: timedelta | None
    retry_given: bool
    retry_delay_max: timedelta


@dataclass(frozen=True, slots=True)
class CommonConfig:
    """The runtime's own keys of one definition, parsed."""

    tasks_max: int
    limit: ReadLimit
    poll_interval: timedelta
    errors: ErrorPolicy
    restarts: RestartKeys
    topics_start: str
    topics_regex: str | None
    topic_retention: TopicRetention | None


def common_def(definition: Definition) -> ConfigDef:
    """Return the keys that a definition of this kind may have."""
    return sink_def() if definition.kind == "sink" else source_def()


def parse_common(definition: Definition) -> CommonConfig:
    """Read the runtime's keys. Raises ConfigErrors with everything that is wrong."""
    config = common_def(definition).parse(common_props(definition))
    return CommonConfig(
        tasks_max=config.get_int("tasks.max"),
        limit=ReadLimit(
            rows=config.get_int("batch.max.rows"), size_bytes=config.find_int("batch.max.bytes")
        ),
        poll_interval=timedelta(milliseconds=config.get_int("poll.interval.ms")),
        errors=_errors(definition, config),
        restarts=restarts_of(config),
        topics_start=config.get_str(_START) if definition.kind == "sink" else "earliest",
        topics_regex=config.find_str("topics.regex") if definition.kind == "sink" else None,
        topic_retention=None if definition.kind == "sink" else retention_of(config),
    )


def common_props(definition: Definition) -> dict[str, str]:
    """Return the runtime's keys of a definition, with those that its form implies."""
    plugin = definition.source or definition.sinks[0]
    props = {"connector.class": plugin.plugin, **definition.common, "name": definition.name}
    if definition.kind == "sink" and definition.topics:
        props["topics"] = ",".join(definition.topics)
    return props


def _errors(definition: Definition, config: Config) -> ErrorPolicy:
    tolerant = config.get_str("errors.tolerance").lower() == "all"
    timeout = config.get_int(_RETRIES)
    return ErrorPolicy(
        tolerant=tolerant,
        dead_letter_topic=_dead_letter_topic(definition, config) if tolerant else None,
        context_headers=config.get_bool(CONTEXT_HEADERS),
        log=config.get_bool("errors.log.enable"),
        log_messages=config.get_bool("errors.log.include.messages"),
        limits=limits_of(config),
        retry_timeout=None if timeout < 0 else timedelta(milliseconds=timeout),
        retry_given=_RETRIES in definition.common,
        retry_delay_max=timedelta(milliseconds=config.get_int("errors.retry.delay.max.ms")),
    )


def _dead_letter_topic(definition: Definition, config: Config) -> str | None:
    """Return the topic that is named; in our own form there is one unless it is refused.

    Kafka Connect's form has none unless it is named, so that its definitions do as there.
    """
    if definition.strict and DEAD_LETTERS not in definition.common:
        return f"{definition.name}.dlq"
    return config.find_str(DEAD_LETTERS) or None


@lru_cache
def source_def() -> ConfigDef:
    """Return the keys of everything that reads."""
    keys = with_restarts(with_limits(with_dead_letters(source_connector_config())))
    return with_topic_creation(keys)


@lru_cache
def sink_def() -> ConfigDef:
    """Return the keys of a sink connector."""
    return with_restarts(with_limits(sink_connector_config())).define(
        _START,
        ConfigType.STRING,
        "earliest",
        validator=Lambda(_check_start, "earliest, latest, version:N or time:ISO"),
        doc="Where a new sink begins in its topics: earliest, latest, version:N or time:ISO.",
        group="Batches",
        order=4,
    )


def _check_start(name: str, value: object) -> None:
    kind = str(value).partition(":")[0]
    if kind not in {"earliest", "latest", "version", "time"}:
        raise invalid(name, value, "Use earliest, latest, version:N or time:ISO.")
