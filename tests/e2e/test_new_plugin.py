"""What ``headrace plugins new`` writes works as it is, and passes its own tests."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.e2e.pairs import HEADRACE

KINDS = ("source", "capture", "sink", "record-sink", "transform", "predicate")
WITH_KIT = KINDS[:4]


def new(folder: Path, kind: str, name: str) -> Path:
    command = [str(HEADRACE), "plugins", "new", kind, name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / name


def output_of(package: Path, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options],
        cwd=package,
        env={**os.environ, "HEADRACE_HOME": str(package / ".home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_passes_its_own_quick_tests(kind: str, tmp_path: Path) -> None:
    package = new(tmp_path, kind, f"acme-{kind}")
    assert re.match(
        r"\.+ .*\n[12] passed", output_of(package, "-k", "not Acceptance and not TestAcme")
    )
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F,I", "."]
    subprocess.run(ruff, cwd=package, check=True)
    project = tomllib.loads((package / "pyproject.toml").read_text())
    (group,) = project["project"]["entry-points"].values()
    (path,) = group.values()
    module, _, name = path.partition(":")
    code = f"import {module}; print({module}.{name}.__doc__ is not None)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=package, check=True, capture_output=True, text=True
    )
    assert found.stdout == "True\n"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", WITH_KIT)
def test_a_new_connector_passes_the_whole_acceptance_kit(kind: str, tmp_path: Path) -> None:
    assert "passed" in output_of(new(tmp_path, kind, f"acme-{kind}"))
