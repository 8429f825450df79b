"""Alerts as rows: stored with what they tell of, and sent once, whoever sends them."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.test_job_store import ANN, create, hour, take, taken
from tests.waiting import until
from typing_extensions import override

from headrace.model import Counts, DeliveryState, RunState, Trigger
from headrace.sdk import Alert, AlertChannel, Boundaries
from headrace.sdk.config import Config
from headrace.sdk.errors import StaleEpochError
from headrace.store import (
    AlertStore,
    Delivery,
    JobStore,
    LateRun,
    NewAlert,
    NewRun,
    Place,
    Store,
)
from headrace.worker import AlertSender

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def jobs(
    request: pytest.FixtureRequest, place_of: Callable[[str], Place]
) -> Iterator[JobStore]:
    made = JobStore(place_of(request.param))
    yield made
    made.close()


@pytest.fixture
def store(jobs: JobStore) -> AlertStore:
    return AlertStore(jobs.database)


def alert(name: str = "a", *channels: str, job: str = "orders", at: datetime = NOW) -> NewAlert:
    made = Alert(
        id=name, kind="failed", at=at, job=job, subject="s", text="t", run=7, details={"n": 1}
    )
    return NewAlert(made, channels or ("log", "ops"))


def claim(
    store: AlertStore, channel: str = "log", owner: str = "w1", *dead: str, at: datetime = NOW
) -> Delivery | None:
    return store.claim(
        channel, owner, at, lease_now=at, expires=at + HOUR, dead=dead.__contains__
    )


def claimed(store: AlertStore, channel: str = "log", owner: str = "w1") -> Delivery:
    found = claim(store, channel, owner)
    assert found is not None
    return found


def test_an_alert_is_kept_as_it_is_for_each_channel(store: AlertStore) -> None:
    store.add([alert(), alert("b", "log")])
    store.add([alert(), alert("b", "ops")])  # what is there stays
    newest, oldest = store.alerts()
    assert (newest.alert, oldest.alert) == (alert("b").alert, alert().alert)
    ways = [(each.channel, each.state, each.attempts) for each in oldest.deliveries]
    assert ways == [
        ("log", DeliveryState.WAITING, 0),
        ("ops", DeliveryState.WAITING, 0),
    ]
    assert [each.channel for each in newest.deliveries] == ["log", "ops"]


def test_alerts_are_listed_newest_first_by_job_and_in_pages(store: AlertStore) -> None:
    for number in range(5):
        store.add([alert(f"{number}", job="others" if number == 2 else "orders")])
    first = store.alerts("orders", limit=3)
    assert [each.alert.id for each in first] == ["4", "3", "1"]
    rest = store.alerts("orders", before=first[-1].number, limit=3)
    assert [each.alert.id for each in rest] == ["0"]
    assert len(store.alerts()) == 5
    assert store.alerts("none") == []


def test_an_alert_that_is_claimed_is_nobody_elses(store: AlertStore) -> None:
    store.add([alert()])
    first = claimed(store)
    assert first.attempts == 1
    assert claim(store, "log", "w2") is None
    assert claim(store, "ops", "w2") is not None
    assert store.sent(first, NOW)
    assert claim(store, "log", "w2", at=NOW + 9 * HOUR) is None
    [stored] = store.alerts()
    assert [each.state for each in stored.deliveries] == ["sent", "waiting"]
    assert stored.deliveries[0].ended == NOW


def test_one_that_failed_comes_again_when_it_is_due(store: AlertStore) -> None:
    store.add([alert()])
    assert store.failed(claimed(store), NOW + HOUR, "It is away.")
    assert claim(store) is None
    again = claim(store, at=NOW + HOUR)
    assert again is not None
    assert (again.attempts, again.error) == (2, "It is away.")


def test_who_has_died_or_takes_too_long_loses_its_claim(store: AlertStore) -> None:
    store.add([alert()])
    first = claimed(store)
    second = claim(store, "log", "w2", "w1")
    assert second is not None
    assert not store.sent(first, NOW)  # it came late
    third = claim(store, "log", "w3", at=NOW + HOUR)
    assert third is not None
    assert store.sent(third, NOW)
    assert not store.failed(second, NOW, "x")


def test_of_many_that_claim_an_alert_one_gets_it(store: AlertStore) -> None:
    store.add([alert(f"{number}") for number in range(20)])
    with ThreadPoolExecutor(8) as pool:
        owners = [f"w{number}" for number in range(8)]
        found = list(pool.map(lambda owner: claim_all(store, owner), owners))
    got = [name for names in found for name in names]
    assert sorted(got) == sorted(f"{number}" for number in range(20))


def claim_all(store: AlertStore, owner: str) -> list[str]:
    names: list[str] = []
    misses = 0
    while misses < 3:  # all that it saw may have been claimed by others
        one = claim(store, "log", owner)
        misses += one is None
        if one is not None:
            names.append(one.alert.id)
    return names


def test_what_is_too_old_is_given_up_once_but_not_while_it_is_sent(store: AlertStore) -> None:
    store.add([alert("held", "log"), alert("old", "ops"), alert("new", "ops", at=NOW + HOUR)])
    claimed(store)
    [given] = store.give_up(NOW, NOW + HOUR, NOW)
    assert (given.alert.id, given.state) == ("old", DeliveryState.GIVEN_UP)
    assert store.give_up(NOW, NOW + HOUR, NOW) == []
    assert [each.alert.id for each in store.give_up(NOW, NOW + HOUR, NOW + HOUR)] == ["held"]
    assert claim(store, at=NOW + 9 * HOUR) is None


def test_only_what_does_not_wait_is_forgotten(store: AlertStore) -> None:
    store.add([alert("a", "log"), alert("b", "ops")])
    store.sent(claimed(store), NOW)
    assert store.prune(NOW - HOUR) == 0
    assert store.prune(NOW) == 1
    assert [each.alert.id for each in store.alerts()] == ["b"]


def test_an_end_and_its_alerts_are_one_transaction(jobs: JobStore, store: AlertStore) -> None:
    create(jobs)
    jobs.add_runs("orders", [hour(0)], ANN)
    first = taken(jobs)
    second = take(jobs, first, "w2")
    assert second is not None
    with pytest.raises(StaleEpochError):  # the end of an attempt that is another's now
        jobs.finish(first, RunState.FAILED, NOW, counts=Counts(), alerts=[alert("a")])
    assert store.alerts() == []
    jobs.finish(second, RunState.FAILED, NOW, counts=Counts(), alerts=[alert("b")])
    assert [each.alert.id for each in store.alerts()] == ["b"]


def test_a_late_run_is_told_of_once_though_several_look(
    jobs: JobStore, store: AlertStore
) -> None:
    create(jobs)
    backfilled = NewRun(
        boundaries=Boundaries.between(NOW - HOUR, NOW), trigger=Trigger.BACKFILL, due=NOW
    )
    jobs.add_runs("orders", [backfilled, *(hour(number) for number in range(4))], ANN)
    told: list[LateRun] = []

    def made(late: list[LateRun]) -> list[NewAlert]:
        told.extend(late)
        return [alert(f"late-{late[0].id}")]

    def look(_: int) -> int:
        return store.add_late("orders", NOW + 3 * HOUR, made)  # type: ignore[arg-type]  # a list

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(look, range(4)))
    assert sum(found) == 3
    assert [run.boundaries.times[0] for run in told] == [NOW + n * HOUR for n in range(3)]
    assert len(store.alerts()) == 1
    assert store.add_late("orders", NOW + 4 * HOUR, made) == 1  # type: ignore[arg-type]  # a list


@dataclass
class Kept(AlertChannel):
    """Keeps what it is sent, and is slow."""

    got: list[str]
    seen: threading.Event = field(default_factory=threading.Event)

    @override
    def configure(self, config: Config) -> None: ...

    @override
    def send(self, alert: Alert) -> None:
        self.seen.wait(0.005)
        self.got.append(alert.id)


def sender(
    jobs: JobStore, got: list[str], owner: str = "w1", dead: frozenset[str] = frozenset()
) -> AlertSender:
    clock = Store(jobs.database)
    return AlertSender(
        store=AlertStore(jobs.database),
        owner=owner,
        is_dead=dead.__contains__,
        clock=lambda: datetime.now(UTC),
        lease_clock=clock.now,
        channels={"ops": lambda: Kept(got)},
        interval=timedelta(milliseconds=10),
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_senders_send_each_alert_once(kind: str, place_of: Callable[[str], Place]) -> None:
    place, got = place_of(kind), list[str]()
    with closing(JobStore(place)) as here, closing(JobStore(place)) as there:
        store = AlertStore(here.database)
        with sender(here, got).sending(), sender(there, got, "w2").sending():
            for number in range(40):
                store.add([alert(f"{number}", "ops")])
            until(lambda: not store.has_waiting(["ops"], datetime.now(UTC)))
    assert sorted(got, key=int) == [f"{number}" for number in range(40)]


_DIES = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from tests.contract.test_alert_store import NOW, alert
from tests.contract.test_job_store import ANN, create, hour, taken
from headrace.model import Counts, RunState
from headrace.store import AlertStore, JobStore

place, when = sys.argv[1:]
jobs = JobStore(place if "://" in place else Path(place))
create(jobs)
jobs.add_runs("orders", [hour(0)], ANN)
run = taken(jobs)
jobs.finish(run, RunState.FAILED, NOW, counts=Counts(), alerts=[alert("a", "ops")])
if when == "while it is sent":
    far = NOW + timedelta(days=9999)
    AlertStore(jobs.database).claim(
        "ops", "dead", far, lease_now=NOW, expires=far, dead=lambda _: False
    )
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("when", ["before it is sent", "while it is sent"])
def test_an_alert_of_a_server_that_was_killed_is_sent_by_the_next(
    kind: str, when: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    root = str(Path(__file__).parents[2])
    died = subprocess.run(
        [sys.executable, "-c", _DIES, str(place), when], cwd=root, check=False
    )
    assert died.returncode == -9
    with closing(JobStore(place)) as jobs:
        assert [run.state for run in jobs.runs("orders")] == [RunState.FAILED]
        got: list[str] = []
        next_one = sender(jobs, got, "w2", dead=frozenset({"dead"}))
        next_one.drain(timedelta(seconds=20))
        assert got == ["a"]
        [stored] = AlertStore(jobs.database).alerts()
        assert [each.state for each in stored.deliveries] == [DeliveryState.SENT]
