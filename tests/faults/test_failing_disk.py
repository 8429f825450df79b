"""No space, a read-only disk, a failing call: the batch runs again and is there once."""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults.doubles import (
    FILES,
    ROWS,
    TASK,
    NumberTask,
    expected,
    found,
    found_letters,
    ignore,
    is_bad,
    steps,
)
from tests.faults.failing_calls import failing_call
from tests.faults.volumes import Volume, may_mount, volume

from headrace.store import Store

STEPS = steps(1, tolerant=True)
MOST_CALLS = 200
CODES = {"no space": errno.ENOSPC, "input/output error": errno.EIO, "no right": errno.EACCES}


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "store.db"
    Store(file).close()
    return file


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Volume]:
    with volume(tmp_path / "disk", 2) as mounted:
        yield mounted


def failed_at(step: str, disk: Volume, how: str) -> tuple[Callable[[str], None], list[str]]:
    """Return what breaks the disk at a step, and a list that has the step once it did."""
    broken: list[str] = []

    def reach(at: str) -> None:
        if at == step and not broken and (how == "full" or disk.lock()):
            broken.append(at)
            if how == "full":
                disk.fill()

    return reach, broken


def check(store: Store, folder: Path, kind: str, rows: int) -> None:
    assert found(folder, kind) == expected(rows, tolerant=True)
    assert found_letters(folder) == [n for n in range(rows) if is_bad(n)]
    assert store.totals(TASK).read == rows
    assert store.totals(TASK).balanced


def move(
    store: Store, folder: Path, kind: str, rows: int, reach: Callable[[str], None] = ignore
) -> None:
    task = NumberTask(store, folder, (kind,), tolerant=True, available=rows, reach=reach)
    task.to_end()


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount file systems")
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *((kind, how) for kind in FILES for how in ("full", "read-only")),
        ("sqlite", "full"),  # its file is open for writing all the time
    ],
)
def test_a_batch_whose_disk_fails_at_any_step_is_there_once_when_the_disk_is_well_again(
    disk: Volume, empty_store: Path, kind: str, how: str, subtests: pytest.Subtests
) -> None:
    for number, step in enumerate(STEPS):
        with subtests.test(step):
            folder = disk.path / str(number)
            folder.mkdir()
            store = Store(shutil.copy(empty_store, disk.path.with_name(f"{number}.db")))
            move(store, folder, kind, ROWS)
            reach, broken = failed_at(step, disk, how)
            try:
                # Whatever is raised, the batch stays in doubt, and runs again.
                with suppress(Exception):
                    move(store, folder, kind, 2 * ROWS, reach)
            finally:
                _repair(disk, how)
            assert broken
            move(store, folder, kind, 3 * ROWS)
            check(store, folder, kind, 3 * ROWS)
            store.close()
            shutil.rmtree(folder)


def _repair(disk: Volume, how: str) -> None:
    if how == "full":
        disk.free()
    else:
        disk.unlock()


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("code", CODES)
def test_a_batch_of_which_any_one_call_fails_is_there_once_when_it_runs_again(
    tmp_path: Path, empty_store: Path, kind: str, code: str
) -> None:
    store = Store(shutil.copy(empty_store, tmp_path / "store.db"))
    folder = tmp_path / "targets"
    folder.mkdir()
    rows, seen = ROWS, []
    move(store, folder, kind, rows)
    for number in range(1, MOST_CALLS):
        rows += ROWS
        with failing_call(folder, number, CODES[code]) as failing, suppress(Exception):
            move(store, folder, kind, rows)
        move(store, folder, kind, rows)
        check(store, folder, kind, rows)
        seen += failing.failed
        if not failing.failed:
            break
    else:
        pytest.fail("there is no end of calls")
    assert seen
    store.close()
