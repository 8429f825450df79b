"""Bases give sources of numbers and of pages their positions, splits and ends."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.no_keys import NO_KEYS

from headrace.sdk import (
    CapturedBatch,
    NumberedSource,
    Page,
    PagedSource,
    Position,
    ReadLimit,
    Schema,
    StateError,
)


class Numbers(NumberedSource):
    """Reads whole numbers of which some are missing."""

    split_size = 10
    there: tuple[int, ...] = ()

    @property
    def partition(self) -> Mapping[str, str]:
        return {"table": "t"}

    def schema(self) -> Schema:
        return Schema.struct({"n": Schema.int64()})

    def last_number(self, after: int, until: int | None, limit: int | None) -> int | None:
        some = [n for n in self.there if n > after and (until is None or n <= until)]
        return max(some[:limit], default=None)

    def read_numbers(self, after: int, to: int) -> Iterator[pa.RecordBatch]:
        some = [n for n in self.there if after < n <= to]
        yield pa.RecordBatch.from_pydict({"n": some})


def numbers(*there: int) -> Numbers:
    source = Numbers(NO_KEYS)
    source.there = there
    return source


def read(source: Numbers, start: Position, end: Position) -> list[int]:
    batches = (each for split in source.splits(start, end) for each in source.read(split))
    return [n for batch in batches for n in batch.column("n").to_pylist()]


@given(st.sets(st.integers(1, 200)), st.integers(1, 50))
def test_batches_hold_each_number_once_and_no_more_than_the_limit(
    there: set[int], most: int
) -> None:
    source, start, found = numbers(*sorted(there)), Position(), []
    while (end := source.latest(start, ReadLimit(rows=most))) != start:
        some = read(source, start, end)
        assert 0 < len(some) <= most
        assert read(source, start, end) == some
        found += some
        start = end
    assert found == sorted(there)


def test_a_batch_ends_at_the_bound() -> None:
    source = numbers(1, 5, 9)
    bound = source.latest(Position(), ReadLimit(rows=2))
    assert source.latest(Position(), ReadLimit(until=bound)) == bound
    assert source.latest(bound, ReadLimit(until=bound)) == bound


def test_a_range_of_another_partition_is_refused() -> None:
    other = Position.of({"table": "other"}, {"number": 3})
    with pytest.raises(StateError):
        numbers(1).splits(Position(), other)


class Context:
    def __init__(self, position: Position) -> None:
        self._position = position

    def position(self) -> Position:
        return self._position


class Pages(PagedSource):
    """Gives pages of a list of lists; the cursor is the number of the next."""

    pages: tuple[Page | None, ...] = ()
    asked: list[str | None]

    def page(self, cursor: str | None) -> Page | None:
        self.asked.append(cursor)
        return self.pages[int(cursor or 0)]


def pages(*some: Page | None, position: Position | None = None) -> Pages:
    source = Pages(NO_KEYS)
    source.pages, source.asked = some, []
    context: Any = Context(position or Position())
    source.start(context)
    return source


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": values})


def test_each_page_comes_with_the_cursor_of_the_next_until_there_is_none() -> None:
    source = pages(Page(rows(1), "1"), Page(rows(2), None))
    first, second = source.poll(), source.poll()
    assert isinstance(first, CapturedBatch)
    assert isinstance(second, CapturedBatch)
    assert [first.values, second.values] == [rows(1), rows(2)]
    assert not source.ended(first.position)
    assert source.ended(second.position)
    assert source.poll() is None
    assert source.asked == [None, "1"]


def test_a_source_goes_on_with_the_cursor_that_was_stored() -> None:
    stored = pages(Page(rows(1), "1")).poll()
    assert stored is not None
    source = pages(None, Page(rows(2), None), position=stored.position)
    found = source.poll()
    assert found is not None
    assert found.values == rows(2)
    again = pages(position=found.position)
    assert again.poll() is None
    assert again.asked == []


def test_nothing_new_is_asked_for_again_with_the_same_cursor() -> None:
    source = pages(None)
    assert source.poll() is None
    assert source.poll() is None
    assert source.asked == [None, None]
    assert not source.ended(Position())
