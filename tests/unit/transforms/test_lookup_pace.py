"""Turns to ask a service are given out evenly, to all who share a file."""

from pathlib import Path

import pytest

from headrace_plugins.transforms.lookup import Pace


class Clock:
    """A clock that moves only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_two_askers_share_one_pace(tmp_path: Path) -> None:
    path, one, two = str(tmp_path / "pace"), Clock(), Clock()
    first = Pace(4, path, one.read, one.sleep)
    second = Pace(4, path, two.read, two.sleep)
    turns = []
    for pace, clock in ((first, one), (second, two), (first, one), (second, two)):
        pace.wait()
        turns.append(clock.now)
    assert turns == pytest.approx([1000, 1000.25, 1000.5, 1000.75])


def test_turns_that_nobody_took_are_not_made_up_for(tmp_path: Path) -> None:
    clock = Clock()
    pace = Pace(4, str(tmp_path / "pace"), clock.read, clock.sleep)
    pace.wait()
    clock.now += 60
    pace.wait()
    pace.wait()
    assert clock.now == pytest.approx(1060.25)
