"""The keys on when a connector's failed tasks are started anew, which Kafka Connect lacks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.model import RestartKeys
from headrace.sdk.config import ConfigType, NullOr, Range

if TYPE_CHECKING:
    from headrace.sdk.config import Config, ConfigDef

_GROUP = "Error Handling"
_ENABLE = "errors.restart.enable"
_FIRST = "errors.restart.delay.ms"
_LONGEST = "errors.restart.delay.max.ms"
_ATTEMPTS = "errors.restart.max.attempts"
_QUIET = "errors.restart.quiet.ms"


def with_restarts(definition: ConfigDef) -> ConfigDef:
    """Add the keys to the runtime's others."""
    return (
        definition.define(
            _ENABLE,
            ConfigType.BOOLEAN,
            None,
            doc="Whether the server starts failed tasks of this connector, and itself, anew "
            "after a while, unless what failed must be mended first. The server's setting "
            "restart_failed if null.",
            group=_GROUP,
            order=12,
        )
        .define(
            _FIRST,
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=1)),
            doc="The wait in milliseconds before the first restart; it doubles with each "
            "further one, and up to half of it is taken off at random. The server's setting "
            "restart_delay if null.",
            group=_GROUP,
            order=13,
        )
        .define(
            _LONGEST,
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=1)),
            doc="The longest wait before a restart, in milliseconds. The server's setting "
            "restart_delay_max if null.",
            group=_GROUP,
            order=14,
        )
        .define(
            _ATTEMPTS,
            ConfigType.INT,
            None,
            validator=NullOr(Range(at_least=-1)),
            doc="After how many restarts in a row a task is given up, until somebody restarts "
            "it by hand; -1 for never. The server's setting restart_attempts if null.",
            group=_GROUP,
            order=15,
        )
        .define(
            _QUIET,
            ConfigType.LONG,
            None,
            validator=NullOr(Range(at_least=1)),
            doc="For how many milliseconds a task must run until its restarts are counted "
            "from the first again. The server's setting restart_quiet if null.",
            group=_GROUP,
            order=16,
        )
    )


def restarts_of(config: Config) -> RestartKeys:
    """Return what a configuration says."""
    return RestartKeys(
        enabled=config.find_bool(_ENABLE),
        first=_duration(config, _FIRST),
        longest=_duration(config, _LONGEST),
        attempts=config.find_int(_ATTEMPTS),
        quiet=_duration(config, _QUIET),
    )


def _duration(config: Config, key: str) -> timedelta | None:
    found = config.find_int(key)
    return None if found is None else timedelta(milliseconds=found)
