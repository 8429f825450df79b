"""Batches of which a step refuses every record: their schema reaches no sink."""

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import (
    Kept,
    batch,
    dead_letters,
    flow,
    read_topic,
    row_of,
    topic_writer,
    transform,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader, Step
from headrace.model import Counts
from headrace.sdk import FrameSource, Mark
from headrace.sdk.location import Location
from headrace.topics import Topics
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.transforms.fields import ReplaceField

pytestmark = pytest.mark.spark

RENAME = Step(transform(ReplaceField, "rename", renames="a:b"))
BAD = {"TRANSFORMATION org.apache.kafka.connect.errors.DataException": 4}
REFUSED = Counts(read=4, rejected=4, causes=BAD)
WRITTEN = Counts(read=4, written=4)


class Texts(FrameSource):
    """Structs with a field ``a`` before row 100, and texts from there on."""

    def latest(self, start, limit):
        return start

    def read(self, spark, start, end):
        first = row_of(start)
        value = "CAST(id AS STRING)" if first >= 100 else "named_struct('a', id)"
        return spark.range(first, row_of(end), 1, 2).selectExpr(f"{value} AS value")


def made(kind, path: Path, **config: str):
    return kind.task(kind.config_def().parse({"path": str(path), **config}))


def good(number: int, *, again: bool = False):
    return batch(number, 1, 5, again=again)


def texts(number: int, *, again: bool = False):
    return batch(number, 100, 104, again=again)


def copy(spark, sink, folder: Path):
    reader = FrameReader(Texts(NO_KEYS))
    return flow(spark, [sink], RENAME, source=reader, dead_letters=dead_letters(folder))


def test_no_table_is_made_and_the_letters_come_once(spark, tmp_path: Path) -> None:
    table = tmp_path / "table"
    running = copy(spark, made(DeltaSink, table), tmp_path)
    assert running.run(texts(1)) == REFUSED
    assert not table.exists()
    assert running.run(texts(1, again=True)) == REFUSED
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 4
    assert running.run(good(2)) == WRITTEN
    assert [field.name for field in DeltaTable(table).schema().fields] == ["b"]


def test_a_table_keeps_its_columns_and_gets_the_mark_once(spark, tmp_path: Path) -> None:
    table = tmp_path / "table"
    running = copy(spark, made(DeltaSink, table), tmp_path)
    running.run(good(1))
    before = DeltaTable(table)
    assert running.run(texts(2)) == REFUSED
    after = DeltaTable(table)
    assert (after.schema(), after.version()) == (before.schema(), before.version() + 1)
    assert after.transaction_version("copy-uid-0") == 2
    assert running.run(texts(2, again=True)) == REFUSED
    assert DeltaTable(table).version() == after.version()
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 4
    assert after.to_pyarrow_table().num_rows == 4


def test_a_table_that_only_spark_writes_gets_the_mark_too(spark, tmp_path: Path) -> None:
    table = tmp_path / "table"
    properties = "delta.enableTypeWidening=true"
    running = copy(spark, made(DeltaSink, table, **{"table.properties": properties}), tmp_path)
    running.run(good(1))
    columns = DeltaTable(table).schema()
    assert running.run(texts(2)) == REFUSED
    assert DeltaTable(table).schema() == columns
    assert DeltaTable(table).transaction_version("copy-uid-0") == 2


@pytest.mark.parametrize("config", [{"format": "json"}, {"format": "json", "mode": "append"}])
def test_files_get_the_mark_and_no_rows(spark, tmp_path: Path, config) -> None:
    target = tmp_path / "out"
    sink = made(FileSink, target, **config)
    running = copy(spark, sink, tmp_path)
    assert running.run(texts(1)) == REFUSED
    assert not target.exists()
    running.run(good(2))
    assert running.run(texts(3)) == REFUSED
    assert sink.committed(Mark("copy-uid-0", 3, 1), "numbers")
    files = [target] if target.is_file() else list(target.glob("part-*"))
    assert sum(len(file.read_text().splitlines()) for file in files) == 4


def test_a_topic_gets_the_mark_and_keeps_its_schema(spark, tmp_path: Path) -> None:
    running = copy(spark, topic_writer(tmp_path, "numbers"), tmp_path)
    assert running.run(texts(1)) == REFUSED
    assert not Topics(Location.of(tmp_path)).get("numbers").exists()
    running.run(good(2))
    schema = Topics(Location.of(tmp_path)).get("numbers").value_schema()
    assert running.run(texts(3)) == REFUSED
    topic = Topics(Location.of(tmp_path)).get("numbers")
    assert topic.value_schema() == schema
    assert topic.receipt(Mark("copy-uid-0", 3, 1))


def test_without_tolerance_the_first_record_ends_the_task(spark, tmp_path: Path) -> None:
    sink = Kept()
    running = replace(copy(spark, sink, tmp_path), dead_letters=None)
    with pytest.raises(Exception, match="Only Struct objects supported"):
        running.run(texts(1))
    assert sink.rows == []
    # Without any record there is nothing to raise, and no schema either.
    assert running.run(batch(2, 100, 100)) == Counts()
    assert sink.marks == {}
