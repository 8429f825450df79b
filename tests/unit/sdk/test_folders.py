"""Folders that sinks write to."""

from pathlib import Path

import pytest
from tests.faults.volumes import may_mount, volume

from headrace.sdk import ConfigError, SinkError
from headrace.sdk.folders import check_placeholders, fixed_folder, require_writable
from headrace.sdk.location import Location


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a/b", "/a/b"),
        ("/a/${topic}", "/a"),
        ("/a/x-${topic}", "/a"),
        ("/a/${topic}/b", "/a"),
        ("${topic}", "."),
    ],
)
def test_the_fixed_folder_is_above_what_a_topic_names(path: str, folder: str) -> None:
    assert fixed_folder(Location.of(path), "${topic}") == Location.of(folder)


def test_a_placeholder_that_nothing_fills_in_is_an_error() -> None:
    known = ("${topic}", "${table}")
    check_placeholders("path", "/a/${topic}/${env:X}/$5", known)
    with pytest.raises(ConfigError, match=r"Unknown placeholder \$\{topc\}") as caught:
        check_placeholders("path", "/a/${topc}", known)
    assert caught.value.fix == "Did you mean ${topic}?"


def test_a_writable_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    require_writable(Location.of(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_below_a_file_is_refused_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written to: Not a directory") as caught:
        require_writable(Location.of(tmp_path / "file" / "out"))
    assert caught.value.field == "path"


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount file systems")
def test_a_folder_that_is_read_only_for_a_while_is_no_fault_of_the_configuration(
    tmp_path: Path,
) -> None:
    with volume(tmp_path / "disk", 1) as disk:
        with disk.read_only(), pytest.raises(SinkError, match="Read-only file system"):
            require_writable(Location.of(disk.path / "out"))
        require_writable(Location.of(disk.path / "out"))
