"""What a PostgreSQL database might do to a store: its settings, and orders of locks."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, make_url, text
from tests.waiting import until

from headrace.model import TaskId
from headrace.sdk import Schema, StateError
from headrace.store import Place, ServerPlaces, Store
from headrace.store.database import open_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def url(place_of: Callable[[str], Place]) -> str:
    return str(place_of("postgresql"))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = open_database(url)
    yield made
    made.dispose()


def configure(engine: Engine, url: str, **settings: str) -> None:
    """Set what new connections to the database begin with."""
    with engine.begin() as db:
        for name, value in settings.items():
            db.execute(text(f'ALTER DATABASE "{make_url(url).database}" SET {name} = {value}'))


def somebody_waits(engine: Engine) -> bool:
    query = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with engine.connect() as db:
        return bool(db.execute(query).scalar_one())


def test_writers_agree_whatever_isolation_the_database_gives(engine: Engine, url: str) -> None:
    configure(engine, url, default_transaction_isolation="serializable")
    stores = [Store(url) for _ in range(6)]
    barrier = threading.Barrier(len(stores))

    def put(number: int) -> int:
        barrier.wait()
        schema = Schema.struct({f"f{number}": Schema.int32()})
        return stores[number].put_schema("orders", "s", schema)

    with ThreadPoolExecutor(len(stores)) as pool:
        assert sorted(pool.map(put, range(len(stores)))) == [1, 2, 3, 4, 5, 6]
    for store in stores:
        store.close()


@pytest.mark.parametrize(("set_", "found"), [("off", "on"), ("remote_apply", "remote_apply")])
def test_a_commit_waits_for_the_disk_whatever_the_database_says(
    engine: Engine, url: str, set_: str, found: str
) -> None:
    configure(engine, url, synchronous_commit=set_)
    again = open_database(url)
    with again.connect() as db:
        assert db.execute(text("SHOW synchronous_commit")).scalar_one() == found
    again.dispose()


def test_a_removal_locks_tasks_in_the_order_in_which_leases_are_renewed(
    engine: Engine, url: str
) -> None:
    # As if the planner knew of a large table: then rows come as they lie there.
    configure(engine, url, enable_indexscan="off", enable_bitmapscan="off")
    store = Store(url)
    for number in (1, 0):
        store.lease(TaskId("c", number), "w", NOW, LEASE)
    row = "SELECT * FROM tasks WHERE connector = 'c' AND number = {} FOR UPDATE"
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as renewing:
            renewing.execute(text(row.format(0)))
            removing = pool.submit(store.remove, "c")
            until(lambda: somebody_waits(engine))
            renewing.execute(text(row.format(1) + " NOWAIT"))
        removing.result()
    assert store.leases() == []
    store.close()


def test_a_place_that_is_kept_while_another_takes_it_stays_with_who_has_it(
    engine: Engine, url: str
) -> None:
    places = ServerPlaces(url)
    places.take("one", timedelta(), lambda _: False)  # its time has run out
    later = text("UPDATE servers SET expires_us = expires_us + 3600000000")
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as keeping:
            keeping.execute(later)
            taking = pool.submit(places.take, "two", LEASE, lambda _: False)
            until(lambda: somebody_waits(engine))
        with pytest.raises(StateError, match="one"):
            taking.result()
    places.keep("one", LEASE)
    places.close()
