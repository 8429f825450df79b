"""A record never changes: each change gives a new one."""

from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headrace.sdk.errors import RecordError
from headrace.sdk.record import Header, Record, json_value
from headrace.sdk.schema import Schema
from headrace.sdk.struct import Struct


def test_a_changed_record_is_a_new_one() -> None:
    record = Record("t", 1, partition=3)
    assert record.with_value("x", Schema.string()).value == "x"
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


def test_a_timestamp_without_a_time_zone_is_refused() -> None:
    with pytest.raises(RecordError):
        Record("t", 1, timestamp=datetime(2026, 1, 1))  # noqa: DTZ001 - the fault under test
    assert Record("t", 1, timestamp=datetime(2026, 1, 1, tzinfo=UTC)).timestamp


def test_a_record_as_json_keeps_every_digit_and_instant() -> None:
    schema = Schema.struct(
        {"at": Schema.timestamp(), "by": Schema.map(Schema.int32(), Schema.string())}
    )
    value = {
        "struct": Struct(schema, {"at": datetime(2026, 1, 2, 3, tzinfo=UTC), "by": {7: "x"}}),
        "price": Decimal("10.50"),
        "large": Decimal("1E+3"),
        "bytes": b"\xff",
        "day": date(2026, 1, 2),
        "ratio": float("nan"),
        "items": [1, None, True],
    }
    record = Record("t", value, key=7, timestamp=datetime(2026, 1, 2, tzinfo=UTC))
    assert record.with_header("h", b"x").to_json() == {
        "topic": "t",
        "key": 7,
        "value": {
            "struct": {"at": "2026-01-02T03:00:00+00:00", "by": {"7": "x"}},
            "price": "10.50",
            "large": "1000",
            "bytes": "/w==",
            "day": "2026-01-02",
            "ratio": None,
            "items": [1, None, True],
        },
        "headers": [{"key": "h", "value": "eA=="}],
        "timestamp": "2026-01-02T00:00:00+00:00",
    }
    with pytest.raises(RecordError, match="object cannot be converted to JSON"):
        json_value(object())
