"""Writes batches to a Delta table as the runtime does, and reads them back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from headrace.sdk import FrameSink, Mark, SinkBatch
from headrace.sdk.mark import receipt_figures
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.delta.sink import DeltaSink

APP = "copy/0"
Records = Callable[..., DataFrame]


def sink(path: Path | str, **texts: str) -> FrameSink:
    props = {"path": str(path)} | {key.replace("_", "."): text for key, text in texts.items()}
    task = DeltaSink.task(DeltaSink.config_def().parse(props))
    assert isinstance(task, FrameSink)
    return task


def batch_of(
    frame: DataFrame,
    number: int,
    *,
    epoch: int = 1,
    topic: str = "t",
    evolution: Handling = Handling.EVOLVE,
) -> SinkBatch:
    schemas = {f.name: f.schema for f in from_spark_json(frame.schema.jsonValue()).fields}
    mark, policy = Mark(APP, number, epoch), EvolutionPolicy(evolution)
    return SinkBatch(mark, topic, schemas["value"], schemas.get("key"), policy)


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """Read the table with other software than the one that wrote it."""
    table = DeltaTable(path).to_pyarrow_table()
    with duckdb.connect() as database:
        database.register("t", table)
        return sorted(database.sql("SELECT * FROM t").fetchall(), key=repr)


def write(task: FrameSink, frame: DataFrame, number: int, **options: Any) -> int:
    batch = batch_of(frame, number, **options)
    staged = task.write(frame, batch)
    staged.commit(batch.mark.receipt({"batch": number}))
    return staged.rows


def held(task: FrameSink, mark: Mark) -> dict[str, Any] | None:
    """Return the figures of the receipt that the table holds of a batch."""
    receipt = task.committed(mark, "t")
    return None if receipt is None else receipt_figures(receipt)
