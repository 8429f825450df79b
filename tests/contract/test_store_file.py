"""The file of a store that is deleted, replaced, damaged, full or open to others."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import event
from structlog.testing import capture_logs
from tests.contract.connect_server import CONFIG, Server, serving
from tests.contract.test_restored_store import at, begun, moved, opened

from headrace.model import TaskId
from headrace.sdk import ConfigError
from headrace.sdk.errors import SetupError
from headrace.store import (
    ConnectorStore,
    Store,
    StoreDamagedError,
    StoreMissingError,
    StoreUnavailableError,
    back_up,
    check_not_lost,
    go_on_from_earlier,
    put_back,
    start_empty,
)

TASK = TaskId("orders", 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store.db"


@pytest.fixture
def backup(file: Path) -> Path:
    """A backup where a server puts it."""
    made = file.parent / "backups" / "store-20260101T000000.000000Z.db"
    with opened(file) as store:
        moved(store, 0)
        back_up(file, made)
    return made


def modes(folder: Path) -> dict[str, int]:
    found = [folder, *folder.rglob("*")]
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in found}


@contextmanager
def open_umask() -> Iterator[None]:
    old = os.umask(0)
    try:
        yield
    finally:
        os.umask(old)


def test_all_files_of_a_store_are_private_whatever_the_umask(file: Path) -> None:
    with open_umask(), opened(file) as store:
        moved(store, 0)
        back_up(file, file.parent / "backups" / "store-1.db")
        assert modes(file.parent) == {
            "home": 0o700,
            "backups": 0o700,
            **dict.fromkeys(
                ("store.db", "store.db-wal", "store.db-shm", "store.db.marker", "store-1.db"),
                0o600,
            ),
        }


def test_files_that_others_could_read_are_taken_from_them_and_it_is_said_once(
    file: Path,
) -> None:
    with opened(file) as store:
        moved(store, 0)
        for each in file.parent.glob("store.db*"):
            each.chmod(0o644)
        with capture_logs() as said, opened(file), opened(file):
            assert set(modes(file.parent).values()) <= {0o600, 0o700, 0o644}
            beside = ("store.db", "store.db-wal", "store.db-shm")
            assert all(modes(file.parent)[name] == 0o600 for name in beside)
    assert [len(line["now_private"]) for line in said if "now_private" in line] == [3]


def deleted(file: Path) -> None:
    for each in file.parent.glob("store.db*"):
        if each.suffix != ".marker":
            each.unlink()


def replaced(file: Path) -> None:
    shutil.copy(file, file.parent / "copy")
    (file.parent / "copy").replace(file)


def cut(file: Path) -> None:
    os.truncate(file, 100)


@pytest.mark.parametrize("lose", [deleted, replaced, cut])
def test_a_store_that_is_lost_while_it_is_open_is_noticed_at_once(
    file: Path, lose: Callable[[Path], None]
) -> None:
    with opened(file) as store:
        moved(store, 0)
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.positions("orders")
        lose(file)
        for ask in (lambda: store.positions("orders"), lambda: begun(store, 1)):
            with pytest.raises(StoreMissingError, match="headrace backup restore"):
                ask()
        assert file.exists() is (lose is not deleted)


def test_what_is_stored_in_a_file_that_was_deleted_meanwhile_is_refused(file: Path) -> None:
    with opened(file) as store:
        event.listen(store._engine, "begin", lambda _: deleted(file))
        with pytest.raises(StoreMissingError, match="was deleted"):
            store.register("another")


def test_a_server_whose_store_is_deleted_is_not_healthy_and_takes_nothing(file: Path) -> None:
    state = Store(file)
    with serving(Server(state, ConnectorStore(file))) as server:
        server.create("a")
        deleted(file)
        for method, path, body in (
            ("GET", "/health", None),
            ("GET", "/connectors", None),
            ("PUT", "/connectors/b/config", CONFIG),
        ):
            answer = httpx2.request(method, f"{server.url}{path}", json=body)
            assert answer.status_code == 503, path
            told = answer.json()["message"]
            assert "was deleted" in told, path
            assert str(file) in told, path
    state.close()


def test_a_home_that_had_a_store_does_not_start_as_if_it_were_new(
    file: Path, backup: Path
) -> None:
    deleted(file)
    for _ in range(2):
        with pytest.raises(StoreMissingError, match=backup.name) as raised:
            Store(file)
        assert f"headrace backup restore {backup}" in raised.value.fix
    file.touch()
    with pytest.raises(StoreMissingError, match="is empty"):
        Store(file)


def test_topics_without_a_store_tell_that_there_was_one(tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    check_not_lost(tmp_path / "store.db", topics)
    (topics / "orders" / "_delta_log").mkdir(parents=True)
    with pytest.raises(StoreMissingError, match="its topics"):
        check_not_lost(tmp_path / "store.db", topics)
    (tmp_path / "store.db").touch()
    check_not_lost(tmp_path / "store.db", topics)


@pytest.mark.parametrize("start", [0, 4096])
def test_a_damaged_store_is_told_with_the_backups_that_can_replace_it(
    file: Path, backup: Path, start: int
) -> None:
    with file.open("r+b") as damaged:
        damaged.seek(start)
        damaged.write(b"\xde\xad\xbe\xef" * 4096)
    with pytest.raises(StoreDamagedError, match="is damaged") as raised, opened(file) as store:
        begun(store, 1)
    assert f"headrace backup restore {backup}" in raised.value.fix


def test_a_backup_is_put_back_and_what_was_there_is_kept(file: Path, backup: Path) -> None:
    with opened(file) as store:
        moved(store, 1)
    file.write_bytes(b"no store")
    with open_umask():
        kept = put_back(file, backup)
    assert kept is not None
    assert (kept / "store.db").read_bytes() == b"no store"
    assert set(modes(file.parent).values()) == {0o600, 0o700}
    with opened(file) as store:
        assert store.position(TASK) == at(1)
        assert moved(store, 1) > 10**12


def test_what_is_no_store_is_not_put_in_its_place(file: Path, backup: Path) -> None:
    broken = file.parent / "broken.db"
    broken.write_bytes(backup.read_bytes()[:5000])
    for wrong in (broken, file.parent / "nothing", file.parent):
        with pytest.raises(ConfigError):
            put_back(file, wrong)
    with opened(file) as store:
        assert store.position(TASK) == at(1)


def test_an_empty_store_is_begun_only_when_asked_for(file: Path, backup: Path) -> None:
    assert backup.exists()
    deleted(file)
    assert start_empty(file) is None
    with opened(file) as store:
        assert store.positions("orders") == {}


def test_a_store_that_a_snapshot_set_back_goes_on_when_that_is_said(
    file: Path, tmp_path: Path
) -> None:
    with opened(file) as store:
        moved(store, 0)
    snapshot = shutil.copy(file, tmp_path / "snapshot")
    with opened(file) as store:
        moved(store, 1)
    deleted(file)
    shutil.copy(snapshot, file)
    go_on_from_earlier(file)
    with opened(file) as store:
        assert moved(store, 1) > 10**12


@pytest.mark.parametrize(
    ("pragma", "told"),
    [("max_page_count=1", "Free space"), ("query_only=1", "Grant this process write access")],
)
def test_a_full_or_read_only_file_system_may_pass_and_is_told_plainly(
    file: Path, pragma: str, told: str
) -> None:
    with opened(file) as store:
        moved(store, 0)
        event.listen(store._engine, "begin", lambda db: db.exec_driver_sql(f"PRAGMA {pragma}"))
        with pytest.raises(StoreUnavailableError) as raised:
            [store.register(f"{n}" * 200) for n in range(400)]
        assert told in raised.value.fix


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(SetupError, match="cannot be opened"):
        Store(tmp_path / "home" / "store.db")
