"""The alerts of jobs: their kinds, and the policy that decides when to send one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from statistics import median

from headrace.model.job import Run, RunState
from headrace.sdk import (
    BoundaryKind,
    ConfigError,
    DataLostError,
    HeadraceError,
    RetriableError,
    StateError,
)
from headrace.sdk.errors import SetupError


class AlertKind(StrEnum):
    """What an alert is about."""

    FAILED = "failed"
    """A run has failed without further retries, or the document of its job cannot be read."""
    LATE = "late"
    EMPTY = "empty"
    BALANCE = "balance"
    DURATION = "duration"
    ROWS = "rows"
    TEST = "test"


class DeliveryState(StrEnum):
    """The state of an alert's delivery to a channel."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


_USUAL_LEAST = 5
"""The minimum number of earlier runs to compute a usual range."""
_USUAL_MOST = 20
"""The maximum number of earlier runs, the newest, for the usual range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """The alerts of a job, and their channels.

    Args:
        channels: The names of the channels; None for all channels of the server.
        failed: Whether to alert about a run that failed without further retries.
        late: Alert about a run that has not succeeded this long after its window was due; None
            for never.
        empty: Whether to alert about a run without records.
        balance: Whether to alert about a run whose counts are not balanced.
        duration_factor: How many times longer or shorter than usual a run may take; None for
            any duration.
        rows_factor: How many times more or fewer records than usual a run may read; None for
            any number.
    """

    channels: Sequence[str] | None = None
    failed: bool = True
    late: timedelta | None = None
    empty: bool = False
    balance: bool = True
    duration_factor: float | None = None
    rows_factor: float | None = None

    @property
    def compares(self) -> bool:
        """Return whether runs are compared with earlier runs."""
        return self.duration_factor is not None or self.rows_factor is not None

    def findings(
        self, run: Run, earlier: Iterable[Run], cause: str
    ) -> Iterator[tuple[AlertKind, str]]:
        """Yield the kind and the text of each alert about a run; the text follows a subject.

        Args:
            run: The run after its attempt; a run that will be retried alerts only if it is in
                real time. A run in the state RUNNING makes no progress.
            earlier: Earlier successful runs, the newest first.
            cause: Why it failed, without any data of records.
        """
        counts = run.counts
        attempts = "1 attempt" if run.attempt == 1 else f"{run.attempt} attempts"
        if run.state is RunState.FAILED and self.failed:
            yield AlertKind.FAILED, f"has failed after {attempts}: {cause.rstrip('.')}"
        if run.state is RunState.RUNNING and self.failed:
            yield AlertKind.FAILED, f"makes no progress, and retries: {cause.rstrip('.')}"
        if run.state is RunState.QUEUED and run.is_live and cause and self.failed:
            what = f"has failed after {attempts}, and is retried: {cause.rstrip('.')}"
            yield AlertKind.FAILED, what
        ended = run.state in {RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED}
        if ended and self.balance and not counts.balanced:
            parts = f"{counts.written:,} written, {counts.filtered:,} filtered and "
            parts += f"{counts.rejected:,} rejected"
            text = f"is not balanced: {counts.read:,} records were read, and {parts}"
            yield AlertKind.BALANCE, text
        if run.state is RunState.SUCCEEDED and not run.is_live:
            yield from self._unusual(run, earlier)

    def _unusual(self, run: Run, earlier: Iterable[Run]) -> Iterator[tuple[AlertKind, str]]:
        usual = list(islice((other for other in earlier if _alike(run, other)), _USUAL_MOST))
        rows = run.counts.read
        if self.empty and rows == 0:
            yield AlertKind.EMPTY, "has found no records"
        elif self.rows_factor is not None:
            found = [float(other.counts.read) for other in usual]
            if (why := out_of_range(rows, found, self.rows_factor)) is not None:
                yield AlertKind.ROWS, f"read {rows:,} records; {why}"
        took = run.seconds
        if self.duration_factor is not None and took is not None:
            found = [other.seconds for other in usual if other.seconds is not None]
            if (why := out_of_range(took, found, self.duration_factor)) is not None:
                yield AlertKind.DURATION, f"took {figure(took)} seconds; {why}"


def out_of_range(value: float, usual: Sequence[float], factor: float) -> str | None:
    """Return why a value is unusual, or None.

    A value is unusual outside of 1/factor to factor times the median of at least five values.
    A median of 0 has no range.
    """
    if len(usual) < _USUAL_LEAST:
        return None
    middle = median(usual)
    if middle <= 0 or middle / factor <= value <= middle * factor:
        return None
    low, high = figure(middle / factor), figure(middle * factor)
    return f"the last {len(usual)} runs suggest {low} to {high}"


def figure(value: float) -> str:
    """Format a number with at least three digits: 0.0123, 12.3, 1,234."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - digits


def _alike(run: Run, other: Run) -> bool:
    """Return whether two runs are comparable: their windows have similar lengths.

    A backfill may read many windows in one run.
    """
    if run.boundaries.kind is not other.boundaries.kind:
        return False
    length, others = _length(run), _length(other)
    return length is None or others is None or others / 2 <= length <= others * 2


def _length(run: Run) -> timedelta | None:
    if run.boundaries.kind is not BoundaryKind.TIME:
        return None
    lower, upper = run.boundaries.times
    return None if lower is None or upper is None else upper - lower


_ABOUT_NO_RECORD = (
    ConfigError,
    DataLostError,
    RetriableError,
    SetupError,
    StateError,
)


def cause_of(error: Exception) -> str:
    """Return the cause of an error, in one line without any data of records.

    An error about the configuration, the machine or an unavailable system keeps its message.
    Errors that may quote a record, such as those of databases, of Spark and of rejected
    records, are reduced to their code or class. Secrets must already be redacted.
    """
    if isinstance(error, _ABOUT_NO_RECORD):
        return str(error).strip().partition("\n")[0].rstrip(":")
    if isinstance(error, HeadraceError):
        summary = (type(error).__doc__ or "").strip().partition("\n")[0]
        return f"[{error.code}] {summary}".rstrip()
    return type(error).__name__
