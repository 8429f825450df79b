"""Writes batches to the tables of a database as the runtime does."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.sdk import FrameSink, Mark, SinkBatch, SinkConnector
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace.sdk.sparktypes import from_spark_json

APP = "copy/0"
KEY = "id BIGINT"
ROW = "id BIGINT, name STRING"
CHANGE = f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, op STRING"
CHANGES = [
    (None, (1, "a"), "r"),
    (None, (2, "b"), "c"),
    ((1, "a"), (3, "a"), "u"),
    ((3, "a"), (4, "x"), "u"),
    ((2, "b"), None, "d"),
    (None, (5, "e"), "c"),
]
"""Changes after which a table has (4, x) and (5, e)."""
TRUNCATION = [(None, (6, "f"), "c"), (None, None, "t"), (None, (7, "g"), "c")]
"""Changes after which a table has (7, g)."""


def sink(connector: type[SinkConnector], url: str, **texts: str) -> FrameSink:
    """Return a task that writes the table ``t``, as it is after ``start``."""
    props = {"connection.url": url, "table.name.format": "t"}
    props |= {key.replace("_", "."): text for key, text in texts.items()}
    task = connector.task(connector.config_def().parse(props))
    assert isinstance(task, FrameSink)
    return task


@contextmanager
def tasks_of(connector: type[SinkConnector], url: str, **texts: str) -> Iterator[Any]:
    """Give what makes tasks that write the table ``t``, and stop them in the end."""
    with ExitStack() as stopping:

        def make(**more: str) -> FrameSink:
            task = sink(connector, url, **texts, **more)
            stopping.callback(task.stop)
            return task

        yield make


def records(
    spark: SparkSession,
    values: Sequence[Any],
    ddl: str = ROW,
    keys: Sequence[Any] | None = None,
    *,
    ids: bool = False,
) -> DataFrame:
    """Return record frames of values; None is a tombstone. Spark has them in another order."""
    key_type = f"STRUCT<{KEY}>" if keys is not None else "STRING"
    rows = [
        ((keys[n],) if keys is not None else None, value, datetime(2026, 1, 1, tzinfo=UTC), [n])
        for n, value in enumerate(values)
    ]
    types = f"key {key_type}, value STRUCT<{ddl}>, timestamp TIMESTAMP, position ARRAY<BIGINT>"
    frame = spark.createDataFrame(rows[::-1], types)
    if keys is None:
        frame = frame.drop("key")
    return frame.selectExpr("*", "position[0] AS record_id") if ids else frame


def batch_of(frame: DataFrame, number: int, *, epoch: int = 1, **more: Any) -> SinkBatch:
    """Return the batch that a frame is of."""
    schemas = {f.name: f.schema for f in from_spark_json(frame.schema.jsonValue()).fields}
    more.setdefault("evolution", EvolutionPolicy(Handling.EVOLVE))
    return SinkBatch(
        Mark(APP, number, epoch), "t", schemas["value"], schemas.get("key"), **more
    )


def write(task: FrameSink, frame: DataFrame, number: int, **more: Any) -> int:
    """Write a batch to its end; return how many records it stands for."""
    batch = batch_of(frame, number, **more)
    staged = task.write(frame, batch)
    staged.commit(batch.mark.receipt({"batch": number}))
    return staged.rows
