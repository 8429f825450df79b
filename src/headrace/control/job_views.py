"""Jobs and their backfills as they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.model import Job, JobSpec, Registration, Run, RunState, unended


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as it is shown.

    Args:
        spec: What its document says; None where this version cannot read it.
        approvers: Who may approve it.
        runs: How many runs it has in each state.
        fires: When its next windows are due; none while its schedule makes no runs.
        registration: What the outside scheduler has of it that is to wake it, if there is one.
    """

    job: Job
    spec: JobSpec | None
    approvers: Sequence[str]
    runs: Mapping[RunState, int]
    newest: Run | None
    fires: Sequence[datetime]
    registration: Registration | None = None


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """How far a backfill is.

    Args:
        id: What it is called.
        runs: How many of its runs are in each state.
        paused: Whether those that wait do not begin until it is resumed.
    """

    id: str
    job: str
    runs: Mapping[RunState, int]
    paused: bool = False

    @property
    def total(self) -> int:
        return sum(self.runs.values())

    @property
    def done(self) -> bool:
        """Return whether all its runs have ended."""
        return not unended(self.runs)
