"""Where changes stand that are sent again while nothing comes for their tables."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.sdk import Position, ReadLimit
from headrace_plugins.changes import replay
from headrace_plugins.changes.replay import AT, ReplayReader

REPLAY = {"since": "2024-01-01T00:00:00Z"}


def ended(
    at: int, reached: int, place: int, limit: ReadLimit, waiting: Sequence[object] = ()
) -> Any:
    """Return where a replay stands that has no changes up to where its reader has come.

    ``waiting`` is what has come a moment later.
    """
    log: Any = SimpleNamespace(
        order=lambda place: (place["pos"],), moved=lambda place, end: {**place, **end}
    )
    process = SimpleNamespace(
        entries=list,
        place={"pos": reached},
        read_ahead=lambda: (waiting, {"pos": reached}),
        wait=lambda _: None,
        reached=lambda _: [],
    )
    reader: Any = ReplayReader(log, log, Path(), 0)
    reader.follow = lambda *_: process
    start = Position.of(REPLAY, {"tables": ["d.t"], AT: {"pos": at}})
    end = reader.end(start, {"pos": place}, limit, None, stopping=lambda: True)
    offset = end.offset(REPLAY)
    return None if offset is None else offset[AT]["pos"]


@pytest.mark.parametrize(
    ("reached", "until", "stands_at"),
    [(50, None, 50), (10, None, 10), (50, Position(), 10), (100, None, None)],
)
def test_the_place_moves_on_without_changes(
    monkeypatch: pytest.MonkeyPatch,
    reached: int,
    until: Position | None,
    stands_at: int | None,
) -> None:
    monkeypatch.setattr(replay, "_MOVE_SECONDS", -1)
    assert ended(10, reached, 100, ReadLimit(until=until)) == stands_at


def test_the_place_moves_on_now_and_then_only() -> None:
    assert ended(10, 50, 100, ReadLimit()) == 10


def test_the_place_does_not_move_past_what_has_just_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "_MOVE_SECONDS", -1)
    assert ended(10, 50, 100, ReadLimit(), [object()]) == 10
