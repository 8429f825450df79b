"""Conversion between rows and objects of jobs and runs, and the windows of a job's runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select, update

from headrace.model import UNENDED, Counts, Job, JobState, Run, RunState, Trigger
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.position import Boundaries, BoundaryKind
from headrace.store.errors import JobChangedError, JobNotFoundError, RunNotFoundError
from headrace.store.tables import jobs, runs, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_J, _R = jobs.c, runs.c


def job_row(db: Connection, name: str) -> Row[Any] | None:
    """Return the row of a job, if there is one."""
    return db.execute(select(jobs).where(_J.name == name)).one_or_none()


def existing_job(db: Connection, name: str) -> Row[Any]:
    """Return the row of a job. Raises JobNotFoundError."""
    row = job_row(db, name)
    if row is None:
        problem = f"Job {name} does not exist."
        raise JobNotFoundError(problem, field="name", fix="List them: headrace job list.")
    return row


def job_of(row: Row[Any]) -> Job:
    """Return the job of a row."""
    return Job(
        name=row.name,
        uid=row.uid,
        document=json.loads(row.document),
        version=row.version,
        state=JobState(row.state),
        cursor=_time(row.cursor_us),
        due=_time(row.due_us),
        why=row.why,
        engine=row.engine,
        changed=time_of(row.changed_us),
        by=row.by,
    )


def _time(number: int | None) -> datetime | None:
    return None if number is None else time_of(number)


def is_window(job: str, boundaries: Boundaries) -> ColumnElement[bool]:
    """Return the condition for the run of a window of a job."""
    return and_(
        _R.job == job,
        _R.kind == boundaries.kind.value,
        _R.lower == (boundaries.lower or ""),
        _R.upper == (boundaries.upper or ""),
    )


def count_runs(db: Connection, job: str) -> int:
    """Return how many runs a job has."""
    query = select(func.count()).select_from(runs).where(_R.job == job)
    return int(db.execute(query).scalar_one())


def existing_run(db: Connection, number: int) -> Row[Any]:
    """Return the row of a run. Raises RunNotFoundError."""
    row = db.execute(select(runs).where(_R.id == number)).one_or_none()
    if row is None:
        problem = f"Run {number} does not exist."
        raise RunNotFoundError(problem, field="run", fix="List them: headrace job runs NAME.")
    return row


def run_of_row(row: Row[Any]) -> Run:
    """Return the run of a row."""
    return Run(
        id=row.id,
        job=row.job,
        boundaries=Boundaries(BoundaryKind(row.kind), row.lower or None, row.upper or None),
        state=RunState(row.state),
        trigger=Trigger(row.trigger),
        by=row.by,
        due=time_of(row.due_us),
        backfill=row.backfill,
        attempt=row.attempt,
        deaths=row.deaths,
        generation=row.generation,
        epoch=row.epoch,
        owner=row.owner,
        held_until=_time(row.expires_us),
        stop_asked=row.stop_asked,
        paused=row.paused,
        began=_time(row.began_us),
        ended=_time(row.ended_us),
        counts=Counts.from_json(row.counts) if row.counts else Counts(),
        application=row.application,
        error=row.error,
    )


def update_held(db: Connection, run: Run, values: Mapping[str, object]) -> None:
    """Update a held run. Raises StaleEpochError if its epoch is stale (Guarantee 3)."""
    held = and_(_R.id == run.id, _R.epoch == run.epoch, _R.state == RunState.RUNNING.value)
    if db.execute(update(runs).where(held).values(**values)).rowcount != 1:
        problem = f"Run {run.id} of job {run.job} was taken by another worker, or has ended."
        raise StaleEpochError(problem)


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
