"""A topic takes records of new shapes, and refuses those that its rows cannot share."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from tests.unit.topics.made_topics import part, values

from headrace.model import TopicRetention
from headrace.sdk import ConfigError, Mark, Position, ReadLimit, Schema
from headrace.sdk.location import Location
from headrace.topics import (
    Topic,
    TopicReader,
    Topics,
    Upkeep,
    UpkeepPolicy,
    packed_row_schema,
    topic_row_schema,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INT8 = Schema.int8(optional=True)
INT32 = Schema.int32(optional=True)
INT64 = Schema.int64(optional=True)
FLOAT32 = Schema.float32(optional=True)
FLOAT64 = Schema.float64(optional=True)
TEXT = Schema.string(optional=True)


def decimal(scale: int, precision: int) -> Schema:
    return Schema.decimal(scale, precision=precision, optional=True)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topics(Location.of(tmp_path)).get("t")


def struct(**fields: Schema) -> Schema:
    return Schema.struct(fields)


def add(topic: Topic, batch: int, schema: Schema, *rows: dict[str, Any]) -> None:
    topic.append([part(topic, rows, schema)], Mark("a", batch, 1), "", NOW)


def read(topic: Topic) -> list[Any]:
    reader = TopicReader(topic)
    return values(reader, Position(), reader.latest(Position(), ReadLimit()))


def compact(topic: Topic) -> None:
    policy = UpkeepPolicy(
        compact_after=timedelta(0), compact_files=2, retention=TopicRetention(age=None)
    )
    Upkeep(Topics(topic.location.parent), lambda: datetime.now(UTC), policy).run_once()
    assert topic.segments()


def test_prepare_returns_what_was_asked_for_and_hides_the_columns_of_segments(topic: Topic):
    rows = topic_row_schema(struct(id=INT64), TEXT)
    assert topic.prepare(rows) == rows
    assert topic.schema() == rows
    names = [field.name for field in DeltaTable(topic.location.local).schema().fields]
    assert names == ["key", "value", "headers", "timestamp", "offset", "version", "part"]


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (True, "contains whole batches of many streams, but would now get single records"),
        (False, "contains single records, but would now get whole batches of many streams"),
    ],
)
def test_packed_and_typed_rows_never_share_a_topic(topic: Topic, packed: bool, told: str):
    rows = [topic_row_schema(struct(id=INT64), None), packed_row_schema()]
    stored, other = reversed(rows) if packed else rows
    topic.prepare(stored)
    with pytest.raises(ConfigError, match=f"Topic t {told}") as refused:
        topic.prepare(other)
    assert refused.value.field == "topic"
    assert "Write to another topic" in str(refused.value.fix)
    assert (topic.prepare(stored), topic.schema()) == (stored, stored)


def test_many_may_create_a_topic_at_once(tmp_path: Path):
    rows = topic_row_schema(struct(id=INT64), None)
    for number in range(5):
        same = [Topic("t", Location.of(tmp_path / str(number))) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda topic: topic.prepare(rows), same)) == [rows] * 8


def test_new_fields_are_optional_at_any_depth_and_old_rows_have_null_there(topic: Topic):
    old = struct(inner=struct(a=INT64).replaced(optional=True))
    new = struct(inner=struct(a=INT64, b=Schema.string()).replaced(optional=True), c=TEXT)
    add(topic, 1, old, {"inner": {"a": 1}})
    add(topic, 2, new, {"inner": {"a": 2, "b": "x"}, "c": "y"})
    add(topic, 3, old, {"inner": {"a": 3}})
    expected = [
        {"inner": {"a": 1, "b": None}, "c": None},
        {"inner": {"a": 2, "b": "x"}, "c": "y"},
        {"inner": {"a": 3, "b": None}, "c": None},
    ]
    assert read(topic) == expected
    compact(topic)
    assert read(topic) == expected


def test_a_field_that_was_required_becomes_optional(topic: Topic):
    add(topic, 1, struct(id=Schema.int64(), name=Schema.string()), {"id": 1, "name": "x"})
    add(topic, 2, struct(id=Schema.int64()), {"id": 2})
    assert read(topic) == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]
    value = topic.schema().field("value")
    assert value is not None
    assert [field.schema.optional for field in value.schema.fields] == [False, True]


@pytest.mark.parametrize(
    ("types", "numbers"),
    [
        ((INT8, INT64), (1, 2**40)),
        ((INT32, INT64), (-5, 2**40)),
        ((FLOAT32, FLOAT64), (1.5, 1e300)),
        ((INT32, FLOAT64), (7, 0.1)),
        ((decimal(2, 5), decimal(4, 12)), (Decimal("1.25"), Decimal("12345678.1234"))),
        ((INT32, decimal(2, 12)), (3, Decimal("1.25"))),
    ],
)
@pytest.mark.parametrize("compacted", [False, True])
def test_rows_with_a_narrow_type_are_read_with_the_wide_one(
    topic: Topic, types: tuple[Schema, Schema], numbers: tuple[Any, Any], compacted: bool
):
    (narrow, wide), (old, new) = types, numbers
    add(topic, 1, struct(n=narrow, many=Schema.array(narrow, optional=True)), _row(old))
    add(topic, 2, struct(n=wide, many=Schema.array(wide, optional=True)), _row(new))
    if compacted:
        compact(topic)
    assert read(topic) == [_row(old), _row(new)]
    table = DeltaTable(topic.location.local)
    others = table.to_pyarrow_table().column("value").to_pylist()
    by_number = sorted([_row(old), _row(new)], key=lambda row: row["n"])
    assert sorted(others, key=lambda row: row["n"]) == by_number
    dataset = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB looks for it by name
    (found,) = duckdb.execute("SELECT list(value.n ORDER BY value.n) FROM dataset").fetchall()
    assert found[0] == sorted([old, new])


def _row(value: Any) -> dict[str, Any]:
    return {"n": value, "many": [value, None]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (INT64, FLOAT64),
        (INT64, decimal(2, 10)),
        (INT64, TEXT),
        (Schema.date(optional=True), INT32),
    ],
)
def test_a_type_that_old_rows_cannot_be_read_as_is_refused_with_the_field(
    topic: Topic, old: Schema, new: Schema
):
    topic.prepare(topic_row_schema(struct(n=old), None))
    with pytest.raises(ConfigError) as caught:
        topic.prepare(topic_row_schema(struct(n=new), None))
    assert caught.value.field == "value.n"
    assert "topic" in caught.value.fix or "stream" in caught.value.fix


def test_narrower_records_do_not_change_a_wide_topic(topic: Topic):
    wide = topic_row_schema(struct(n=FLOAT64, x=TEXT), None)
    topic.prepare(wide)
    version = topic.log.newest()
    assert topic.prepare(topic_row_schema(struct(n=INT64), None)) == wide
    assert topic.log.newest() == version


def test_a_change_made_elsewhere_is_seen(tmp_path: Path):
    here, there = (
        Topic("t", Location.of(tmp_path / "t")),
        Topic("t", Location.of(tmp_path / "t")),
    )
    here.prepare(topic_row_schema(struct(a=INT64), None))
    there.prepare(topic_row_schema(struct(b=INT64), None))
    known = here.prepare(topic_row_schema(struct(a=INT64), None))
    assert known == there.schema()
    value = known.field("value")
    assert value is not None
    assert [field.name for field in value.schema.fields] == ["a", "b"]


def test_a_batch_staged_before_a_change_elsewhere_is_appended_after_it(tmp_path: Path):
    here, there = (
        Topic("t", Location.of(tmp_path / "t")),
        Topic("t", Location.of(tmp_path / "t")),
    )
    staged = part(here, [{"a": 1}], struct(a=INT64))
    there.prepare(topic_row_schema(struct(b=INT64), None))
    here.append([staged], Mark("a", 1, 1), "", NOW)
    assert read(there) == [{"a": 1, "b": None}]


def test_the_schema_of_an_old_version_is_that_of_then(topic: Topic):
    topic.prepare(packed_row_schema())
    first = topic.log.newest()
    grown = Schema.struct({**_fields(packed_row_schema()), "more": TEXT})
    topic.prepare(grown)
    assert topic.schema(first) == packed_row_schema()
    assert topic.schema() == grown


def _fields(schema: Schema) -> dict[str, Schema]:
    return {field.name: field.schema for field in schema.fields}
