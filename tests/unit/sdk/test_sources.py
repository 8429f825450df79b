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
    CaptureSource,
    NumberedSource,
    Page,
    PagedSource,
    Position,
    ReadLimit,
    RetriableError,
    Schema,
    SourceConnector,
    SourceError,
    StateError,
    source,
)
from headrace.sdk.config import Settings, setting


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
    assert isinstance(stored, CapturedBatch)
    source = pages(None, Page(rows(2), None), position=stored.position)
    found = source.poll()
    assert isinstance(found, CapturedBatch)
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


def test_the_rows_of_a_page_may_be_mappings() -> None:
    polled = pages(Page([{"n": 1}], "1")).poll()
    assert isinstance(polled, list)
    (record,) = polled
    assert record.value == {"n": 1}
    assert record.source_offset == {"cursor": "1"}


def polls(
    connector: type[SourceConnector], position: Position | None = None
) -> Iterator[tuple[list[Any], Position]]:
    """Give the rows of each poll until there are none, with where the source stands then."""
    task = connector.task(connector.config_def().parse({}))
    assert isinstance(task, CaptureSource)
    position = position or Position()
    context: Any = Context(position)
    task.start(context)
    while polled := task.poll():
        if isinstance(polled, CapturedBatch):
            position = polled.position
            yield polled.values.to_pylist(), position
        else:
            for record in polled:
                assert record.source_partition is not None
                assert record.source_offset is not None
                position = position.moved(record.source_partition, record.source_offset)
            yield [record.value for record in polled], position


def test_a_function_goes_on_after_the_cursor_of_its_last_row() -> None:
    asked = []

    @source(cursor="id")
    def numbers(settings: Settings, after: int | None) -> Iterator[dict[str, int]]:
        """Counts to three."""
        asked.append(after)
        yield from ({"id": number} for number in range((after or 0) + 1, 4))

    ((rows, position),) = polls(numbers)
    assert rows == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert list(polls(numbers, position)) == []
    assert asked == [None, 3, 3]
    assert (numbers.__doc__, numbers.__name__) == ("Counts to three.", "numbers")


def test_a_function_may_give_rows_again_up_to_the_cursor() -> None:
    @source(cursor="id")
    def table(settings: Settings, after: int | None) -> Iterator[pa.Table]:
        yield pa.table({"id": [1, 2, 3]})

    ((rows, position),) = polls(table, Position.of({"rows": "all"}, {"cursor": 2}))
    assert rows == [{"id": 3}]
    assert list(polls(table, position)) == []


def test_a_function_without_a_cursor_is_called_with_the_number_of_rows_taken() -> None:
    @source
    def letters(settings: Settings, after: int) -> Iterator[dict[str, str]]:
        yield from ({"letter": letter} for letter in "abc"[after:])

    ((rows, position),) = polls(letters, Position.of({"rows": "all"}, {"cursor": 1}))
    assert rows == [{"letter": "b"}, {"letter": "c"}]
    assert list(polls(letters, position)) == []


def test_rows_with_the_same_cursor_are_taken_together() -> None:
    many = [{"id": 1}] * 10_001 + [{"id": 2}]

    @source(cursor="id")
    def repeated(settings: Settings, after: int | None) -> Iterator[dict[str, int]]:
        yield from many

    assert [len(rows) for rows, _ in polls(repeated)] == [10_001, 1]

    @source(cursor="id")
    def tables(settings: Settings, after: int | None) -> Iterator[pa.RecordBatch]:
        for ids in ([1, 2], [2, 2], [], [3]):
            yield pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})

    assert [len(rows) for rows, _ in polls(tables)] == [4, 1]


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([{"id": 2}, {"id": 1}], "1 after 2"),
        ([{"id": 2}, {"id": "3"}], "'3' after 2"),
        ([{"id": None}], "Expected an integer or a string in id, got None"),
        ([{"number": 1}], "Expected an integer or a string in id, got None"),
        ([{"id": 1}, pa.table({"id": [1]})], "mixed"),
        ([pa.table({"number": [1]})], "Expected an integer or a string in id, got None"),
    ],
)
def test_rows_that_could_get_lost_are_an_error(items: list[Any], problem: str) -> None:
    @source(cursor="id")
    def unordered(settings: Settings, after: int | None) -> Iterator[Any]:
        yield from items

    with pytest.raises(SourceError, match=problem):
        list(polls(unordered))


def test_after_an_error_a_function_is_called_again_where_it_stood() -> None:
    asked = []

    @source(cursor="id")
    def unreliable(settings: Settings, after: int | None) -> Iterator[pa.RecordBatch]:
        asked.append(after)
        yield pa.RecordBatch.from_pydict({"id": [1]})
        yield pa.RecordBatch.from_pydict({"id": [2]})
        if len(asked) == 1:
            raise RetriableError

    task = unreliable.task(NO_KEYS)
    assert isinstance(task, CaptureSource)
    context: Any = Context(Position())
    task.start(context)
    first = task.poll()
    assert isinstance(first, CapturedBatch)
    assert first.values.to_pylist() == [{"id": 1}]
    with pytest.raises(RetriableError):
        task.poll()
    second = task.poll()
    assert isinstance(second, CapturedBatch)
    assert second.values.to_pylist() == [{"id": 2}]
    assert asked == [None, 1]


def test_a_function_has_settings_and_a_schema() -> None:
    class Limit(Settings):
        limit: int = setting("How many.")

    schema = Schema.struct({"id": Schema.int8()})

    @source(schema=schema, settings=Limit, version="1.2")
    def limited(settings: Limit, after: int) -> Iterator[dict[str, int]]:
        yield from ({"id": number} for number in range(after, settings.limit))

    task = limited.task(limited.config_def().parse({"limit": "2"}))
    assert isinstance(task, CaptureSource)
    context: Any = Context(Position())
    task.start(context)
    polled = task.poll()
    assert isinstance(polled, list)
    assert [record.value_schema for record in polled] == [schema] * 2
    assert limited.version == "1.2"
