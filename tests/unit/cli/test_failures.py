"""Errors: shown once, with a fix, and as exit codes."""

import json
from pathlib import Path

import pytest

from headrace.cli.failures import exit_code, report, show, show_of_task, unknown
from headrace.cli.invocation import Invocation
from headrace.cli.progress import Summary, TaskScore
from headrace.cli.run import show_summary
from headrace.cli.terminal import Terminal
from headrace.model import PluginNotFoundError, TaskId
from headrace.sdk import ConfigError, ConfigErrors, SinkError, SourceError
from headrace.sdk.errors import SetupError


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([], 0),
        ([SinkError("full")], 1),
        ([ValueError("plugin's own")], 1),
        ([ConfigError("bad"), PluginNotFoundError("x")], 2),
        ([SetupError("no Java")], 3),
        ([SetupError("no Java"), SetupError("no jar")], 3),
        ([SetupError("no Java"), ConfigError("bad")], 1),
    ],
)
def test_the_exit_code_is_that_of_the_category(errors: list[Exception], code: int) -> None:
    assert exit_code(errors) == code


def test_an_error_shows_code_field_problem_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    show([ConfigError("Does not exist.", field="sinks[0].path", fix="Create it.")], Terminal())
    told = capsys.readouterr()
    assert (
        told.err == "error[config.invalid] sinks[0].path: Does not exist.\n  fix: Create it.\n"
    )
    assert told.out == ""


def test_several_errors_are_each_shown(capsys: pytest.CaptureFixture[str]) -> None:
    several = ConfigErrors([ConfigError("One.", field="a"), ConfigError("Two.", field="b")])
    show([several, SourceError("Three.")], Terminal())
    assert capsys.readouterr().err.splitlines() == [
        "error[config.invalid] a: One.",
        "error[config.invalid] b: Two.",
        "error[source.failed] Three.",
    ]


def test_text_in_brackets_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show([SinkError("[red]x[/red] :smile: [/]")], Terminal())
    assert "[red]x[/red] :smile: [/]" in capsys.readouterr().err


def test_names_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show([SourceError("a\x1b[2Jb\x9b\u202ec\nerror: d\r", fix="DROP \x07;")], Terminal())
    told = capsys.readouterr().err
    assert told.split("] ")[1] == (
        "a\\x1b[2Jb\\x9b\\u202ec\n    error: d\\r\n  fix: DROP \\x07;\n"
    )


def test_long_errors_are_not_broken_into_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show([SinkError("word " * 200)], Terminal())
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unforeseen_error_says_where_its_traceback_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invocation = Invocation(home=tmp_path)
    assert invocation.settings.home == tmp_path
    assert report(_raised(), invocation) == 1
    told = capsys.readouterr().err
    file = tmp_path / "logs" / "headrace.log"
    assert told.startswith("error[internal] ZeroDivisionError: ")
    assert str(file) in told
    assert "Traceback" not in told
    logged = json.loads(file.read_text().splitlines()[-1])
    assert "ZeroDivisionError" in logged["exception"]


def test_verbose_shows_the_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(_raised(), Invocation(home=tmp_path, verbose=True))
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert told.count("error[internal]") == 1


def test_a_task_that_failed_unforeseen_says_where_its_traceback_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invocation = Invocation(home=tmp_path)
    assert invocation.settings.home == tmp_path
    show_of_task(_raised(), invocation, "a-0")
    told = capsys.readouterr().err
    assert told.startswith("error[internal] a-0: ZeroDivisionError: ")
    assert "--verbose" not in told
    assert str(tmp_path / "logs" / "headrace.log") in told
    assert "Traceback" in (tmp_path / "logs" / "headrace.log").read_text()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_verbose_run_shows_the_tracebacks_of_its_tasks(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = TaskScore(TaskId("a", 0), error=_raised())
    summary = Summary([score], 1.0, stopped=False)
    show_summary(summary, Invocation(as_json=as_json, home=tmp_path, verbose=True))
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_file_that_may_not_be_written_is_the_machines_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(PermissionError(13, "Permission denied", "/data"), Invocation()) == 3
    assert "/data: Permission denied" in capsys.readouterr().err


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    error = unknown("fligths", ["flights", "airports"], noun="topic", field="NAME")
    assert error.fix == "Did you mean flights?"
    assert unknown("x", [], noun="topic", field="NAME").fix == "There is no topic yet."


def _raised() -> Exception:
    try:
        1 / 0  # noqa: B018 - it raises
    except ZeroDivisionError as error:
        return error
    raise AssertionError
