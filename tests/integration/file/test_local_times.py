"""Times that name no zone are written without one, and read as what they are."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.dataplane.flow_doubles import NOW, TASK, topic_writer
from tests.integration.file.conftest import Reading

from headrace.dataplane import Flow, FrameReader, TopicSource
from headrace.model import Batch
from headrace.sdk import Position, ReadLimit
from headrace.sdk.location import Location
from headrace.topics import TopicReader, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("source", ["arrow"], indirect=True)]

AT = dt.datetime.fromisoformat("2024-03-31T02:30:00.123456")
Start = Callable[..., Any]


def copied(
    spark: SparkSession, folder: Path, source: Any, *sinks: Any, number: int = 1
) -> None:
    end = source.latest(Position(), ReadLimit())
    Flow(
        spark=spark,
        application="local-0",
        topic="local",
        source=source,
        steps=[],
        sinks=list(sinks),
        names=[f"sink{n}" for n, _ in enumerate(sinks)],
        staging=Location.of(folder / "divided"),
    ).run(Batch(TASK, 1, 1, Position(), end, NOW))


@pytest.fixture(params=["file", "topic"])
def rows(
    spark: SparkSession, tmp_path: Path, source: Start, request: pytest.FixtureRequest
) -> Any:
    """A source of one row, with times of both kinds, at two depths."""
    (tmp_path / "in").mkdir()
    local = pa.array([AT], pa.timestamp("us"))
    zoned = pa.array([AT.replace(tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    deep = pa.array([[{"t": AT}]], pa.list_(pa.struct([("t", pa.timestamp("us"))])))
    table = pa.table({"local": local, "zoned": zoned, "deep": deep})
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    reader = FrameReader(source(tmp_path / "in").task)
    if request.param == "file":
        return reader
    copied(spark, tmp_path, reader, topic_writer(tmp_path, "kept"))
    return TopicSource(TopicReader(Topics(Location.of(tmp_path)).get("kept")), ordered=True)


def part(folder: Path, end: str) -> Path:
    [path] = folder.glob(f"part-*.{end}")
    return path


def test_files_have_zones_where_times_do(
    spark: SparkSession, tmp_path: Path, rows: Any, sink: Start
) -> None:
    kinds = ("json", "parquet", "avro", "text")
    keys = {"avro": {"compression": "none"}}
    sinks = (sink(tmp_path / kind, format=kind, **keys.get(kind, {})) for kind in kinds)
    copied(spark, tmp_path, rows, *sinks)
    for kind, end in (("json", "json"), ("text", "txt")):
        assert json.loads(part(tmp_path / kind, end).read_text()) == {
            "local": "2024-03-31T02:30:00.123456",
            "zoned": "2024-03-31T02:30:00.123456Z",
            "deep": [{"t": "2024-03-31T02:30:00.123456"}],
        }
    table = pq.read_table(part(tmp_path / "parquet", "snappy.parquet"))
    assert table["local"].type == pa.timestamp("us")
    assert table["zoned"].type == pa.timestamp("us", "UTC")
    with part(tmp_path / "avro", "avro").open("rb") as file:
        avro = fastavro.reader(file)
        found: list[Any] = list(avro)
        schema: Any = avro.writer_schema
        types = {f["name"]: str(f["type"]) for f in schema["fields"]}
    assert "local-timestamp-micros" in types["local"]
    assert "local" not in types["zoned"]
    assert found[0]["deep"] == [{"t": AT}]


def test_csv_has_zones_where_times_do(
    spark: SparkSession, tmp_path: Path, source: Start, sink: Start
) -> None:
    (tmp_path / "a.csv").write_text("l,z\n2024-03-31T02:30:00,2024-03-31T12:00:00\n")
    keys = {"schema": "l TIMESTAMP_NTZ, z TIMESTAMP", "time_zone": "Europe/Berlin"}
    reader = FrameReader(source(tmp_path / "a.csv", **keys).task)
    copied(spark, tmp_path, reader, sink(tmp_path / "out", format="csv"))
    assert part(tmp_path / "out", "csv").read_text().splitlines()[1:] == [
        "2024-03-31T02:30:00.000000,2024-03-31T10:00:00.000000Z"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "t\n2024-01-01T10:00:00\n2024-01-01T10:00:00+02:00\n2024-01-01T10:00:00Z\n"),
        (
            "a.json",
            (
                '{"t":"2024-01-01T10:00:00"}\n{"t":"2024-01-01T10:00:00Z"}\n'
                '{"t":"2024-01-01T10:00:00+02:00"}\n'
            ),
        ),
    ],
)
def test_a_zone_in_a_column_without_zones_is_a_bad_record(
    source: Callable[..., Reading], tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    frame = source(tmp_path, schema="t TIMESTAMP_NTZ").step()
    assert frame is not None
    found = frame.selectExpr("CAST(value.t AS STRING)", "error IS NOT NULL").collect()
    assert sorted(map(tuple, found), key=str) == [
        ("2024-01-01 10:00:00", False),
        (None, True),
        (None, True),
    ]
