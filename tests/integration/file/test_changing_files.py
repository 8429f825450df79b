"""Files that change while a batch reads them: nothing is read half, and the way on is short."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.dataplane.flow_doubles import NOW, TASK, topic_writer

from headrace.dataplane import Flow, FrameReader
from headrace.model import Batch
from headrace.sdk import Position, ReadLimit, SourceError
from headrace.sdk.errors import RangeChangedError
from headrace.sdk.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("source", ["arrow"], indirect=True)]

Start = Callable[..., Any]


def flow(spark: SparkSession, folder: Path, source: Any, sink: Any) -> Flow:
    return Flow(
        spark=spark,
        application="changing-0",
        topic="changing",
        source=source,
        steps=[],
        sinks=[sink],
        names=["sink"],
        staging=Location.of(folder / "divided"),
    )


@pytest.mark.parametrize("change", ["replaced", "emptied", "removed"])
@pytest.mark.parametrize("to", ["file", "topic"])
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_file_that_changes_while_it_is_read_ends_the_batch(
    spark: SparkSession,
    tmp_path: Path,
    source: Start,
    sink: Start,
    *,
    change: str,
    to: str,
    name: str,
) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / name
    if name == "a.csv":
        file.write_text("id\n1\n2\n")
    else:
        pq.write_table(pa.table({"id": [1, 2]}), file)
    into = sink(tmp_path / "out", format="parquet") if to == "file" else None
    into = into or topic_writer(tmp_path, "t")
    task = source(tmp_path / "in").task
    reader = FrameReader(task)
    made = flow(spark, tmp_path, reader, into)
    end = reader.latest(Position(), ReadLimit())
    check = task.require_unchanged

    def changed(*span: Position) -> None:
        if change == "replaced":
            file.write_bytes(file.read_bytes() * 2)
        elif change == "emptied":
            file.write_bytes(b"")
        else:
            file.unlink()
        check(*span)

    task.require_unchanged = changed
    with pytest.raises(RangeChangedError, match="was found"):
        made.run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert made.untouched
    assert list((tmp_path / "out").glob("part-*")) == []


@pytest.mark.parametrize("change", ["cut", "removed", "folder"])
@pytest.mark.parametrize("at", ["columns", "job"])
def test_a_file_that_cannot_be_read_as_it_has_changed_ends_the_batch_likewise(
    spark: SparkSession, tmp_path: Path, source: Start, sink: Start, *, change: str, at: str
) -> None:
    """It was an error of Spark or of the file, from which no task went on."""
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a.csv"
    file.write_text("id\n" + "1234567\n" * 3_000_000)
    task = source(tmp_path / "in").task
    reader = FrameReader(task)
    made = flow(spark, tmp_path, reader, sink(tmp_path / "out", format="parquet"))
    end = reader.latest(Position(), ReadLimit())
    broken: Callable[[], object]
    if change == "cut":
        broken = partial(os.truncate, file, 4_000_000)
    elif change == "removed":
        broken = file.unlink
    else:
        broken = partial((tmp_path / "in").rename, tmp_path / "away")
    name = "_range" if at == "columns" else "arrow_parts"
    work = getattr(task, name)

    def changed(*args: Any) -> Any:
        setattr(task, name, work)
        found = work(*args)
        broken()
        return found

    setattr(task, name, changed)
    with pytest.raises(RangeChangedError, match="was found"):
        made.run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert made.untouched
    assert list((tmp_path / "out").glob("part-*")) == []


def test_a_broken_file_is_repaired_or_deleted_as_the_error_says(
    tmp_path: Path, source: Start
) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id\n1\n")[:-9])
    with pytest.raises(SourceError, match="Repair or delete"):
        source(tmp_path, schema="id INT").rows()
