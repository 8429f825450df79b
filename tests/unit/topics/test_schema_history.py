"""Every schema that a topic has had is numbered, and outlives the commits that told it."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.topics.made_topics import START, Clock, part, tending

from headrace.model import TopicRetention
from headrace.sdk import Mark, Schema
from headrace.sdk.location import Location
from headrace.topics import (
    Topic,
    Topics,
    UpkeepPolicy,
    packed_row_schema,
)

OLD = Schema.struct({"id": Schema.int32(optional=True)})
WIDE = Schema.struct({"id": Schema.int64(optional=True)})
MORE = Schema.struct({"id": Schema.int64(optional=True), "b": Schema.string(optional=True)})
FORGETFUL = UpkeepPolicy(
    checkpoint_versions=1,
    compact_after=timedelta(0),
    retention=TopicRetention(age=timedelta(days=1)),
    log_versions=0,
    every=timedelta(0),
)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topics(Location.of(tmp_path)).get("t")


def add(topic: Topic, batch: int, schema: Schema) -> None:
    topic.append([part(topic, [{"id": batch}], schema)], Mark("a", batch, 1), "", START)


def told(topic: Topic) -> list[tuple[int, list[str], int | None]]:
    return [
        (v.number, [f"{f.name} {f.schema.type}" for f in v.value.fields], v.batch)
        for v in topic.history.versions()
    ]


EXPECTED = [(1, ["id INT32"], 1), (2, ["id INT64"], 3), (3, ["id INT64", "b STRING"], 4)]


def test_each_change_has_a_number_and_the_first_batch_behind_it(topic: Topic) -> None:
    assert topic.history.versions() == []
    for batch, schema in enumerate([OLD, OLD, WIDE, MORE, OLD], start=1):
        add(topic, batch, schema)
    assert told(topic) == EXPECTED
    versions = [v.version for v in topic.history.versions()]
    assert versions == sorted(versions)
    assert versions[0] == 0


def test_other_processes_see_what_one_appends(topic: Topic, tmp_path: Path) -> None:
    other = Topics(Location.of(tmp_path)).get("t")
    add(topic, 1, OLD)
    assert told(other) == EXPECTED[:1]
    add(other, 2, OLD)
    add(other, 3, WIDE)
    assert told(topic) == told(other) == EXPECTED[:2]


def test_the_history_outlives_the_log(topic: Topic, tmp_path: Path) -> None:
    for batch, schema in enumerate([OLD, OLD, WIDE, MORE], start=1):
        add(topic, batch, schema)
    clock = Clock()
    upkeep = tending(Topics(Location.of(tmp_path)), clock, FORGETFUL)
    upkeep.run_once()
    for _ in range(4):
        clock.pass_by(timedelta(days=2))
        upkeep.run_once()
    assert topic.log.oldest() > 2, "the commits that told of the changes are gone"
    assert told(Topics(Location.of(tmp_path)).get("t")) == EXPECTED
    newest = Schema.struct({"c": Schema.int8(optional=True)})
    add(topic, 9, newest)
    assert told(Topics(Location.of(tmp_path)).get("t"))[3][0::2] == (4, 9)


def test_a_stream_in_a_packed_topic_has_a_history_of_its_own(
    topic: Topic, tmp_path: Path
) -> None:
    topic.prepare(packed_row_schema())
    for batch, schemas in enumerate(
        [[("x", OLD), ("y", MORE)], [("x", OLD)], [("x", WIDE), ("x", OLD), ("x", WIDE)]]
    ):
        topic.append((), Mark("a", batch, 1), "", START, schemas=schemas)
    found = Topics(Location.of(tmp_path)).get("t").history.versions()
    assert [(v.stream, v.number, v.value) for v in found] == [
        ("x", 1, OLD),
        ("y", 1, MORE),
        ("x", 2, WIDE),
    ]
    newest = topic.history.newest("x")
    assert newest is not None
    assert newest.value == WIDE


def test_two_workers_that_keep_at_once_lose_nothing(topic: Topic, tmp_path: Path) -> None:
    add(topic, 1, OLD)
    stale = Topics(Location.of(tmp_path)).get("t").history
    stale.versions()
    add(topic, 2, WIDE)
    topic.history.keep()
    add(topic, 3, MORE)
    stale.keep()
    assert [v.number for v in Topics(Location.of(tmp_path)).get("t").history.versions()] == [
        1,
        2,
        3,
    ]
