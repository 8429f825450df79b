"""The flow on real Spark: counts, tolerance, dead letters, many sinks, replays."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.dataplane.flow_doubles import (
    CAST,
    CHAIN,
    NOW,
    TASK,
    Kept,
    TargetDownError,
    batch,
    condition,
    dead_letters,
    flow,
    place,
    read_topic,
    row_of,
    topic_writer,
    transform,
    values,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader, Step, TopicSource
from headrace.model import Batch, Counts, ToleranceExceededError
from headrace.sdk import ConfigError, FrameSource, Position, ReadLimit
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.sqltext import rows
from headrace.topics import TopicReader, Topics
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.fields import InsertField, ReplaceField
from headrace_plugins.transforms.sql import Filter

CAST_FAILED = {CHAIN: 10}

pytestmark = pytest.mark.spark


def test_a_batch_without_steps_arrives_whole(spark) -> None:
    sink = Kept()
    counts = flow(spark, [sink]).run(batch(1, 0, 100))
    assert counts == Counts(read=100, written=100)
    assert sorted(value["id"] for value in values(sink)) == list(range(100))


def test_filtered_records_are_counted_by_transform(spark) -> None:
    sink = Kept()
    even = Step(transform(Filter, "even", condition="id % 2 = 0"))
    small = Step(transform(Filter, "small", condition="id < 50"))
    counts = flow(spark, [sink], even, small).run(batch(1, 0, 100))
    assert counts == Counts(
        read=100, written=25, filtered=75, filters={"even": 50, "small": 25}
    )


def test_a_filter_with_a_predicate_drops_what_the_predicate_picks(spark) -> None:
    sink = Kept()
    step = Step(Filter("f", Filter.config_def().parse({})), condition("id < 10"))
    counts = flow(
        spark,
        [sink],
        step,
    ).run(batch(1, 0, 100))
    assert (counts.filtered, counts.written) == (10, 90)
    negated = Kept()
    counts = flow(spark, [negated], replace(step, negate=True)).run(batch(1, 0, 100))
    assert (counts.filtered, counts.written) == (90, 10)


def test_transforms_see_each_others_work(spark) -> None:
    sink = Kept()
    steps = [
        Step(transform(ReplaceField, "rename", renames="id:key,text:word")),
        Step(transform(Filter, "few", condition="key < 3 AND record.topic = 'numbers'")),
        Step(transform(Cast, "cast", spec="word:int64,key:string")),
        Step(transform(InsertField, "add", static_field="from", static_value="it's")),
        Step(transform(ReplaceField, "drop", exclude="key")),
    ]
    counts = flow(spark, [sink], *steps).run(batch(1, 0, 10))
    assert (counts.read, counts.written, counts.filtered) == (10, 3, 7)
    found = sorted(values(sink), key=lambda value: value["word"])
    assert found == [{"word": n, "from": "it's"} for n in range(3)]


def test_a_bad_record_stops_the_task_with_nothing_written(spark) -> None:
    sink = Kept()
    with pytest.raises(ToleranceExceededError) as caught:
        flow(spark, [sink], CAST).run(batch(1, 0, 100))
    assert "out of range for requested data type" in str(caught.value)
    assert "cast (Cast)" in str(caught.value)
    assert sink.rows == []


def test_bad_records_are_dead_lettered_as_they_came_with_their_cause(
    spark, tmp_path: Path
) -> None:
    sink = Kept()
    steps = [
        Step(transform(ReplaceField, "rename", renames="text:word")),
        Step(transform(Cast, "cast", spec="word:int32")),
    ]
    letters = dead_letters(tmp_path)
    counts = flow(spark, [sink], *steps, dead_letters=letters).run(batch(1, 0, 100))
    assert counts == Counts(read=100, written=90, rejected=10, causes=CAST_FAILED)
    found = read_topic(spark, tmp_path, "copy.dlq")
    assert min(row["value"] for row in found) == '{"id":17,"text":"x17"}'
    assert found[0]["cause"]["value_schema"]
    headers = {h["key"]: h["value"] for h in found[0]["headers"]}
    assert headers["__connect.errors.stage"] == "TRANSFORMATION"
    assert headers["__connect.errors.connector.name"] == "copy"
    assert "out of range" in headers["__connect.errors.exception.message"]


def test_dead_letters_are_not_doubled_when_the_batch_runs_again(spark, tmp_path: Path) -> None:
    sink = Kept(fail=True)
    letters = dead_letters(tmp_path)
    copy = flow(spark, [sink], CAST, dead_letters=letters)
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 100))
    counts = copy.run(batch(1, 0, 100, again=True))
    assert counts == Counts(read=100, written=90, rejected=10, causes=CAST_FAILED)
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 10


def test_a_batch_that_a_sink_already_holds_is_not_written_again(spark) -> None:
    sink = Kept()
    copy = flow(spark, [sink], Step(transform(Filter, "f", condition="id < 5")))
    first = copy.run(batch(1, 0, 10))
    again = copy.run(batch(1, 0, 10, again=True))
    assert again == first
    assert len(sink.rows) == 5


def test_every_sink_gets_every_record_and_only_the_missing_one_is_written_again(spark) -> None:
    first, second = Kept(), Kept(fail=True)
    copy = flow(spark, [first, second])
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 10))
    assert (len(first.rows), len(second.rows)) == (10, 0)
    counts = copy.run(batch(1, 0, 10, again=True))
    assert counts == Counts(read=10, written=10)
    assert (len(first.rows), len(second.rows)) == (10, 10)


@pytest.mark.parametrize(
    "later", ["one", "other", "other one", "other new one", "one other new"]
)
def test_sinks_that_stay_get_each_record_once_whichever_come_and_go_in_doubt(
    spark, later: str
) -> None:
    sinks = {"one": Kept(), "other": Kept(fail=True), "new": Kept()}
    with pytest.raises(TargetDownError):
        flow(spark, [sinks["one"], sinks["other"]], names=["one", "other"]).run(batch(1, 0, 10))
    names = later.split()
    copy = flow(spark, [sinks[name] for name in names], names=names)
    for _ in range(2):
        assert copy.run(batch(1, 0, 10, again=True)) == Counts(read=10, written=10)
    assert {name: len(sinks[name].rows) for name in names} == dict.fromkeys(names, 10)


def test_a_batch_that_a_sink_holds_for_another_range_is_no_success(spark) -> None:
    sink = Kept()
    copy = flow(spark, [sink])
    copy.run(batch(1, 0, 10))
    with pytest.raises(StaleEpochError, match="other records"):
        copy.run(batch(1, 0, 20, again=True))
    with pytest.raises(StaleEpochError, match="other records"):
        copy.run(replace(batch(1, 0, 10), resumed=True))
    assert len(sink.rows) == 10


def test_sql_that_names_no_field_is_a_clear_error(spark) -> None:
    step = Step(transform(Filter, "f", condition="nonsense > 1"))
    with pytest.raises(ConfigError) as caught:
        flow(spark, [Kept()], step).run(batch(1, 0, 10))
    assert caught.value.field == "transforms.f"
    assert "nonsense" in caught.value.problem
    assert "id, text" in caught.value.fix


def test_records_go_through_a_topic_and_come_back_in_order(spark, tmp_path: Path) -> None:
    writer = topic_writer(tmp_path, "t")
    into = flow(spark, [writer])
    for number in range(3):
        counts = into.run(batch(number + 1, number * 10, number * 10 + 10))
        assert counts == Counts(read=10, written=10)
    reader = TopicReader(Topics(Location.of(tmp_path)).get("t"))
    end = reader.latest(Position(), ReadLimit())
    sink = Kept(ordered=True)
    out = flow(spark, [sink], source=TopicSource(reader, ordered=True))
    counts = out.run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert (counts.read, counts.written) == (30, 30)
    assert counts.size_bytes > 0
    in_order = sorted(sink.rows, key=lambda row: row["position"])
    assert [row["value"]["id"] for row in in_order] == list(range(30))


class Widening(FrameSource):
    """A table that has one more column from row 10 on."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(20)

    def read(self, spark, start, end):
        frame = spark.range(row_of(start), row_of(end))
        return rows(frame.selectExpr("id", "id * 2 AS more") if row_of(start) else frame)


def test_a_schema_change_in_mid_stream_reaches_the_sink(spark, tmp_path: Path) -> None:
    into = flow(spark, [topic_writer(tmp_path, "t")], source=FrameReader(Widening(NO_KEYS)))
    into.run(batch(1, 0, 10))
    reader = TopicReader(Topics(Location.of(tmp_path)).get("t"))
    source = TopicSource(reader, ordered=False)
    sink = Kept()
    out = flow(spark, [sink], source=source)
    middle = reader.latest(Position(), ReadLimit())
    out.run(Batch(TASK, 1, 1, Position(), middle, NOW))
    into.run(batch(2, 10, 20))
    end = reader.latest(middle, ReadLimit())
    out.run(Batch(TASK, 2, 1, middle, end, NOW))
    found = sorted(values(sink), key=lambda value: value["id"])
    assert found[:10] == [{"id": n} for n in range(10)]
    assert found[10:] == [{"id": n, "more": 2 * n} for n in range(10, 20)]
    whole = Kept()
    flow(spark, [whole], source=source).run(Batch(TASK, 3, 1, Position(), end, NOW))
    assert [value["more"] for value in sorted(values(whole), key=lambda v: v["id"])][:11] == [
        *[None] * 10,
        20,
    ]
