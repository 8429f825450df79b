"""Offline jobs and their runs as rows of a database."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from headrace.model import (
    RUNNABLE,
    SCHEDULED,
    UNENDED,
    Counts,
    EventKind,
    Job,
    JobState,
    Run,
    RunState,
    Stamp,
    Trigger,
    is_realtime,
    memory_name,
)
from headrace.sdk import BoundaryKind
from headrace.sdk.position import Boundaries
from headrace.store.alert_store import NewAlert, add_alerts
from headrace.store.backfills import Backfills
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import Place, open_database
from headrace.store.errors import JobChangedError, JobExistsError
from headrace.store.job_rows import (
    check_apart,
    count_runs,
    existing_job,
    existing_run,
    is_window,
    job_of,
    job_row,
    run_of_row,
    update_held,
    windows_end,
    windows_of,
)
from headrace.store.rows import add_event, batch_left, forget_runs
from headrace.store.tables import jobs, micros, runs, schemas

_J, _R = jobs.c, runs.c
_SEEN = ("uid", "version", "state", "cursor_us")
"""The columns checked by a change of a job: if one has changed since, the change is refused."""
_RUNNABLE = [state.value for state in RUNNABLE]
_SCHEDULED = [state.value for state in SCHEDULED]
_WAITING = tuple(state.value for state in UNENDED)
_DONE = {RunState.SUCCEEDED, RunState.SKIPPED}
_LEFT = tuple(state.value for state in RunState if state not in _DONE)
_MAY_GO_ON = or_(_R.paused == false(), _R.state == RunState.RUNNING.value)
"""The run is not held back by a pause of its backfill; a running run finishes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to create, unless its window already has a run."""

    boundaries: Boundaries
    trigger: Trigger
    due: datetime
    state: RunState = RunState.QUEUED
    backfill: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """A change of a job, with an optimistic check of its old state.

    Args:
        seen: The job as it was read.
        wanted: The job after the change.
        event: The event to add; None for internal changes.
        after: The job whose runs trigger this job; used if the document changes.
        made: Runs to create; a window that already has a run keeps it (Guarantee 5).
        detail: Additional details of the event.
        alerts: The alerts to add.
    """

    seen: Job
    wanted: Job
    event: EventKind | None = None
    after: str | None = None
    made: Sequence[NewRun] = ()
    detail: Mapping[str, object] | None = None
    alerts: Sequence[NewAlert] = ()


class JobStore:
    """Jobs and their runs as rows: the control plane writes them, workers take runs.

    Safe for use by any thread of any process. Every write is durable on return, together with
    its event.
    """

    def __init__(self, place: Place) -> None:
        self._engine = open_database(place)
        self._writer = in_mode(self._engine, Mode.WRITE)
        self.backfills = Backfills(self._writer, _finish_job)

    @property
    def database(self) -> Engine:
        return self._engine

    def close(self) -> None:
        """Close files and connections."""
        self._engine.dispose()

    def create(self, wanted: Job, after: str | None, stamp: Stamp) -> Job:
        """Add a job with a new uid. Raises JobExistsError."""
        made = replace(wanted, uid=uuid.uuid4().hex[:12], version=1)
        with self._writer.begin() as db:
            lock_name(db, "job", made.name)
            if job_row(db, made.name) is not None:
                problem = f"Job {made.name} already exists."
                raise JobExistsError(problem, field="name", fix="Choose another name.")
            db.execute(
                insert(jobs).values(
                    name=made.name, uid=made.uid, after=after, **_values(made, stamp)
                )
            )
            add_event(db, made.name, EventKind.JOB_CREATED, stamp, {"state": made.state})
        return replace(made, changed=stamp.at, by=stamp.by)

    def job(self, name: str) -> Job:
        """Return a job. Raises JobNotFoundError."""
        with self._engine.connect() as db:
            return job_of(existing_job(db, name))

    def jobs(self) -> Sequence[Job]:
        """Return all jobs, by name."""
        with self._engine.connect() as db:
            return [job_of(row) for row in db.execute(select(jobs).order_by(_J.name))]

    def due(self, now: datetime, limit: int) -> Sequence[Job]:
        """Return scheduled jobs with a due window, the longest due first.

        Excludes jobs that an external scheduler wakes.
        """
        scheduled = and_(
            _J.state.in_([state.value for state in SCHEDULED]), _J.engine.is_(None)
        )
        query = select(jobs).where(_J.due_us <= micros(now), scheduled)
        with self._engine.connect() as db:
            return [job_of(row) for row in db.execute(query.order_by(_J.due_us).limit(limit))]

    def in_states(self, states: Collection[JobState]) -> Sequence[Job]:
        """Return the jobs in any of the states, by name."""
        query = select(jobs).where(_J.state.in_([state.value for state in states]))
        with self._engine.connect() as db:
            return [job_of(row) for row in db.execute(query.order_by(_J.name))]

    def change(self, change: JobChange, stamp: Stamp) -> Job:
        """Change a job and create its runs, in one transaction.

        Raises JobChangedError if the job has changed since it was read.
        """
        with self._writer.begin() as db:
            if not _changed(db, change, stamp):
                name = change.seen.name
                existing_job(db, name)
                problem = f"Job {name} was changed concurrently."
                raise JobChangedError(problem, fix="Check the job, and try again.")
        return replace(change.wanted, changed=stamp.at, by=stamp.by)

    def change_all(self, changes: Sequence[JobChange], stamp: Stamp) -> Sequence[JobChange]:
        """Make changes in one transaction; return those whose jobs had not changed."""
        if not changes:
            return ()
        with self._writer.begin() as db:
            in_order = sorted(changes, key=lambda each: each.seen.name)
            return [each for each in in_order if _changed(db, each, stamp)]

    def delete(self, name: str, stamp: Stamp) -> None:
        """Delete a job, its runs, and the stored state of their tasks.

        Raises JobNotFoundError; JobChangedError while one of its runs is running.
        """
        with self._writer.begin() as db:
            lock_name(db, "job", name)
            existing_job(db, name)
            mine = _R.job == name
            running = mine & (_R.state == RunState.RUNNING.value)
            for number in db.execute(select(_R.id).where(running).limit(1)).scalars():
                problem = f"Run {number} of job {name} is running."
                fix = f"Stop it first: headrace job stop-run {name} {number}."
                raise JobChangedError(problem, fix=fix)
            # Runs that were never taken have no task state.
            begun = db.execute(select(runs).where(mine, _R.epoch > 0)).all()
            found = [run_of_row(row) for row in begun]
            forget_runs(db, [text for run in found for text in (run.task_name, run.name)])
            db.execute(delete(schemas).where(schemas.c.connector == memory_name(name)))
            db.execute(delete(runs).where(mine))
            db.execute(delete(jobs).where(_J.name == name))
            add_event(db, name, EventKind.JOB_DELETED, stamp, {})

    def add_runs(
        self, job: str, made: Sequence[NewRun], stamp: Stamp, *, apart: bool = False
    ) -> int:
        """Create runs for windows without one; return how many.

        With ``apart`` the windows must not overlap others. Raises JobNotFoundError, or
        JobChangedError if they do.
        """
        with self._writer.begin() as db:
            lock_name(db, "job", job)
            existing_job(db, job)
            if apart:
                check_apart(db, job, [each.boundaries for each in made])
            before = count_runs(db, job)
            _insert(db, job, made, stamp)
            return count_runs(db, job) - before

    def tell(
        self, job: str, kind: EventKind, stamp: Stamp, detail: Mapping[str, object]
    ) -> None:
        """Add an event for an operation on a job."""
        with self._writer.begin() as db:
            add_event(db, job, kind, stamp, detail)

    def run(self, number: int) -> Run:
        """Return a run. Raises RunNotFoundError."""
        with self._engine.connect() as db:
            return run_of_row(existing_run(db, number))

    def run_of(self, job: str, boundaries: Boundaries) -> Run | None:
        """Return the run of a window; None if it has none."""
        query = select(runs).where(is_window(job, boundaries))
        with self._engine.connect() as db:
            row = db.execute(query).one_or_none()
            return None if row is None else run_of_row(row)

    def runs(
        self,
        job: str,
        *,
        states: Collection[RunState] = (),
        backfill: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[Run]:
        """Return a job's runs, newest first; with ``before``, only runs with lower numbers."""
        query = select(runs).where(_R.job == job)
        if states:
            query = query.where(_R.state.in_([state.value for state in states]))
        if backfill is not None:
            query = query.where(_R.backfill == backfill)
        if before is not None:
            query = query.where(_R.id < before)
        with self._engine.connect() as db:
            rows = db.execute(query.order_by(_R.id.desc()).limit(limit))
            return [run_of_row(row) for row in rows]

    def live_runs(self, job: str) -> Sequence[Run]:
        """Return a job's real-time runs: one for each lower bound."""
        query = select(runs).where(_R.job == job, _R.trigger == Trigger.REALTIME.value)
        with self._engine.connect() as db:
            return [run_of_row(row) for row in db.execute(query)]

    def windows(self, job: str, lower: datetime, upper: datetime) -> Sequence[Boundaries]:
        """Return the windows of a job's runs that overlap a time range."""
        with self._engine.connect() as db:
            return windows_of(db, job, lower, upper)

    def windows_end(self, job: str) -> datetime | None:
        """Return the end of the last window of a job's runs; None if there is none."""
        with self._engine.connect() as db:
            return windows_end(db, job)

    def counts(self, job: str, backfill: str | None = None) -> Mapping[RunState, int]:
        """Return the number of runs of a job, or of one of its backfills, in each state."""
        query = select(_R.state, func.count()).where(_R.job == job).group_by(_R.state)
        if backfill is not None:
            query = query.where(_R.backfill == backfill)
        with self._engine.connect() as db:
            return Counter({RunState(state): count for state, count in db.execute(query)})

    def is_busy(self, job: str) -> bool:
        """Return whether a run of a job waits or runs, ignoring waits of paused backfills."""
        query = select(_R.id).where(_R.job == job, _R.state.in_(_WAITING), _MAY_GO_ON)
        with self._engine.connect() as db:
            return db.execute(query.limit(1)).scalar() is not None

    def is_coming(self, job: str, now: datetime) -> bool:
        """Return whether a run of a job is running, or has a retry scheduled for later."""
        runs_now = _R.state == RunState.RUNNING.value
        later = and_(_R.state == RunState.QUEUED.value, _R.due_us > micros(now), _MAY_GO_ON)
        query = select(_R.id).where(_R.job == job, or_(runs_now, later))
        with self._engine.connect() as db:
            return db.execute(query.limit(1)).scalar() is not None

    def has_waiting(self, live: Run) -> bool:
        """Return whether a window waits to be read in the job of a real-time run."""
        query = select(_R.id).where(
            _R.job == live.job,
            _R.id != live.id,
            _R.state == RunState.QUEUED.value,
            _R.paused == false(),
        )
        with self._engine.connect() as db:
            return db.execute(query.limit(1)).scalar() is not None

    def waiting(
        self,
        now: datetime,
        lease_now: datetime,
        dead: Callable[[str], bool],
        limit: int,
        *,
        job: str | None = None,
    ) -> Sequence[Run]:
        """Return runs that may be taken: due runs, and running ones without a live worker.

        Runs of a job that may not run are included only if they are to be stopped, and runs of
        a paused backfill only if they had begun.

        Args:
            now: The time of day.
            lease_now: The time by which leases expire, see ``Store.now``.
            dead: Returns whether an owner is known to have ended.
            limit: The maximum number of runs per job and backfill; the earliest are returned.
            job: Only runs of this job; None for all jobs.
        """
        queued = and_(_R.state == RunState.QUEUED.value, _R.due_us <= micros(now))
        held = _R.state == RunState.RUNNING.value
        active = select(_J.name).where(_J.state.in_(_RUNNABLE))
        may_begin = or_(_R.job.in_(active), _R.stop_asked)
        # Limit per kind: runs of one kind that all have to wait must not hide other runs.
        kind = (_R.job, _R.backfill, _R.trigger == Trigger.REALTIME.value, _R.state)
        order = (_R.due_us, _R.lower, _R.id)
        place = func.row_number().over(partition_by=kind, order_by=order).label("place")
        query = select(_R.id, place).where(or_(queued, held), may_begin, _MAY_GO_ON)
        if job is not None:
            query = query.where(_R.job == job)
        first = query.subquery()
        chosen = select(runs).join(first, first.c.id == _R.id)
        chosen = chosen.where(or_(first.c.place <= limit, held)).order_by(*order)
        with self._engine.connect() as db:
            return [
                run_of_row(row)
                for row in db.execute(chosen)
                if row.owner is None or row.expires_us <= micros(lease_now) or dead(row.owner)
            ]

    def take(
        self,
        seen: Run,
        owner: str,
        now: datetime,
        expires: datetime,
        side_by_side: int,
        *,
        in_order: bool,
    ) -> Run | None:
        """Take a waiting run with the next epoch; return None if that is not possible now.

        Args:
            seen: The run as it was read.
            owner: The new owner.
            now: The time.
            expires: When the lease expires, unless it is renewed.
            side_by_side: How many runs of the same backfill, or of the job outside of
                backfills, may run at a time.
            in_order: Whether all earlier windows must have succeeded.
        """
        with self._writer.begin() as db:
            lock_name(db, "job", seen.job)
            job = job_row(db, seen.job)
            if job is None or not (job.state in _RUNNABLE or seen.stop_asked):
                return None
            others = and_(_R.job == seen.job, _R.id != seen.id)
            if seen.is_live:
                # Waiting windows come first, so that they do not overwrite later rows.
                waits = and_(others, _R.state.in_(_WAITING), _MAY_GO_ON)
                left = select(_R.id).where(waits).limit(1)
                if db.execute(left).scalar() is not None:
                    return None
            elif not seen.stop_asked:
                live = select(_R.id).where(
                    others,
                    _R.trigger == Trigger.REALTIME.value,
                    _R.state == RunState.RUNNING.value,
                )
                if db.execute(live.limit(1)).scalar() is not None:
                    return None  # the real-time run yields after its batch
            running = select(func.count()).where(
                others,
                _R.state == RunState.RUNNING.value,
                _R.trigger != Trigger.REALTIME.value,
                _is(_R.backfill, seen.backfill),
            )
            if db.execute(running).scalar_one() >= side_by_side:
                return None
            # One at a time means in order, even if an earlier run waits for a retry.
            is_time = seen.boundaries.kind is BoundaryKind.TIME and not seen.is_live
            one_by_one = side_by_side == 1 and is_time and not seen.stop_asked
            if in_order or one_by_one:
                waits = and_(_R.state == RunState.QUEUED.value, _MAY_GO_ON)
                mine = and_(waits, _is(_R.backfill, seen.backfill))
                earlier = select(_R.id).where(
                    others,
                    _R.trigger != Trigger.REALTIME.value,
                    _R.lower < (seen.boundaries.lower or ""),
                    _R.state.in_(_LEFT) if in_order else mine,
                )
                if db.execute(earlier.limit(1)).scalar() is not None:
                    return None
            same = and_(
                _R.id == seen.id, _R.epoch == seen.epoch, _R.state.in_(_WAITING), _MAY_GO_ON
            )
            if seen.held_until is not None:  # its owner may have renewed the lease since
                same = and_(same, _R.expires_us == micros(seen.held_until))
            taken = {
                "state": RunState.RUNNING.value,
                "owner": owner,
                "expires_us": micros(expires),
                "epoch": seen.epoch + 1,
                "attempt": seen.attempt + 1,
                "deaths": seen.deaths + (seen.state is RunState.RUNNING),
                "began_us": micros(now),
                "ended_us": None,
                "error": None,
            }
            if db.execute(update(runs).where(same).values(taken)).rowcount != 1:
                return None
            if job.state == JobState.CONFIGURED.value:
                first = update(jobs).where(_J.name == seen.job, _J.uid == job.uid)
                db.execute(first.values(state=JobState.RUNNING.value))
            return run_of_row(existing_run(db, seen.id))

    def renew(self, owner: str, held: Collection[Run], expires: datetime) -> Sequence[Run]:
        """Renew the leases of runs; return the runs that are still held, as stored now."""
        epochs = {run.id: run.epoch for run in held}
        mine = and_(_R.owner == owner, _R.id.in_(epochs))
        with self._writer.begin() as db:
            db.execute(update(runs).where(mine).values(expires_us=micros(expires)))
            rows = db.execute(select(runs).where(mine)).all()
        return [run_of_row(row) for row in rows if row.epoch == epochs[row.id]]

    def progress(
        self,
        run: Run,
        counts: Counts,
        error: str | None,
        alerts: Sequence[NewAlert] = (),
    ) -> None:
        """Store the counts of an attempt, its current error if any, and alerts about that.

        Raises StaleEpochError.
        """
        with self._writer.begin() as db:
            update_held(db, run, {"counts": counts.to_json(), "error": error})
            add_alerts(db, alerts)

    def started(self, run: Run, application: str | None) -> None:
        """Store the Spark application that an attempt runs in. Raises StaleEpochError."""
        with self._writer.begin() as db:
            update_held(db, run, {"application": application})

    def finish(
        self,
        run: Run,
        state: RunState,
        now: datetime,
        *,
        counts: Counts,
        error: str | None = None,
        due: datetime | None = None,
        alerts: Sequence[NewAlert] = (),
        counted: bool = True,
        died: bool = False,
        version: int | None = None,
    ) -> Run:
        """End an attempt, and release the run.

        Args:
            run: The run as it was taken.
            state: The resulting state; QUEUED for another attempt.
            now: The time.
            counts: The record counts of the run.
            error: Why the attempt failed.
            due: When the next attempt is due.
            alerts: Alerts to add in the same transaction.
            counted: Whether this counts as an attempt; False if it was ended from outside.
            died: Whether the worker or Spark died.
            version: The version of the job's document with which a real-time run was opened.
                If the job has another version by now, the run is queued again, however it
                ended. None to skip this check.

        Raises StaleEpochError: another worker has taken the run (Guarantee 3).
        """
        values: dict[str, object] = {
            "state": state.value,
            "owner": None,
            "expires_us": None,
            "ended_us": micros(now),
            "counts": counts.to_json(),
            "error": error,
        }
        if due is not None:
            values["due_us"] = micros(due)
        if not counted:
            values["attempt"] = run.attempt - 1
        if died:
            values["deaths"] = run.deaths + 1
        with self._writer.begin() as db:
            lock_name(db, "job", run.job)
            job = job_row(db, run.job)
            in_real_time = job is not None and is_realtime(json.loads(job.document))
            newest = version if job is None else job.version
            if in_real_time and version is not None and version != newest:
                values |= {"state": RunState.QUEUED.value, "due_us": micros(now)}
            update_held(db, run, values)
            if values["state"] == RunState.SUCCEEDED.value and run.is_live:
                # The source of the real-time run has an end.
                ended = and_(_J.name == run.job, _J.state == JobState.RUNNING.value)
                if in_real_time:
                    over = update(jobs).where(ended)
                    db.execute(over.values(state=JobState.FINISHED.value))
            elif state is RunState.SUCCEEDED:
                _run_followers(db, run, now)
            _finish_job(db, run.job)
            add_alerts(db, alerts)
            return run_of_row(existing_run(db, run.id))

    def ask_to_stop(self, number: int, stamp: Stamp) -> Run:
        """Request that a run stops; a queued run is stopped at once.

        Raises RunNotFoundError, or JobChangedError if the run has ended.
        """
        with self._writer.begin() as db:
            row = existing_run(db, number)
            queued = row.state == RunState.QUEUED.value
            values: dict[str, object] = {"stop_asked": True}
            if queued:
                values |= {"state": RunState.STOPPED.value, "ended_us": micros(stamp.at)}
            same = and_(_R.id == number, _R.state == row.state, _R.state.in_(_WAITING))
            if db.execute(update(runs).where(same).values(values)).rowcount != 1:
                problem = f"Run {number} is {row.state}."
                raise JobChangedError(problem, fix="Stop only runs that wait or run.")
            _finish_job(db, row.job)
            add_event(db, row.job, EventKind.RUN_STOP, stamp, {"run": number})
            return run_of_row(existing_run(db, number))

    def run_again(self, number: int, stamp: Stamp, *, from_beginning: bool) -> Run:
        """Queue a run that has ended again.

        It continues where it was, so that nothing is written twice, or from the beginning, so
        that its complete window is read and written again. Raises RunNotFoundError, or
        JobChangedError if the run waits or runs, or if another worker may still write one of
        its batches.
        """
        with self._writer.begin() as db:
            row = existing_run(db, number)
            values: dict[str, object] = {
                "state": RunState.QUEUED.value,
                "due_us": micros(stamp.at),
                "attempt": 0,
                "deaths": 0,
                "stop_asked": False,
                "error": None,
            }
            if from_beginning:
                values |= {"generation": row.generation + 1, "counts": None}
            same = and_(_R.id == number, _R.epoch == row.epoch, _R.state.not_in(_WAITING))
            if db.execute(update(runs).where(same).values(values)).rowcount != 1:
                problem = f"Run {number} is {row.state}."
                raise JobChangedError(problem, fix="Wait until it has ended, or stop it.")
            if from_beginning:
                if (batch := batch_left(db, run_of_row(row).task_name)) is not None:
                    problem = (
                        f"A worker left batch {batch.id} of run {number} unfinished and may "
                        "still write it, after the rows that are written again."
                    )
                    retry = f"headrace job retry {row.job} {number}"
                    fix = f"Retry the run first, so that it finishes the batch: {retry}."
                    raise JobChangedError(problem, field="run", fix=fix)
                forget_runs(db, [run_of_row(row).task_name])
            detail = {"run": number, "from_beginning": from_beginning}
            add_event(db, row.job, EventKind.RUN_AGAIN, stamp, detail)
            return run_of_row(existing_run(db, number))


def _is(column: ColumnElement[Any], value: object) -> ColumnElement[bool]:
    return column.is_(None) if value is None else column == value


def _values(job: Job, stamp: Stamp) -> dict[str, object]:
    return {
        "document": json.dumps(dict(job.document)),
        "version": job.version,
        "state": job.state.value,
        "cursor_us": None if job.cursor is None else micros(job.cursor),
        "due_us": None if job.due is None else micros(job.due),
        "why": job.why,
        "engine": job.engine,
        "changed_us": micros(stamp.at),
        "by": stamp.by,
    }


def _changed(db: Connection, change: JobChange, stamp: Stamp) -> bool:
    """Make a change; return False if the job has changed since it was read."""
    seen, wanted = change.seen, change.wanted
    values = _values(wanted, stamp)
    if wanted.version != seen.version:
        values["after"] = change.after
    before = _values(seen, stamp) | {"uid": seen.uid}
    same = and_(_J.name == seen.name, *(_is(_J[key], before[key]) for key in _SEEN))
    if db.execute(update(jobs).where(same).values(values)).rowcount != 1:
        return False
    _insert(db, seen.name, change.made, stamp)
    add_alerts(db, change.alerts)
    if change.event is not None:
        detail = {"state": wanted.state, "version": wanted.version, **(change.detail or {})}
        add_event(db, seen.name, change.event, stamp, detail)
    return True


def _insert(db: Connection, job: str, made: Sequence[NewRun], stamp: Stamp) -> None:
    """Create runs, except for windows that already have one."""
    if not made:
        return
    dialect = postgresql if db.dialect.name == "postgresql" else sqlite
    rows = [
        {
            "job": job,
            "kind": each.boundaries.kind.value,
            "lower": each.boundaries.lower or "",
            "upper": each.boundaries.upper or "",
            "state": each.state.value,
            "trigger": each.trigger.value,
            "by": stamp.by,
            "due_us": micros(each.due),
            "backfill": each.backfill,
            "attempt": 0,
            "generation": 1,
            "epoch": 0,
            "stop_asked": False,
            "error": each.error,
        }
        for each in made
    ]
    db.execute(dialect.insert(runs).on_conflict_do_nothing(), rows)
    for each in made:
        if each.trigger is Trigger.REALTIME:  # an existing run that has ended continues
            ended = and_(is_window(job, each.boundaries), _R.state.not_in(_WAITING))
            again = {"state": each.state.value, "due_us": micros(each.due), "stop_asked": False}
            live = _R.trigger == Trigger.REALTIME.value
            db.execute(update(runs).where(ended, live).values(again))


def _run_followers(db: Connection, run: Run, now: datetime) -> None:
    """Create runs of the same window for the jobs that follow the run's job."""
    # Also for a job that may not run now: its runs wait, as they would not be created later.
    begun = _J.state != JobState.DRAFT.value
    names = db.execute(select(_J.name).where(_J.after == run.job, begun)).scalars().all()
    made = NewRun(boundaries=run.boundaries, trigger=Trigger.AFTER, due=now)
    for name in names:
        _insert(db, name, [made], Stamp(now, run.job))


def _finish_job(db: Connection, name: str) -> None:
    """Mark a job as finished if its schedule has no window left and all runs have ended."""
    row = job_row(db, name)
    if row is None or row.state not in _SCHEDULED or row.cursor_us is not None:
        return
    left = select(_R.id).where(_R.job == name, _R.state.in_(_WAITING)).limit(1)
    has_windows = row.after is None and json.loads(row.document).get("schedule") is not None
    if has_windows and db.execute(left).scalar() is None:
        finished = update(jobs).where(_J.name == name, _J.uid == row.uid)
        db.execute(finished.values(state=JobState.FINISHED.value))
