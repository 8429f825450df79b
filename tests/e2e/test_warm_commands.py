"""A command that starts warm does what the same command does that starts by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
