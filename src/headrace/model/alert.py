"""About what an offline job alerts people: the kinds of alerts, and when each is due."""

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
    """A run has failed for good, or the document of its job cannot be read."""
    LATE = "late"
    EMPTY = "empty"
    BALANCE = "balance"
    DURATION = "duration"
    ROWS = "rows"
    TEST = "test"


class DeliveryState(StrEnum):
    """How far an alert is on its way to a channel."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


_USUAL_LEAST = 5
"""How many runs there must have been for a usual range."""
_USUAL_MOST = 20
"""How many of the newest make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """About what a job alerts, and whom.

    Args:
        channels: The names of the channels; None for all that the server has.
        failed: Whether a run that has failed for good alerts.
        late: How long after its window was due a run may not have succeeded; None for ever.
        empty: Whether a run without records alerts.
        balance: Whether a run alerts whose counts are not in balance.
        duration_factor: How many times longer or shorter than usual a run may take; None for
            any time.
        rows_factor: How many times more or fewer records than usual it may read; None for any
            number.
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
        """Return whether runs are compared with those before them."""
        return self.duration_factor is not None or self.rows_factor is not None

    def findings(
        self, run: Run, earlier: Iterable[Run], cause: str
    ) -> Iterator[tuple[AlertKind, str]]:
        """Yield about what a run that has ended alerts, and what is to be said behind "It".

        Args:
            run: As it has ended; one that is tried again alerts only if that has no end. One
                that runs has not got on for a while.
            earlier: Runs that have succeeded before, the newest first.
            cause: Why it has failed, without anything of a record.
        """
        counts = run.counts
        attempts = "1 attempt" if run.attempt == 1 else f"{run.attempt} attempts"
        if run.state is RunState.FAILED and self.failed:
            yield AlertKind.FAILED, f"has failed after {attempts}: {cause.rstrip('.')}"
        if run.state is RunState.RUNNING and self.failed:
            yield AlertKind.FAILED, f"does not get on, and tries again: {cause.rstrip('.')}"
        if run.state is RunState.QUEUED and run.is_live and cause and self.failed:
            what = f"fails after {attempts}, and is tried again: {cause.rstrip('.')}"
            yield AlertKind.FAILED, what
        ended = run.state in {RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED}
        if ended and self.balance and not counts.balanced:
            parts = f"{counts.written:,} written, {counts.filtered:,} filtered and "
            parts += f"{counts.rejected:,} rejected"
            text = f"is not in balance: {counts.read:,} records were read, and {parts}"
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
                yield AlertKind.ROWS, f"has read {rows:,} records, and {why}"
        took = run.seconds
        if self.duration_factor is not None and took is not None:
            found = [other.seconds for other in usual if other.seconds is not None]
            if (why := out_of_range(took, found, self.duration_factor)) is not None:
                yield AlertKind.DURATION, f"has taken {figure(took)} seconds, and {why}"


def out_of_range(value: float, usual: Sequence[float], factor: float) -> str | None:
    """Return why a value is unusual, or None.

    It is where it lies outside of 1/factor to factor times the median of at least five
    values. A median of 0 gives no range.
    """
    if len(usual) < _USUAL_LEAST:
        return None
    middle = median(usual)
    if middle <= 0 or middle / factor <= value <= middle * factor:
        return None
    low, high = figure(middle / factor), figure(middle * factor)
    return f"{low} to {high} are usual, by the last {len(usual)} runs"


def figure(value: float) -> str:
    """Return a number with three digits at least: 0.0123, 12.3, 1,234."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - digits


def _alike(run: Run, other: Run) -> bool:
    """Return whether two runs can be compared: their windows are about as long.

    A backfill may read many windows as one.
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
    """Return why something has failed, in one line without anything of a record.

    What speaks of the configuration, the machine or a system that does not answer is said in
    its own words; what may quote a record, as errors of databases, of Spark and of rejected
    records do, only by its code or class. Secrets must be out of the error already.
    """
    if isinstance(error, _ABOUT_NO_RECORD):
        return str(error).strip().partition("\n")[0].rstrip(":")
    if isinstance(error, HeadraceError):
        summary = (type(error).__doc__ or "").strip().partition("\n")[0]
        return f"[{error.code}] {summary}".rstrip()
    return type(error).__name__
