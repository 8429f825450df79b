"""What every store does, whatever it is made of."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.model import BatchState, Counts, TaskId, TaskState, TaskStatus
from headrace.sdk import Position, Schema, StateError
from headrace.sdk.errors import StaleEpochError
from headrace.store import Place, Store

TASK = TaskId("orders", 0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
START = Position()
ONE = Position.of({"file": "a"}, {"line": 1})
TWO = Position.of({"file": "a"}, {"line": 2})


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, place_of: Callable[[str], Place]):
    made: Store = Store(place_of(request.param))
    yield made
    made.close()


def epoch_of(store: Store, owner: str = "worker") -> int:
    return store.lease(TASK, owner, NOW, LEASE).epoch


def test_an_identity_is_made_once_and_anew_after_removal(store: Store) -> None:
    first = store.register("orders")
    assert store.register("orders") == first
    store.remove("orders")
    assert store.register("orders") != first


def test_each_lease_has_the_next_epoch(store: Store) -> None:
    assert [epoch_of(store), epoch_of(store)] == [1, 2]


def test_a_lease_is_refused_to_another_owner_until_it_expires(store: Store) -> None:
    store.lease(TASK, "first", NOW, LEASE)
    with pytest.raises(StateError, match="run by first"):
        store.lease(TASK, "second", NOW + LEASE - timedelta(microseconds=1), LEASE)
    assert store.lease(TASK, "second", NOW + LEASE, LEASE).epoch == 2


def test_a_renewed_lease_lasts_longer_and_a_released_one_is_free(store: Store) -> None:
    first = store.lease(TASK, "first", NOW, LEASE)
    lease = store.renew([first], NOW + LEASE / 2, LEASE)[TASK]
    with pytest.raises(StateError):
        store.lease(TASK, "second", NOW + LEASE, LEASE)
    assert [held.owner for held in store.leases()] == ["first"]
    assert list(store.leases("orders")) == list(store.leases())
    assert list(store.leases("other")) == []
    store.release(lease)
    assert list(store.leases()) == []
    assert store.lease(TASK, "second", NOW, LEASE).epoch == 2


def test_only_leases_that_are_still_held_are_renewed(store: Store) -> None:
    tasks = [TaskId(name, n) for name in ("a", "b") for n in range(2)]
    held = {task: store.lease(task, "first", NOW, LEASE) for task in tasks}
    given_up, taken, *kept = tasks
    store.release(held[given_up])
    store.lease(taken, "second", NOW + LEASE, LEASE)
    renewed = store.renew(held.values(), NOW + LEASE, LEASE)
    assert {task: lease.expires for task, lease in renewed.items()} == dict.fromkeys(
        kept, NOW + 2 * LEASE
    )
    owners = {lease.task: lease.owner for lease in store.leases()}
    assert owners == {taken: "second", **dict.fromkeys(kept, "first")}
    assert {lease.task: lease for lease in store.leases()}.items() >= renewed.items()
    assert store.renew([], NOW, LEASE) == {}


def test_a_lease_is_taken_and_ended_with_a_state(store: Store) -> None:
    running, failed = TaskStatus(TaskState.RUNNING), TaskStatus(TaskState.FAILED, "why")
    lease = store.lease(TASK, "first", NOW, LEASE, running)
    assert store.statuses("orders") == {TASK: running}
    store.end(lease, failed, NOW)
    assert store.statuses("orders") == {TASK: failed}
    assert list(store.leases()) == []
    store.lease(TASK, "second", NOW, LEASE)
    assert store.statuses("orders") == {TASK: failed}


def test_starts_after_a_failure_are_counted(store: Store) -> None:
    running = TaskStatus(TaskState.RUNNING)
    failed = TaskStatus(TaskState.FAILED, "why", NOW + LEASE)
    for count in range(3):
        lease = store.lease(TASK, "first", NOW, LEASE, running)
        assert store.statuses("orders") == {TASK: replace(running, restarts=count)}
        store.end(lease, failed, NOW)
        assert store.statuses("orders") == {TASK: replace(failed, restarts=count)}
    lease = store.lease(TASK, "first", NOW, LEASE, running)
    store.end(lease, TaskStatus(TaskState.PAUSED), NOW)
    store.lease(TASK, "first", NOW, LEASE, running)
    assert store.statuses("orders")[TASK].restarts == 3


def test_a_removed_connector_leaves_nothing_behind_by_whoever_is_late(store: Store) -> None:
    old = store.register("orders")
    store.lease(TASK, "first", NOW, LEASE, identity=old)
    schema = Schema.struct({"id": Schema.int64()})
    assert store.put_schema("orders", "s", schema, identity=old) == 1
    store.remove("orders")

    def late() -> None:
        with pytest.raises(StaleEpochError, match="orders was removed"):
            store.lease(TASK, "first", NOW, LEASE, identity=old)
        with pytest.raises(StaleEpochError, match="orders was removed"):
            store.put_schema("orders", "s", schema, identity=old)
        assert store.statuses("orders") == {}
        assert store.schema("orders", "s") is None

    late()
    store.register("orders")
    late()


def test_whoever_does_not_stop_is_refused_from_then_on(store: Store) -> None:
    lease = store.lease(TASK, "first", NOW, LEASE)
    batch = store.begin_batch(TASK, lease.epoch, START, ONE, NOW)
    store.fence(lease, TaskStatus(TaskState.PAUSED), NOW)
    assert list(store.leases()) == []
    assert store.statuses("orders") == {TASK: TaskStatus(TaskState.PAUSED)}
    for write in (
        lambda: store.finish_batch(TASK, lease.epoch, batch.id, Counts(), NOW),
        lambda: store.end(lease, TaskStatus(TaskState.FAILED), NOW),
        lambda: store.fence(lease, TaskStatus(TaskState.PAUSED), NOW),
    ):
        with pytest.raises(StaleEpochError):
            write()
    assert store.renew([lease], NOW, LEASE) == {}
    assert store.unfinished_batch(TASK) == batch
    assert store.lease(TASK, "second", NOW, LEASE).epoch > lease.epoch + 1


def test_every_write_under_a_stale_epoch_is_refused(store: Store) -> None:
    old = store.lease(TASK, "first", NOW, LEASE)
    store.begin_batch(TASK, old.epoch, START, ONE, NOW)
    store.lease(TASK, "second", NOW + LEASE, LEASE)
    status = TaskStatus(TaskState.RUNNING)
    for write in (
        lambda: store.begin_batch(TASK, old.epoch, START, ONE, NOW),
        lambda: store.finish_batch(TASK, old.epoch, 1, Counts(), NOW),
        lambda: store.abandon_batch(TASK, old.epoch, 1),
        lambda: store.set_position(TASK, old.epoch, ONE),
        lambda: store.end(old, status, NOW),
        lambda: store.ledger_append(TASK, old.epoch, [{"path": "a"}]),
    ):
        with pytest.raises(StaleEpochError):
            write()
    assert store.position(TASK) == START
    assert store.ledger_length(TASK) == 0


def test_an_unfinished_batch_is_kept_with_its_bounds(store: Store) -> None:
    epoch = epoch_of(store)
    begun = store.begin_batch(TASK, epoch, START, ONE, NOW, routing="by shard")
    found = store.unfinished_batch(TASK)
    assert found is not None
    assert (found.id, found.start, found.end, found.begun) == (1, START, ONE, NOW)
    assert found == begun
    assert found.routing == "by shard"
    assert store.position(TASK) == START


def test_finishing_a_batch_moves_the_position_and_keeps_the_counts(store: Store) -> None:
    epoch = epoch_of(store)
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    counts = Counts(read=5, written=3, filtered=1, rejected=1, filters={"f": 1})
    done = store.finish_batch(TASK, epoch, 1, counts, NOW)
    assert done.state is BatchState.FINISHED
    assert store.unfinished_batch(TASK) is None
    assert store.position(TASK) == ONE
    assert store.totals(TASK) == counts
    assert store.all_totals() == store.all_totals("orders") == {TASK: counts}
    assert store.all_totals("other") == {}
    assert list(store.batches(TASK)) == [done]


def test_finishing_the_newest_batch_again_changes_nothing(store: Store) -> None:
    epoch = epoch_of(store)
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    first = store.finish_batch(TASK, epoch, 1, Counts(read=1, written=1), NOW)
    again = store.finish_batch(TASK, epoch, 1, Counts(read=9, written=9), NOW)
    assert again == first
    assert store.totals(TASK) == Counts(read=1, written=1)


def test_a_batch_that_was_never_begun_cannot_be_finished(store: Store) -> None:
    epoch = epoch_of(store)
    with pytest.raises(StateError):
        store.finish_batch(TASK, epoch, 1, Counts(), NOW)


def test_a_second_batch_cannot_begin_while_one_is_unfinished(store: Store) -> None:
    epoch = epoch_of(store)
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    with pytest.raises(StateError, match="unfinished"):
        store.begin_batch(TASK, epoch, START, ONE, NOW)


def test_a_batch_begins_where_the_last_one_ended(store: Store) -> None:
    epoch = epoch_of(store)
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    store.finish_batch(TASK, epoch, 1, Counts(), NOW)
    with pytest.raises(StateError, match="must begin at"):
        store.begin_batch(TASK, epoch, START, TWO, NOW)
    assert store.begin_batch(TASK, epoch, ONE, TWO, NOW).id == 2


def test_an_id_is_never_used_again(store: Store) -> None:
    epoch = epoch_of(store)
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    store.abandon_batch(TASK, epoch, 1)
    assert store.unfinished_batch(TASK) is None
    assert store.begin_batch(TASK, epoch, START, ONE, NOW).id == 2
    store.finish_batch(TASK, epoch, 2, Counts(), NOW)
    store.set_position(TASK, epoch, START)
    assert store.begin_batch(TASK, epoch, START, ONE, NOW).id == 3


def test_positions_are_not_altered_while_a_batch_is_unfinished(store: Store) -> None:
    epoch = epoch_of(store)
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    with pytest.raises(StateError, match="unfinished"):
        store.set_position(TASK, epoch, TWO)


def test_old_batches_are_forgotten_but_their_counts_stay(store: Store, monkeypatch) -> None:
    monkeypatch.setattr("headrace.store.rows.HISTORY", 3)
    epoch = epoch_of(store)
    position = START
    for number in range(1, 8):
        end = Position.of({"file": "a"}, {"line": number})
        batch = store.begin_batch(TASK, epoch, position, end, NOW)
        position = store.finish_batch(TASK, epoch, batch.id, Counts(read=1, written=1), NOW).end
    assert [batch.id for batch in store.batches(TASK)] == [7, 6, 5, 1]
    assert [batch.id for batch in store.batches(TASK, limit=2)] == [7, 6]
    assert store.totals(TASK).read == 7


def test_of_old_batches_the_first_of_each_hour_is_kept_for_a_month(
    store: Store, monkeypatch
) -> None:
    monkeypatch.setattr("headrace.store.rows.HISTORY", 2)
    epoch = epoch_of(store)
    now = hour = datetime(2026, 1, 1, tzinfo=UTC)
    minutes = [0, 10, 59, 60, 61, 125, 40 * 24 * 60, 40 * 24 * 60 + 1]
    for number, minute in enumerate(minutes, start=1):
        now = hour + timedelta(minutes=minute)
        start = store.position(TASK)
        end = Position.of({"file": "a"}, {"line": number})
        batch = store.begin_batch(TASK, epoch, start, end, now)
        store.finish_batch(TASK, epoch, batch.id, Counts(), now)
        if number == 6:
            assert [batch.id for batch in store.batches(TASK)] == [6, 5, 4, 1]
    assert [batch.id for batch in store.batches(TASK)] == [8, 7]
    oldest, newest = store.oldest_batch(TASK), store.batch_at(TASK, now)
    assert (oldest.id, newest.id) == (7, 8)  # type: ignore[union-attr]  # they are there
    assert store.batch_at(TASK, hour) is None


def test_the_batch_at_a_time_is_the_one_before_all_later_ones(store: Store) -> None:
    assert store.batch_at(TASK, NOW) is None
    assert store.oldest_batch(TASK) is None
    epoch = epoch_of(store)
    for number, minute in enumerate([0, 20, 40, 10, 50]):  # the clock was put back
        now = NOW + timedelta(minutes=minute)
        start, end = store.position(TASK), Position.of({"file": "a"}, {"line": number + 1})
        batch = store.begin_batch(TASK, epoch, start, end, now)
        store.finish_batch(TASK, epoch, batch.id, Counts(), now)

    def at(minute: int) -> int | None:
        found = store.batch_at(TASK, NOW + timedelta(minutes=minute))
        return None if found is None else found.id

    assert [at(minute) for minute in (-1, 0, 15, 25, 45, 50)] == [None, 1, 1, 2, 4, 5]


def test_batches_are_forgotten_once_in_a_while(store: Store, monkeypatch) -> None:
    monkeypatch.setattr("headrace.store.rows.HISTORY", 20)
    epoch = epoch_of(store)
    kept = []
    for number in range(1, 25):
        start, end = store.position(TASK), Position.of({"file": "a"}, {"line": number})
        batch = store.begin_batch(TASK, epoch, start, end, NOW)
        store.finish_batch(TASK, epoch, batch.id, Counts(), NOW)
        kept.append(len(store.batches(TASK)))
    assert kept[-4:] == [21, 21, 22, 21]


def test_the_batches_of_a_window_are_kept_and_summed(store: Store, monkeypatch) -> None:
    monkeypatch.setattr("headrace.store.rows.HISTORY", 2)
    epoch = epoch_of(store)
    position = START
    for number in range(1, 8):
        end = Position.of({"file": "a"}, {"line": number})
        begun = NOW + timedelta(seconds=number)
        batch = store.begin_batch(TASK, epoch, position, end, begun)
        counts = Counts(read=10, written=9, rejected=1, causes={"TASK_PUT E": 1})
        since = NOW + timedelta(seconds=4)
        done = store.finish_batch(TASK, epoch, batch.id, counts, begun, keep_since=since)
        position = done.end
    store.begin_batch(TASK, epoch, position, TWO, NOW + timedelta(seconds=9))
    assert [batch.id for batch in store.batches(TASK)] == [8, 7, 6, 5, 4, 1]
    found = store.counts_since(TASK, NOW + timedelta(seconds=5))
    assert (found.read, found.rejected, found.causes) == (30, 3, {"TASK_PUT E": 3})
    assert store.totals(TASK).rejected == 7


def test_states_are_kept_by_connector(store: Store) -> None:
    running = TaskStatus(TaskState.RUNNING)
    store.lease(TASK, "worker", NOW, LEASE, running)
    assert store.statuses("orders") == {TASK: running}
    assert store.statuses("other") == {}
    other = TaskId("other", 0)
    store.lease(other, "worker", NOW, LEASE, running)
    assert store.statuses() == {TASK: running, other: running}


def test_schemas_get_a_version_when_they_change(store: Store) -> None:
    narrow = Schema.struct({"id": Schema.int32()})
    wide = Schema.struct({"id": Schema.int64(doc="the key")})
    assert store.schema("orders", "s") is None
    assert [store.put_schema("orders", "s", s) for s in (narrow, narrow, wide)] == [1, 1, 2]
    assert store.schema("orders", "s") == wide
    assert store.schema("orders", "other") is None


def test_a_ledger_keeps_its_order(store: Store) -> None:
    epoch = epoch_of(store)
    assert store.ledger_append(TASK, epoch, [{"path": "b", "size": 2}]) == 1
    assert store.ledger_append(TASK, epoch, [{"path": "a", "size": 1}, {"path": "c"}]) == 3
    assert store.ledger_slice(TASK, 1, 3) == [{"path": "a", "size": 1}, {"path": "c"}]
    assert store.ledger_length(TASK) == 3


def test_an_append_to_a_ledger_whose_answer_was_lost_may_be_repeated(store: Store) -> None:
    epoch, both = epoch_of(store), [{"path": "a"}, {"path": "b"}]
    assert store.ledger_append(TASK, epoch, both, 0) == 2
    assert store.ledger_append(TASK, epoch, both, 0) == 2
    assert store.ledger_append(TASK, epoch, [{"path": "c"}], 2) == 3
    assert store.ledger_append(TASK, epoch, both, 0) == 2
    for items, after in (([{"path": "c"}], 0), ([*both, {"path": "x"}], 0), (both, 9)):
        with pytest.raises(StateError, match="Read it again"):
            store.ledger_append(TASK, epoch, items, after)
    assert store.ledger_slice(TASK, 0, 9) == [*both, {"path": "c"}]


def test_removal_forgets_everything_of_the_connector(store: Store) -> None:
    epoch = epoch_of(store)
    store.register("orders")
    store.begin_batch(TASK, epoch, START, ONE, NOW)
    store.finish_batch(TASK, epoch, 1, Counts(read=1, written=1), NOW)
    store.put_schema("orders", "s", Schema.struct({"id": Schema.int32()}))
    store.ledger_append(TASK, epoch, [{"path": "a"}])
    store.remove("orders")
    assert store.position(TASK) == START
    assert store.totals(TASK) == Counts()
    assert list(store.batches(TASK)) == []
    assert store.schema("orders", "s") is None
    assert store.ledger_length(TASK) == 0


def test_a_task_that_is_made_again_refuses_who_ran_the_old_one(store: Store) -> None:
    old = epoch_of(store)
    store.remove("orders")
    new = epoch_of(store, "other")
    with pytest.raises(StaleEpochError):
        store.begin_batch(TASK, old, START, ONE, NOW)
    store.remove("orders")
    assert epoch_of(store) > new > old


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_keeps_everything_when_it_is_opened_again(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    first = Store(place)
    uid = first.register("orders")
    epoch = first.lease(TASK, "worker", NOW, LEASE).epoch
    first.begin_batch(TASK, epoch, START, ONE, NOW)
    first.close()
    second = Store(place)
    unfinished = second.unfinished_batch(TASK)
    assert second.register("orders") == uid
    assert unfinished is not None
    assert unfinished.end == ONE
    second.close()


_OPENS_AT_ONCE = """
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from headrace.store.connections import open_sqlite

def mode(file):
    with open_sqlite(file).connect() as connection:
        return connection.exec_driver_sql("PRAGMA journal_mode").scalar()

with get_context("fork").Pool(6) as pool:
    for number in range(60):
        file = Path(sys.argv[1]) / f"{number}.db"
        assert pool.map(mode, [file] * 6, chunksize=1) == ["wal"] * 6
"""


def test_all_processes_that_open_a_new_file_at_once_get_it(tmp_path: Path) -> None:
    # One round in fifteen met SQLite's refusal that no busy time-out holds for.
    subprocess.run([sys.executable, "-c", _OPENS_AT_ONCE, str(tmp_path)], check=True)
