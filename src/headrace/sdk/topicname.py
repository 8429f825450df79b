"""The rule of the names of topics, which are Kafka's: folders and marks are named by them."""

from __future__ import annotations

import re

from headrace.sdk.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def topic_name_error(name: str, field: str) -> ConfigError:
    """Return the error of a name that no topic may have."""
    return ConfigError(
        f"{name!r} cannot be the name of a topic.",
        field=field,
        fix="Use letters, digits, dots, hyphens and underscores, at most 249.",
    )
