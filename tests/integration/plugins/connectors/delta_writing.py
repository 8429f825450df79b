"""Writes batches to a Delta table as the runtime does, and reads them back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from headrace.sdk import (
    EvolutionPolicy,
    FrameSink,
    Handling,
    Mark,
    SinkBatch,
    from_spark_json,
)
from headrace_plugins.connectors.delta import DeltaSink

APP = "copy/0"
Records = Callable[..., DataFrame]


def sink(path: Path | str, **texts: str) -> FrameSink:
    props = {"path": str(path)} | {key.replace("_", "."): text for key, text in texts.items()}
    task = DeltaSink().task(DeltaSink.config_def().parse(props))
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
    staged = task.write(frame, batch_of(frame, number, **options))
    staged.commit(f"receipt {number}")
    return staged.rows
