"""How long is remembered what happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long events are kept.

    Args:
        states_age: How long states of connectors and tasks are.
        states_count: How many of them, the newest, of each connector and each task.
        changes_age: How long changes by people are; never shorter than states.
    """

    states_age: timedelta = timedelta(days=7)
    states_count: int = 1000
    changes_age: timedelta = timedelta(days=365)
