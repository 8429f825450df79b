"""A followed log loses and repeats nothing in any of logrotate's usual ways."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.plugins.file.rotated_log import RotatedLog

from headrace_plugins.connectors.file.rotation import base_path

Make = Callable[..., RotatedLog]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[RotatedLog] = []

    def new(pattern: str = "app.log", *, dated: bool = False) -> RotatedLog:
        made.append(RotatedLog(tmp_path / str(len(made)), pattern, dated=dated))
        return made[-1]

    yield new
    for each in made:
        each.close()


def begun(make: Make, pattern: str = "app.log", **more: bool) -> RotatedLog:
    """Return a log whose first line is read."""
    log = make(pattern, **more)
    log.write()
    log.poll()
    return log


def warnings(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in entries if each["log_level"] in {"warning", "error"}]


@pytest.mark.parametrize("pattern", ["app.log", "*.log", "app.log*"])
def test_what_a_writer_adds_before_it_reopens_comes_before_the_new_files_lines(
    make: Make, pattern: str
) -> None:
    log = begun(make, pattern)
    log.rename()
    log.poll()
    log.write(2)
    log.reopen()
    log.write()
    assert log.poll() == ["line 1", "line 2"]
    log.wait()
    assert log.poll() == ["line 3"]
    assert log.found == log.written


def test_a_reused_inode_makes_no_copy_of_a_file_that_is_written_to(make: Make) -> None:
    log = begun(make)
    log.stop()
    for _ in range(2):
        log.write()
        log.rename()
        log.reopen()
        log.compress()
    log.write()
    log.rename()  # its writer has not gone on to the new file yet
    stored = json.loads(log.stored)
    stored[str(log.path)]["inode"] = log.path.stat().st_ino  # that of what was compressed
    log.stored = json.dumps(stored)
    log.restart()
    log.poll()
    log.write()
    log.reopen()
    log.write()
    assert list(log.settled()) == log.written


def test_half_a_line_waits_for_its_end_over_a_rotation(make: Make) -> None:
    log = begun(make)
    log.write_half()
    log.poll()
    log.rename()
    assert log.poll() == []
    log.write()
    assert log.poll() == ["line 1 in two 1"]


def test_half_a_line_that_nobody_ends_comes_when_its_file_is_finished(make: Make) -> None:
    log = begun(make)
    log.write_half()
    log.rename()
    log.writer.close()
    log.writer = log.path.open("ab", buffering=0)
    log.writer.write(b"new\n")
    assert log.poll() == []
    log.wait()
    assert log.poll() == ["line 1 in", "new"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("dated", [False, True])
def test_files_that_were_rotated_while_nobody_read_come_in_their_order(
    make: Make, restarted: bool, dated: bool
) -> None:
    log = begun(make, dated=dated)
    for _ in range(5):
        log.write()
        log.rename()
        log.write()
        log.reopen()
        log.compress()
    if restarted:
        log.restart()
    assert list(log.settled()) == log.written


def test_a_copy_is_not_read_again_and_has_what_was_truncated_too_early(make: Make) -> None:
    for pattern in ("app.log", "app.log*"):
        log = begun(make, pattern)
        log.copy()
        log.now += 2
        assert log.poll() == []
        log.truncate()
        log.write()
        assert log.poll() == ["line 1"]
        log.write(2)
        log.copy()
        log.truncate()
        log.write()
        assert log.poll() == ["line 2", "line 3", "line 4"]
        log.restart()
        assert log.poll() == []


def test_a_line_that_copytruncate_cuts_in_two_comes_whole(make: Make) -> None:
    log = begun(make)
    log.write_half()
    log.copy()
    log.truncate()
    assert log.poll() == []
    log.restart()
    log.write()
    assert log.poll() == []  # who was away is not certain that nothing comes to the copy
    log.wait()
    assert log.poll() == ["line 1 in two 1"]


def test_a_copy_that_is_compressed_is_no_copy_of_a_file_that_begins_as_it_did(
    make: Make,
) -> None:
    log = begun(make)
    for number in range(2):
        log.copy()
        log.truncate()
        log.writer.write(b"\n")  # as all files begin
        log.poll()
        log.wait()
        log.writer.write(f"line {number}".encode())
    log.copy()
    log.truncate()
    log.writer.write(b"\n")
    log.poll()
    log.compress(newest=True)
    log.writer.write(b"last\n")
    log.poll()
    assert log.found == ["line 0", "", "line 0", "line 1", "last"]


def test_what_follows_an_empty_file_is_not_taken_for_it(make: Make) -> None:
    log = begun(make)
    log.rename()
    log.reopen()
    log.poll()
    log.wait()
    log.rename()
    log.reopen()
    log.compress(newest=True)
    log.write()
    log.rename()
    assert list(log.settled()) == log.written


def test_a_writer_that_keeps_its_place_leaves_no_zero_bytes(make: Make) -> None:
    log = begun(make)
    with log.path.open("r+b") as writer:
        writer.seek(0, os.SEEK_END)
        log.copy()
        log.truncate()
        writer.write(b"new\n")
    assert log.poll() == ["new"]


def test_files_that_begin_alike_are_told_apart(make: Make) -> None:
    """A long header is the same in each file of a log."""
    header = "#" * 600 + "\n"
    log = make()
    log.writer.write(f"{header}one\n".encode())
    log.poll()
    log.rename()
    log.path.unlink()
    log.reopen()
    log.writer.write(f"{header}two\nthree\n".encode())
    log.rename()
    log.path.write_text(f"{header}four\n")
    log.restart()
    for _ in range(3):
        log.poll()
        log.wait()
    assert [each for each in log.found if "#" not in each] == ["one", "two", "three", "four"]


def test_without_a_new_file_the_rotated_one_is_followed_on(make: Make) -> None:
    log = begun(make)
    log.rename(create=False)
    log.write()
    assert log.poll() == ["line 1"]
    log.wait()
    log.write_half()
    assert log.poll() == []
    log.write()
    assert log.poll() == ["line 2 in two 2"]


def test_lines_are_not_held_back_for_ever_by_a_writer_that_never_reopens(make: Make) -> None:
    log = begun(make)
    log.rename()
    with log.path.open("ab", buffering=0) as other:
        other.write(b"other\n")
    found = []
    for _ in range(4):
        log.write()
        found += log.poll()
        log.now += 900
    assert "other" in found
    assert len(found) == 5


def test_a_file_that_grows_after_it_was_finished_is_read_on(make: Make) -> None:
    log = begun(make)
    log.rename()
    log.path.write_text("new\n")
    log.poll()
    log.wait()
    assert log.poll() == ["new"]
    log.write()
    log.now += 2
    assert log.poll() == ["line 1"]
    assert log.poll() == []


def test_what_came_to_a_finished_file_before_it_was_compressed_is_read(make: Make) -> None:
    log = begun(make)
    log.rename()
    log.path.write_text("new\n")
    log.poll()
    log.wait()
    assert log.poll() == ["new"]
    log.write()
    log.compress(newest=True)
    log.now += 2
    assert log.poll() == ["line 1"]
    log.restart()
    assert log.poll() == []


def test_a_file_that_is_compressed_while_it_waits_for_its_turn_comes_once(make: Make) -> None:
    log = begun(make)
    for _ in range(3):
        log.rename()
        log.reopen()
        log.write()
        log.now += 2
        assert log.poll() == []
    log.compress()
    log.compress()
    log.now += 2
    assert list(log.settled()) == log.written


@pytest.mark.parametrize("half", [False, True])
def test_a_file_that_is_compressed_at_once_is_finished_after_one_wait(
    make: Make, half: bool
) -> None:
    log = begun(make)
    if half:
        log.write_half()
        log.written.append(log.half)
    log.poll()
    log.rename()
    log.writer.close()
    log.writer = log.path.open("ab", buffering=0)
    log.half = ""
    log.compress(newest=True)
    log.write()
    log.now += 2
    assert log.poll() == []
    log.wait()
    log.poll()
    assert log.found == log.written
    log.restart()
    assert log.poll() == []


def test_a_file_that_waits_for_its_turn_is_held_before_it_is_compressed(make: Make) -> None:
    log = begun(make)
    log.rename()
    log.reopen()
    log.poll()
    log.write()
    log.rename()
    log.reopen()
    log.compress(newest=True)
    with capture_logs() as entries:
        log.now += 2
        assert list(log.settled()) == log.written
    assert warnings(entries) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_compressed_file_that_is_dated_before_its_last_lines_is_not_read_again(
    make: Make, restarted: bool
) -> None:
    log = begun(make)
    log.rename()
    log.write()
    log.poll()
    log.reopen()
    log.compress(newest=True, late_seconds=2)
    if restarted:
        log.restart()
    with capture_logs() as entries:
        log.now += 2
        assert list(log.settled()) == log.written
    assert warnings(entries) == []


def test_many_rotated_files_wait_together(make: Make) -> None:
    log = begun(make)
    for _ in range(5):
        log.rename()
        log.now += 2
        log.poll()
    log.reopen()
    log.write()
    log.poll()
    log.wait()
    assert log.poll() == ["line 1"]


def test_a_file_that_cannot_be_read_any_more_is_named(make: Make) -> None:
    log = begun(make)
    log.rename()
    log.reopen()
    log.write()
    log.rename()
    log.reopen()
    log.stop()
    packed = log.folder / "app.log.1"
    packed.rename(f"{packed}.zst")
    with capture_logs() as entries:
        log.restart()
        log.poll()
    (told,) = warnings(entries)
    assert told["file"] == f"{packed}.zst"
    assert "skipping" in str(told["event"])


def test_a_file_that_was_removed_unread_is_named(make: Make) -> None:
    log = begun(make)
    log.stop()
    log.write()
    log.rename()
    log.rotated()[0].unlink()
    with capture_logs() as entries:
        log.restart()
        log.poll()
    (told,) = warnings(entries)
    assert told["log"] == str(log.path)
    assert told["position"] == len("line 0\n")


def test_a_broken_archive_is_named(make: Make) -> None:
    log = begun(make)
    log.stop()
    log.write()
    log.rename()
    log.reopen()
    log.rename()
    log.reopen()
    log.compress()
    packed = next(each for each in log.folder.iterdir() if each.suffix == ".gz")
    packed.write_bytes(b"not at all")
    log.restart()
    with capture_logs() as entries:
        log.poll()
        log.wait()
        log.poll()
    assert str(packed) in [each.get("file") for each in warnings(entries)]


@pytest.mark.parametrize("name", ["app.log.old", "elsewhere"])
def test_a_file_is_known_under_whatever_name_it_has_now(make: Make, name: str) -> None:
    log = begun(make)
    log.stop()
    log.write()
    log.path.rename(log.folder / name)
    log.reopen()
    log.restart()
    assert log.poll() == ["line 1"]


def test_a_position_of_an_earlier_version_is_understood(make: Make) -> None:
    log = begun(make)
    (offset,) = json.loads(log.stored).values()
    old = {key: offset[key] for key in ("position", "inode", "head", "head_bytes")}
    log.stored = json.dumps({str(log.path): old})
    log.write()
    log.rename()
    log.reopen()
    log.restart()
    assert list(log.settled()) == log.written


def test_rotated_files_from_before_the_first_start_are_read_if_the_pattern_finds_them(
    make: Make,
) -> None:
    for pattern, found in [("app.log", ["line 2"]), ("app.log*", ["line 1", "line 2"])]:
        log = make(pattern)
        log.write()
        log.rename()
        log.reopen()
        log.write()
        log.rename()
        log.reopen()
        log.write()
        log.compress()
        log.poll()
        log.wait()
        log.poll()
        assert log.found == found


def test_files_whose_log_is_not_followed_are_followed_one_by_one(make: Make) -> None:
    log = make("app.log.*")
    log.write(2)
    log.rename()
    assert log.poll() == log.written
    log.reopen()
    log.write(2)
    assert log.poll() == []
    log.rename()
    log.now += 2
    log.poll()
    log.restart()
    log.poll()
    assert log.found == log.written


def test_what_is_removed_is_closed_and_forgotten(make: Make) -> None:
    log = make("day-*.log")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for day in range(1, 61):
        (log.folder / f"day-{day:03}.log").write_text("x\n" * 5)
        if day > 7:
            (log.folder / f"day-{day - 7:03}.log").unlink()
        log.now += 2000
        assert len(log.poll()) == 5
    for _ in range(4):
        log.now += 4000
        log.poll()
    log.stored = json.dumps(log.offsets())
    assert len(log.offsets()) == 7
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 8


def test_an_empty_folder_is_rather_not_mounted_and_nothing_is_forgotten(make: Make) -> None:
    log = make("*.txt")
    (log.folder / "a.txt").write_text("x\n")
    assert log.poll() == ["x"]
    away = shutil.move(log.folder, f"{log.folder}.away")
    log.folder.mkdir()
    log.poll()
    log.now += 10_000
    log.poll()
    log.folder.rmdir()
    shutil.move(away, log.folder)
    log.now += 2
    assert log.poll() == []
    assert len(log.offsets()) == 1


def test_a_position_is_small_however_many_files_were_rotated(make: Make) -> None:
    log = begun(make)
    for _ in range(100):
        log.write()
        log.rename()
        log.reopen()
        log.poll()
        log.wait()
    assert list(log.settled()) == log.written
    assert len(log.stored) < 3000


FEW_DESCRIPTORS = """
import resource, sys
from headrace.sdk.location import Location
from headrace_plugins.connectors.file.growing import Followed
from headrace_plugins.connectors.file.listing import Listing, Share

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for pattern in sys.argv[1:]:
    followed = Followed(Listing(Location.of(pattern)), Share(), {}, rotate_wait=0)
    found = []
    while (read := followed.read(1 << 20, None)) is not None:
        found += read[1].lines.split()
    print(len(found), len(set(found)))
    followed.close()
"""


def test_thousands_of_files_need_few_descriptors(tmp_path: Path) -> None:
    for number in reversed(range(1000)):
        (tmp_path / f"many-{number}.log").write_text(f"{number}\n")
        (tmp_path / f"app.log.{number + 1}").write_text(f"{number}\n")
    (tmp_path / "app.log").write_text("now\n")
    run = subprocess.run(
        [
            *(sys.executable, "-c", FEW_DESCRIPTORS),
            *(str(tmp_path / "many-*.log"), str(tmp_path / "app.log*")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.stdout.splitlines() == ["1000 1000", "1001 1001"], run.stderr


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("app.log.1", "app.log"),
        ("app.log.12.gz", "app.log"),
        ("app.log-20260131", "app.log"),
        ("app.log-20260131-1769817600.xz", "app.log"),
        ("app.log.2026-01-31_13", "app.log"),
        ("app-20260131.log", "app.log"),
        ("app.1.log.zst", "app.log"),
        ("app-001.log", "app-001.log"),
        ("20260131.log", "20260131.log"),
        ("syslog", "syslog"),
    ],
)
def test_a_rotated_files_name_says_whose_it_is(name: str, base: str) -> None:
    assert base_path(f"/var/log/{name}") == f"/var/log/{base}"
