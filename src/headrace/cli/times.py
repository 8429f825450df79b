"""Times as users write them."""

from __future__ import annotations

from datetime import datetime


def time_of(text: str, field: str) -> datetime:
    """Return a time, of this machine's zone unless it names one. Raises ConfigError."""
    from headrace.sdk import ConfigError

    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is no time."
        fix = "Write it as 2026-11-21T10:00, or with a zone as 2026-11-21T10:00Z."
        raise ConfigError(problem, field=field, fix=fix) from error
