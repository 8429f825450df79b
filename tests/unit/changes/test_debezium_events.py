"""The rig that compares with Debezium: one form for every value, and what differs."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from tests.debezium.comparing import differences
from tests.debezium.engine import PLACEHOLDER
from tests.debezium.events import UNCHANGED, Json, Kind, canonical, normalised
from tests.debezium.replay import replayed
from tests.integration.changes.histories import history_of

INDIA = timezone(timedelta(hours=5, minutes=30))
MOMENT = datetime(2024, 2, 29, 12, 0, 0, 250_000)  # noqa: DTZ001 - what is tested
MICROS = 1_709_208_000_250_000


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("decimal", [Decimal("1.50"), "1.5", Decimal("1.500")], Decimal("1.5")),
        ("decimal", ["NaN", Decimal("NaN")], "NaN"),
        ("float32", [0.1, 0.10000000149011612, "0.1"], 0.10000000149011612),
        ("float64", [0.1, "0.1"], 0.1),
        ("float64", ["NaN", float("nan")], "NaN"),
        ("bytes", [b"\x00\xff", bytearray(b"\x00\xff")], b"\x00\xff"),
        ("date", [19782, date(2024, 2, 29), "2024-02-29", "2024-02-29Z"], date(2024, 2, 29)),
        (
            "time",
            [250_000, "00:00:00.25Z", timedelta(milliseconds=250)],
            time(0, 0, 0, 250_000),
        ),
        ("time", ["24:00:00", 86_400_000_000], 86_400_000_000),
        ("timestamp", [MICROS, "2024-02-29 12:00:00.25", MOMENT], MOMENT),
        ("timestamp", ["infinity", 9_223_372_036_825_200_000], "infinity"),
        (
            "timestamptz",
            ["2024-02-29T17:30:00.25+05:30", MOMENT.replace(tzinfo=UTC).astimezone(INDIA)],
            MOMENT.replace(tzinfo=UTC),
        ),
        ("uuid", ["A" * 32, UUID("a" * 32)], UUID("a" * 32)),
        ("json", ['{"a": 1.50}', {"a": Decimal("1.5")}], Json({"a": Decimal("1.5")})),
        ("json", ['"a"', Json("a")], Json("a")),
        (
            "interval",
            ["P-1Y2M-3DT-4H0M-5.000001S", "-10 mons -3 days -04:00:05.000001"],
            (-10, -3, -14_405_000_001),
        ),
        ("interval", [timedelta(days=2, seconds=1), "2 days 00:00:01"], (0, 2, 1_000_000)),
        ("text", [PLACEHOLDER, UNCHANGED], UNCHANGED),
        ("bytes", [PLACEHOLDER.encode()], UNCHANGED),
    ],
)
def test_a_value_has_one_form(kind: str, values: list[object], expected: object) -> None:
    assert [canonical(Kind(kind), value) for value in values] == [expected] * len(values)


def test_a_list_has_the_forms_of_its_items() -> None:
    kind = Kind("list", Kind("decimal"))
    assert canonical(kind, ["1.50", None]) == [Decimal("1.5"), None]
    assert canonical(kind, [PLACEHOLDER]) is UNCHANGED


FIELDS = [
    {"field": "id", "type": "int32"},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    {
        "field": "price",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    },
]


def event(op: str, after: Mapping[str, Any] | None, key: int = 1) -> dict[str, Any]:
    row = {"type": "struct", "fields": FIELDS}
    source = {"txId": 5, "lsn": 6, "ts_ms": 7, "snapshot": "false"}
    return {
        "topic": "t",
        "key": {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": {"id": key}},
        "value": {
            "schema": {"fields": [{**row, "field": "before"}, {**row, "field": "after"}]},
            "payload": {"op": op, "before": None, "after": after, "source": source},
        },
    }


def test_an_event_has_plain_values() -> None:
    change = normalised(event("c", {"id": 1, "day": 1, "price": "AJY="}))
    assert change["key"] == {"id": 1}
    assert change["after"] == {"id": 1, "day": date(1970, 1, 2), "price": Decimal("1.5")}
    assert (change["before"], change["op"], change["txId"]) == (None, "c", 5)


def test_what_differs_is_found_in_the_order_of_each_key() -> None:
    theirs = [
        normalised(event("c", {"id": 1, "day": 1, "price": None})),
        normalised(event("c", {"id": 2, "day": 1, "price": None}, key=2)),
        normalised(event("u", {"id": 1, "day": 2, "price": None})),
    ]
    ours: list[dict[str, Any]] = [
        {"topic": "t", "key": {"id": 2}, "before": None, "op": "c"}
        | {"after": {"id": 2, "day": "1970-01-02", "price": None}},
        {"topic": "t", "key": {"id": 1}, "before": None, "op": "c"}
        | {"after": {"id": 1, "day": date(1970, 1, 2), "price": None}},
        {"topic": "t", "key": {"id": 1}, "before": None, "op": "u"}
        | {"after": {"id": 1, "day": date(1970, 1, 4), "price": None}},
    ]
    [found] = differences(ours, theirs)
    assert (found.number, found.field, found.op) == (1, "after.day", "u")
    assert (found.ours, found.theirs) == (date(1970, 1, 4), date(1970, 1, 3))
    assert [each.field for each in differences(ours[:1], theirs)] == ["change", "change"]


def test_the_changes_make_the_rows() -> None:
    changes = [
        normalised(event("c", {"id": 1, "day": 1, "price": "AJY="})),
        normalised(event("c", {"id": 2, "day": 1, "price": None}, key=2)),
        normalised(event("u", {"id": 1, "day": 3, "price": None})),
        normalised(event("d", None, key=2)),
    ]
    changes[2]["after"]["price"] = UNCHANGED
    row = {"id": 1, "day": date(1970, 1, 4), "price": Decimal("1.5")}
    assert replayed(changes) == {"t": [row]}


def test_a_seed_has_one_history() -> None:
    assert history_of(3) == history_of(3)
    assert history_of(3) != history_of(4)
