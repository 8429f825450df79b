"""Turns nested configuration values into Kafka's flat texts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """Return a scalar or a list of scalars as Kafka's configuration would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        problem = f"{value} is no number that a configuration can hold."
        raise ConfigError(problem, fix="Write a finite number, or a text in quotes.")
    if isinstance(value, (list, tuple)):
        return ",".join(text(item) for item in value)
    return str(value)
