"""What stores ask of their database does not grow with the number of connectors."""

import threading
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from tests.statements import statements

from headrace.model import TaskId
from headrace.store import Store
from headrace.store.connections import Mode, Turns, in_mode, open_sqlite

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def test_leases_are_renewed_by_as_many_statements_however_many_they_are(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store.db")
    leases = [store.lease(TaskId(f"c{n}", 0), "me", NOW, LEASE) for n in range(40)]
    counts = []
    for some in (leases[:1], leases):
        with statements() as seen:
            assert len(store.renew(some, NOW, LEASE)) == len(some)
        counts.append(len(seen))
    assert counts[0] == counts[1]
    store.close()


def test_threads_that_write_have_their_turns_in_the_order_they_came() -> None:
    turns, order = Turns(), list[int]()
    assert turns.take(0)
    threads = []

    def write(number: int) -> None:
        assert turns.take(60)
        order.append(number)

    for number in range(5):
        thread = threading.Thread(target=write, args=[number])
        thread.start()
        threads.append(thread)
        while len(turns.waiting) <= number:
            threading.Event().wait(0.001)
    for number in range(5):
        turns.give()
        threads[number].join(60)
    assert order == list(range(5))
    assert not turns.take(0.001)
    turns.give()
    assert turns.take(0)


@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_ends_its_turn_however_it_ends(tmp_path: Path, fails: bool) -> None:
    first, second = (open_sqlite(tmp_path / "store.db") for _ in range(2))
    writers = [in_mode(engine, Mode.WRITE) for engine in (first, second)]
    for writer in [*writers, *writers]:
        with pytest.raises(OperationalError) if fails else nullcontext(), writer.begin() as db:
            held = db.info["headrace_turn"]
            assert not held.take(0.001)  # also for the other engine
            db.exec_driver_sql("no SQL" if fails else "SELECT 1")
        assert held.take(0)
        held.give()
    first.dispose()
    second.dispose()
