"""`headrace backup restore` and `adopt`, which work on a home folder while no server runs."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.model import TaskId
from headrace.sdk import Position
from headrace.store import Store, back_up
from headrace.worker import Owner

TASK = TaskId("orders", 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def backup(home: Path) -> Path:
    made = home / "backups" / "store-1.db"
    with closing(Store(home / "store.db")) as store:
        store.register("orders")
        next_batch(store)
        back_up(home / "store.db", made)
    return made


def next_batch(store: Store) -> int:
    epoch = store.lease(TASK, "me", store.now(), timedelta(seconds=1)).epoch
    left = store.unfinished_batch(TASK)
    if left is not None:
        store.abandon_batch(TASK, epoch, left.id)
    end = Position.of({"file": "a"}, {"line": 1})
    return store.begin_batch(TASK, epoch, Position(), end, store.now()).id


def test_a_damaged_store_is_replaced_by_the_backup_that_is_named(
    home: Path, backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "store.db").write_bytes(b"x" * 9000)
    assert main(["run", "--once", str(home / "none.yaml")]) != 0
    assert main(["backup", "restore", str(backup)]) == 0
    assert str(home / "replaced") in capsys.readouterr().err
    with closing(Store(home / "store.db")) as store:
        assert next_batch(store) > 10**12


def test_a_store_is_not_replaced_while_somebody_uses_it(
    home: Path, backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (home / "store.db").read_bytes()
    with Owner(home / "workers") as owner:
        for command in (["restore", str(backup)], ["restore", "--empty"], ["adopt"]):
            assert main(["backup", *command]) == 1
            assert owner.name in capsys.readouterr().err
    assert (home / "store.db").read_bytes() == before


def test_a_store_that_was_set_back_by_others_is_adopted(home: Path, backup: Path) -> None:
    assert backup.exists()
    assert main(["backup", "adopt"]) == 0
    with closing(Store(home / "store.db")) as store:
        assert next_batch(store) > 10**12


@pytest.mark.parametrize("arguments", [[], ["store.db", "--empty"]])
def test_either_a_backup_or_an_empty_store_is_asked_for(
    home: Path, arguments: list[str]
) -> None:
    assert main(["backup", "restore", *arguments]) == 2
    assert not (home / "store.db").exists()
