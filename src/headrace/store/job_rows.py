"""Conversion between rows and objects of jobs and runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, update

from headrace.model import Counts, Job, JobState, Run, RunState, Trigger
from headrace.sdk.boundaries import Boundaries, BoundaryKind
from headrace.sdk.errors import StaleEpochError
from headrace.store.errors import JobNotFoundError, RunNotFoundError
from headrace.store.tables import jobs, runs, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

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
