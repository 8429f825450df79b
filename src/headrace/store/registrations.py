"""The registrations of jobs with external schedulers, as rows of a database."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, and_, delete, insert, select

from headrace.model import Job, Registration
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import Place, open_database
from headrace.store.job_rows import job_of
from headrace.store.tables import fact, jobs, micros, put_fact, registrations, time_of

_T = registrations.c
_SECRET = "callback_secret"  # noqa: S105 - the name of the fact, not its value
_SECRET_BYTES = 32


class RegistrationStore:
    """Registrations as rows. Safe for use by any thread of any process."""

    def __init__(self, place: Place) -> None:
        self._engine = open_database(place)
        self._writer = in_mode(self._engine, Mode.WRITE)

    def secret(self) -> bytes:
        """Return the key that signs callback tokens; created once for all servers."""
        with self._engine.connect() as db:
            found = fact(db, _SECRET)
        if found is None:
            with self._writer.begin() as db:
                lock_name(db, "fact", _SECRET)
                found = fact(db, _SECRET)
                if found is None:
                    found = secrets.token_hex(_SECRET_BYTES)
                    put_fact(db, _SECRET, found)
        return bytes.fromhex(str(found))

    def engines(self) -> set[str]:
        """Return the names of all engines in jobs and registrations."""
        named = select(jobs.c.engine).where(jobs.c.engine.is_not(None))
        with self._engine.connect() as db:
            return set(db.execute(named.union(select(_T.engine))).scalars())

    def jobs(self, engine: str) -> Sequence[Job]:
        """Return the jobs of an engine, by name."""
        query = select(jobs).where(jobs.c.engine == engine).order_by(jobs.c.name)
        with self._engine.connect() as db:
            return [job_of(row) for row in db.execute(query)]

    def of_engine(self, engine: str) -> Sequence[Registration]:
        """Return the registrations with an engine, by job name."""
        query = select(registrations).where(_T.engine == engine).order_by(_T.job)
        with self._engine.connect() as db:
            return [_registration(row) for row in db.execute(query)]

    def of_job(self, engine: str | None, job: str) -> Registration | None:
        """Return the registration of a job with an engine; None if there is none."""
        query = select(registrations).where(_T.engine == engine, _T.job == job)
        with self._engine.connect() as db:
            row = db.execute(query).one_or_none()
        return None if row is None else _registration(row)

    def put(self, row: Registration) -> None:
        """Store a registration, replacing the one of its job and engine."""
        with self._writer.begin() as db:
            lock_name(db, "registration", row.engine, row.job)
            db.execute(delete(registrations).where(_is(row)))
            db.execute(
                insert(registrations).values(
                    engine=row.engine,
                    job=row.job,
                    uid=row.uid,
                    version=row.version,
                    active=row.active,
                    registered=row.registered,
                    error=row.error,
                    changed_us=micros(row.changed),
                )
            )

    def forget(self, row: Registration) -> None:
        """Delete a registration, after the job was removed from the engine."""
        with self._writer.begin() as db:
            db.execute(delete(registrations).where(_is(row), _T.uid == row.uid))


def _is(row: Registration) -> Any:
    return and_(_T.engine == row.engine, _T.job == row.job)


def _registration(row: Row[Any]) -> Registration:
    return Registration(
        engine=row.engine,
        job=row.job,
        uid=row.uid,
        version=row.version,
        active=row.active,
        registered=row.registered,
        error=row.error,
        changed=time_of(row.changed_us),
    )
