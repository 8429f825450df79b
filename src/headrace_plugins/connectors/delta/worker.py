"""Runs a piece of work in one of Spark's Python workers instead of in this process.

There it takes a slot like any other task, its memory is not the driver's, and it stops when
the task's jobs are cancelled.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.sdk import HeadraceError
from headrace.sdk.durability import durability, set_durability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

__all__ = ["run_in_worker"]


def run_in_worker(spark: SparkSession, work: Callable[[], None]) -> None:
    """Call ``work`` in a worker and return when it is done; its errors are raised here.

    It may be called more than once, as Spark repeats failed tasks: it must change nothing
    the second time.
    """
    mode = durability()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        set_durability(mode)
        for _ in batches:
            failure: bytes | None = None
            try:
                work()
            except HeadraceError as error:
                failure = pickle.dumps(error)
            yield pa.RecordBatch.from_arrays([pa.array([failure], pa.binary())], ["failure"])

    rows = spark.range(0, 1, 1, 1).mapInArrow(run, "failure binary").collect()
    for (failure,) in rows:
        if failure is not None:
            # Made a moment ago by this very application.
            raise pickle.loads(bytes(failure))  # noqa: S301
