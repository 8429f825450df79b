"""Polls are sorted into rows of topics, and what does not fit is picked out."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.rows import Sorter, TopicRows, fit, letters
from headrace.evolution.apply_arrow import sieve
from headrace.sdk import CapturedBatch, Position, Record, RecordError, Schema, SourceError
from headrace.sdk.arrow import to_arrow
from headrace.topics import LETTERS

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def sorter() -> Sorter:
    return Sorter("own", lambda _: (None, None))


def rows_of(topic: TopicRows) -> list[dict[str, object]]:
    return [row for part in topic.parts for row in part.batch.to_pylist()]


@given(st.lists(st.booleans(), max_size=40))
def test_a_sieve_keeps_the_good_in_order_and_names_the_bad(good: list[bool]) -> None:
    items = list(enumerate(good))

    def make(some: Sequence[tuple[int, bool]]) -> list[int]:
        if not all(fine for _, fine in some):
            raise RecordError
        return [number for number, _ in some]

    made, bad = sieve(items, make, RecordError)
    assert [n for some in made for n in some] == [n for n, fine in items if fine]
    assert sorted(at for at, _ in bad) == [n for n, fine in items if not fine]


def test_a_captured_batch_becomes_the_values_of_records() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", None]})
    topics, rejected = sorter().sort([CapturedBatch(rows, Position())], NOW)
    assert rejected == []
    assert rows_of(topics["own"])[1] == {
        "value": {"a": 2, "b": None},
        "headers": None,
        "timestamp": NOW,
    }


def test_a_scalar_batch_is_the_value_itself_and_may_name_a_topic() -> None:
    rows = pa.RecordBatch.from_pydict({"line": ["x", "y"]})
    polled = CapturedBatch(rows, Position(), topic="lines", scalar=True)
    topics, _ = sorter().sort([polled], NOW)
    assert [row["value"] for row in rows_of(topics["lines"])] == ["x", "y"]
    assert topics["lines"].parts[0].value == Schema.string(optional=True)


def test_before_a_chain_records_name_its_stream_or_nothing() -> None:
    chained = Sorter("copy.capture", lambda _: (None, None), stream="orders")
    topics, _ = chained.sort([[Record("orders", 1), Record("", 2)]], NOW)
    assert [row["value"] for row in rows_of(topics["copy.capture"])] == [1, 2]
    rows = pa.RecordBatch.from_pydict({"line": ["x"]})
    for polled in ([Record("other", 3)], CapturedBatch(rows, Position(), topic="other")):
        with pytest.raises(SourceError, match="other, which the transforms and sinks"):
            chained.sort([polled], NOW)


def test_parts_of_different_schemas_share_the_schema_that_takes_both() -> None:
    one = Record("t", {"a": 1}, value_schema=Schema.struct({"a": Schema.int32()}))
    two = Record(
        "t", {"a": 2, "b": "x"}, value_schema=Schema.struct({"a": Schema.int64(), "b": TEXT})
    )
    topics, _ = sorter().sort([[one, two]], NOW)
    schema = to_arrow(topics["t"].schema())
    good, bad = fit("t", topics["t"], schema)
    assert bad == []
    values = [row["value"] for batch in good for row in batch.to_pylist()]
    assert values == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


TEXT = Schema.string(optional=True)


def test_a_row_that_the_topic_cannot_take_is_rejected_alone() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1.0, 2.5, 3.0]})
    topics, _ = sorter().sort([CapturedBatch(rows, Position())], NOW)
    whole = Schema.struct({"value": Schema.struct({"a": Schema.int64(optional=True)})})
    good, bad = fit("own", topics["own"], to_arrow(whole))
    assert [r["value"]["a"] for batch in good for r in batch.to_pylist()] == [1, 3]
    assert [(r.topic, r.value) for r in bad] == [("own", '{"a": 2.5}')]


def test_values_that_do_not_fit_do_not_shape_those_that_do() -> None:
    records = [Record("t", {"a": n}) for n in (1, "two", 3)]
    topics, rejected = sorter().sort([records], NOW)
    assert [row["value"] for row in rows_of(topics["t"])] == [{"a": 1}, {"a": 3}]
    assert [r.value for r in rejected] == ['{"a": "two"}']


def test_a_record_without_a_required_value_is_rejected_alone() -> None:
    schema = Schema.struct({"a": Schema.int8(), "b": Schema.int8(default=7)})
    values: list[dict[str, object]] = [{"a": 1}, {"a": None, "b": 2}, {"b": 3}, {"a": 4}]
    records = [Record("t", value, value_schema=schema) for value in values]
    topics, rejected = sorter().sort([records], NOW)
    assert [row["value"] for row in rows_of(topics["t"])] == [
        {"a": 1, "b": 7},
        {"a": 4, "b": 7},
    ]
    assert [r.error for r in rejected] == [
        "a: 1 of 1 values are null, but the field is required."
    ] * 2


def test_two_types_that_differ_only_in_meaning_are_told_apart() -> None:
    times = pa.RecordBatch.from_arrays(
        [pa.array([1])], schema=to_arrow(Schema.struct({"a": Schema.time()}))
    )
    plain = pa.RecordBatch.from_pydict({"a": [1]})
    topics, _ = sorter().sort(
        [CapturedBatch(plain, Position(), topic="p"), CapturedBatch(times, Position())], NOW
    )
    assert topics["own"].parts[0].value.fields[0].schema == Schema.time()
    assert topics["p"].parts[0].value.fields[0].schema == Schema.int64(optional=True)


def test_a_dead_letter_says_what_happened() -> None:
    record = Record("t", {"a": b"\xff"}, key="k", value_schema=Schema.int64())
    _, rejected = sorter().sort([[record]], NOW)
    batch = letters(rejected, {"connector": "c"}, NOW, headers=True)
    assert batch.schema == to_arrow(LETTERS)
    row = batch.to_pylist()[0]
    assert (row["key"], row["timestamp"]) == ("k", NOW)
    headers = {header["key"]: header["value"] for header in row["headers"]}
    assert headers["__connect.errors.connector.name"] == "c"
    assert headers["__connect.errors.exception.class.name"] == "RecordError"
    assert row["cause"]["raw"] == row["value"].encode()
    assert letters(rejected, {}, NOW).to_pylist()[0]["headers"] == []
