"""Overlaps between the windows of runs."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, or_, select

from headrace.model import UNENDED, Trigger
from headrace.sdk.boundaries import Boundaries, BoundaryKind
from headrace.store.errors import JobChangedError
from headrace.store.tables import runs, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_R = runs.c
_EARLIEST, _LATEST = (
    time.replace(tzinfo=UTC)
    for time in (datetime.min, datetime.max)  # noqa: DTZ901 - with a zone
)
_UNENDED = tuple(state.value for state in UNENDED)


def windows_of(
    db: Connection, job: str, lower: datetime, upper: datetime
) -> Sequence[Boundaries]:
    """Return the windows of a job's runs that overlap a time range.

    The window of a real-time run that has ended reaches to its end.
    """
    range_ = Boundaries.between(lower, upper)
    query = select(_R.lower, _R.upper, _R.trigger, _R.state, _R.ended_us).where(
        _R.job == job,
        _R.kind == range_.kind.value,
        _R.lower < range_.upper,
        or_(_R.upper > range_.lower, _R.upper == ""),
    )
    found = []
    for row in db.execute(query):
        end = row.upper
        is_over = row.trigger == Trigger.REALTIME.value and row.state not in _UNENDED
        if is_over and row.ended_us is not None:
            end = time_of(row.ended_us).astimezone(UTC).isoformat()
            if end <= max(row.lower, range_.lower or ""):
                continue
        found.append(Boundaries(range_.kind, row.lower or None, end or None))
    return found


def windows_end(db: Connection, job: str) -> datetime | None:
    """Return the end of the last window of a job's runs; None if there is none."""
    query = select(func.max(_R.upper)).where(
        _R.job == job,
        _R.kind == BoundaryKind.TIME.value,
        _R.trigger != Trigger.REALTIME.value,
        _R.upper != "",
    )
    found = db.execute(query).scalar()
    return None if found is None else datetime.fromisoformat(found)


def check_apart(db: Connection, job: str, made: Sequence[Boundaries]) -> None:
    """Raise JobChangedError for new windows that overlap others without being equal.

    The caller holds the lock of the job, so that concurrent calls see each other's windows.
    """
    times = sorted(_span(each) for each in made if each.kind is BoundaryKind.TIME)
    if not times:
        return
    spans = windows_of(db, job, times[0][0], max(upper for _, upper in times))
    known = {*times}
    both = sorted([*times, *(span for each in spans if (span := _span(each)) not in known)])
    for (lower, reached), (begin, _) in pairwise(both):
        if begin < reached:
            problem = f"Two windows of job {job} overlap between {begin} and {reached}."
            fix = f"Check its runs; the window of one of them begins at {lower}."
            raise JobChangedError(problem, fix=fix)


def _span(boundaries: Boundaries) -> tuple[datetime, datetime]:
    lower, upper = boundaries.times
    return lower or _EARLIEST, upper or _LATEST
