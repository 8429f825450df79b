"""How many backups of a store are kept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.store import Backups, Store

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that goes on by a second each time that it is read."""

    def __init__(self) -> None:
        self.now = FIRST

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def place(tmp_path: Path) -> Path:
    file = tmp_path / "store.db"
    store = Store(file)
    store.register("orders")
    store.close()
    return file


def backups(place: Path, kept: int, clock: Clock | None = None) -> Backups:
    folder = place.parent / "backups"
    return Backups(place=place, folder=folder, clock=clock or Clock(), kept=kept)


def test_the_newest_are_kept_and_the_new_one_is_among_them(place: Path) -> None:
    some = backups(place, kept=3)
    made = [some.make() for _ in range(5)]
    assert some.all() == made[:1:-1]


def test_all_are_kept_where_no_number_is_given(place: Path) -> None:
    some = backups(place, kept=0)
    made = [some.make() for _ in range(4)]
    assert some.all() == made[::-1]


def test_a_new_one_is_kept_also_when_the_clock_was_put_back(place: Path) -> None:
    clock = Clock()
    some = backups(place, kept=1, clock=clock)
    later = some.make()
    clock.now -= timedelta(hours=1)
    new = some.make()
    assert set(some.all()) == {later, new}


def test_what_a_killed_process_left_half_made_is_removed_and_nothing_else(place: Path) -> None:
    some = backups(place, kept=1)
    some.folder.mkdir()
    half = some.folder / "store-20260101T000000.000000Z.db.part"
    other = some.folder / "store-notes.txt"
    half.touch()
    other.touch()
    made = some.make()
    assert set(some.folder.iterdir()) == {made.file, other}


def test_none_is_removed_for_one_that_cannot_be_made(place: Path) -> None:
    some = backups(place, kept=1)
    made = some.make()
    place.write_bytes(b"this is no database at all, and long enough to be told so" * 20)
    with pytest.raises(Exception, match="not a database"):
        some.make()
    assert some.all() == [made]
