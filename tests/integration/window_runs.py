"""Runs of an offline job's windows into one target, as tests write them."""

# ruff: noqa: S608 - a test's own statements

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame, SparkSession
from tests.task_doubles import Context

from headrace.sdk import Boundaries, FrameSink, Mark, SinkBatch, SinkConnector
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.jdbc.sink import JdbcSink

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FILES = {
    "parquet": {"replace.window": "true", "format": "parquet"},
    "divided": {"replace.window": "true", "format": "csv", "partition.by": "note"},
    "partitions": {"replace.partitions": "true", "format": "json", "partition.by": "day"},
}
"""How a folder may replace what is there."""
DDL = "id BIGINT, at TIMESTAMP, day DATE, note STRING"


def day(number: int) -> Boundaries:
    """Return the window of a day of January, from 0."""
    return Boundaries.between(JANUARY + number * DAY, JANUARY + (number + 1) * DAY)


def rows(number: int, *ids: int, note: str = "a") -> list[tuple[Any, ...]]:
    """Return rows of a day, an hour apart; the first at its very beginning."""
    start = JANUARY + number * DAY
    return [(i, start + timedelta(hours=n), start.date(), note) for n, i in enumerate(ids)]


@dataclass
class Target:
    """A sink's table, and the runs that write to it."""

    spark: SparkSession
    connector: type[SinkConnector]
    props: dict[str, str]
    folder: Path
    stopping: ExitStack
    query: Callable[[str], list[tuple[Any, ...]]]
    """Runs a statement of a database, and commits it."""

    def run(
        self, window: Boundaries, run: str, task: int = 0, stream: str = "t", **more: str
    ) -> "Run":
        """Return a run of a window, one task of it, as it is started."""
        props = self.props | {k.replace("_", "."): v for k, v in more.items()}
        config = self.connector.config_def().parse(props)
        filled = self.connector.fill_in_boundaries(config, window)
        sink = self.connector.task(self.connector.config_def().parse(filled))
        assert isinstance(sink, FrameSink)
        context = Context(self.folder / "scratch", connector=run, task=task)
        sink.start(context)
        self.stopping.callback(sink.stop)
        # Marks name the stream and the sink behind the task, as the runtime does.
        return Run(self.spark, sink, f"{context.application}/{stream}-9f8e7d")

    def moved(self, window: Boundaries, run: str, *batches: Sequence[Any], **more: str) -> None:
        """Move a window from its first batch to its end."""
        going = self.run(window, run, 0, **more)
        for number, batch in enumerate(batches, 1):
            going.write(batch, number)
        going.finish()

    def ids(self) -> list[int]:
        if self.connector is DeltaSink:
            found = DeltaTable(self.folder / "table").to_pyarrow_dataset().to_table(["id"])
            return sorted(found["id"].to_pylist())
        if self.connector is FileSink:
            folder, kind = self.folder / "table", self.props["format"]
            files = [f for f in folder.rglob("part-*") if "_headrace" not in f.parts]
            found = dataset([str(f) for f in files], format=kind).to_table(["id"])
            return sorted(found["id"].to_pylist())
        return [
            row[0]
            for row in self.query(
                f"SELECT {self.named('id')} FROM {self.named('t')} ORDER BY 1"
            )
        ]

    def named(self, name: str) -> str:
        return f'"{name}"' if self.connector is JdbcSink else name


@dataclass
class Run:
    """One task of a run."""

    spark: SparkSession
    sink: FrameSink
    application: str

    def frame(self, values: Sequence[Any]) -> DataFrame:
        found = [(value, JANUARY, [n]) for n, value in enumerate(values)]
        types = f"value STRUCT<{DDL}>, timestamp TIMESTAMP, position ARRAY<BIGINT>"
        return self.spark.createDataFrame(found, types)

    def batch(self, frame: DataFrame, number: int, epoch: int) -> SinkBatch:
        [schema] = [
            f.schema
            for f in from_spark_json(frame.schema.jsonValue()).fields
            if f.name == "value"
        ]
        return SinkBatch(Mark(self.application, number, epoch), "t", schema)

    def write(self, values: Sequence[Any], number: int, epoch: int = 1) -> None:
        frame = self.frame(values)
        batch = self.batch(frame, number, epoch)
        self.sink.write(frame, batch).commit(batch.mark.receipt({"batch": number}))

    def finish(self) -> None:
        self.sink.finish(self.spark, "t")
