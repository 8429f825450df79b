"""What is kept of registrations, in each database."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import Job, JobState, Registration, Stamp
from headrace.store import JobStore, Place, RegistrationStore

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
ROW = Registration(
    engine="airflow",
    job="orders",
    uid="a",
    version=1,
    active=True,
    registered=False,
    changed=NOW,
)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def jobs(
    request: pytest.FixtureRequest, place_of: Callable[[str], Place]
) -> Iterator[JobStore]:
    made = JobStore(place_of(request.param))
    yield made
    made.close()


@pytest.fixture
def store(jobs: JobStore) -> RegistrationStore:
    return RegistrationStore(jobs.database)


def create(jobs: JobStore, name: str, engine: str | None) -> Job:
    wanted = Job(
        name=name,
        uid="",
        document={"name": name},
        version=1,
        state=JobState.CONFIGURED,
        cursor=NOW,
        due=NOW,
        engine=engine,
        changed=NOW,
        by="",
    )
    return jobs.create(wanted, None, Stamp(NOW, "ann"))


def test_a_registration_is_as_it_was_put_last(store: RegistrationStore) -> None:
    assert store.of_job("airflow", "orders") is None
    store.put(ROW)
    assert store.of_job("airflow", "orders") == ROW
    other = replace(ROW, registered=True, error="x", changed=NOW + timedelta(hours=1))
    store.put(other)
    assert store.of_engine("airflow") == [other]
    assert store.of_engine("others") == []


def test_only_the_registration_of_that_job_is_forgotten(store: RegistrationStore) -> None:
    store.put(ROW)
    store.put(replace(ROW, engine="others"))
    store.put(replace(ROW, job="others"))
    store.forget(replace(ROW, uid="b"))  # the job was made again meanwhile
    assert store.of_job("airflow", "orders") == ROW
    store.forget(ROW)
    assert store.of_job("airflow", "orders") is None
    assert [row.job for row in store.of_engine("airflow")] == ["others"]
    assert store.engines() == {"airflow", "others"}


def test_jobs_of_an_engine_are_not_due_by_our_own_schedule(
    jobs: JobStore, store: RegistrationStore
) -> None:
    made = create(jobs, "orders", "airflow")
    ours = create(jobs, "others", None)
    assert store.jobs("airflow") == [made]
    assert jobs.due(NOW, 10) == [ours]
    assert store.engines() == {"airflow"}


def test_the_secret_is_made_once_for_all_servers(
    jobs: JobStore, store: RegistrationStore
) -> None:
    secret = store.secret()
    assert len(secret) == 32
    assert RegistrationStore(jobs.database).secret() == secret
