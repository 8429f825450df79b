"""A command that starts warm does what the same command does that starts by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COPY = """
name: few
source: {connector: file, path: few.csv, schema: id string}
sinks: [{connector: delta, path: few}]
"""
PROGRAM = Path(sys.executable).with_name("headrace")


def ended(
    program: Path, folder: Path, arguments: list[str], **variables: str
) -> tuple[int, str, str]:
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=os.environ | variables,
        input="given",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["validate", "wrong.yaml"], {"FORCE_COLOR": "1"}),
        (["validate", "own.yaml"], {"PYTHONPATH": "."}),
        (["no-such-command"], {}),
    ],
)
def test_its_ends_and_its_code_are_the_same(
    tmp_path: Path, warm_programs: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    (tmp_path / "wrong.yaml").write_text("name: a\nsource: {connector: nobody}\ntopic: a\n")
    (tmp_path / "own.yaml").write_text("name: a\nsource: {connector: own.Own}\ntopic: a\n")
    (tmp_path / "own.py").write_text("class Own: pass\n")
    warm = ended(warm_programs / "headrace", tmp_path, arguments, **variables)
    assert warm == ended(PROGRAM, tmp_path, arguments, **variables)


@pytest.mark.parametrize(
    ("rows", "code", "variables"),
    [
        ("1\n", 0, {}),
        ('1\n"2', 1, {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}),
    ],
    ids=["tests without a context", "tests with one"],
)
def test_one_java_is_used_by_all_of_them(
    tmp_path: Path, warm_programs: Path, rows: str, code: int, variables: dict[str, str]
) -> None:
    (tmp_path / "few.yaml").write_text(COPY)
    (tmp_path / "few.csv").write_text("id\n" + rows)
    java = []
    for arguments in (["preview", "few.yaml"], ["run", "--once", "few.yaml"]) * 2:
        found, out, err = ended(
            warm_programs / "headrace",
            tmp_path,
            arguments,
            HEADRACE_HOME=str(tmp_path / "home"),
            **variables,
        )
        assert found == (code if arguments[0] == "run" else 0), out + err
        java.append(json.loads((warm_programs.parent / "jvm.json").read_text()))
    assert len({each["pid"] for each in java}) == 1
    assert java[-1]["uses"] - java[0]["uses"] == 3
