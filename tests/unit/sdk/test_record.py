"""A record never changes: each change gives a new one."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

from headrace.sdk.errors import RecordError
from headrace.sdk.record import Header, Record
from headrace.sdk.schema import Schema


def test_a_changed_record_is_a_new_one() -> None:
    record = Record("t", 1, partition=3)
    assert record.with_value("x", Schema.string()).value == "x"
    assert record.with_key(7).key == 7
    assert record.with_topic("u") == Record("u", 1)
    assert record == Record("t", 1, partition=3)
    with pytest.raises(FrozenInstanceError):
        record.value = 2  # type: ignore[misc]


def test_a_new_value_does_not_keep_the_old_schema() -> None:
    record = Record("t", 1, value_schema=Schema.int32())
    assert record.with_value("x").value_schema is None


def test_headers_keep_their_order_and_may_repeat() -> None:
    record = Record("t", 1).with_header("a", 1).with_header("b", 2).with_header("a", 3)
    assert [header.key for header in record.headers] == ["a", "b", "a"]
    assert record.header("a") == Header("a", 3)
    assert record.header("zz") is None
    assert record.without_headers("a").headers == (Header("b", 2),)


def test_a_timestamp_without_a_time_zone_is_refused() -> None:
    with pytest.raises(RecordError):
        Record("t", 1, timestamp=datetime(2026, 1, 1))  # noqa: DTZ001 - the fault under test
    assert Record("t", 1).with_timestamp(datetime(2026, 1, 1, tzinfo=UTC)).timestamp
