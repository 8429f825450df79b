"""A PostgreSQL server that is read-only, says nothing, or goes on from a copy of itself."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import make_url
from tests.black_hole import black_hole
from tests.postgresql_server import PostgresqlServer
from tests.unit.worker.scripts import Told, now
from tests.waiting import until

from headrace.model import Backoff, Counts, TaskId, TaskState
from headrace.sdk import Lag, Position, ReadLimit
from headrace.sdk.errors import StaleEpochError
from headrace.store import Place, Store, StoreUnavailableError
from headrace.worker import BatchLoop, BatchTask, Worker

pytestmark = pytest.mark.timeout(180)
TASK = TaskId("orders", 0)
LEASE = timedelta(seconds=30)
ANSWER_SECONDS = 10


class Numbers:
    """A source that always has one more."""

    def __init__(self) -> None:
        self.at = 0

    def latest(self, start: Position, _limit: ReadLimit) -> Position:
        self.at += 1
        return Position.of({"p": 1}, {"o": self.at})

    def lag(self, *_: Any) -> Lag:
        return Lag()

    def ended(self, _: Position) -> bool:
        return False

    def acknowledge(self, _: Position) -> None: ...


@pytest.fixture
def url(place_of: Callable[[str], Place]) -> str:
    return f"{place_of('postgresql')}?connect_timeout=2"


def through(url: str, port: int) -> str:
    return make_url(url).set(port=port).render_as_string(hide_password=False)


@contextmanager
def moving(store: Store) -> Iterator[Worker]:
    """Let a worker move small batches for as long as this lasts."""

    def run(_: Any) -> Counts:
        time.sleep(0.02)
        return Counts(read=1, written=1)

    def assemble(lease: Any) -> Any:
        loop = BatchLoop(
            store=store,
            lease=lease,
            reader=Numbers(),
            flow=SimpleNamespace(run=run, routing=""),
            limit=ReadLimit(),
            clock=now,
        )
        return SimpleNamespace(loop=loop, close=lambda: None)

    jobs: Any = SimpleNamespace(
        run=lambda _, work: work(), cancel=lambda _: None, lost=lambda *_: False
    )
    task = BatchTask(
        TASK, assemble, lambda: jobs, backoff=Backoff(longest=timedelta(seconds=1))
    )
    worker = Worker(
        store=store,
        owner="me",
        events=Told(),
        clock=now,
        serving=True,
        lease=timedelta(seconds=6),
    )
    worker.add([task])
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop(timedelta(seconds=1))
        thread.join()


def moved(store: Store) -> int:
    return store.totals(TASK).written


def goes_on(store: Store) -> None:
    seen = set[int]()

    def more() -> bool:
        with suppress(StoreUnavailableError):  # some lines are given up after others are back
            seen.add(moved(store))
            return len(seen) > 2 and store.statuses()[TASK].state is TaskState.RUNNING
        return False

    until(more)


def test_tasks_go_on_by_themselves_after_the_server_was_read_only(
    postgresql: PostgresqlServer, url: str
) -> None:
    with closing(Store(url)) as store, moving(store):
        until(lambda: moved(store) > 2)
        with postgresql.read_only():
            with pytest.raises(StoreUnavailableError, match="read-only"):
                store.register("another")
            time.sleep(1)
        goes_on(store)


def test_a_server_that_is_stopped_is_given_up_in_time_and_by_all_at_once(
    postgresql: PostgresqlServer, url: str
) -> None:
    with closing(Store(url)) as store, moving(store):
        until(lambda: moved(store) > 2)
        with postgresql.suspended():
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                store.statuses()
            assert time.monotonic() - began < ANSWER_SECONDS
            began = time.monotonic()
            for _ in range(300):  # as the ends of so many tasks
                with pytest.raises(StoreUnavailableError):
                    store.statuses()
            assert time.monotonic() - began < ANSWER_SECONDS
        goes_on(store)


def test_a_line_that_swallows_everything_is_given_up_and_leaves_no_lock(
    postgresql: PostgresqlServer, url: str
) -> None:
    with (
        black_hole(postgresql.port) as line,
        closing(Store(through(url, line.port))) as store,
        moving(store),
    ):
        until(lambda: moved(store) > 2)
        line.silent = True
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            store.statuses()
        assert time.monotonic() - began < ANSWER_SECONDS
        line.silent = False
        goes_on(store)


def test_a_transaction_that_a_broken_line_left_behind_is_ended(url: str) -> None:
    with closing(Store(url)) as store:
        held = store.lease(TASK, "me", now(), LEASE)
        db = store._writer.connect()
        db.exec_driver_sql("SELECT * FROM tasks FOR UPDATE")
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            store.renew([held], now(), LEASE)

        def renewed() -> bool:
            try:
                return bool(store.renew([held], now(), LEASE))
            except StoreUnavailableError:
                return False

        until(renewed)
        db.invalidate()
        db.close()


def test_numbers_jump_when_the_database_goes_on_from_a_copy(
    postgresql: PostgresqlServer, url: str
) -> None:
    with closing(Store(url)) as store:
        epoch = store.lease(TASK, "me", now(), LEASE).epoch
        end = Position.of({"p": 1}, {"o": 1})
        done = store.begin_batch(TASK, epoch, Position(), end, now())
        store.finish_batch(TASK, epoch, done.id, Counts(), now())
        start = store.position(TASK)
        left = store.begin_batch(TASK, epoch, start, Position.of({"p": 1}, {"o": 2}), now())
        assert (done.id, left.id) == (1, 2)
    # What a dump leaves when it is loaded again: the same rows in another database.
    with postgresql.database(make_url(url).database or "") as copy:
        for _ in range(2):
            with closing(Store(copy)) as store:
                with pytest.raises(StaleEpochError):
                    store.set_position(TASK, epoch, start)  # whoever still holds the old one
                epoch = store.lease(TASK, "me", now(), LEASE).epoch
                assert store.unfinished_batch(TASK) is None
                for task in (TASK, TaskId("orders", 1)):
                    mine = store.lease(task, "me", now(), LEASE)
                    began = store.position(task)
                    end = Position.of({"p": 1}, {"o": 9})
                    batch = store.begin_batch(task, mine.epoch, began, end, now())
                    assert batch.id > 10**12
                    store.abandon_batch(task, mine.epoch, batch.id)


def test_an_intent_is_kept_and_numbers_jump_when_a_standby_is_promoted(
    postgresql: PostgresqlServer, url: str
) -> None:
    with closing(Store(url)) as store:
        epoch = store.lease(TASK, "me", now(), LEASE).epoch
        store.begin_batch(TASK, epoch, Position(), Position.of({"p": 1}, {"o": 1}), now())
    with (
        postgresql.standby() as standby,
        closing(Store(through(url, standby.port))) as store,
    ):
        with pytest.raises(StoreUnavailableError, match="read-only"):
            store.lease(TASK, "me", now(), LEASE)
        standby.execute("SELECT pg_promote()")
        lease = store.lease(TASK, "me", now(), LEASE)
        assert lease.epoch > epoch + 1000
        left = store.unfinished_batch(TASK)
        assert left is not None
        store.finish_batch(TASK, lease.epoch, left.id, Counts(), now())
        start = store.position(TASK)
        end = Position.of({"p": 1}, {"o": 2})
        assert store.begin_batch(TASK, lease.epoch, start, end, now()).id > 10**12
