"""The sinks that keep nothing: what they print and what they count."""

import io
import json
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import FrameSink, Mark, Schema, SinkBatch
from headrace.sdk.sink import Counting
from headrace_plugins.connectors.console.connector import ConsoleSink, ConsoleTask
from headrace_plugins.connectors.noop.connector import NoopSink

pytestmark = pytest.mark.spark

MARK = Mark("print/0", 3, 1)
SCHEMA = Schema.struct({"id": Schema.int64(), "name": Schema.string(optional=True)})
BATCH = SinkBatch(MARK, "people", SCHEMA)


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, 1, 4).selectExpr(
        "CAST(NULL AS STRING) AS key",
        "named_struct('id', id, 'name', IF(id % 2 = 0, NULL, 'é')) AS value",
        "CAST(NULL AS array<struct<key:string,value:string,type:string>>) AS headers",
        "timestamp_seconds(id) AS timestamp",
        "'people' AS topic",
        "CAST(NULL AS INT) AS partition",
        "array(99 - id) AS position",
    )


def written(task: FrameSink, records: DataFrame) -> int:
    staged = task.write(records, BATCH)
    staged.commit("{}")
    return staged.rows


def test_json_shows_the_first_records_in_order_and_counts_the_rest(records: DataFrame) -> None:
    output = io.StringIO()
    assert written(ConsoleTask(limit=2, as_table=False, output=output), records) == 100
    *lines, rest = output.getvalue().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "topic": "people",
            "timestamp": f"1970-01-01T00:01:{id_ - 60}.000Z",
            "key": None,
            "headers": None,
            "value": {"id": id_, "name": "é" if id_ % 2 else None},
        }
        for id_ in (99, 98)
    ]
    assert rest == "… 98 more records of people"


def test_a_table_names_its_columns_and_its_batch(records: DataFrame) -> None:
    output = io.StringIO()
    written(ConsoleTask(limit=200, as_table=True, output=output), records)
    text = output.getvalue()
    assert text.split()[:4] == ["people,", "batch", "3", "┏━━━━┳━━━━━━┓"]
    assert "id" in text
    assert "more" not in text


def test_nothing_is_printed_before_the_commit_or_when_it_is_aborted(records: DataFrame) -> None:
    output = io.StringIO()
    staged = ConsoleTask(limit=2, as_table=False, output=output).write(records, BATCH)
    staged.abort()
    assert output.getvalue() == ""


def test_a_limit_of_zero_only_counts(records: DataFrame) -> None:
    output = io.StringIO()
    assert written(ConsoleTask(limit=0, as_table=False, output=output), records) == 100
    assert output.getvalue() == "… 100 more records of people\n"


def noop() -> FrameSink:
    task = NoopSink.task(NoopSink.config_def().parse({}))
    assert isinstance(task, FrameSink)
    return task


def test_noop_computes_every_record_counts_them_and_holds_none(records: DataFrame) -> None:
    task = noop()
    assert task.counting is Counting.MEASURED
    seen = Observation()
    assert written(task, records.observe(seen, F.expr("count(1) AS rows"))) == 100
    assert seen.get == {"rows": 100}
    assert task.committed(MARK, "people") is None


def test_noop_counts_what_spark_can_prove_to_be_empty(records: DataFrame) -> None:
    assert written(noop(), records.where("false")) == 0


def test_noop_does_not_count_what_is_known(records: DataFrame) -> None:
    assert noop().write(records, replace(BATCH, rows=7)).rows == 7


def test_the_console_is_configured_by_format_and_limit() -> None:
    definition = ConsoleSink.config_def()
    assert dict(definition.parse({})) == {"format": "json", "limit": 20}
    assert isinstance(ConsoleSink.task(definition.parse({"limit": "5"})), ConsoleTask)
