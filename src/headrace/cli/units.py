"""Durations and sizes as users write them, such as ``30d`` and ``10GB``."""

from __future__ import annotations

import re

_NONE = {"-1", "none", "unlimited", "forever"}
_NO_LIMIT = -1
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGTP", 1)},
}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)\Z")


def millis_of(text: str, field: str) -> int:
    """Return milliseconds, -1 for no limit. Raises ConfigError."""
    return _limit(text, _MILLIS, field, "7d, 12h, 30m, 45s, 500ms, or none for no limit")


def bytes_of(text: str, field: str) -> int:
    """Return bytes, -1 for no limit. Raises ConfigError."""
    return _limit(text.upper(), _BYTES, field, "10GB, 500MiB, 1000, or none for no limit")


def _limit(text: str, units: dict[str, int], field: str, forms: str) -> int:
    from headrace.sdk import ConfigError

    if text.strip().lower() in _NONE:
        return _NO_LIMIT
    found = _NUMBER.match(text.strip())
    if found is None or found[2] not in units:
        problem = f"{text!r} cannot be read."
        raise ConfigError(problem, field=field, fix=f"Write it as {forms}.")
    return int(float(found[1]) * units[found[2]])
