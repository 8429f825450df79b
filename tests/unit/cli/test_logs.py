"""The log file and what of it reaches the terminal."""

import json
import logging
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.logs import LOG_FILE, configure_logs, hide_secrets
from headrace.cli.terminal import Terminal
from headrace.sdk.config import Password
from headrace.sdk.errors import SetupError


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


def test_the_file_is_turned_over_when_it_is_full(tmp_path: Path) -> None:
    configure_logs(tmp_path, Terminal(), max_bytes=500, backups=2)
    for number in range(40):
        structlog.get_logger("headrace").info("line", number=number)
    kept = {f"{LOG_FILE}{end}" for end in ("", ".1", ".2")}
    assert {file.name for file in tmp_path.iterdir()} == kept
    assert (tmp_path / LOG_FILE).stat().st_size <= 500


def test_a_name_or_a_text_is_no_line_of_its_own_and_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(tmp_path, Terminal())
    forged = 'a\nerror: forged\r\x1b[2J\u2028{"connector": "b"}'
    structlog.get_logger("headrace").warning("it is é", connector=forged, why=forged)
    (line,) = _lines(tmp_path)
    assert line["connector"] == forged
    shown = capsys.readouterr().err
    assert shown.startswith("warning: it is é (connector=a\\nerror: forged\\r\\x1b[2J")
    assert [c for c in shown if not c.isprintable()] == ["\n"]


def test_whatever_is_logged_while_a_task_is_bound_says_whose_it_is(tmp_path: Path) -> None:
    configure_logs(tmp_path, Terminal())
    with structlog.contextvars.bound_contextvars(connector="a", task=0):
        structlog.get_logger("headrace").info("ours")
        logging.getLogger("py4j.clientserver").critical("theirs")
    logging.getLogger("someone").info("nobody's")
    ours, theirs, nobodys = _lines(tmp_path)
    for line in (ours, theirs):
        assert (line["connector"], line["task"]) == ("a", 0)
    assert not {"connector", "task"} & nobodys.keys()


def test_secrets_are_not_logged(tmp_path: Path) -> None:
    configure_logs(tmp_path, Terminal())
    structlog.get_logger("headrace").warning(
        "cannot connect to jdbc:postgresql://h/db?user=u&password=hunter2&ssl=true",
        connection_password="hunter2",  # noqa: S106 - a test's own
        url="mysql://root:hunter2@host/db",
        value=Password("hunter2"),
        config={"api.key": "hunter2", "host": "h", "more": [{"token": "hunter2"}]},
        tried=["mysql://root:hunter2@host/db", ("password=hunter2",)],
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


def test_a_full_disk_is_told_once_until_a_line_can_be_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(tmp_path, Terminal())
    file = logging.getLogger().handlers[0]
    assert isinstance(file, logging.FileHandler)
    log, well = structlog.get_logger("headrace.worker"), file.stream
    for _ in range(2):
        with suppress(OSError), Path("/dev/full").open("w") as file.stream:
            log.info("one")
            log.info("another")
        file.stream = well
        log.info("written")
    told = capsys.readouterr().err.splitlines()
    problem = "the log cannot be written to"
    expected = f"warning: {problem} {tmp_path / LOG_FILE}: No space left on device"
    assert told == [expected, expected]
    assert [line["event"] for line in _lines(tmp_path)] == ["written", "written"]


def test_names_from_outside_do_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "a\x1b]0;x\x07\x1b[31m\x9b31m\u202eb\tc"
    terminal = Terminal()
    terminal.print(name)
    terminal.show_rows(["name"], [[name]], json=[])
    terminal.err.print(name, soft_wrap=True)
    terminal.print_json({"name": name})
    found = capsys.readouterr()
    for text in (found.out, found.err):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*text}
        whole = "a\\x1b]0;x\\x1b[31m\\x9b31m\\u202eb"
        assert text.replace("\\x07", "").count(whole) == 1 + (text is found.out)
    assert json.loads(found.out.splitlines()[-1]) == {"name": name}
