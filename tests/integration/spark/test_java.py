"""A Java that Spark can use is found; another is told."""

from pathlib import Path

import pytest

from headrace.sdk.errors import SetupError
from headrace.spark.jvm import find_java


def java_that_says(folder: Path, version: str) -> Path:
    """A Java home whose java tells a version, as the ones we cannot install would."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return folder


def test_the_java_of_this_machine_is_found_and_can_be_asked_for() -> None:
    found = find_java()
    assert found.command.is_file()
    assert find_java(found.home) == found


@pytest.mark.parametrize("version", ["17", "17.0.1", "21.0.9"])
def test_java_17_and_21_will_do(tmp_path: Path, version: str) -> None:
    assert find_java(java_that_says(tmp_path, version)).version == version


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "25.0.1"])
def test_another_java_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(SetupError, match="not a Java 17 or 21") as raised:
        find_java(java_that_says(tmp_path, version))
    assert "JAVA_HOME" in raised.value.fix


def test_a_java_home_that_is_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=str(tmp_path)):
        find_java(tmp_path)


def test_an_unfit_java_on_the_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_that_says(tmp_path, "11.0.2")
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=":")
    assert find_java().home != home
