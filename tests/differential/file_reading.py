"""A task of the file source that reads one set of files, outside of any connector."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.differential.other_readers import Rows, comparable, plain
from tests.task_doubles import Context

from headrace.control.connector_settings import source_def
from headrace.dataplane import FrameReader
from headrace.dataplane.failures import translated
from headrace.sdk import Position, ReadLimit
from headrace.sdk.struct_exprs import has_variant
from headrace_plugins.connectors.file.fileset import FileSet
from headrace_plugins.connectors.file.source import FileSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Read:
    """What the source made of files.

    Args:
        rows: The good values.
        bad: Why others are bad records.
        by_arrow: Whether Arrow read them, and not Spark.
    """

    rows: Rows
    bad: list[str]
    by_arrow: bool = True


@contextmanager
def started(path: Path, **keys: str) -> Iterator[tuple[FileSet, Context]]:
    """Start a task; a dot in a key is written as an underscore."""
    definition = FileSource.config_def().merged(source_def())
    named = {key.replace("_", "."): value for key, value in keys.items()}
    props = {"name": "c", "connector.class": "file", "path": str(path), "settle.ms": "0"}
    task = FileSource.task(definition.parse(props | named))
    assert isinstance(task, FileSet)
    with tempfile.TemporaryDirectory() as scratch, translated("reading"):
        context = Context(scratch=Path(scratch))
        task.start(context)
        yield task, context


def read(spark: SparkSession, path: Path, **keys: str) -> Read:
    """Read all files, as a batch does. Raises what the batch would raise."""
    with started(path, **keys) as (task, _):
        start = Position()
        end = task.latest(start, ReadLimit())
        if end == start:
            return Read(rows=[], bad=[])
        frame = FrameReader(task).read(spark, start, end).frame
        if frame is None:
            return Read(rows=[], bad=[])
        names = [name for name in ("value", "error") if name in frame.columns]
        is_variant = "variant" in frame.schema.simpleString()
        if is_variant:
            frame = frame.selectExpr("to_json(value) AS value", *names[1:])
        table: pa.Table = frame.select(*names).toArrow()
    values = plain(table.column("value"))
    if is_variant:
        values = [None if value is None else json.loads(value) for value in values]
    errors = plain(table.column("error")) if "error" in names else [None] * len(values)
    return Read(
        rows=[value for value, error in zip(values, errors, strict=True) if error is None],
        bad=[error["message"] for error in errors if error is not None],
        by_arrow=task.reader == "Arrow",
    )


def read_here(spark: SparkSession, path: Path, **keys: str) -> Read:
    """Read all files as executors do, in this process, which dies where they would."""
    with started(path, **keys) as (task, _):
        start = Position()
        end = task.latest(start, ReadLimit())
        if end == start:
            return Read(rows=[], bad=[])
        parts = task.arrow_parts(spark, start, end)
        if parts is None or has_variant(parts.schema):
            return read(spark, path, **keys)
        found = [each for part in parts.parts for each in parts.read(part)]
    rows = [row for batch, _ in found for row in comparable(batch.to_pylist())]
    return Read(rows=rows, bad=[reason for _, bad in found for _, reason in bad])


def read_each(spark: SparkSession, folder: Path, **keys: str) -> dict[str, tuple[Rows, bool]]:
    """Read a folder of VARIANT; return rows as JSON of each file, and if it has bad ones."""
    with started(folder, **keys) as (task, _):
        start = Position()
        end = task.latest(start, ReadLimit())
        parts = task.arrow_parts(spark, start, end)
        assert parts is not None
        read = [
            (Path(piece.path).name, batch.column(0).to_pylist(), bool(bad))
            for part in parts.parts
            for piece in part
            for batch, bad in parts.read([piece])
        ]
    texts = [(number, text) for number, (_, rows, _) in enumerate(read) for text in rows]
    frame = spark.createDataFrame(texts, "number INT, text STRING")
    made: dict[int, Rows] = {number: [] for number, _ in enumerate(read)}
    for number, text in frame.selectExpr("number", "to_json(parse_json(text))").collect():
        made[number].append(text)
    return {name: (made[number], bad) for number, (name, _, bad) in enumerate(read)}
