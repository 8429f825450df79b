"""Backfills of jobs, each of which is the runs that name it: stopped, paused and resumed."""

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
    """What is done with all runs of a backfill at once. Any thread may call it."""

    def __init__(self, writer: Engine, finish: Callable[[Connection, str], None]) -> None:
        """``finish`` finishes a job with the last of its runs."""
        self._writer = writer
        self._finish = finish

    def is_paused(self, job: str, backfill: str) -> bool:
        """Return whether the runs of a backfill that wait are not to begin."""
        query = select(_R.id).where(_of(job, backfill), _R.paused == true()).limit(1)
        with self._writer.connect() as db:
            return db.execute(query).scalar() is not None

    def stop(self, job: str, backfill: str, stamp: Stamp) -> int:
        """Stop all runs of a backfill that have not ended; return how many.

        It is not paused any more then: a run that is tried again begins.
        """
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            count = _stop(db, _of(job, backfill), stamp.at)
            _set_paused(db, job, backfill, paused=False)
            self._finish(db, job)
            told = {"backfill": backfill, "runs": count}
            add_event(db, job, EventKind.BACKFILL_STOP, stamp, told)
            return count

    def pause(self, job: str, backfill: str, stamp: Stamp) -> None:
        """Let no more runs of a backfill begin; one that runs is finished.

        An attempt that fails meanwhile is tried again once the backfill is resumed. Raises
        JobChangedError for one that is paused, or has ended.
        """
        left = select(_R.id).where(_of(job, backfill), _R.state.in_(_UNENDED)).limit(1)
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            if db.execute(left).scalar() is None:
                problem = f"All runs of backfill {backfill} have ended."
                raise JobChangedError(problem, fix="Only one that has runs left is paused.")
            if not _set_paused(db, job, backfill, paused=True):
                fix = f"To let it go on: headrace job resume-backfill {job} {backfill}."
                problem = f"Backfill {backfill} is paused."
                raise JobChangedError(problem, fix=fix)
            add_event(db, job, EventKind.BACKFILL_PAUSE, stamp, {"backfill": backfill})

    def resume(self, job: str, backfill: str, stamp: Stamp) -> None:
        """Let the runs of a backfill begin again. Raises JobChangedError if they may."""
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            if not _set_paused(db, job, backfill, paused=False):
                problem = f"Backfill {backfill} is not paused."
                raise JobChangedError(problem, fix="Only one that is paused is resumed.")
            add_event(db, job, EventKind.BACKFILL_RESUME, stamp, {"backfill": backfill})


def _of(job: str, backfill: str) -> ColumnElement[bool]:
    return and_(_R.job == job, _R.backfill == backfill)


def _set_paused(db: Connection, job: str, backfill: str, *, paused: bool) -> bool:
    """Pause or resume all runs of a backfill, those too that have ended; say if any was not.

    So one of them that is tried again waits as the others do.
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
