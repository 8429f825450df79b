"""The keys on rejected records that Kafka Connect lacks, for sources or for all."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.model import ToleranceLimits
from headrace.sdk.config import ConfigType, NullOr, Range

if TYPE_CHECKING:
    from headrace.sdk.config import Config, ConfigDef

DEAD_LETTERS = "errors.deadletterqueue.topic.name"
CONTEXT_HEADERS = "errors.deadletterqueue.context.headers.enable"

_GROUP = "Error Handling"
_COUNT = "errors.tolerance.max.count"
_SHARE = "errors.tolerance.max.share"
_WINDOW = "errors.tolerance.window.ms"


def with_dead_letters(definition: ConfigDef) -> ConfigDef:
    """Add the keys that Kafka Connect gives to sinks only."""
    return (
        definition.define(
            DEAD_LETTERS,
            ConfigType.STRING,
            "",
            doc="The topic that takes records that fail when errors.tolerance is all: "
            "<name>.dlq unless it is named here, none if empty.",
            group=_GROUP,
            order=6,
        )
        .define(
            "errors.deadletterqueue.topic.replication.factor",
            ConfigType.SHORT,
            3,
            doc="The replication factor that a broker gives a new dead-letter topic.",
            group=_GROUP,
            order=7,
        )
        .define(
            CONTEXT_HEADERS,
            ConfigType.BOOLEAN,
            default=False,
            doc="Whether dead letters carry headers that tell the error, whose keys begin "
            "with __connect.errors.",
            group=_GROUP,
            order=8,
        )
    )


def with_limits(definition: ConfigDef) -> ConfigDef:
    """Add the keys to the runtime's others."""
    return (
        definition.define(
            _COUNT,
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=0)),
            doc="The most records that a task may reject when errors.tolerance is all; the "
            "batch that would bring more is not written and the task fails. No limit if null.",
            group=_GROUP,
            order=9,
        )
        .define(
            _SHARE,
            ConfigType.DOUBLE,
            None,
            validator=NullOr(Range(at_least=0, at_most=1)),
            doc="The same as a share, 0 to 1, of the records that the task has read.",
            group=_GROUP,
            order=10,
        )
        .define(
            _WINDOW,
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=1)),
            doc="Over how many milliseconds, up to the start of a batch, both limits are "
            "judged; since the task first ran if null.",
            group=_GROUP,
            order=11,
        )
    )


def limits_of(config: Config) -> ToleranceLimits:
    """Return the limits that a configuration sets."""
    window = config.find_int(_WINDOW)
    return ToleranceLimits(
        count=config.find_int(_COUNT),
        share=config.find_float(_SHARE),
        window=None if window is None else timedelta(milliseconds=window),
    )
