"""The keys that every connector takes beside its own, whether source or sink.

Names, defaults, groups and places are Kafka Connect's, so that its definitions and consoles
work as they are; the groups Batches and Schema Evolution are ours.
"""

from headrace.sdk.config.definition import ConfigDef
from headrace.sdk.config.evolution_keys import evolution_config
from headrace.sdk.config.key import Importance, Width
from headrace.sdk.config.parsing import ConfigType
from headrace.sdk.config.validators import (
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NullOr,
    Range,
    ValidString,
    unique,
)

__all__ = ["COMMON", "ERRORS", "connector_config"]

COMMON = "Common"
ERRORS = "Error Handling"
_BATCHES = "Batches"


def connector_config() -> ConfigDef:
    """Give the keys that every connector takes beside its own."""
    return evolution_config(_with_batches(_with_errors(_with_plugins(_common()))))


def _common() -> ConfigDef:
    definition = (
        ConfigDef()
        .define(
            "name",
            ConfigType.STRING,
            validator=NonEmptyStringWithoutControlChars(),
            importance=Importance.HIGH,
            doc="The connector's name, which no other connector has.",
            group=COMMON,
            order=1,
            width=Width.MEDIUM,
            display_name="Connector name",
        )
        .define(
            "connector.class",
            ConfigType.STRING,
            importance=Importance.HIGH,
            doc="The connector plugin: its name, its class, or a class of Kafka Connect "
            "that it stands for.",
            group=COMMON,
            order=2,
            width=Width.LONG,
            display_name="Connector class",
        )
        .define(
            "connector.plugin.version",
            ConfigType.STRING,
            None,
            validator=NonEmptyString(),
            importance=Importance.MEDIUM,
            doc="The version, or the range of versions, of the connector plugin.",
            group=COMMON,
            order=3,
            width=Width.MEDIUM,
            display_name="Connector version",
        )
        .define(
            "tasks.max",
            ConfigType.INT,
            1,
            validator=Range(at_least=1),
            importance=Importance.HIGH,
            doc="The most tasks that the connector may be divided into.",
            group=COMMON,
            order=4,
            width=Width.SHORT,
            display_name="Tasks max",
        )
        .define(
            "tasks.max.enforce",
            ConfigType.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Whether a connector that makes more tasks than tasks.max fails.",
            group=COMMON,
            order=5,
            width=Width.SHORT,
            display_name="Enforce tasks max",
        )
    )
    return _with_converters(definition)


DEFAULT_HEADER_CONVERTER = "SimpleHeaderConverter"
"""What converts headers where keys or values are converted; Kafka Connect's default."""
_IF_NULL = {
    "key": "the worker's",
    "value": "the worker's",
    "header": f"the worker's, or {DEFAULT_HEADER_CONVERTER} where keys or values have one,",
}


def _with_converters(definition: ConfigDef) -> ConfigDef:
    for order, (part, title) in enumerate(
        (("key", "Key"), ("value", "Value"), ("header", "Header"))
    ):
        definition = definition.define(
            f"{part}.converter",
            ConfigType.CLASS,
            None,
            importance=Importance.LOW,
            doc=f"Turns a record's {part} into bytes and back, on topics that carry bytes; "
            f"{_IF_NULL[part]} if null. Its own keys follow this one with a dot.",
            group=COMMON,
            order=6 + 2 * order,
            width=Width.SHORT,
            display_name=f"{title} converter class",
        ).define(
            f"{part}.converter.plugin.version",
            ConfigType.STRING,
            None,
            validator=NonEmptyString(),
            importance=Importance.LOW,
            doc=f"The version, or the range of versions, of the {part} converter.",
            group=COMMON,
            order=7 + 2 * order,
            width=Width.SHORT,
            display_name=f"{title} converter version",
        )
    return definition


def _with_plugins(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "transforms",
            ConfigType.LIST,
            "",
            validator=unique("transformation aliases"),
            importance=Importance.LOW,
            doc="Names for the transforms that records pass, in order; each is configured "
            "by the keys that begin with transforms, its name, and a dot.",
            group="Transforms",
            order=12,
            width=Width.LONG,
            display_name="Transforms",
        )
        .define(
            "predicates",
            ConfigType.LIST,
            "",
            validator=unique("predicate aliases"),
            importance=Importance.LOW,
            doc="Names for the predicates that transforms refer to; each is configured by "
            "the keys that begin with predicates, its name, and a dot.",
            group="Predicates",
            order=13,
            width=Width.LONG,
            display_name="Predicates",
        )
        .define(
            "config.action.reload",
            ConfigType.STRING,
            "restart",
            validator=ValidString("none", "restart"),
            importance=Importance.LOW,
            doc="What happens when a referenced secret has changed: the connector is "
            "restarted with it, or nothing.",
            group=COMMON,
            order=14,
            width=Width.MEDIUM,
            display_name="Reload Action",
        )
    )


def _with_errors(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "errors.retry.timeout",
            ConfigType.LONG,
            -1,
            doc="For how many milliseconds a system that is away is tried again; 0 for not at "
            "all, -1 for ever. Where it is not given, `headrace run --once` ends after ten "
            "minutes without a success.",
            group=ERRORS,
            order=1,
            width=Width.MEDIUM,
            display_name="Retry Timeout for Errors",
        )
        .define(
            "errors.retry.delay.max.ms",
            ConfigType.LONG,
            60000,
            doc="The longest wait between two tries, in milliseconds.",
            group=ERRORS,
            order=2,
            width=Width.MEDIUM,
            display_name="Maximum Delay Between Retries for Errors",
        )
        .define(
            "errors.tolerance",
            ConfigType.STRING,
            "none",
            validator=ValidString("none", "all"),
            doc="none stops the task at the first record that fails; all passes such "
            "records to the dead-letter topic and goes on.",
            group=ERRORS,
            order=3,
            width=Width.SHORT,
            display_name="Error Tolerance",
        )
        .define(
            "errors.log.enable",
            ConfigType.BOOLEAN,
            default=False,
            doc="Whether tolerated errors are logged.",
            group=ERRORS,
            order=4,
            width=Width.SHORT,
            display_name="Log Errors",
        )
        .define(
            "errors.log.include.messages",
            ConfigType.BOOLEAN,
            default=False,
            doc="Whether the log shows the record's key, value and headers too.",
            group=ERRORS,
            order=5,
            width=Width.SHORT,
            display_name="Log Error Details",
        )
    )


def _with_batches(definition: ConfigDef) -> ConfigDef:
    return (
        definition.define(
            "batch.max.rows",
            ConfigType.LONG,
            10_000_000,
            validator=Range(at_least=1),
            doc="The most rows of a batch, as far as the source can tell beforehand.",
            group=_BATCHES,
            order=1,
            width=Width.MEDIUM,
            display_name="Rows per batch",
        )
        .define(
            "batch.max.bytes",
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=1)),
            doc="The most bytes of a batch, as far as the source can tell beforehand; "
            "no limit if null.",
            group=_BATCHES,
            order=2,
            width=Width.MEDIUM,
            display_name="Bytes per batch",
        )
        .define(
            "poll.interval.ms",
            ConfigType.LONG,
            1000,
            validator=Range(at_least=1),
            doc="How many milliseconds an idle task waits before it looks for new data.",
            group=_BATCHES,
            order=3,
            width=Width.SHORT,
            display_name="Poll interval",
        )
    )
