"""Stops, pauses and resumes backfills; a backfill is the set of runs with its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, Engine, and_, false, select, true, update

from headrace.model import UNENDED, EventKind, RunState, Stamp
from headrace.store.connections import lock_name
from headrace.store.errors import JobChangedError
from headrace.store.rows import add_event
from headrace.store.tables import micros, runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_R = runs.c
_UNENDED = tuple(state.value for state in UNENDED)


class Backfills:
    """Operations on all runs of a backfill at once. Thread-safe."""

    def __init__(self, writer: Engine, finish: Callable[[Connection, str], None]) -> None:
        """``finish`` marks a job as finished if its last run has ended."""
        self._writer = writer
        self._finish = finish

    def is_paused(self, job: str, backfill: str) -> bool:
        """Return whether waiting runs of a backfill are held back."""
        query = select(_R.id).where(_of(job, backfill), _R.paused == true()).limit(1)
        with self._writer.connect() as db:
            return db.execute(query).scalar() is not None

    def stop(self, job: str, backfill: str, stamp: Stamp) -> int:
        """Stop all runs of a backfill that have not ended; return how many.

        This also ends a pause, so that a retried run begins.
        """
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            count = _stop(db, _of(job, backfill), stamp.at)
            _set_paused(db, job, backfill, paused=False)
            self._finish(db, job)
            detail = {"backfill": backfill, "runs": count}
            add_event(db, job, EventKind.BACKFILL_STOP, stamp, detail)
            return count

    def pause(self, job: str, backfill: str, stamp: Stamp) -> None:
        """Let no more runs of a backfill begin; running ones finish.

        An attempt that fails meanwhile is retried once the backfill is resumed. Raises
        JobChangedError if the backfill is paused or has ended.
        """
        left = select(_R.id).where(_of(job, backfill), _R.state.in_(_UNENDED)).limit(1)
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            if db.execute(left).scalar() is None:
                problem = f"All runs of backfill {backfill} have ended."
                raise JobChangedError(problem, fix="Pause only backfills with runs left.")
            if not _set_paused(db, job, backfill, paused=True):
                fix = f"To resume it: headrace job resume-backfill {job} {backfill}."
                problem = f"Backfill {backfill} is already paused."
                raise JobChangedError(problem, fix=fix)
            add_event(db, job, EventKind.BACKFILL_PAUSE, stamp, {"backfill": backfill})

    def resume(self, job: str, backfill: str, stamp: Stamp) -> None:
        """Resume a backfill. Raises JobChangedError if it is not paused."""
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            if not _set_paused(db, job, backfill, paused=False):
                problem = f"Backfill {backfill} is not paused."
                raise JobChangedError(problem, fix="Resume only paused backfills.")
            add_event(db, job, EventKind.BACKFILL_RESUME, stamp, {"backfill": backfill})


def _of(job: str, backfill: str) -> ColumnElement[bool]:
    return and_(_R.job == job, _R.backfill == backfill)


def _set_paused(db: Connection, job: str, backfill: str, *, paused: bool) -> bool:
    """Pause or resume all runs of a backfill; return whether any run changed.

    Includes runs that have ended, so that a retried run waits like the others.
    """
    others = and_(_of(job, backfill), _R.paused == (false() if paused else true()))
    return bool(db.execute(update(runs).where(others).values(paused=paused)).rowcount)


def _stop(db: Connection, mine: ColumnElement[bool], now: datetime) -> int:
    stopped = {"state": RunState.STOPPED.value, "ended_us": micros(now)}
    queued = and_(mine, _R.state == RunState.QUEUED.value)
    running = and_(mine, _R.state == RunState.RUNNING.value)
    count = db.execute(update(runs).where(queued).values(stopped)).rowcount
    count += db.execute(update(runs).where(running).values(stop_asked=True)).rowcount
    return int(count)
