"""A sink into one file loses no line when its disk is full for a moment."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sdk import Mark, SinkError
from headrace.sdk.location import Location
from headrace_plugins.connectors.file.linefile import _LineFile, _StagedLines
from headrace_plugins.connectors.file.output import staging_folder

PAGE = 4096
FIRST, SECOND = "one\n", "two\n" * 5000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk of its own, which may be filled up."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={64 * PAGE}", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a disk takes more rights")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", str(folder)], check=True)


def staged(target: _LineFile, mark: Mark, text: str) -> _StagedLines:
    """Stage lines as Spark does."""
    folder = staging_folder(target.house, mark)
    folder.local.mkdir(parents=True, exist_ok=True)
    (folder.local / "part-00000.txt").write_text(text)
    return _StagedLines(target, mark, folder, text.count("\n"))


def commit(target: _LineFile, mark: Mark, text: str) -> None:
    staged(target, mark, text).commit(mark.receipt({}))


def run_again(target: _LineFile, mark: Mark, text: str) -> None:
    """Run a batch again as the runtime does."""
    receipt = target.completed(mark)
    if receipt is None:
        commit(target, mark, text)
    else:
        mark.require_range(receipt)


def fill(ballast: Path) -> None:
    """Fill a disk to the last byte."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * PAGE):
                pass
        except OSError:
            return


def test_lines_arrive_once_wherever_the_disk_was_full(small_disk: Path) -> None:
    failed = 0
    for pages in range(12):
        folder = small_disk / str(pages)
        folder.mkdir()
        target = _LineFile(Location.of(folder / "out.txt"))
        commit(target, Mark("c-0", 1, 1), FIRST)
        batch = staged(target, Mark("c-0", 2, 1), SECOND)
        ballast = small_disk / "ballast"
        fill(ballast)
        with ballast.open("r+b") as file:
            file.truncate(max(0, ballast.stat().st_size - pages * PAGE))
        try:
            batch.commit(batch.mark.receipt({}))
        except OSError:
            failed += 1
            batch.abort()
        ballast.unlink()
        run_again(target, Mark("c-0", 2, 2), SECOND)
        assert target.path.read_text() == FIRST + SECOND
        commit(target, Mark("c-0", 3, 2), FIRST)
        assert target.path.read_text() == FIRST + SECOND + FIRST
        assert not list((target.house.local / "staging").rglob("part-*"))
        target.path.delete()
    assert 2 < failed < 12


def test_lines_are_kept_when_adding_them_fails(tmp_path: Path) -> None:
    target = _LineFile(Location.of(tmp_path / "out.txt"))
    commit(target, Mark("c-0", 1, 1), FIRST)
    batch = staged(target, Mark("c-0", 2, 1), SECOND)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            batch.commit(batch.mark.receipt({}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    batch.abort()
    assert target.completed(Mark("c-0", 2, 2)) == batch.mark.receipt({})
    assert target.path.read_text() == FIRST + SECOND


def test_lines_that_are_gone_before_they_were_added_are_an_error(tmp_path: Path) -> None:
    target = _LineFile(Location.of(tmp_path / "out.txt"))
    batch = staged(target, Mark("c-0", 1, 1), FIRST)
    (tmp_path / "out.txt").mkdir()  # so that adding fails
    with pytest.raises(IsADirectoryError):
        batch.commit(batch.mark.receipt({}))
    (tmp_path / "out.txt").rmdir()
    kept = batch.staging.local.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(SinkError, match="its lines are gone") as gone:
            target.completed(Mark("c-0", 1, 2))
        assert "Restore that folder" in str(gone.value.fix)
    kept.rename(batch.staging.local)
    assert target.completed(Mark("c-0", 1, 2)) is not None
    assert target.path.read_text() == FIRST


def test_a_batch_without_lines_keeps_its_mark(tmp_path: Path) -> None:
    target = _LineFile(Location.of(tmp_path / "out.txt"))
    mark = Mark("c-0", 1, 1)
    _StagedLines(target, mark, staging_folder(target.house, mark), 0).commit(mark.receipt({}))
    assert target.completed(mark) == mark.receipt({})
