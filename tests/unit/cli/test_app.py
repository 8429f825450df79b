"""The command line as a whole: options, errors and exit codes, in this process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.app import command_for, hoisted

HEAVY = {"pyspark", "pyarrow", "numpy", "pandas", "deltalake", "sqlalchemy", "structlog"}


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    program = "import sys, headrace.cli; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in told.stdout.split()}
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_showing_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from headrace.cli import main; main(['run', '-h']); print(*sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {name.partition(".")[0] for name in told.stdout.splitlines()[-1].split()} & HEAVY


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"], ["topic", "-h"]])
def test_help_is_shown_and_is_no_failure(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    assert "Usage: headrace" in capsys.readouterr().out


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    shown = capsys.readouterr().out
    for command in ("run", "validate", "preview", "topic", "plugins", "setup", "version"):
        assert f" {command} " in shown


def test_a_group_has_its_commands_whatever_other_words_are_names_of_groups() -> None:
    whole = command_for(())
    named = command_for(["--home", "topic", "connector", "list"])
    assert named.commands["connector"].commands.keys() == (
        whole.commands["connector"].commands.keys()
    )
    assert named.commands["topic"].commands
    assert not named.commands["dlq"].commands
    assert named.commands.keys() == whole.commands.keys()


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["nonsense"], ["version", "--nonsense"], ["topic"], ["preview", "a", "b"]],
)
def test_wrong_usage_gives_2_and_says_where_help_is(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error[usage] ")
    assert "fix: See headrace" in told.err


def test_wrong_usage_is_json_when_json_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["validate", "--json", "--nonsense"]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["errors"][0]["code"] == "usage"
    assert told.err == ""


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_the_version_is_shown(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace import __version__

    assert main([argument]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"headrace {__version__}"


def test_the_version_is_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pyspark"]


def test_global_options_may_follow_the_command() -> None:
    given = ["run", "a.yaml", "--home", "h", "--once", "-v", "--config=c.toml", "--no-color"]
    expected = ["--home", "h", "-v", "--config=c.toml", "--no-color", "run", "a.yaml", "--once"]
    assert hoisted(given) == expected


def test_what_follows_two_dashes_is_left_where_it_is() -> None:
    assert hoisted(["validate", "--", "--verbose"]) == ["validate", "--", "--verbose"]


def test_an_option_that_lacks_its_value_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["version", "--home"]) == 2
    assert "--home" in capsys.readouterr().err


def test_a_missing_settings_file_gives_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(tmp_path / "no.toml"), "topic", "list"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error[config.invalid] settings file: ")
    assert "fix: " in told


def test_a_home_that_cannot_be_written_gives_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--home", str(tmp_path / "file"), "topic", "list"]) == 3
    assert "--home" in capsys.readouterr().err


def test_a_check_of_a_file_imports_no_store_and_no_runtime(tmp_path: Path) -> None:
    """They take longer to import than the check itself."""
    file = tmp_path / "a.yaml"
    file.write_text("name: a\nsource: {connector: datagen, rows: 1}\nsinks: [noop]\n")
    arguments = ["--home", str(tmp_path / "home"), "validate", str(file)]
    program = (
        f"import sys; from headrace.cli import main; print(main({arguments!r})); "
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said, modules = done.stdout.rsplit("\n", 2)[0], set(done.stdout.split())
    assert said.startswith("ok: a (direct)"), done.stderr
    assert not modules & {"sqlalchemy", "headrace.runtime.app", "headrace.dataplane"}


def test_the_demo_without_duckdb_names_the_extra_that_brings_it(tmp_path: Path) -> None:
    arguments = ["--home", str(tmp_path / "home"), "demo", "--dir", str(tmp_path / "demo")]
    program = (
        "import sys; sys.modules['duckdb'] = None; from headrace.cli import main; "
        f"sys.exit(main({arguments!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "pip install 'headrace[demo]'" in done.stderr
