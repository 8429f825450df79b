"""What the guarantees need of a file system; each implementation runs all of it."""

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import MagicMock, Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.contract.memory_store import MemoryStore

from headrace.sdk import durability, location
from headrace.sdk.durability import Durability
from headrace.sdk.location import Location, sync

WRITERS = 8
IMPLEMENTATIONS: dict[str, Callable[[Path], Location]] = {
    "local": Location.of,
    "memory": lambda folder: Location("memory", "bucket", str(folder)),
}
"""A folder of its own for a test, by the file system that it is in."""


@pytest.fixture(params=IMPLEMENTATIONS)
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Location:
    monkeypatch.setitem(location.FILE_SYSTEMS, "memory", MemoryStore())
    found = IMPLEMENTATIONS[request.param](tmp_path / "data")
    found.make_folder()
    return found


def names(folder: Location) -> list[str]:
    return sorted(entry.name for entry in folder.list())


def written(place: Location, text: str) -> Location:
    with place.open_output() as file:
        file.write(text.encode())
    return place


def at_once(work: Callable[[int], bool]) -> list[bool]:
    """Run it in many threads that start together."""
    barrier = Barrier(WRITERS)

    def run(number: int) -> bool:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(run, range(WRITERS)))


def _putting(place: Location) -> Callable[[int], bool]:
    return lambda writer: place.put_new(str(writer))


def test_free_space_is_known_at_most_where_there_is_a_folder(folder: Location) -> None:
    free = folder.free_bytes()
    assert free is None or free > 0
    assert (folder / "missing").free_bytes() is None


def test_of_many_that_put_a_new_file_exactly_one_is_first(folder: Location) -> None:
    for number in range(20):
        place = folder / f"{number:020d}.json"
        won = at_once(_putting(place))
        assert won.count(True) == 1
        assert place.read_text() == str(won.index(True))
    assert len(names(folder)) == 20


def test_a_file_that_is_there_is_not_put_anew(folder: Location) -> None:
    place = written(folder / "0.json", "first")
    assert not place.put_new("second")
    assert place.read_text() == "first"
    assert names(folder) == ["0.json"]


def test_whoever_reads_while_a_file_is_replaced_reads_the_old_or_the_new(
    folder: Location,
) -> None:
    place = folder / "mark.json"
    whole = {str(n) * 50_000 for n in range(WRITERS)}
    place.put("0" * 50_000)

    def replaced_or_read(number: int) -> bool:
        for _ in range(20):
            if number % 2:
                place.put(str(number) * 50_000)
            elif place.read_text() not in whole:
                return False
        return True

    assert all(at_once(replaced_or_read))
    assert names(folder) == ["mark.json"]


def test_put_makes_the_folders_above(folder: Location) -> None:
    (folder / "a/b/mark.json").put("x", up_to=folder)
    assert (folder / "a").is_folder()
    assert (folder / "a/b/mark.json").read_text() == "x"


def test_a_listing_tells_files_from_folders_and_looks_at_them(folder: Location) -> None:
    written(folder / "a file", "12345")
    written(folder / "sub/x", "")
    found = {entry.name: entry for entry in folder.list()}
    assert {name: entry.is_folder for name, entry in found.items()} == {
        "a file": False,
        "sub": True,
    }
    info = found["a file"].info()
    assert info is not None
    assert info == (folder / "a file").info()
    assert (info.size_bytes, info.is_folder) == (5, False)
    assert sorted(entry.location.relative_to(folder) for entry in folder.walk()) == [
        "a file",
        "sub",
        "sub/x",
    ]


def test_what_is_not_there_is_neither_listed_nor_read(folder: Location) -> None:
    missing = folder / "missing"
    assert list(missing.list()) == []
    assert missing.info() is None
    for use in (missing.read_bytes, missing.open_input, missing.touch):
        with pytest.raises(FileNotFoundError):
            use()
    with pytest.raises(FileNotFoundError):
        missing.move_to(folder / "x")
    missing.delete()
    assert missing.delete_folder()


def test_a_file_that_is_made_anew_has_another_identity_or_time(folder: Location) -> None:
    place = written(folder / "x", "one")
    before = place.info()
    kept = place.parent / "kept"
    place.move_to(kept)
    after = written(place, "one").info()
    assert before is not None
    assert after is not None
    assert (before.identity, before.mtime_ns) != (after.identity, after.mtime_ns)
    moved = kept.info()
    assert moved is not None
    assert moved.mtime_ns >= before.mtime_ns


def test_a_moved_file_takes_the_place_of_another(folder: Location) -> None:
    target = written(folder / "final/x", "old")
    written(folder / "staged", "new").move_to(target)
    assert target.read_text() == "new"
    assert names(folder) == ["final"]


def test_a_touched_file_is_younger_and_the_same(folder: Location) -> None:
    place = written(folder / "x", "text")
    before = place.info()
    place.touch()
    after = place.info()
    assert before is not None
    assert after is not None
    assert after.mtime_ns >= before.mtime_ns
    assert place.read_text() == "text"


def test_a_folder_is_deleted_with_all_in_it_and_nothing_else(folder: Location) -> None:
    written(folder / "a/b/x", "")
    written(folder / "ab", "")
    assert (folder / "a").delete_folder()
    assert names(folder) == ["ab"]
    (folder / "ab").delete()
    assert names(folder) == []


def test_a_lock_lets_one_in_at_a_time(folder: Location) -> None:
    inside: list[int] = []

    def enter(number: int) -> bool:
        with (folder / "lock").lock():
            inside.append(number)
            alone = inside == [number]
            inside.clear()
        return alone

    assert all(at_once(enter))


def test_pyarrow_writes_and_reads(folder: Location) -> None:
    place = folder / "data/x.parquet"
    with place.open_output() as file:
        pq.write_table(pa.table({"a": [1, 2]}), file)
    sync([place], up_to=folder)
    with place.open_input() as file, pq.ParquetFile(file) as parquet:
        assert parquet.read().column("a").to_pylist() == [1, 2]


def test_any_name_is_kept_in_the_url_and_when_pickled(folder: Location) -> None:
    for name in ("a b", "é%20=?#+&'(~!,@$*;[]", "x=1"):
        place = written(folder / name, name)
        assert Location.of(str(place)) == place
        assert Location.of(place.url) == place
        assert pickle.loads(pickle.dumps(place)) == place  # noqa: S301 - made here
        assert place.read_text() == name
        place.delete()


# --- what only a disk can show -------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("new", [True, False])
def test_a_crash_between_write_and_rename_leaves_nothing_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    folder = Location.of(tmp_path)
    place = folder / "0.json"
    if not new:
        place.put("old")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "hardlink_to", killed)
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # nobody is left to clean up
        with pytest.raises(Killed):
            place.put_new("half") if new else place.put("half")
    assert len(list(tmp_path.iterdir())) == (1 if new else 2)  # the draft is there
    assert names(folder) == ([] if new else ["0.json"])
    assert place.exists() is not new
    assert place.put_new("whole") is new


def test_what_is_put_is_on_disk_before_its_name_and_its_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "_mode", Durability.FSYNC)
    synced: list[str] = []
    real = durability._sync

    def watch(path: Path) -> None:
        there = "there" if (tmp_path / "x").exists() else "not yet"
        kind = "folder" if path.is_dir() else "draft"
        synced.append(f"{kind}, {there}")
        real(path)

    monkeypatch.setattr(durability, "_sync", watch)
    for put in (Location.of(tmp_path / "x").put_new, Location.of(tmp_path / "x").put):
        synced.clear()
        (tmp_path / "x").unlink(missing_ok=True)
        put("text")
        assert synced == ["draft, not yet", "folder, there"]


COUNT = """
import sys
from pathlib import Path
from headrace.sdk.location import Location

folder = Path(sys.argv[1])
for _ in range(50):
    with Location.of(folder / "lock").lock():
        count = folder / "count"
        count.write_text(str(int(count.read_text()) + 1))
"""


def test_processes_share_a_lock(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path)]
    parts = [subprocess.Popen(command) for _ in range(2)]
    assert [part.wait(60) for part in parts] == [0, 0]
    assert (tmp_path / "count").read_text() == "100"


def test_nothing_is_put_new_where_a_table_was_removed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Location.of(tmp_path / "gone" / "7.json").put_new("x")
    assert not (tmp_path / "gone").exists()


def test_links_to_folders_are_not_walked_nor_deleted_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "elsewhere")
    place = Location.of(tmp_path / "a")
    assert [entry.name for entry in place.walk()] == ["link"]
    place.delete_folder()
    assert (tmp_path / "elsewhere" / "x").exists()


def test_a_folder_that_cannot_be_deleted_as_a_whole_is_reported_and_the_rest_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refused(path: Any, **more: Any) -> None:
        if path == "stays":
            raise PermissionError(errno.EACCES, "denied")
        unlink(path, **more)

    for name in ("stays", "goes"):
        (tmp_path / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refused)
        assert not Location.of(tmp_path).delete_folder()
    assert [path.name for path in tmp_path.iterdir()] == ["stays"]


def test_a_link_that_leads_nowhere_is_listed_and_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("missing")
    found = Location.of(tmp_path).list()
    assert sorted((e.name, e.is_folder, e.is_link, e.info()) for e in found) == [
        ("dangling", False, True, None),
        ("loop", False, True, None),
    ]


def test_a_link_whose_target_is_refused_does_not_end_a_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Mock(is_dir=Mock(side_effect=PermissionError(errno.EACCES, "denied")))
    refused.name = "link"
    refused.is_symlink.return_value = True
    entries = MagicMock()
    entries.__iter__.return_value = [refused]
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda _: entries)
        found = list(Location.of(tmp_path).list())
    assert [(entry.name, entry.is_folder) for entry in found] == [("link", False)]
