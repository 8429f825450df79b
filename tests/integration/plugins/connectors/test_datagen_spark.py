"""The generator on Spark: its gears agree, and bad records are bad on purpose."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.dataplane import FrameReader, SplitReader
from headrace.sdk import Position
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.datagen.connector import (
    DEFAULT_SCHEMA,
    FrameGenerator,
    SplitGenerator,
)
from headrace_plugins.connectors.datagen.generator import GeneratorOptions, Lane, Plan

pytestmark = pytest.mark.spark

EVERY_TYPE = DEFAULT_SCHEMA + (
    ", a TINYINT, b SMALLINT, f FLOAT, wide DECIMAL(38, 20), whole DECIMAL(5, 0), "
    "bytes ARRAY<BINARY>, nested ARRAY<STRUCT<x: DECIMAL(9, 3), m: MAP<INT, ARRAY<DATE>>>>, "
    "`odd name` STRUCT<`it's`: BOOLEAN>"
)


def generated(
    spark: SparkSession, gear: str, settings: GeneratorOptions, start: int, end: int
) -> pa.Table:
    generator = (FrameGenerator if gear == "frame" else SplitGenerator)(settings)
    bounds = generator.position(start), generator.position(end)
    if isinstance(generator, FrameGenerator):
        frame = FrameReader(generator).read(spark, *bounds).frame
    else:
        frame = SplitReader(generator).read(spark, *bounds).frame
    assert frame is not None
    batches = frame.select("value.*").toArrow().to_batches()
    schema = to_arrow(settings.plan.schema)
    rows = pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)
    return rows.sort_by("id").combine_chunks()


@pytest.mark.parametrize("nulls", [0.0, 0.2])
def test_frame_and_split_give_the_same_rows_of_every_type(
    spark: SparkSession, nulls: float
) -> None:
    plan = Plan(schema=parse_ddl(EVERY_TYPE, field="schema"), seed=5, nulls=nulls)
    frame = generated(
        spark, "frame", GeneratorOptions(name="g", plan=plan, partitions=3), 100, 3_000
    )
    split = generated(
        spark, "split", GeneratorOptions(name="g", plan=plan, partitions=2), 100, 3_000
    )
    assert frame.num_rows == 2_900
    for name in frame.column_names:
        assert frame[name] == split[name], name


def test_the_tasks_of_one_generator_make_each_row_once(spark: SparkSession) -> None:
    plan = Plan(schema=parse_ddl("id BIGINT NOT NULL", field="schema"))
    seen: list[int] = []
    for part in range(3):
        settings = GeneratorOptions(name="g", plan=plan, rows=70_000, lane=Lane(part, 3))
        frame = generated(spark, "frame", settings, 0, settings.lane.length(70_000))
        split = generated(spark, "split", settings, 0, settings.lane.length(70_000))
        assert frame == split
        seen += frame["id"].to_pylist()
    assert sorted(seen) == list(range(70_000))


def test_the_asked_share_of_records_is_bad_and_the_same_ones_each_time(
    spark: SparkSession,
) -> None:
    plan = Plan(schema=parse_ddl("id BIGINT NOT NULL", field="schema"))
    source = FrameGenerator(GeneratorOptions(name="g", plan=plan, bad=0.1))
    bad = source.read(spark, Position(), source.position(5_000)).where("error IS NOT NULL")
    rows = [row.value.id for row in bad.collect()]
    assert 400 < len(rows) < 600
    again = FrameGenerator(GeneratorOptions(name="g", plan=plan, bad=0.1, partitions=7))
    bad = again.read(spark, Position(), again.position(5_000)).where("error IS NOT NULL")
    assert sorted(row.value.id for row in bad.collect()) == sorted(rows)
