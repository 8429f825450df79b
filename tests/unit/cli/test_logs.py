"""The log file and what of it reaches the terminal."""

import json
import logging
import warnings
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.logs import LOG_FILE, configure_logs, hide_secrets
from headrace.cli.terminal import Terminal
from headrace.sdk import SetupError
from headrace.sdk.config import Password


def _lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def test_the_file_has_one_json_object_a_line(tmp_path: Path) -> None:
    configure_logs(tmp_path, Terminal())
    structlog.get_logger("headrace.worker").info("lease taken", task="a-0", epoch=3)
    logging.getLogger("someone.else").warning("told %s", "plainly")
    ours, theirs = _lines(tmp_path)
    assert ours["event"] == "lease taken"
    assert ours["task"] == "a-0"
    assert ours["level"] == "info"
    assert ours["logger"] == "headrace.worker"
    assert str(ours["timestamp"]).endswith("Z")
    assert theirs["event"] == "told plainly"


def test_the_terminal_gets_warnings_in_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(tmp_path, Terminal())
    log = structlog.get_logger("headrace.worker")
    log.info("unheard")
    try:
        raise OSError("disk [full]")  # noqa: EM101, TRY003, TRY301 - a test's own
    except OSError:
        log.warning("task did not stop cleanly", task="a-0", exc_info=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "warning: task did not stop cleanly (task=a-0): OSError: disk [full]\n"


def test_verbose_shows_info_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(tmp_path, Terminal(), verbose=True)
    structlog.get_logger("headrace.worker").info("lease taken")
    assert capsys.readouterr().err == "info: lease taken\n"


def test_pythons_warnings_reach_the_file_and_not_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(tmp_path, Terminal())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    assert capsys.readouterr().err == ""
    assert "old" in str(_lines(tmp_path)[-1]["event"])


def test_the_file_is_turned_over_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.logs.MAX_SIZE_BYTES", 500)
    configure_logs(tmp_path, Terminal())
    for number in range(20):
        structlog.get_logger("headrace").info("line", number=number)
    assert (tmp_path / f"{LOG_FILE}.1").exists()
    assert (tmp_path / LOG_FILE).stat().st_size <= 500


def test_secrets_are_not_logged(tmp_path: Path) -> None:
    configure_logs(tmp_path, Terminal())
    structlog.get_logger("headrace").warning(
        "cannot connect to jdbc:postgresql://h/db?user=u&password=hunter2&ssl=true",
        connection_password="hunter2",  # noqa: S106 - a test's own
        url="mysql://root:hunter2@host/db",
        value=Password("hunter2"),
        config={"api.key": "hunter2", "host": "h"},
    )
    text = (tmp_path / LOG_FILE).read_text()
    assert "hunter2" not in text
    assert "ssl=true" in text
    assert "mysql://root:[hidden]@host/db" in text


@given(secret=st.text("abcXYZ019_-.", min_size=1), user=st.text("abc", min_size=1))
def test_no_password_in_an_address_survives(secret: str, user: str) -> None:
    url = f"x://{user}:{secret}@host"
    assert hide_secrets(None, "", {"event": url})["event"] == f"x://{user}:[hidden]@host"


def test_a_folder_that_cannot_be_made_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="Cannot write logs"):
        configure_logs(tmp_path / "file" / "logs", Terminal())
