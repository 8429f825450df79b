"""How the acceptance kit compares rows, and what it says of them."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import FrameSink, Schema
from headrace.sdk.testing import (
    ALL_KINDS,
    BrokenPromiseError,
    fitted,
    sample_rows,
    sample_schema,
)
from headrace.sdk.testing.driver import differences, same_order, same_value

ROWS = st.lists(st.fixed_dictionaries({"id": st.integers(0, 3), "text": st.text(max_size=1)}))


@given(ROWS)
def test_rows_equal_themselves_in_any_order(rows: list[Mapping[str, Any]]) -> None:
    assert not differences(rows, rows[::-1])
    assert same_order(rows, rows)


@given(ROWS, st.integers(0, 3))
def test_a_row_too_few_is_missing_and_one_too_many_is_not_expected(
    rows: list[Mapping[str, Any]], number: int
) -> None:
    more = [*rows, {"id": number, "text": "new"}]
    assert differences(more, rows) == f"1 rows are missing, such as {more[-1]}."
    assert differences(rows, more) == f"1 rows are never expected, such as {more[-1]}."


@given(ROWS.filter(bool))
def test_a_repeated_row_counts_unless_repeats_are_allowed(
    rows: list[Mapping[str, Any]],
) -> None:
    found = differences(rows, [*rows, rows[0]])
    assert found.startswith("1 rows are more often than expected, such as ")
    assert not differences(rows, [*rows, rows[0]], repeats=True)


def test_a_null_field_is_an_absent_one_and_types_are_exact() -> None:
    assert not differences([{"a": 1, "b": None}], [{"a": 1}])
    assert differences([{"a": 1}], [{"a": 1.0}])
    assert differences([{"a": 1}], [{"a": True}])
    assert differences([{"a": 1}], [{"a": "1"}])


def test_a_message_shows_rows_of_each_kind() -> None:
    found = differences([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 2}, {"a": 3}])
    assert found == (
        "1 rows are missing, such as {'a': 1}; "
        "1 rows are more often than expected, such as {'a': 2}; "
        "1 rows are never expected, such as {'a': 3}."
    )


@pytest.mark.parametrize(
    ("schema", "one", "other"),
    [
        (Schema.map(Schema.string(), Schema.int64()), [("a", 1)], {"a": 1}),
        (Schema.bytes(), bytearray(b"x"), b"x"),
        (Schema.float32(), 0.1, 0.10000000149011612),
        (Schema.time(), time(0, 0, 1), 1_000_000),
        (
            Schema.timestamp(),
            datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
        (Schema.decimal(2), Decimal("1.10"), Decimal("1.1")),
        (Schema.float64(), float("nan"), float("nan")),
        (Schema.array(Schema.bytes()), (bytearray(b"x"),), [b"x"]),
    ],
)
def test_readers_that_give_one_value_in_other_forms_agree(
    schema: Schema, one: object, other: object
) -> None:
    assert same_value(fitted(schema, one), fitted(schema, other))


def test_a_value_of_another_type_is_left_to_show_as_a_difference() -> None:
    assert fitted(Schema.map(Schema.string(), Schema.int64()), "text") == "text"
    assert fitted(Schema.struct({"a": Schema.int8()}), 5) == 5


def test_the_sample_has_each_kind_with_a_null() -> None:
    rows = sample_rows(first=10)
    assert [row["id"] for row in rows] == [10, 11, 12, 13, 14]
    assert all(rows[1][kind] is None for kind in ALL_KINDS)
    names = [field.name for field in sample_schema().fields]
    assert names == ["id", *ALL_KINDS]


def test_a_broken_promise_names_the_docstring_to_read() -> None:
    error = BrokenPromiseError(promise="It holds.", seen="It did not.", read=FrameSink.write)
    assert str(error).startswith(
        "It holds.\nSeen: It did not.\nRead: headrace.sdk.sink.FrameSink.write\n\n"
        "    Run the Spark job that stages"
    )
