"""Clocks that jump and differ: who owns a task changes hands, and rows are moved once."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.faults.doubles import ROWS, TASK, NumberTask, expected, found

from headrace.sdk import StateError
from headrace.sdk.errors import StaleEpochError
from headrace.store import Store

SINKS = ("delta append", "lines")
BATCHES = 12


@pytest.mark.parametrize("seed", range(3))
def test_workers_whose_clocks_jump_and_differ_by_days_move_each_row_once(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    store = Store(tmp_path / "store.db")

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(days=chance.uniform(-10, 10))

    owners: dict[str, NumberTask] = {}
    tries, rows = 0, BATCHES * ROWS
    while store.totals(TASK).read < rows:
        tries += 1
        assert tries < 100 * BATCHES, "nobody gets anywhere"
        name = chance.choice(["one", "two", "three"])
        try:
            if name not in owners:
                owners[name] = NumberTask(
                    store, tmp_path, SINKS, owner=name, now=now, available=rows
                )
            owners[name].step()
        except StateError:
            continue  # by its clock another worker still has the lease
        except StaleEpochError:
            del owners[name]
    for kind in SINKS:
        assert found(tmp_path, kind) == expected(rows, tolerant=False)
    assert store.totals(TASK).balanced
    store.close()
