"""Parses and formats durations, sizes, times and numbers."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

FIGURES = ("read", "written", "filtered", "rejected")
"""The counts of records, in the order of the columns of tables."""
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
        problem = f"Invalid value {text!r}."
        raise ConfigError(problem, field=field, fix=f"Use a form such as {forms}.")
    return int(float(found[1]) * units[found[2]])


def time_of(text: str, field: str, zone: tzinfo | None = None) -> datetime:
    """Parse a time. Raises ConfigError.

    A text without a UTC offset is in ``zone``, or in this machine's time zone for None.
    """
    from headrace.sdk import ConfigError

    try:
        time = datetime.fromisoformat(text)
        if zone is not None and time.tzinfo is None:
            time = time.replace(tzinfo=zone)
        return time.astimezone()
    except (ValueError, OverflowError) as error:
        problem = f"Invalid time {text!r}."
        fix = "Use ISO 8601, such as 2026-11-21T10:00, or with a time zone 2026-11-21T10:00Z."
        raise ConfigError(problem, field=field, fix=fix) from error


_STYLES = {
    **dict.fromkeys(("running", "succeeded"), "green"),
    **dict.fromkeys(("completed", "finished"), "cyan"),
    **dict.fromkeys(("failed", "rejected"), "bold red"),
    **dict.fromkeys(("paused", "stopped", "submitted", "suspended"), "yellow"),
}


def state_text(state: str) -> Text:
    """Return the state of a connector, a task, a job or a run in its colour."""
    from rich.text import Text

    return Text(state, style=_STYLES.get(state.lower(), ""))


_KILO = 1000
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def count(number: float) -> str:
    """Return a whole number with separators: ``1,234,567``."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def size(size_bytes: float) -> str:
    """Return a size with at least three digits: ``1.23 MB``."""
    for unit in _UNITS:
        if abs(size_bytes) < _KILO or unit == _UNITS[-1]:
            break
        size_bytes /= _KILO
    digits = 0 if unit == "B" else 2 if size_bytes < 10 else 1 if size_bytes < 100 else 0  # noqa: PLR2004 - three digits
    return f"{size_bytes:,.{digits}f} {unit}"


def lag(rows: float | None, size_bytes: float | None) -> str:
    """Return the lag in rows if known, else in bytes."""
    if rows is not None:
        return count(int(rows))
    return "" if size_bytes is None else size(size_bytes)


def span(seconds: float) -> str:
    """Return a duration: ``3.2 s``, ``4:05`` (minutes), ``2:04:05`` or ``3 d 2 h``."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE}:{int(seconds) % _MINUTE:02}"
    if seconds < _DAY:
        minutes = int(seconds) // _MINUTE
        return f"{minutes // 60}:{minutes % 60:02}:{int(seconds) % _MINUTE:02}"
    return f"{int(seconds) // _DAY} d {int(seconds) % _DAY // _HOUR} h"


def moment(at: str) -> str:
    """Return a time from a server's answer, to the second: ``2026-11-21 10:00:00``."""
    return at.partition(".")[0].rstrip("Z").replace("T", " ")


def diff_lines(key: str, before: str | None, after: str | None) -> list[str]:
    """Return a change of a key as diff lines; None means that the key is absent."""
    old = [] if before is None else [f"- {key}: {before}"]
    new = [] if after is None else [f"+ {key}: {after}"]
    return [*old, *new]
