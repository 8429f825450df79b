"""An older copy of the store is put back while the targets are ahead: told, never silent."""

import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.faults.database_targets import SERVERS
from tests.faults.doubles import ROWS, SINKS, TASK, NumberTask, expected, found
from tests.postgresql_server import STORE, PostgresqlServer, _program

from headrace.sdk import HeadraceError, Position
from headrace.store import Store

BEHIND = range(1, 4)
"""By how many batches the store is set back."""


def move(store: Store, folder: Path, kind: str, rows: int, limit: int = ROWS) -> None:
    NumberTask(store, folder, (kind,), available=rows, limit=limit).to_end()


def set_back(file: Path, copy: Path) -> None:
    """Put a copy back as ``cp`` does, that of a file that nobody has open."""
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    shutil.copy(copy, file)


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("kind", "behind"),
    [
        pytest.param(
            kind, behind, marks=pytest.mark.long if kind in SERVERS and behind > 1 else ()
        )
        for kind in SINKS
        for behind in BEHIND
    ],
)
@pytest.mark.parametrize("limit", [ROWS, 2 * ROWS], ids=["same ranges", "other ranges"])
def test_rows_that_the_store_forgot_and_those_that_are_new_are_lost_in_no_target(
    tmp_path: Path, kind: str, behind: int, limit: int
) -> None:
    file, copy = tmp_path / "store.db", tmp_path / "copy.db"
    store = Store(file)
    move(store, tmp_path, kind, ROWS)
    store.close()
    shutil.copy(file, copy)
    store = Store(file)
    move(store, tmp_path, kind, (1 + behind) * ROWS)
    store.close()
    set_back(file, copy)
    with closing(Store(file)) as store:
        _check_stops(store, tmp_path, kind, (1 + behind) * ROWS, limit)


@pytest.mark.parametrize("kind", ["topic", "lines"])
def test_tasks_repeat_what_a_database_that_is_restored_from_a_dump_has_forgotten(
    postgresql: PostgresqlServer, tmp_path: Path, kind: str
) -> None:
    with postgresql.database(STORE) as url:
        store = Store(url)
        move(store, tmp_path, kind, ROWS)
        store.close()
        dump = subprocess.run(
            [_program("pg_dump"), "--clean", "--dbname", url], check=True, capture_output=True
        ).stdout
        store = Store(url)
        move(store, tmp_path, kind, 2 * ROWS)
        store.close()
        restore = [_program("psql"), "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", url]
        subprocess.run(restore, check=True, input=dump, stdout=subprocess.DEVNULL)
        with capture_logs() as told, closing(Store(url)) as store:
            move(store, tmp_path, kind, 3 * ROWS)
    assert any("restored to an earlier state" in line["event"] for line in told)
    all_rows, repeated = range(3 * ROWS), range(ROWS, 2 * ROWS)
    assert found(tmp_path, kind) == sorted([*all_rows, *repeated])


def _check_stops(store: Store, folder: Path, kind: str, rows: int, limit: int) -> None:
    """A task whose store was set back stops with a clear error, and nothing is lost."""
    with pytest.raises(HeadraceError, match=r"set back|already has") as caught:
        move(store, folder, kind, rows + 2 * ROWS, limit)
    assert caught.value.fix
    held = found(folder, kind)
    assert set(held) >= set(expected(rows, tolerant=False)), "rows are lost"
    assert store.position(TASK) == Position.of({"rows": 0}, {"row": ROWS}), (
        "the position has moved"
    )
