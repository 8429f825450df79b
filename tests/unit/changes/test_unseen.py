"""Which changes of the log a snapshot has not seen."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_plugins.connectors.postgres.pgoutput import Unseen


def kept(seen: str, *numbers: int) -> list[int]:
    """Return which transactions are kept; the log has the lower 32 bits of their numbers."""
    low = [number % 2**32 for number in numbers]
    rows = pa.RecordBatch.from_pydict({"txId": pa.array(low, pa.int64())})
    mask = Unseen.of(seen)(rows)
    if mask is None:
        return list(numbers)
    return [n for n, is_kept in zip(numbers, mask.to_pylist(), strict=True) if is_kept]


def test_what_had_ended_is_seen() -> None:
    assert kept("100:100:", 98, 99) == []


def test_what_had_not_begun_is_kept() -> None:
    assert kept("100:100:", 100, 101) == [100, 101]


def test_what_ran_is_kept_and_what_ended_between_is_seen() -> None:
    assert kept("100:105:100,103", 99, 100, 101, 102, 103, 104, 105) == [100, 103, 105]


@pytest.mark.parametrize("base", [2**32 - 3, 2**32, 2**33 - 2, 3])
def test_numbers_go_on_where_32_bits_end(base: int) -> None:
    numbers = [base + n for n in range(-3, 9)]
    assert kept(f"{base}:{base + 6}:{base},{base + 4}", *numbers) == [
        base,
        base + 4,
        base + 6,
        base + 7,
        base + 8,
    ]


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    near = st.one_of(st.just(0), st.integers(-50, 50).map(lambda n: n + 2**32))
    xmin = draw(st.one_of(near, st.integers(3, 2**40)))
    xmin = max(3, xmin)
    xmax = xmin + draw(st.integers(0, 100))
    running = draw(st.sets(st.integers(xmin, max(xmin, xmax - 1)), max_size=20))
    return xmin, xmax, sorted(each for each in running if each < xmax)


@given(snapshots(), st.lists(st.integers(-200, 300), min_size=1))
def test_it_is_what_a_snapshot_says_of_each(
    snapshot: tuple[int, int, list[int]], distances: list[int]
) -> None:
    xmin, xmax, running = snapshot
    numbers = [max(3, xmin + each) for each in distances]
    expected = [n for n in numbers if n >= xmax or n in running]
    assert kept(f"{xmin}:{xmax}:{','.join(map(str, running))}", *numbers) == expected


@given(snapshots(), st.integers(-(2**31) + 200, 2**31 - 200))
def test_half_a_round_ahead_is_later_and_half_a_round_behind_is_earlier(
    snapshot: tuple[int, int, list[int]], distance: int
) -> None:
    xmin, xmax, running = snapshot
    number = xmin + distance
    if number < 3:
        return
    expected = [number] if number >= xmax or number in running else []
    assert kept(f"{xmin}:{xmax}:{','.join(map(str, running))}", number) == expected
