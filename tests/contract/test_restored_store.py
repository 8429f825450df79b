"""A backup of the store that is put back in its place."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.model import Batch, Counts, TaskId
from headrace.sdk import Position
from headrace.store import Store, back_up

TASK = TaskId("orders", 0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def at(line: int) -> Position:
    return Position.of({"file": "a"}, {"line": line}) if line else Position()


@contextmanager
def opened(file: Path) -> Iterator[Store]:
    with closing(Store(file)) as store:
        store.register("orders")
        yield store


def begun(store: Store, start: int, task: TaskId = TASK) -> tuple[int, Batch]:
    epoch = store.lease(task, "worker", NOW, timedelta(seconds=1)).epoch
    return epoch, store.begin_batch(task, epoch, at(start), at(start + 1), NOW)


def moved(store: Store, start: int) -> int:
    """Move a line; return the number of its batch."""
    epoch, batch = begun(store, start)
    store.finish_batch(TASK, epoch, batch.id, Counts(), NOW)
    return batch.id


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def backup(file: Path, tmp_path: Path) -> Path:
    """Back up a store when it had moved three lines, and had begun with a fourth."""
    made = tmp_path / "backup.db"
    with opened(file) as store:
        for line in range(3):
            moved(store, line)
        epoch, batch = begun(store, 3)
        back_up(file, made)
        store.finish_batch(TASK, epoch, batch.id, Counts(), NOW)
        for line in range(4, 9):
            moved(store, line)
    return made


def put_back(backup: Path, file: Path) -> None:
    for left in file.parent.glob(f"{file.name}*"):
        left.unlink()
    shutil.copy(backup, file)


def test_it_goes_on_where_it_was_with_a_number_that_no_target_has_seen(
    file: Path, backup: Path
) -> None:
    put_back(backup, file)
    with opened(file) as store:
        assert store.unfinished_batch(TASK) is None
        assert store.position(TASK) == at(3)
        assert moved(store, 3) > 9


def test_it_does_so_once_and_again_when_it_is_put_back_again(file: Path, backup: Path) -> None:
    put_back(backup, file)
    with opened(file) as store:
        first = moved(store, 3)
    with opened(file) as store:
        second = moved(store, 4)
    assert second == first + 1
    with closing(sqlite3.connect(file)) as db:  # as if ten minutes had gone by
        db.execute("UPDATE tasks SET last_batch = last_batch - 600000")
        db.commit()
    put_back(backup, file)
    with opened(file) as store:
        assert moved(store, 3) > second - 600000


def test_a_clock_that_was_put_back_gives_no_number_twice(
    file: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 0)
    put_back(backup, file)
    with opened(file) as store:
        assert moved(store, 3) > 9


def test_a_task_that_is_newer_than_the_backup_goes_on_with_numbers_of_its_own(
    file: Path, backup: Path
) -> None:
    new = TaskId("orders", 1)
    with opened(file) as store:
        uid = store.register("orders")
        epochs = [begun(store, 0, new)[0]]
    put_back(backup, file)
    with opened(file) as store:
        assert store.register("orders") == uid  # and so its marks are those of before
        for task in (TASK, new):
            start = store.position(task)
            epoch = store.lease(task, "worker", NOW, timedelta(seconds=1)).epoch
            batch = store.begin_batch(task, epoch, start, at(99), NOW)
            assert batch.id > 10**12
            assert epoch > max(epochs) + 1000


def test_the_store_that_was_backed_up_goes_on_as_it_was(file: Path, backup: Path) -> None:
    assert backup.exists()
    with opened(file) as store:
        assert moved(store, 9) == 10
