"""What only the user of a process may read."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.logs import LOG_FILE, configure_logs
from headrace.cli.terminal import Terminal
from headrace.permissions import make_private_home


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_is_private(tmp_path: Path) -> None:
    home = tmp_path / "some" / "home"
    assert not make_private_home(home)
    assert mode(home) == 0o700


def test_a_home_that_is_there_is_taken_from_others_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workers").mkdir(parents=True)
    home.chmod(0o755)
    assert [make_private_home(home), make_private_home(home)] == [True, False]
    assert mode(home) == 0o700


def test_a_folder_of_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    tmp_path.chmod(0o755)
    assert not make_private_home(tmp_path)
    assert mode(tmp_path) == 0o755


def test_logs_are_private_also_when_a_new_file_is_begun(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "logs"
    folder.mkdir(parents=True)
    (folder / f"{LOG_FILE}.1").touch(0o644)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure_logs(folder, Terminal(quiet=True), max_bytes=200, backups=2)
        for _ in range(5):
            logging.getLogger("orders").info("x" * 150)
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers, root.level = before, level
        logging.captureWarnings(capture=False)
    assert {mode(each) for each in folder.iterdir()} == {0o600}
    assert mode(folder) == 0o700
