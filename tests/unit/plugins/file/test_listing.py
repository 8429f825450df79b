"""What a glob finds where links lead in circles and folders may not be read."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.sdk.location import Location
from headrace_plugins.connectors.file.listing import Listing, Share


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "top.csv").write_text("y\n")
    return tmp_path


@pytest.fixture
def deny(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Refuse a folder and what is in it, as for another user than root."""
    scandir, stat = os.scandir, os.stat

    def refuse(denied: Path) -> None:
        def listed(path: Any) -> Iterator[os.DirEntry[str]]:
            if str(path) == str(denied):
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        def looked_at(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            if not isinstance(path, int) and denied in Path(path).parents:
                raise PermissionError(13, "Permission denied", str(path))
            return stat(path, *args, **kwargs)

        monkeypatch.setattr(os, "scandir", listed)
        monkeypatch.setattr(os, "stat", looked_at)

    return refuse


def found(folder: Path, pattern: str, *, recursive: bool = False) -> list[str]:
    listing = Listing(Location.of(folder / pattern), recursive=recursive)
    return sorted(str(Path(path).relative_to(folder)) for path in listing.paths())


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*/a.csv", ["in/a.csv"]),
        ("*/*.csv", ["in/a.csv"]),
        ("**/*.csv", ["in/a.csv", "top.csv"]),
        ("**/a.csv", ["in/a.csv"]),
        ("**", ["in/a.csv", "top.csv"]),
    ],
)
def test_a_glob_passes_over_a_folder_that_may_not_be_read(
    folder: Path, deny: Callable[[Path], None], pattern: str, names: list[str]
) -> None:
    deny(folder / "lost+found")
    listing = Listing(Location.of(folder / pattern))
    with capture_logs() as logs:
        for _ in range(2):
            paths = {str(Path(path).relative_to(folder)) for path in listing.paths()}
            assert sorted(paths) == names
    assert [(entry["log_level"], entry["folder"]) for entry in logs] == [
        ("warning", str(folder / "lost+found"))
    ]


@pytest.mark.parametrize("path", ["in", "in/*.csv", "in/a.csv"])
def test_a_path_that_does_not_exist_is_logged_once_until_it_is_back(
    folder: Path, path: str
) -> None:
    listing = Listing(Location.of(folder / path))
    with capture_logs() as logs:
        listing.warn_if_missing()
        (folder / "in").rename(folder / "away")
        listing.warn_if_missing()
        listing.warn_if_missing()
        (folder / "away").rename(folder / "in")
        listing.warn_if_missing()
        listing.warn_if_missing()
        (folder / "in").rename(folder / "away")
        listing.warn_if_missing()
    assert [entry["log_level"] for entry in logs] == ["warning", "info", "warning"]
    assert logs[0]["path"] == str(folder / path.removesuffix("/*.csv"))


@pytest.mark.parametrize("pattern", ["*.csv", "**/*.csv", "*/a.csv"])
def test_the_folder_that_a_glob_begins_in_must_be_readable(
    folder: Path, deny: Callable[[Path], None], pattern: str
) -> None:
    deny(folder)
    with pytest.raises(PermissionError):
        found(folder, pattern)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["top.csv"]),
        ("*/*.csv", ["in/a.csv"]),
        ("**/*.csv", ["in/a.csv", "top.csv"]),
    ],
)
def test_a_glob_passes_over_links_that_lead_nowhere(
    folder: Path, pattern: str, names: list[str]
) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("missing")
    assert found(folder, pattern) == names


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/*.csv", ["in/a.csv", "top.csv"]),
        ("**", ["in/a.csv", "top.csv"]),
        ("in/*/top.csv", ["in/up/top.csv"]),
    ],
)
def test_links_that_lead_in_a_circle_are_followed_once_where_named(
    folder: Path, pattern: str, names: list[str]
) -> None:
    (folder / "in" / "up").symlink_to("..")
    assert found(folder, pattern) == names


def test_a_glob_finds_what_is_behind_links_to_folders(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "b.csv").write_text("z\n")
    (elsewhere / "back").symlink_to(folder / "in")
    (folder / "in" / "linked").symlink_to(elsewhere)
    assert found(folder, "**/*.csv") == ["in/a.csv", "in/linked/b.csv", "top.csv"]


def test_a_recursive_folder_follows_links_but_not_in_a_circle(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "b.csv").write_text("z\n")
    (folder / "in" / "up").symlink_to("..")
    (folder / "in" / "other").symlink_to(other)
    (other / "back").symlink_to(folder / "in")
    assert found(folder, "in", recursive=True) == [
        "in/a.csv",
        "in/other/b.csv",
        "in/up/other/b.csv",
        "in/up/top.csv",
    ]


def test_a_folder_with_only_subfolders_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.csv").write_text("x\n")
    listing = Listing(Location.of(tmp_path))
    with capture_logs() as logs:
        assert listing.new((), share=Share()) == []
        assert listing.new((), share=Share()) == []
        (tmp_path / "b.csv").write_text("x\n")
        assert [Path(file.path).name for file in listing.new((), share=Share())] == ["b.csv"]
    assert [log["event"] for log in logs] == [
        "no files in the folder; set recursive: true to read its subfolders"
    ]
