"""Figures as people read them."""

from __future__ import annotations

_KILO = 1000
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def count(number: float) -> str:
    """Return a whole number with separators: ``1,234,567``."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def size(size_bytes: float) -> str:
    """Return a size with three digits at least: ``1.23 MB``."""
    for unit in _UNITS:
        if abs(size_bytes) < _KILO or unit == _UNITS[-1]:
            break
        size_bytes /= _KILO
    digits = 0 if unit == "B" else 2 if size_bytes < 10 else 1 if size_bytes < 100 else 0  # noqa: PLR2004 - three digits
    return f"{size_bytes:,.{digits}f} {unit}"


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
    """Return a time that a server gave, to the second: ``2026-11-21 10:00:00``."""
    return at.partition(".")[0].rstrip("Z").replace("T", " ")
