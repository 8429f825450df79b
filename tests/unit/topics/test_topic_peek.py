"""A look into a topic shows people its newest or oldest records."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.topics.made_topics import START, Clock, append, part, tending

from headrace.sdk import Mark, Schema
from headrace.sdk.arrow import to_arrow
from headrace.sdk.delta import AddedFile
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import to_spark_json
from headrace.topics import (
    Topic,
    Topics,
    UpkeepPolicy,
    packed_row_schema,
    peek,
)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topics(Location.of(tmp_path)).get("t")


def seen(topic: Topic, rows: int, *, oldest: bool = False) -> list[tuple[int, int]]:
    records = peek(topic, rows, oldest=oldest)
    return [(record["version"], record["value"]["id"]) for record in records]


def test_a_topic_without_records_shows_nothing(topic: Topic):
    assert peek(topic, 5) == []


@pytest.mark.parametrize("compacted", [False, True])
def test_the_newest_or_oldest_records_are_shown_in_order(topic: Topic, compacted: bool):
    for batch in range(6):
        append(topic, [[2 * batch, 2 * batch + 1]], Mark("a", batch, 1))
    if compacted:
        policy = UpkeepPolicy(
            compact_after=timedelta(0), compact_files=2, grace=timedelta(0), every=timedelta(0)
        )
        clock = Clock()
        upkeep = tending(Topics(topic.location.parent), clock, policy)
        for _ in range(3):
            clock.pass_by(timedelta(hours=1))
            upkeep.run_once()
        assert not list((topic.location.local / "data" / "made").glob("*"))
    assert seen(topic, 3) == [(5, 9), (6, 10), (6, 11)]
    assert seen(topic, 3, oldest=True) == [(1, 0), (1, 1), (2, 2)]
    assert len(seen(topic, 100)) == len(seen(topic, 100, oldest=True)) == 12


def test_only_the_files_that_are_needed_are_read(topic: Topic):
    for batch in range(6):
        append(topic, [[batch]], Mark("a", batch, 1))
    for version in (1, 2, 3):
        (file,) = topic.log.commit(version).added
        (topic.location.local / file.path).write_bytes(b"damaged")
    assert seen(topic, 2) == [(5, 4), (6, 5)]


def test_values_of_all_kinds_become_json(topic: Topic):
    schema = Schema.struct(
        {
            "raw": Schema.bytes(optional=True),
            "day": Schema.date(optional=True),
            "at": Schema.timestamp(optional=True),
            "sum": Schema.decimal(2, precision=5, optional=True),
            "ratio": Schema.float64(optional=True),
            "many": Schema.array(Schema.int32(optional=True), optional=True),
        }
    )
    row = {
        "raw": b"\x00\xff",
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "sum": Decimal("1.50"),
        "ratio": float("nan"),
        "many": [1, None],
    }
    topic.append([part(topic, [row], schema)], Mark("a", 1, 1), "", START)
    (record,) = peek(topic, 1)
    assert json.loads(json.dumps(record, allow_nan=False))["value"] == {
        "raw": "AP8=",
        "day": "2026-01-02",
        "at": "2026-01-02T03:00:00+00:00",
        "sum": "1.50",
        "ratio": "nan",
        "many": [1, None],
    }


def test_packed_rows_are_unpacked(topic: Topic):
    topic.prepare(packed_row_schema())
    rows = [packed("orders", {"id": [1, 2, 3]}, 0), packed("users", {"name": ["x"]}, 1)]
    path = topic.location.local / "data" / "packed.parquet"
    path.parent.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=to_arrow(packed_row_schema())), path)
    file = AddedFile("data/packed.parquet", path.stat().st_size, 2)
    topic.append([file], Mark("a", 1, 1), "", START)
    assert peek(topic, 2) == [
        {"version": 1, "stream": "orders", "value": {"id": 3}},
        {"version": 1, "stream": "users", "value": {"name": "x"}},
    ]
    assert [record["value"] for record in peek(topic, 2, oldest=True)] == [{"id": 1}, {"id": 2}]
    assert topic.describe().packed


def packed(stream: str, columns: dict[str, list[object]], offset: int) -> dict[str, object]:
    batch = pa.RecordBatch.from_pydict(columns)
    return {
        "stream": stream,
        "schema_id": offset,
        "schema": batch.schema.serialize().to_pybytes(),
        "rows": batch.num_rows,
        "payload": batch.serialize().to_pybytes(),
        "offset": offset,
    }


def test_a_description_has_the_figures_of_what_is_kept(topic: Topic):
    append(topic, [[1, 2], [3]], Mark("a", 0, 1), START)
    append(topic, [[4]], Mark("a", 1, 1), START + timedelta(minutes=5))
    told = topic.describe()
    assert (told.name, told.version, told.oldest_version) == ("t", 2, 0)
    assert (told.rows, told.files, told.packed) == (4, 3, False)
    assert told.size_bytes == sum(
        f.size_bytes for v in (1, 2) for f in topic.log.commit(v).added
    )
    assert told.last_append is not None
    assert abs(told.last_append - START - timedelta(minutes=5)) < timedelta(seconds=1)
    assert told.schema == to_spark_json(topic.schema())
