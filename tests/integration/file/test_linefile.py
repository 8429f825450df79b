"""The sink into one file: Kafka Connect's FileStreamSink, exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.sdk import FrameSink, Schema, SinkBatch
from headrace.sdk.errors import StaleEpochError

pytestmark = pytest.mark.spark

Sink = Callable[..., FrameSink]
Describe = Callable[..., SinkBatch]
TEXT = Schema.string(optional=True)
KAFKA = {"connector_class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}


def lines(spark: Any, start: int, end: int) -> Any:
    """Give numbered lines in an order that the position has to put right."""
    frame = spark.range(start, end, 1, 2).orderBy("id", ascending=False)
    return frame.selectExpr("concat('line ', id) AS value", "array(0L, id) AS position")


def test_lines_are_added_in_the_order_of_the_records(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("already here\n")
    task = sink(path, **KAFKA)
    assert task.ordered
    for number in (1, 2):
        staged = task.write(lines(spark, number * 10, number * 10 + 3), batch(TEXT, number))
        assert staged.rows == 3
        staged.commit("r")
    assert path.read_text().splitlines() == [
        "already here",
        *(f"line {n}" for n in (10, 11, 12, 20, 21, 22)),
    ]


def test_the_same_batch_again_changes_nothing(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    path = tmp_path / "out.txt"
    one = batch(TEXT)
    for _ in range(2):
        sink(path, **KAFKA).write(lines(spark, 0, 3), one).commit(one.mark.receipt({}))
    assert len(path.read_text().splitlines()) == 3
    assert sink(path, **KAFKA).committed(one.mark, "t") == one.mark.receipt({})


@pytest.mark.parametrize("left", ["nothing", "half", "all"])
def test_a_crash_while_lines_are_added_is_made_good(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path, left: str
) -> None:
    path = tmp_path / "out.txt"
    task = sink(path, **KAFKA)
    task.write(lines(spark, 0, 3), batch(TEXT, 1)).commit("1")
    before = path.read_text()
    staged: Any = task.write(lines(spark, 3, 6), batch(TEXT, 2))
    # The state that a crash leaves after the mark was written.
    state_file = tmp_path / "_headrace" / "out%2Etxt" / "state.json"
    state = json.loads(state_file.read_text())
    state["applications"]["c-0"] |= {"batch": 2, "receipt": "2"}
    state["staged"] = str(staged.staging.local.relative_to(state_file.parent))
    state["before_bytes"] = len(before)
    state_file.write_text(json.dumps(state))
    added = {"nothing": "", "half": "line 3\nli", "all": "line 3\nline 4\nline 5\n"}[left]
    path.write_text(before + added)
    assert sink(path, **KAFKA).committed(batch(TEXT, 2, epoch=2).mark, "t") == "2"
    assert path.read_text().splitlines() == [f"line {n}" for n in range(6)]


def test_a_stale_owner_adds_nothing(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    path = tmp_path / "out.txt"
    stale = sink(path, **KAFKA).write(lines(spark, 0, 3), batch(TEXT, epoch=1))
    sink(path, **KAFKA).write(lines(spark, 0, 3), batch(TEXT, epoch=2)).commit("r")
    with pytest.raises(StaleEpochError):
        stale.commit("stale")
    assert len(path.read_text().splitlines()) == 3


def test_tasks_share_a_file(spark: Any, sink: Sink, batch: Describe, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    for name in ("c-0", "c-1"):
        one = batch(TEXT, application=name)
        sink(path, **KAFKA).write(lines(spark, 0, 2), one).commit(name)
    assert len(path.read_text().splitlines()) == 4
    for name in ("c-0", "c-1"):
        assert sink(path, **KAFKA).committed(batch(TEXT, application=name).mark, "t") == name


def test_values_that_are_no_texts_are_written_as_kafka_connect_or_as_json(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    path = tmp_path / "out.txt"
    task = sink(path, **KAFKA)
    frame = spark.sql(
        "SELECT IF(id = 0, NULL, 'x') AS value, array(id) AS position FROM range(2)"
    )
    task.write(frame, batch(TEXT, 1)).commit("r")
    frame = spark.sql("SELECT 5 AS value, array(0L) AS position")
    task.write(frame, batch(Schema.int32(), 2)).commit("r")
    frame = spark.sql("SELECT struct(1 AS a, 'b' AS b) AS value, array(0L) AS position")
    row = Schema.struct({"a": Schema.int32(), "b": Schema.string()})
    task.write(frame, batch(row, 3)).commit("r")
    assert path.read_text() == 'null\nx\n5\n{"a":1,"b":"b"}\n'
