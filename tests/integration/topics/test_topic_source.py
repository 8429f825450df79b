"""Spark reads topics whatever upkeep has made of their files."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.topics.made_topics import Clock, append, at, part, tending

from headrace.dataplane import TopicSource, TopicWriter
from headrace.dataplane.packed import packed_source
from headrace.sdk import Mark, Position, ReadLimit, RetriableError, Schema, SinkBatch
from headrace.sdk.location import Location
from headrace.topics import Topic, TopicReader, Topics, UpkeepPolicy, topic_row_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COMPACT = UpkeepPolicy(
    compact_after=timedelta(0), compact_files=4, grace=timedelta(0), every=timedelta(0)
)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topics(Location.of(tmp_path)).get("t")


def compact(topic: Topic, times: int = 3) -> None:
    """Compact everything and delete the originals."""
    clock = Clock()
    upkeep = tending(Topics(topic.location.parent), clock, COMPACT)
    for _ in range(times):
        clock.pass_by(timedelta(minutes=30))
        upkeep.run_once()


def ordered(spark: "SparkSession", topic: Topic, start: Position, end: Position) -> list[Any]:
    data = TopicSource(TopicReader(topic), ordered=True).read(spark, start, end)
    if data.frame is None:
        return []
    return [row[0] for row in data.frame.orderBy("position").select("value.id").collect()]


def test_any_range_is_read_in_order_from_segments_and_files(
    spark: "SparkSession", topic: Topic
):
    for batch in range(6):
        append(topic, [[10 * batch, 10 * batch + 1], [10 * batch + 2]], Mark("a", batch, 1))
    whole = [10 * batch + n for batch in range(6) for n in range(3)]
    compact(topic)
    for batch in range(6, 8):
        append(topic, [[10 * batch]], Mark("a", batch, 1))
    reader = TopicReader(topic)
    end = reader.latest(Position(), ReadLimit())
    assert [bool(f.segment) for f in reader.files(Position(), end)] == [True, False, False]
    assert ordered(spark, topic, Position(), end) == [*whole, 60, 70]
    assert ordered(spark, topic, at(topic, 2), at(topic, 3)) == [20, 21, 22]
    inside = at(topic, 3, 1)
    assert ordered(spark, topic, at(topic, 2), inside) == [20, 21]
    assert ordered(spark, topic, inside, at(topic, 4)) == [22, 30, 31, 32]


def test_a_batch_whose_files_are_deleted_while_it_reads_runs_again_from_segments(
    spark: "SparkSession", topic: Topic
):
    """As when the upkeep of another installation does not know of the batch."""
    for batch in range(6):
        append(topic, [[batch]], Mark("a", batch, 1))
    end = at(topic, topic.log.newest())
    source = TopicSource(TopicReader(topic), ordered=False)
    frame = source.read(spark, Position(), end).frame
    assert frame is not None
    source.explain(spark, Position(), end)  # nothing is amiss
    compact(topic)
    with pytest.raises(Exception, match=r"(?i)file"):
        frame.collect()
    with pytest.raises(RetriableError, match="compacted"):
        source.explain(spark, Position(), end)
    again = source.read(spark, Position(), end).frame
    assert again is not None
    assert sorted(row[0] for row in again.select("value.id").collect()) == list(range(6))


def test_rows_of_before_a_widening_are_read_with_the_wide_types(
    spark: "SparkSession", topic: Topic
):
    narrow = Schema.struct({"id": Schema.int32(optional=True)})
    wide = Schema.struct({"id": Schema.int64(optional=True)})
    topic.append([part(topic, [{"id": 1}], narrow)], Mark("a", 1, 1), "", datetime.now(UTC))
    topic.append([part(topic, [{"id": 2**40}], wide)], Mark("a", 2, 1), "", datetime.now(UTC))
    newest = at(topic, topic.log.newest())
    assert ordered(spark, topic, Position(), newest) == [1, 2**40]
    table = spark.read.format("delta").load(str(topic.location.local))
    assert sorted(row[0] for row in table.select("value.id").collect()) == [1, 2**40]


def test_a_writer_gives_its_rows_the_types_of_the_topic(spark: "SparkSession", topic: Topic):
    wide = Schema.struct(
        {"id": Schema.float64(optional=True), "note": Schema.string(optional=True)}
    )
    topic.prepare(topic_row_schema(wide, None))
    brought = Schema.struct({"id": Schema.int64()})
    columns = "named_struct('id', id) AS value", "NULL AS headers", "NULL AS timestamp"
    frame = spark.range(3).selectExpr(*columns)
    frame = frame.selectExpr(
        "value",
        "CAST(headers AS array<struct<key:string,value:string,type:string>>) AS headers",
        "CAST(timestamp AS timestamp) AS timestamp",
    )
    mark = Mark("w", 1, 1)
    staged = TopicWriter(topic, lambda name: None).write(frame, SinkBatch(mark, "t", brought))
    staged.commit("receipt")
    assert ordered(spark, topic, Position(), at(topic, 1)) == [0.0, 1.0, 2.0]


def test_packed_rows_are_read_from_segments(spark: "SparkSession", topic: Topic):
    writer = TopicWriter(topic, lambda name: None)
    for batch in range(6):
        source = packed_source([batch], _read)
        mark = Mark("p", batch, 1)
        done = source.stage(spark, writer.packed_table(), mark, {})
        writer.staged(mark, done.files, schemas=done.schemas).commit("")
    compact(topic)
    data = TopicSource(TopicReader(topic), ordered=False).read(
        spark, at(topic, 2), at(topic, 4)
    )
    assert data.packed is not None
    (stream,) = data.packed.streams(spark)
    assert (stream.name, stream.rows) == ("s", 4)
    rows = data.packed.rows(spark, stream).collect()
    assert sorted(row["value"]["id"] for row in rows) == [20, 21, 30, 31]


def _read(batch: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    yield "s", pa.RecordBatch.from_pydict({"id": [10 * batch, 10 * batch + 1]})


def test_spark_and_deltalake_read_a_compacted_table_alike(spark: "SparkSession", topic: Topic):
    for batch in range(8):
        append(topic, [[batch]], Mark("a", batch, 1))
    compact(topic, times=1)
    assert topic.segments()
    table = spark.read.format("delta").load(str(topic.location.local))
    assert sorted(row[0] for row in table.select("value.id").collect()) == list(range(8))
    old = spark.read.format("delta").option("versionAsOf", 4).load(str(topic.location.local))
    assert old.count() == 4
