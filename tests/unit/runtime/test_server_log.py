"""A server's log that is read while it is rotated."""

import json
from pathlib import Path

import pytest

from headrace.runtime.server_log import LogChoice, ServerLog


@pytest.fixture
def log(tmp_path: Path) -> ServerLog:
    file = tmp_path / "headrace.log"
    file.write_text("".join(f"{json.dumps({'event': f'line {n}'})}\n" for n in range(3)))
    return ServerLog(file)


def rotate(log: ServerLog) -> None:
    log.path.rename(log.path.with_name(f"{log.path.name}.1"))


def test_no_log_is_an_empty_one(tmp_path: Path) -> None:
    lines, place = ServerLog(tmp_path / "none.log").newest(LogChoice(), 10)
    assert (list(lines), place.offset) == ([], 0)


def test_what_follows_a_place_is_found_after_the_file_was_renamed(log: ServerLog) -> None:
    lines, place = log.newest(LogChoice(), 2)
    assert [line.text for line in lines] == ["line 1", "line 2"]
    with log.path.open("a") as file:
        file.write('{"event": "before"}\n')
    rotate(log)
    log.path.write_text('{"event": "after"}\n')
    lines, place = log.after(place, LogChoice())
    assert [line.text for line in lines] == ["before", "after"]
    assert log.after(place, LogChoice()) == ([], place)


def test_a_file_that_is_renamed_once_it_was_looked_at_is_no_error(
    log: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place = log.newest(LogChoice(), 10)
    opened = Path.open

    def renamed(path: Path, mode: str = "r") -> object:
        if path == log.path:
            rotate(log)
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", renamed)
    assert log.after(place, LogChoice()) == ([], place)
