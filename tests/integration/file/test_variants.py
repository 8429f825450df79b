"""Values that share no shape keep theirs, from JSON lines through a topic into targets."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.dataplane.flow_doubles import (
    NOW,
    TASK,
    Kept,
    dead_letters,
    read_topic,
    topic_writer,
    transform,
    values,
)

from headrace.dataplane import Flow, FrameReader, Step, TopicSource, preview
from headrace.model import Batch
from headrace.sdk import ConfigError, Position, ReadLimit, Schema
from headrace.sdk.location import Location
from headrace.topics import Topic, TopicReader, Topics, peek
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.transforms.sql import Filter, Sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LINES: list[dict[str, Any]] = [
    {"id": 1, "v": 1, "s": {"w": "x"}, "l": [1, "a"]},
    {"id": 2, "v": "1", "s": {"w": [1.5, None]}, "l": [{"k": True}]},
    {"id": 3, "v": {"b": [1, {"c": "é"}]}, "s": {"w": {"deep": 1}}, "l": None},
    {"id": 4, "v": None, "s": None, "l": []},
]
VARIANT = Schema.variant(optional=True)
VALUE = Schema.struct(
    {
        "id": Schema.int64(optional=True),
        "v": VARIANT,
        "s": Schema.struct({"w": VARIANT}, optional=True),
        "l": Schema.array(VARIANT, optional=True),
    }
)
TEXT = "".join(f"{json.dumps(line)}\n" for line in LINES)
Start = Callable[..., Any]


def flow(spark: "SparkSession", folder: Path, source: Any, sinks: list[Any]) -> Flow:
    return Flow(
        spark=spark,
        application="v-0",
        topic="v",
        source=source,
        steps=[],
        sinks=sinks,
        names=[f"sink{number}" for number, _ in enumerate(sinks)],
        staging=Location.of(folder / "divided"),
    )


def in_order(texts: list[str]) -> list[Any]:
    """Give rows without the fields that are null, as Spark writes JSON without them."""
    rows = sorted((json.loads(text) for text in texts), key=lambda row: row["id"])
    return [{name: item for name, item in row.items() if item is not None} for row in rows]


def rows_of(frame: "DataFrame") -> list[Any]:
    return in_order([row[0] for row in frame.selectExpr("to_json(struct(*))").collect()])


@pytest.fixture
def topic(spark: "SparkSession", tmp_path: Path, source: Start) -> Topic:
    """A topic into which the lines went."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(TEXT)
    reader = FrameReader(source(tmp_path / "in", format="json").task)
    into = flow(spark, tmp_path, reader, [topic_writer(tmp_path, "v")])
    end = reader.latest(Position(), ReadLimit())
    into.run(Batch(TASK, 1, 1, Position(), end, NOW))
    return Topics(Location.of(tmp_path)).get("v")


def test_a_topic_keeps_texts_and_knows_them_for_variants(topic: Topic) -> None:
    assert topic.value_schema() == VALUE.replaced(optional=True)
    values: list[Any] = [record["value"] for record in peek(topic, 10)]
    shown = {value["id"]: value["v"] for value in values}
    assert (shown[1], shown[2]) == ("1", '"1"')


@pytest.mark.filterwarnings("ignore:The return type of DataFrame.toJSON")
def test_a_preview_shows_the_values(
    spark: "SparkSession", topic: Topic, tmp_path: Path, source: Start
) -> None:
    reader = FrameReader(source(tmp_path / "in", format="json").task)
    (stage,) = preview(spark, reader, "v", [], 10)
    values: list[Any] = [record["value"] for record in stage.records[:3]]
    assert [value["v"] for value in values] == [1, "1", LINES[2]["v"]]
    assert stage.fields["v"] == "variant"


def test_every_target_gets_what_it_can_hold(
    spark: "SparkSession", topic: Topic, tmp_path: Path, sink: Start
) -> None:
    reader = TopicReader(topic)
    props = {"path": str(tmp_path / "delta")}
    delta = DeltaSink.task(DeltaSink.config_def().parse(props))
    files = [sink(tmp_path / kind, format=kind) for kind in ("json", "parquet", "avro")]
    out = flow(spark, tmp_path, TopicSource(reader, ordered=True), [delta, *files])
    end = reader.latest(Position(), ReadLimit())
    for number in (1, 2):
        counts = out.run(Batch(TASK, number, 1, Position(), end, NOW))
        assert (counts.read, counts.written) == (4, 4)
    expected = in_order(TEXT.splitlines() * 2)
    table = spark.read.format("delta").load(str(tmp_path / "delta"))
    assert table.schema["v"].dataType.typeName() == "variant"
    assert rows_of(table) == expected
    assert rows_of(spark.read.parquet(str(tmp_path / "parquet"))) == expected
    lines = [p.read_text().splitlines() for p in (tmp_path / "json").glob("part-*.json")]
    assert in_order([line for some in lines for line in some]) == expected
    texts = spark.read.format("avro").load(str(tmp_path / "avro")).where("id = 2").collect()
    assert {row["v"] for row in texts} == {'"1"'}


def test_csv_of_variants_is_read_as_it_was_written(
    spark: "SparkSession", topic: Topic, tmp_path: Path, sink: Start, source: Start
) -> None:
    reader = TopicReader(topic)
    flat = [Step(transform(Sql, "s", query="SELECT id, v"))]
    file = sink(tmp_path / "csv", format="csv")
    out = replace(flow(spark, tmp_path, TopicSource(reader, ordered=True), [file]), steps=flat)
    end = reader.latest(Position(), ReadLimit())
    out.run(Batch(TASK, 1, 1, Position(), end, NOW))
    back = source(tmp_path / "csv", format="csv", schema="id BIGINT, v VARIANT").step()
    rows = back.selectExpr("value.id", "to_json(value.v) AS v").collect()
    expected = {row["id"]: row["v"] for row in LINES}
    assert {row.id: row.v and json.loads(row.v) for row in rows} == expected


WHOLE = ['{"a":1,"b":[1,"x"]}', '[1,{"a":2}]', "5", '"t"', "null"]


@pytest.fixture
def whole(spark: "SparkSession", tmp_path: Path, source: Start) -> Topic:
    """A topic of records that share no shape, into which two bad ones did not go."""
    folder = tmp_path / "whole"
    folder.mkdir()
    (folder / "a.jsonl").write_text("\n".join([*WHOLE, "{bad", '{"a":1,"a":2}']) + "\n")
    reader = FrameReader(source(folder, format="json", schema="variant").task)
    letters = dead_letters(tmp_path, "dlq")
    into = replace(
        flow(spark, tmp_path, reader, [topic_writer(tmp_path, "w")]), dead_letters=letters
    )
    end = reader.latest(Position(), ReadLimit())
    counts = into.run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert (counts.read, counts.written, counts.rejected) == (7, 5, 2)
    dead = read_topic(spark, tmp_path, "dlq")
    messages = [h["value"] for d in dead for h in d["headers"] if "message" in h["key"]]
    assert [m.partition(".")[0] for m in messages] == [
        "Invalid JSON: Expecting property name enclosed in double quotes, at character 2",
        "two fields are called 'a'",
    ]
    return Topics(Location.of(tmp_path)).get("w")


def test_records_that_share_no_shape_reach_every_target(
    spark: "SparkSession", whole: Topic, tmp_path: Path, sink: Start
) -> None:
    assert whole.value_schema() == VARIANT
    assert sorted(str(record["value"]) for record in peek(whole, 10)) == sorted(WHOLE)
    reader = TopicReader(whole)
    props = {"path": str(tmp_path / "delta")}
    delta = DeltaSink.task(DeltaSink.config_def().parse(props))
    kinds = ("json", "parquet", "avro", "csv", "text")
    files = [sink(tmp_path / kind, format=kind) for kind in kinds]
    out = flow(spark, tmp_path, TopicSource(reader, ordered=True), [delta, *files])
    end = reader.latest(Position(), ReadLimit())
    for number in (1, 2):
        counts = out.run(Batch(TASK, number, 1, Position(), end, NOW))
        assert (counts.read, counts.written) == (5, 5)
    expected = sorted(WHOLE * 2)
    table = spark.read.format("delta").load(str(tmp_path / "delta"))
    assert table.schema["value"].dataType.typeName() == "variant"
    for frame in (table, spark.read.parquet(str(tmp_path / "parquet"))):
        rows = frame.selectExpr("to_json(value) AS text").collect()
        assert sorted(row.text for row in rows) == expected
    for kind, pattern in (("json", "part-*.json"), ("text", "part-*.txt")):
        lines = [p.read_text().splitlines() for p in (tmp_path / kind).glob(pattern)]
        assert sorted(line for some in lines for line in some) == expected
    texts = spark.read.format("avro").load(str(tmp_path / "avro")).collect()
    assert sorted(row["value"] for row in texts) == expected


def test_records_that_share_no_shape_get_fields_by_sql(
    spark: "SparkSession", whole: Topic, tmp_path: Path
) -> None:
    kept = Kept()
    steps = [
        Step(transform(Filter, "f", condition="schema_of_variant(value) LIKE 'OBJECT%'")),
        Step(transform(Sql, "s", query="SELECT variant_get(value, '$.b[1]', 'string') AS b")),
    ]
    reader = TopicReader(whole)
    made = flow(spark, tmp_path, TopicSource(reader, ordered=True), [kept])
    end = reader.latest(Position(), ReadLimit())
    counts = replace(made, steps=steps).run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert (counts.read, counts.filtered, counts.written) == (5, 4, 1)
    assert values(kept) == [{"b": "x"}]


def test_only_json_has_records_of_any_kind(tmp_path: Path, source: Start) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(ConfigError, match="cannot be one VARIANT"):
        source(tmp_path / "a.csv", format="csv", schema="VARIANT")
