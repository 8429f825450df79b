"""Converters in the flow: bytes in a topic, types in the sink, errors as data."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.contract.converting import Memory, converter, raw_frame, schema_of
from tests.integration.dataplane.flow_doubles import (
    NOW,
    TASK,
    Kept,
    batch,
    dead_letters,
    flow,
    read_topic,
    topic_writer,
    transform,
    values,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import ConvertingReader, FrameReader, Step, TopicSource
from headrace.dataplane.conversion import encoded
from headrace.dataplane.records import record_frame
from headrace.model import Batch, Counts, ToleranceExceededError
from headrace.sdk import FrameSource, Position, ReadLimit
from headrace.sdk.converter import RecordPart
from headrace.sdk.location import Location
from headrace.topics import TopicReader, Topics
from headrace_plugins.transforms.cast import Cast

pytestmark = pytest.mark.spark

PLAIN = {"schemas.enable": "false"}


class Raws(FrameSource):
    """Records with a key and a value of bytes, some of which are no JSON."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return Position()

    def read(self, spark, start, end):
        raws = [b'{"id": 1}', b'{"id": 2, "more": true}', b"{", b'{"id": "x"}', None]
        keys = "IF(value = X'7B', X'01', X'0000000000000001') AS key"
        return raw_frame(spark, raws).selectExpr(keys, "value")


def reading(folder: Path, *converters) -> ConvertingReader:
    return ConvertingReader(FrameReader(Raws(NO_KEYS)), converters, folder)


def test_a_value_that_no_step_changed_is_encoded_without_being_made_anew(spark) -> None:
    values = spark.sql("SELECT struct(id, 'a' AS a) AS value FROM range(1)")
    written = encoded(record_frame(values, "t"), [converter("JsonConverter", PLAIN)])
    plan = written.frame._jdf.queryExecution().analyzed().toString()
    assert re.search(r"value#\d+ AS __plain_value", plan)
    text = written.frame.selectExpr(f"CAST({written.shape.value.sql()} AS STRING) AS text")
    assert [row.text for row in text.collect()] == ['{"id":0,"a":"a"}']


def test_a_topic_of_bytes_carries_the_types_of_its_source(spark, tmp_path: Path) -> None:
    writer = topic_writer(tmp_path / "topics", "numbers")
    into = replace(flow(spark, [writer]), converters=[converter("JsonConverter")])
    assert into.run(batch(1, 0, 30)) == Counts(read=30, written=30)
    stored = read_topic(spark, tmp_path / "topics", "numbers")
    assert stored[0]["value"].startswith(b'{"schema":{"type":"struct"')

    topic = TopicSource(
        TopicReader(Topics(Location.of(tmp_path / "topics")).get("numbers")), ordered=False
    )
    reader = ConvertingReader(topic, [converter("JsonConverter")], tmp_path / "d")
    sink = Kept()
    end = reader.latest(Position(), ReadLimit())
    once = Batch(TASK, 1, 1, Position(), end, NOW)
    counts = flow(spark, [sink], source=reader).run(once)
    assert (counts.read, counts.written) == (30, 30)
    assert sorted(value["id"] for value in values(sink)) == list(range(30))


def test_records_that_cannot_be_read_are_dead_lettered_with_their_stage(
    spark, tmp_path: Path
) -> None:
    dead = dead_letters(tmp_path, "dead")
    reader = reading(
        tmp_path / "d",
        converter("LongConverter", part=RecordPart.KEY),
        converter("JsonConverter", PLAIN, schemas=Memory()),
    )
    cast = Step(transform(Cast, "whole", spec="id:int64"))
    sink = Kept()
    counts = flow(spark, [sink], cast, source=reader, dead_letters=dead).run(batch(1, 0, 5))
    assert (counts.read, counts.written, counts.rejected) == (5, 3, 2)
    assert [v and (v["id"], v["more"]) for v in values(sink)] == [(1, None), (2, True), None]
    assert {row["key"] for row in sink.rows} == {1}
    letters = {row["cause"]["stage"]: row for row in read_topic(spark, tmp_path, "dead")}
    # What has a bad key is rejected for that, whatever its value.
    assert letters.keys() == {"KEY_CONVERTER", "TRANSFORMATION"}
    unread = letters["KEY_CONVERTER"]
    assert (unread["key"], unread["value"]) == ("\x01", "{")
    assert bytes(unread["cause"]["raw"]) == b"{"


def test_without_tolerance_the_first_bad_record_stops_the_task(spark, tmp_path: Path) -> None:
    sink = Kept()
    reader = reading(tmp_path, converter("JsonConverter", PLAIN))
    with pytest.raises(ToleranceExceededError) as stopped:
        flow(spark, [sink], source=reader).run(batch(1, 0, 5))
    assert "VALUE_CONVERTER" in str(stopped.value)
    assert not sink.rows


def test_a_schema_that_was_inferred_once_stays(spark, tmp_path: Path) -> None:
    memory = Memory()
    for _ in range(2):
        each = converter("JsonConverter", PLAIN, schemas=memory)
        frame = reading(tmp_path, each).read(spark, Position(), Position()).frame
        assert frame is not None
        assert [f.name for f in schema_of(frame).fields] == ["id", "more"]
    assert list(memory) == ["t#value"]


def test_a_typed_topic_passes_its_converter_and_that_is_said_once(
    spark, tmp_path: Path
) -> None:
    topic_writer(tmp_path, "typed")
    flow(spark, [topic_writer(tmp_path, "typed")]).run(batch(1, 0, 3))
    topic = TopicSource(TopicReader(Topics(Location.of(tmp_path)).get("typed")), ordered=False)
    each = converter("JsonConverter")
    reader = ConvertingReader(topic, [each], tmp_path / "d")
    end = reader.latest(Position(), ReadLimit())
    with capture_logs() as logs:
        frames = [reader.read(spark, Position(), end).frame for _ in range(2)]
    assert all(f is not None and f.columns == topic_columns(f) for f in frames)
    assert [log["part"] for log in logs] == ["value"]


def topic_columns(frame) -> list[str]:
    return [name for name in frame.columns if name not in {"error", "raw_value"}]
