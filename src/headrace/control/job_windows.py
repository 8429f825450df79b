"""Where the windows of a job's schedule begin, and which lie in a range."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.model import CatchUp, Job, JobSpec, TimeWindow
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_MOST_WINDOWS = 100_000
"""How many windows a backfill has at most."""


def at_start(job: Job, spec: JobSpec, now: datetime, since: datetime | None = None) -> Job:
    """Return a job that stands at the first window of its schedule, or at a time.

    The window that the time is in begins there, however the schedule cuts: what lies before it
    has been read (Guarantee 5).
    """
    schedule = spec.schedule
    if schedule is None:
        return replace(job, cursor=None, due=None)
    begin = now if since is None and spec.policy.catch_up is not CatchUp.ALL else since
    first = next(schedule.windows(begin), None)
    if first is None:
        return replace(job, cursor=None, due=None)
    lower = first.lower if since is None else max(first.lower, since)
    return replace(job, cursor=lower, due=schedule.due(first))


def windows_within(spec: JobSpec, lower: datetime, upper: datetime) -> list[TimeWindow]:
    """Return the windows of a schedule that have a part in a range. Raises ConfigError."""
    assert spec.schedule is not None
    found: list[TimeWindow] = []
    for window in spec.schedule.windows(lower):
        if window.lower >= upper:
            break
        found.append(window)
        if len(found) > _MOST_WINDOWS:
            problem = f"The range has more than {_MOST_WINDOWS} windows."
            raise ConfigError(problem, field="upper", fix="Backfill a part of it at a time.")
    return found


def in_chunks(windows: Sequence[TimeWindow], size: int) -> list[list[TimeWindow]]:
    """Return windows in chunks of a size, each of windows that follow each other."""
    chunks: list[list[TimeWindow]] = []
    for window in windows:
        newest = chunks[-1] if chunks else []
        if newest and newest[-1].upper == window.lower and len(newest) < size:
            newest.append(window)
        else:
            chunks.append([window])
    return chunks
