"""A file source and a file sink on real Spark, and a task's context in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.task_doubles import Context

from headrace.control.connector_settings import sink_def, source_def
from headrace.dataplane import FrameReader
from headrace.sdk import Mark, Position, ReadLimit, Schema, SinkBatch
from headrace_plugins.connectors.file.fileset import FileSet
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import FrameSink


def text_keys(keys: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in keys.items()}


@dataclass
class Reading:
    """A task of the source, its place, and the session it reads with."""

    spark: SparkSession
    context: Context
    task: FileSet
    at: Position = field(default_factory=Position)

    def step(self, limit: ReadLimit | None = None) -> DataFrame | None:
        """Give the records of the next batch; None when there is none."""
        start = self.at
        self.at = self.task.latest(start, limit or ReadLimit())
        if self.at == start:
            return None
        return FrameReader(self.task).read(self.spark, start, self.at).frame

    def read_by(self) -> str:
        """Give the reader of all files that have not been read, and why it was chosen."""
        end = self.task.latest(self.at, ReadLimit())
        self.task.arrow_parts(self.spark, self.at, end)
        return str(self.task.reader)

    def rows(self, limit: ReadLimit | None = None) -> list[Any]:
        """Give the good values of the next batch."""
        frame = self.step(limit)
        if frame is None:
            return []
        if "error" in frame.columns:
            frame = frame.where("error IS NULL")
        rows = [row.value for row in frame.collect()]
        return [row.asDict(recursive=True) if hasattr(row, "asDict") else row for row in rows]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(scratch=tmp_path)


@pytest.fixture
def source(spark: SparkSession, context: Context) -> Callable[..., Reading]:
    """Start a task of the source; a dot in a key is written as an underscore."""
    definition = FileSource.config_def().merged(source_def())

    def start(path: Path | str, **keys: str) -> Reading:
        props = {"name": "c", "connector.class": "file", "path": str(path), "settle.ms": "0"}
        task = FileSource.task(definition.parse(props | text_keys(keys)))
        assert isinstance(task, FileSet)
        task.start(context)
        return Reading(spark, context, task)

    return start


@pytest.fixture
def sink(context: Context) -> Callable[..., FrameSink]:
    """Start a task of the sink; a dot in a key is written as an underscore."""
    definition = FileSink.config_def().merged(sink_def())

    def start(path: Path | str, **keys: str) -> FrameSink:
        given = {"name": "c", "connector.class": "file", "topics": "t", "path": str(path)}
        task = FileSink.task(definition.parse({**given, **text_keys(keys)}))
        task.start(context)
        return task

    return start


@pytest.fixture
def batch() -> Callable[..., SinkBatch]:
    """Describe a batch of rows, or of single values."""

    def describe(
        schema: Schema,
        number: int = 1,
        *,
        epoch: int = 1,
        application: str = "c-0",
        topic: str = "t",
    ) -> SinkBatch:
        return SinkBatch(Mark(application, number, epoch), topic, schema)

    return describe
