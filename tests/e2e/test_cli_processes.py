"""The command line as users run it, where no Spark is needed: processes and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEADRACE = "import sys; from headrace.cli import main; sys.exit(main())"
GOOD = "name: gen\nsource: {connector: datagen, rows: 10}\ntopic: gen\n"


def _headrace(
    *arguments: str, home: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HEADRACE_HOME": str(home), **variables}
    return subprocess.run(
        [sys.executable, "-c", HEADRACE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )


@pytest.fixture
def good(tmp_path: Path) -> str:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    return str(file)


def test_validation_ends_with_0_and_starts_no_spark(tmp_path: Path, good: str) -> None:
    ended = _headrace("validate", good, home=tmp_path, JAVA_HOME="/no/java")
    assert ended.returncode == 0
    assert ended.stdout == f"ok: gen (source) in {good}\n"
    assert ended.stderr == ""
    assert not (tmp_path / "logs" / "jvm.log").exists()


def test_a_wrong_definition_ends_run_and_preview_with_2(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(GOOD.replace("rows: 10", "rows: ten, bogus: 1"))
    for command in ("run", "preview", "validate"):
        ended = _headrace(command, str(file), home=tmp_path, JAVA_HOME="/no/java")
        assert ended.returncode == 2, command
        assert ended.stderr.count("error[config.invalid] source.") == 2, command


def test_a_wrong_definition_is_json_for_those_who_asked(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(GOOD.replace("rows: 10", "rows: ten"))
    ended = _headrace("run", str(file), "--json", home=tmp_path)
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["errors"][0]["field"] == "source.rows"
    assert ended.stderr == ""


def test_a_machine_without_java_ends_with_3_and_says_what_to_do(
    tmp_path: Path, good: str
) -> None:
    ended = _headrace("run", "--once", good, home=tmp_path, JAVA_HOME="/no/java")
    assert ended.returncode == 3
    assert "error[environment.incomplete] " in ended.stderr
    assert "fix: Correct JAVA_HOME" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_verbose_adds_the_traceback(tmp_path: Path, good: str) -> None:
    ended = _headrace("run", "--once", good, "-v", home=tmp_path, JAVA_HOME="/no/java")
    assert ended.returncode == 3
    assert "Traceback" in ended.stderr


def test_no_colours_reach_a_pipe(tmp_path: Path, good: str) -> None:
    ended = _headrace("validate", good, "/no/file", home=tmp_path, TERM="xterm-256color")
    assert "\x1b" not in ended.stdout + ended.stderr


def test_no_color_is_obeyed_where_colours_are_forced(tmp_path: Path) -> None:
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    colored = _headrace("validate", "/no/file", home=tmp_path, **forced)
    assert "\x1b[1;31m" in colored.stderr
    plain = _headrace("validate", "/no/file", "--no-color", home=tmp_path, **forced)
    assert "\x1b" not in plain.stderr
    variable = _headrace("validate", "/no/file", home=tmp_path, **forced, NO_COLOR="1")
    assert "31m" not in variable.stderr


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    shell = f'"{sys.executable}" -c "{HEADRACE}" plugins describe datagen | true'
    ended = subprocess.run(
        ["/bin/sh", "-c", shell], capture_output=True, text=True, check=False, timeout=120
    )
    assert "Traceback" not in ended.stderr
