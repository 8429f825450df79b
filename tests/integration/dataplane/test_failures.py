"""What Spark's errors mean."""

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.no_keys import NO_KEYS
from typing_extensions import override

from headrace.dataplane.failures import CancelledError, translated
from headrace.dataplane.sources import SplitReader
from headrace.model import SparkError, SparkMemoryError, TaskId
from headrace.sdk import (
    HeadraceError,
    Position,
    ReadLimit,
    Schema,
    SourceError,
    Split,
    SplitSource,
)
from headrace.spark import SparkJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

TASK = TaskId("orders", 0)
pytestmark = pytest.mark.timeout(120)


def test_a_text_that_says_cancelled_is_no_cancellation(spark: "SparkSession") -> None:
    frame = spark.sql("SELECT raise_error('the order was cancelled job') AS x FROM range(1)")
    with pytest.raises(SparkError, match="the order was cancelled job"), translated("reading"):
        frame.collect()


def test_an_error_of_spark_says_what_it_can_and_no_more(spark: "SparkSession") -> None:
    """All were called errors of the sink, with Spark's advice to set its own settings."""
    with pytest.raises(SparkError) as raised, translated("moving"):
        spark.sql("SELECT id + 1, 1 / id FROM range(1)").collect()
    assert "Division by zero" in raised.value.problem
    assert raised.value.problem.endswith("It was evaluating: 1 / id")
    assert "try_cast" in raised.value.fix
    assert "spark.sql.ansi" not in raised.value.problem
    assert "SQLSTATE" not in raised.value.problem
    assert raised.value.code == "spark.failed"


def test_a_file_that_spark_cannot_read_is_an_error_of_the_source(
    spark: "SparkSession", tmp_path: "Path"
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100))
    frame = spark.read.schema("a INT").parquet(str(tmp_path))
    with pytest.raises(SourceError), translated("moving"):
        frame.collect()
    with pytest.raises(SourceError), translated("moving"):
        frame.write.parquet(str(tmp_path / "out"))


class _Broken(SplitSource):
    @override
    def schema(self) -> Schema:
        return Schema.struct({"a": Schema.int64()})

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return start

    @override
    def splits(self, start: Position, end: Position) -> "Sequence[Split]":
        return [Split({"part": 7})]

    @override
    def read(self, split: Split) -> "Iterator[pa.RecordBatch]":
        message = "no such thing"
        raise KeyError(message)


def test_what_a_source_raises_on_an_executor_is_an_error_of_the_source(
    spark: "SparkSession",
) -> None:
    reader = SplitReader(_Broken(NO_KEYS))
    frame = reader.read(spark, Position(), Position()).frame
    assert frame is not None
    with pytest.raises(SourceError, match="KeyError: 'no such thing'"), translated("moving"):
        frame.collect()


def _killed(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory runs out
    yield from batches


def _without_memory(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for _ in batches:
        raise MemoryError
    yield from ()


@pytest.mark.parametrize("work", [_killed, _without_memory])
def test_a_python_worker_that_ends_for_lack_of_memory_is_known_as_such(
    spark: "SparkSession",
    work: "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]",
) -> None:
    with pytest.raises(SparkMemoryError, match="memory") as told, translated("moving"):
        spark.range(0, 1, 1, 1).mapInArrow(work, "id bigint").collect()
    assert "batch.max.rows" in told.value.fix


def _compute_in_java(spark: "SparkSession") -> None:
    spark.range(0, 10**13, 1, 1).selectExpr("max(xxhash64(id))").collect()


def _sleep_in_python(spark: "SparkSession") -> None:
    def slow(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            time.sleep(60)
            yield batch

    spark.range(0, 1, 1, 1).mapInArrow(slow, "id bigint").collect()


@pytest.mark.parametrize("work", [_compute_in_java, _sleep_in_python])
def test_a_job_that_is_cancelled_by_its_task_is_known_as_such(
    spark: "SparkSession", work: "Callable[[SparkSession], None]"
) -> None:
    jobs = SparkJobs(spark)
    raised: list[HeadraceError] = []

    def run() -> None:
        try:
            with translated("moving"):
                jobs.run(TASK, lambda: work(spark))
        except HeadraceError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        if jobs.progress(TASK)[1]:
            jobs.cancel(TASK)
        thread.join(0.1)
    assert [type(error) for error in raised] == [CancelledError]


def test_the_activity_of_a_job_is_known_while_it_runs(spark: "SparkSession") -> None:
    jobs = SparkJobs(spark)
    assert jobs.activity(TASK) is None
    thread = threading.Thread(target=lambda: jobs.run(TASK, lambda: _two_stages(spark)))
    thread.start()
    seen = set()
    while thread.is_alive():
        seen.add(jobs.activity(TASK))
        thread.join(0.1)
    assert len(seen - {None}) > 1
    assert jobs.activity(TASK) is None


def _two_stages(spark: "SparkSession") -> None:
    def slow(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            time.sleep(0.5)
            yield batch

    frame = spark.range(0, 12, 1, 12).mapInArrow(slow, "id bigint")
    frame.groupBy("id").count().collect()
