"""The keys of a definition that the runtime itself reads.

Names, defaults, groups and order are those of Kafka Connect, so its definitions and consoles
work unchanged; additional keys have their own groups or order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from headrace.evolution import EvolutionSettings
from headrace.model import (
    Definition,
    RestartKeys,
    ToleranceLimits,
    TopicRetention,
    topic_matcher,
)
from headrace.sdk import ConfigError, ReadLimit
from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Importance,
    Lambda,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NullOr,
    Range,
    Regex,
    Settings,
    ValidString,
    Width,
    invalid,
    setting,
)
from headrace.sdk.config.validators import unique
from headrace.sdk.config.values import shown

DEFAULT_HEADER_CONVERTER = "SimpleHeaderConverter"
"""The header converter if keys or values are converted; Kafka Connect's default."""


_TOPICS = "topics"
_REGEX = "topics.regex"
DEAD_LETTERS = "errors.deadletterqueue.topic.name"


def _check_limit(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value < -1 or value == 0):
        fix = "Use a number above 0, or -1 for no limit."
        raise invalid(name, value, "Must be above 0, or -1", fix=fix)


def _check_start(name: str, value: object) -> None:
    kind = str(value).partition(":")[0]
    if kind not in {"earliest", "latest", "version", "time"}:
        raise invalid(name, value, "Use earliest, latest, version:N or time:ISO.")


def _text(props: Mapping[str, Any], key: str) -> str:
    value = props.get(key)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value.strip() if isinstance(value, str) else ""


def _topics_rule(props: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Check that exactly one of the two keys for topics is set."""
    named = [key for key in (_TOPICS, _REGEX) if _text(props, key)]
    if len(named) == 1:
        return
    problem = (
        f"{_TOPICS} and {_REGEX} are mutually exclusive options, but both are set."
        if named
        else f"Must configure one of {_TOPICS} or {_REGEX}"
    )
    for key in (_TOPICS, _REGEX):
        yield ConfigError(
            problem=problem,
            fix="Set one of the two, and remove the other.",
            field=key,
        )


def _dead_letter_rule(props: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Reject a sink that reads its own dead letters, since it would never end."""
    dead_letters = _text(props, DEAD_LETTERS)
    if not dead_letters:
        return
    fix = f"Choose another topic in {DEAD_LETTERS}."
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
        return bool(pattern) and topic_matcher(pattern)(topic) is not None
    except ConfigError:
        # The key's own check reports it.
        return False


def _check_pattern(name: str, value: object) -> None:
    Regex().check(name, value)
    topic_matcher(str(value).strip())


class CommonSettings(Settings, group="Common"):
    """The plugins, tasks and transforms of every connector."""

    name: str = setting(
        "The unique name of the connector, other than `.` and `..`.",
        validator=NonEmptyStringWithoutControlChars(),
        importance=Importance.HIGH,
        width=Width.MEDIUM,
        display_name="Connector name",
    )
    connector_class: str = setting(
        "The connector plugin: its name, its class, or the Kafka Connect class that it "
        "replaces.",
        importance=Importance.HIGH,
        width=Width.LONG,
        display_name="Connector class",
    )
    connector_plugin_version: str | None = setting(
        "The version, or the range of versions, of the connector plugin.",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.MEDIUM,
        width=Width.MEDIUM,
        display_name="Connector version",
    )
    tasks_max: int = setting(
        "The maximum number of tasks of the connector.",
        default=1,
        validator=Range(at_least=1),
        importance=Importance.HIGH,
        width=Width.SHORT,
        display_name="Tasks max",
    )
    tasks_max_enforce: bool = setting(
        "Whether a connector that makes more tasks than tasks.max fails.",
        default=True,
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Enforce tasks max",
    )
    key_converter: str | None = setting(
        "Converts record keys to and from bytes, on topics that carry bytes. Null for the "
        "worker's converter. Its own keys begin with `key.converter.`",
        type=ConfigType.CLASS,
        default=None,
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Key converter class",
    )
    key_converter_plugin_version: str | None = setting(
        "The version, or the range of versions, of the key converter.",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Key converter version",
    )
    value_converter: str | None = setting(
        "Converts record values to and from bytes, on topics that carry bytes. Null for the "
        "worker's converter. Its own keys begin with `value.converter.`",
        type=ConfigType.CLASS,
        default=None,
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Value converter class",
    )
    value_converter_plugin_version: str | None = setting(
        "The version, or the range of versions, of the value converter.",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Value converter version",
    )
    header_converter: str | None = setting(
        "Converts record headers to and from bytes, on topics that carry bytes. Null for the "
        f"worker's converter, or {DEFAULT_HEADER_CONVERTER} if keys or values have one. "
        "Its own keys begin with `header.converter.`",
        type=ConfigType.CLASS,
        default=None,
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Header converter class",
    )
    header_converter_plugin_version: str | None = setting(
        "The version, or the range of versions, of the header converter.",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Header converter version",
    )
    transforms: tuple[str, ...] = setting(
        "The names of the transforms, in the order in which they apply. Each is configured by "
        "keys that begin with `transforms.NAME.`",
        default=(),
        validator=unique("transformation aliases"),
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Transforms",
        group="Transforms",
        order=12,
    )
    predicates: tuple[str, ...] = setting(
        "The names of the predicates that transforms refer to. Each is configured by keys "
        "that begin with `predicates.NAME.`",
        default=(),
        validator=unique("predicate aliases"),
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Predicates",
        group="Predicates",
        order=13,
    )
    config_action_reload: str = setting(
        "Whether the connector restarts when a referenced secret changes: restart, or none for "
        "no action.",
        default="restart",
        validator=ValidString("none", "restart"),
        importance=Importance.LOW,
        width=Width.MEDIUM,
        display_name="Reload Action",
        order=14,
    )


class ErrorSettings(Settings, group="Error Handling"):
    """Handling of failed records and failed tasks."""

    errors_retry_timeout: int = setting(
        "For how many milliseconds operations on an unavailable system are retried; 0 for no "
        "retries, -1 for no limit. If it is not set, `headrace run --once` ends after ten "
        "minutes without "
        "a success.",
        type=ConfigType.LONG,
        default=-1,
        width=Width.MEDIUM,
        display_name="Retry Timeout for Errors",
    )
    errors_retry_delay_max_ms: int = setting(
        "The maximum delay between two retries, in milliseconds.",
        type=ConfigType.LONG,
        default=60000,
        width=Width.MEDIUM,
        display_name="Maximum Delay Between Retries for Errors",
    )
    errors_tolerance: str = setting(
        "none fails the task at the first record that fails; all sends such records to the "
        "dead-letter topic and continues.",
        default="none",
        validator=ValidString("none", "all"),
        width=Width.SHORT,
        display_name="Error Tolerance",
    )
    errors_log_enable: bool = setting(
        "Whether tolerated errors are logged.",
        default=False,
        width=Width.SHORT,
        display_name="Log Errors",
    )
    errors_log_include_messages: bool = setting(
        "Whether the log shows the record's key, value and headers too.",
        default=False,
        width=Width.SHORT,
        display_name="Log Error Details",
    )
    errors_deadletterqueue_topic_name: str = setting(
        "The topic for records that fail when errors.tolerance is all. Definitions in YAML "
        "use <name>.dlq by default; none if empty.",
        default="",
        width=Width.MEDIUM,
        display_name="Dead Letter Queue Topic Name",
    )
    errors_deadletterqueue_topic_replication_factor: int = setting(
        "The replication factor of a new dead-letter topic on a broker.",
        type=ConfigType.SHORT,
        default=3,
        width=Width.MEDIUM,
        display_name="Dead Letter Queue Topic Replication Factor",
    )
    errors_deadletterqueue_context_headers_enable: bool = setting(
        "Whether dead letters have headers that describe the error, with keys that begin with "
        "__connect.errors.",
        default=False,
        width=Width.MEDIUM,
        display_name="Enable Error Context Headers",
    )
    errors_tolerance_max_count: int | None = setting(
        "The maximum number of records that a task may reject when errors.tolerance is all; a "
        "batch that would exceed it is not written and the task fails. No limit if null.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=0)),
    )
    errors_tolerance_max_share: float | None = setting(
        "The same as a share, 0 to 1, of the records that the task has read.",
        default=None,
        validator=NullOr(Range(at_least=0, at_most=1)),
    )
    errors_tolerance_window_ms: int | None = setting(
        "The period before the start of a batch to which both limits apply, in milliseconds. "
        "Null for all records since the task first ran.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    errors_restart_enable: bool | None = setting(
        "Whether the server restarts this connector and its failed tasks after a delay, "
        "unless the failure needs a fix first. The server's setting restart_failed "
        "if null.",
        default=None,
    )
    errors_restart_delay_ms: int | None = setting(
        "The wait in milliseconds before the first restart; it doubles with each further one, "
        "and is reduced at random by up to half. The server's setting restart_delay if "
        "null.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    errors_restart_delay_max_ms: int | None = setting(
        "The longest wait before a restart, in milliseconds. The server's setting "
        "restart_delay_max if null.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    errors_restart_max_attempts: int | None = setting(
        "After how many consecutive restarts a task stays failed until it is restarted "
        "manually; -1 for never. The server's setting restart_attempts if null.",
        default=None,
        validator=NullOr(Range(at_least=-1)),
    )
    errors_restart_quiet_ms: int | None = setting(
        "How many milliseconds a task must run before its count of restarts is reset. The "
        "server's setting restart_quiet if null.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=1)),
    )


class BatchSettings(Settings, group="Batches"):
    """Batch sizes, and how often a task polls for new data."""

    batch_max_rows: int = setting(
        "The maximum number of rows of a batch, as far as the source knows it in advance.",
        type=ConfigType.LONG,
        default=10000000,
        validator=Range(at_least=1),
        width=Width.MEDIUM,
        display_name="Rows per batch",
    )
    batch_max_bytes: int | None = setting(
        "The maximum number of bytes of a batch, as far as the source knows it in advance; no "
        "limit if "
        "null.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=1)),
        width=Width.MEDIUM,
        display_name="Bytes per batch",
    )
    poll_interval_ms: int = setting(
        "How many milliseconds an idle task waits before it polls for new data.",
        type=ConfigType.LONG,
        default=1000,
        validator=Range(at_least=1),
        width=Width.SHORT,
        display_name="Poll interval",
    )


class SourceSettings(Settings):
    """Additional keys of source connectors."""

    topic_creation_groups: tuple[str, ...] = setting(
        "The names of groups of new topics. Each is configured by keys that begin "
        "with `topic.creation.NAME.`",
        default=(),
        validator=unique("topic creation groups"),
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Topic Creation Groups",
        group="Topic Creation",
    )
    exactly_once_support: str = setting(
        "required rejects a connector that does not support exactly-once delivery.",
        default="requested",
        validator=ValidString("REQUIRED", "REQUESTED", any_case=True),
        width=Width.SHORT,
        display_name="Exactly once support",
        group="Exactly Once Support",
        order=2,
    )
    transaction_boundary: str = setting(
        "What is written in one transaction: one poll, one interval, or as the connector "
        "defines it.",
        default="poll",
        validator=ValidString("INTERVAL", "POLL", "CONNECTOR", any_case=True),
        width=Width.SHORT,
        display_name="Transaction Boundary",
        group="Exactly Once Support",
    )
    transaction_boundary_interval_ms: int | None = setting(
        "The interval for transaction.boundary, in milliseconds.",
        type=ConfigType.LONG,
        default=None,
        validator=NullOr(Range(at_least=0)),
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name="Transaction boundary interval",
        group="Exactly Once Support",
    )
    offsets_storage_topic: str | None = setting(
        "Accepted for compatibility with Kafka Connect and ignored; offsets are in the store.",
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Offsets topic",
        group="offsets.topic",
    )
    topic_creation_default_retention_ms: int | None = setting(
        "For topics that the connector creates: after how many milliseconds rows are removed; "
        "-1 for never, null for seven days. Change it later with `headrace topic configure`.",
        type=ConfigType.LONG,
        default=None,
        validator=Lambda(_check_limit, "a number above 0, or -1 for no limit"),
        importance=Importance.LOW,
        group="Topic Creation",
        order=2,
    )
    topic_creation_default_retention_bytes: int | None = setting(
        "For topics that the connector creates: the size in bytes above which the oldest rows "
        "are removed; -1 or null for no limit.",
        type=ConfigType.LONG,
        default=None,
        validator=Lambda(_check_limit, "a number above 0, or -1 for no limit"),
        importance=Importance.LOW,
        group="Topic Creation",
    )

    @property
    def retention(self) -> TopicRetention | None:
        """The retention of topics that the connector creates; None if not set."""
        millis = self.topic_creation_default_retention_ms
        size = self.topic_creation_default_retention_bytes
        return None if millis is None and size is None else TopicRetention.of(millis, size)


class SinkSettings(Settings, group="Common"):
    """Additional keys of sink connectors."""

    rules = (_topics_rule, _dead_letter_rule)

    topics: tuple[str, ...] = setting(
        "The topics to read. Either this or topics.regex is required.",
        default=(),
        importance=Importance.HIGH,
        width=Width.LONG,
        display_name="Topics",
        order=4,
    )
    topics_regex: str = setting(
        "A regular expression for the whole names of the topics to read, without look-arounds "
        "and back references.",
        default="",
        validator=Lambda(_check_pattern, Regex.text),
        importance=Importance.HIGH,
        width=Width.LONG,
        display_name="Topics regex",
        order=4,
    )
    topics_start: str = setting(
        "Where a new sink begins in its topics: earliest, latest, version:N or time:ISO.",
        default="earliest",
        validator=Lambda(_check_start, "earliest, latest, version:N or time:ISO"),
        group="Batches",
        order=4,
    )


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The handling of failed records, and of temporary failures.

    Args:
        dead_letter_topic: The topic for tolerated failed records; None to skip them, and
            if none are tolerated.
        retry_timeout: How long temporary failures are retried; None for no limit.
        retry_given: Whether the definition sets the retry timeout.
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
    """Return the runtime's keys for the kind of a definition."""
    return sink_def() if definition.kind == "sink" else source_def()


def parse_common(definition: Definition) -> CommonConfig:
    """Parse the runtime's keys. Raises ConfigErrors with all errors."""
    config = common_def(definition).parse(common_props(definition))
    common, errors = CommonSettings.from_config(config), ErrorSettings.from_config(config)
    batches = BatchSettings.from_config(config)
    own = (SinkSettings if definition.kind == "sink" else SourceSettings).from_config(config)
    return CommonConfig(
        tasks_max=common.tasks_max,
        limit=ReadLimit(rows=batches.batch_max_rows, size_bytes=batches.batch_max_bytes),
        poll_interval=timedelta(milliseconds=batches.poll_interval_ms),
        errors=_errors(definition, errors),
        restarts=RestartKeys(
            enabled=errors.errors_restart_enable,
            first=_duration(errors.errors_restart_delay_ms),
            longest=_duration(errors.errors_restart_delay_max_ms),
            attempts=errors.errors_restart_max_attempts,
            quiet=_duration(errors.errors_restart_quiet_ms),
        ),
        topics_start=own.topics_start if isinstance(own, SinkSettings) else "earliest",
        topics_regex=own.topics_regex if isinstance(own, SinkSettings) else None,
        topic_retention=own.retention if isinstance(own, SourceSettings) else None,
    )


def common_props(definition: Definition) -> dict[str, str]:
    """Return the runtime's keys of a definition, including those that its form implies."""
    plugin = definition.source or definition.sinks[0]
    props = {"connector.class": plugin.plugin, **definition.common, "name": definition.name}
    if definition.kind == "sink" and definition.topics:
        props["topics"] = ",".join(definition.topics)
    return props


def _errors(definition: Definition, errors: ErrorSettings) -> ErrorPolicy:
    tolerant = errors.errors_tolerance.lower() == "all"
    return ErrorPolicy(
        tolerant=tolerant,
        dead_letter_topic=_dead_letter_topic(definition, errors) if tolerant else None,
        context_headers=errors.errors_deadletterqueue_context_headers_enable,
        log=errors.errors_log_enable,
        log_messages=errors.errors_log_include_messages,
        limits=ToleranceLimits(
            count=errors.errors_tolerance_max_count,
            share=errors.errors_tolerance_max_share,
            window=_duration(errors.errors_tolerance_window_ms),
        ),
        retry_timeout=None
        if errors.errors_retry_timeout < 0
        else timedelta(milliseconds=errors.errors_retry_timeout),
        retry_given="errors.retry.timeout" in definition.common,
        retry_delay_max=timedelta(milliseconds=errors.errors_retry_delay_max_ms),
    )


def _duration(millis: int | None) -> timedelta | None:
    return None if millis is None else timedelta(milliseconds=millis)


def _dead_letter_topic(definition: Definition, errors: ErrorSettings) -> str | None:
    """Return the configured topic, if any.

    Our own form has a default topic, which an empty name disables. Kafka Connect's form has no
    default, as in Kafka Connect.
    """
    if definition.strict and DEAD_LETTERS not in definition.common:
        return f"{definition.name}.dlq"
    return errors.errors_deadletterqueue_topic_name or None


@cache
def source_def() -> ConfigDef:
    """Return the keys of a source connector or a direct copy."""
    return _shared().merged(SourceSettings.config_def())


@cache
def sink_def() -> ConfigDef:
    """Return the keys of a sink connector."""
    return _shared().merged(SinkSettings.config_def())


def _shared() -> ConfigDef:
    common = CommonSettings.config_def().merged(ErrorSettings.config_def())
    batches = common.merged(BatchSettings.config_def())
    return batches.merged(EvolutionSettings.config_def())
