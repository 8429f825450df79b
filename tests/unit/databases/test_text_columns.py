"""Texts of databases as Arrow's columns: what they stand for, or why nothing does."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import Schema
from headrace_plugins.databases.catalog import Column
from headrace_plugins.databases.text_rows import TextColumns


def parsed(
    schema: Schema, *texts: str | None, **options: Any
) -> tuple[list[Any], list[tuple[str, str]]]:
    """Return the values of texts of one column, and what was rejected."""
    columns = [Column(name="v", type="some_type", schema=schema)]
    batch, rejected = TextColumns(columns, **options).parse([pa.array(texts, pa.string())])
    return batch.column(0).to_pylist(), list(rejected)


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32), st.booleans())
def test_those_days_are_taken_that_a_calendar_has(
    year: int, month: int, day: int, is_moment: bool
) -> None:
    try:
        expected = [date(year, month, day)]
    except ValueError:
        expected = []
    text = f"{year:04}-{month:02}-{day:02}"
    if is_moment:
        values, rejected = parsed(Schema.local_timestamp(), f"{text} 23:59:59.5")
        found = [value.date() for value in values]
    else:
        found, rejected = parsed(Schema.date(), text)
    assert found == expected
    assert len(rejected) == 1 - len(expected)


@pytest.mark.parametrize("year", [1900, 2000, 2023, 2024, 2100, 4, 400, 9996])
def test_leap_days_are_those_of_leap_years(year: int) -> None:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    assert len(parsed(Schema.date(), f"{year:04}-02-29")[0]) == is_leap


@pytest.mark.parametrize(
    ("schema", "texts", "values"),
    [
        (Schema.int8(), ["-128", "000127", None], [-128, 127, None]),
        (Schema.boolean(), ["1", "0", "t", "f", None], [True, False, True, False, None]),
        (Schema.decimal(2, precision=5), ["-999.99", "001.50"], ["-999.99", "1.50"]),
        (Schema.float32(), ["0.10000000149011612"], [0.10000000149011612]),
        (Schema.time(), ["00:00:00", "23:59:59.999999"], [time(0), time(23, 59, 59, 999999)]),
        (Schema.string(), ["", None, "NULL"], ["", None, "NULL"]),
        (Schema.timestamp(), ["0001-01-01 00:00:00"], [datetime(1, 1, 1, tzinfo=UTC)]),
    ],
    ids=str,
)
def test_texts_are_what_they_stand_for(
    schema: Schema, texts: list[str | None], values: list[Any]
) -> None:
    found, rejected = parsed(schema, *texts)
    assert [str(v) if isinstance(v, Decimal) else v for v in found] == values
    assert rejected == []


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (Schema.time(), "24:00:00"),
        (Schema.time(), "-00:00:01"),
        (Schema.time(), "838:59:59"),
        (Schema.timestamp(), "infinity"),
        (Schema.timestamp(), "2024-01-01 24:00:00"),
        (Schema.date(), "0044-03-15 BC"),
        (Schema.date(), "10000-01-01"),
        (Schema.decimal(2, precision=5), "NaN"),
        (Schema.decimal(2, precision=5), "1000.00"),
    ],
    ids=str,
)
def test_a_text_that_stands_for_nothing_is_rejected_or_null(schema: Schema, text: str) -> None:
    found, rejected = parsed(schema, text, None)
    assert found == [None]
    why = f"The column v of type some_type contains {text!r}, which its schema"
    assert rejected == [(text, f"{why} cannot represent.")]
    assert parsed(schema.replaced(optional=True), text, None, nulls=True) == ([None, None], [])
    assert len(parsed(schema, text, nulls=True)[1]) == 1  # where none may be null


def test_times_with_a_zone_are_read_with_it() -> None:
    found, _ = parsed(Schema.timestamp(), "2024-01-01 12:00:00+00", zone="+00")
    assert found == [datetime(2024, 1, 1, 12, tzinfo=UTC)]
    found, _ = parsed(Schema.local_timestamp(), "2024-01-01 12:00:00", zone="+00")
    assert found == [datetime(2024, 1, 1, 12, tzinfo=UTC)]


def test_a_rejected_row_is_shown_as_a_whole_and_the_others_are_kept() -> None:
    columns = [
        Column(name=name, type="t", schema=schema)
        for name, schema in (("n", Schema.int32()), ("b", Schema.bytes()), ("d", Schema.date()))
    ]
    texts = [
        pa.array(["1", "2"]),
        pa.array([b"\0\xff", None]),
        pa.array(["0000-00-00", "2024-02-29"]),
    ]
    batch, rejected = TextColumns(columns).parse(texts)
    assert batch.to_pylist() == [{"n": 2, "b": None, "d": date(2024, 2, 29)}]
    assert [text for text, _ in rejected] == ["1,00ff,0000-00-00"]
