"""The naming rule for topics, which is Kafka's: folders and marks use topic names."""

from __future__ import annotations

import re

from headrace.sdk.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Return whether this is a valid topic name."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def topic_name_error(name: str, field: str) -> ConfigError:
    """Return the error for an invalid topic name."""
    return ConfigError(
        f"{name!r} is not a valid topic name.",
        field=field,
        fix="Use letters, digits, dots, hyphens and underscores, at most 249 characters.",
    )
