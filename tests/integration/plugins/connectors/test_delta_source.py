"""The Delta source gives the rows of tables that delta-spark and deltalake have written."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.task_doubles import Context

from headrace.sdk import (
    Boundaries,
    BoundaryKind,
    DataLostError,
    Position,
    ReadLimit,
    RetriableError,
    SourceError,
)
from headrace.sdk.deltalog import write_commit
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.reader import DeltaReader
from headrace_plugins.connectors.delta.source import DeltaSource

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.spark

FEED = "'delta.enableChangeDataFeed' = 'true'"
MAPPED = "'delta.columnMapping.mode' = 'name'"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@dataclass
class Table:
    """A table that deltalake makes, or Spark where a feature asks for it."""

    spark: SparkSession
    path: Path

    def create(self, *, partition_by: Sequence[str] = (), feed: bool = False) -> None:
        properties = {"delta.enableChangeDataFeed": "true"} if feed else None
        DeltaTable.create(
            self.path, COLUMNS, partition_by=list(partition_by), configuration=properties
        )

    def append(self, *ids: int, **more: pa.Array) -> None:
        rows = {"id": pa.array(ids, pa.int64()), "name": [str(n) for n in ids], **more}
        mode: Any = "merge" if more else None
        write_deltalake(self.path, pa.table(rows), mode="append", schema_mode=mode)

    def sql(self, *statements: str) -> None:
        """Run statements in which ``T`` is the table."""
        for statement in statements:
            self.spark.sql(re.sub(r"\bT\b", f"delta.`{self.path}`", statement))

    def read(self, **keys: str) -> Reading:
        props = {"path": str(self.path)} | {k.replace("_", "."): v for k, v in keys.items()}
        task = DeltaSource.task(DeltaSource.config_def().parse(props))
        assert isinstance(task, DeltaReader)
        task.start(Context())
        return Reading(self.spark, task)

    def offset(self, version: int) -> Position:
        return Position.of({"path": str(self.path)}, {"version": version})


@dataclass
class Reading:
    """A task, and where it stands."""

    spark: SparkSession
    task: DeltaReader
    at: Position = field(default_factory=Position)
    ranges: list[tuple[Position, Position]] = field(default_factory=list)

    def step(self) -> list[dict[str, Any]]:
        """Return the rows of the next batch, in order."""
        end = self.task.latest(self.at, ReadLimit(rows=1_000_000))
        if end == self.at:
            return []
        self.ranges.append((self.at, end))
        start, self.at = self.at, Position.from_json(end.to_json())
        return self.rows(start, self.at)

    def rows(self, start: Position, end: Position) -> list[dict[str, Any]]:
        def read() -> list[dict[str, Any]]:
            frame = self.task.read(self.spark, start, end)
            found = frame.orderBy("position").select("value").collect()
            return [row.value.asDict(recursive=True) for row in found]

        # Tasks run in threads that have not made the session.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(read).result()

    def ids(self) -> list[int]:
        return [row["id"] for row in self.step()]

    def changes(self) -> list[tuple[str, Any, Any]]:
        return [(row["op"], row["before"], row["after"]) for row in self.step()]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path / "table")


def test_a_window_of_versions_waits_for_those_that_are_not_there_yet(table: Table) -> None:
    table.create()
    table.append(1)
    bounds = Boundaries(BoundaryKind.SNAPSHOT, "1", "3")
    config = DeltaSource.config_def().parse({"path": str(table.path)})
    keys = DeltaSource.fill_in_boundaries(config, bounds)
    reading = table.read(**{k.replace(".", "_"): v for k, v in keys.items() if k != "path"})
    assert reading.ids() == [1]
    with pytest.raises(RetriableError, match="ends at version 2, but the newest version is 1"):
        reading.ids()
    table.append(2)
    assert reading.ids() == [2]
    assert reading.task.ended(reading.at)


@pytest.mark.parametrize("keys", [{}, {"read_change_feed": "true"}])
def test_the_beginning_of_an_empty_table_has_columns_and_no_rows(
    table: Table, keys: dict[str, str]
) -> None:
    table.create(feed=True)
    frame = table.read(**keys).task.read(table.spark, Position(), Position())
    assert "value" in frame.columns
    assert frame.collect() == []


def test_a_snapshot_comes_first_and_then_what_is_appended(table: Table) -> None:
    table.create()
    table.append(1, 2)
    table.append(3)
    reading = table.read()
    assert reading.step() == [{"id": n, "name": str(n)} for n in (1, 2, 3)]
    table.append(4)
    DeltaTable(table.path).optimize.compact()
    table.append(5)
    DeltaTable(table.path).create_checkpoint()
    assert reading.ids() == [4, 5]
    assert sorted(table.read().ids()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("start", [None, "0"])
def test_a_version_with_many_files_is_read_in_several_batches(
    table: Table, start: str | None
) -> None:
    table.create(partition_by=["name"])
    table.append(1, 2, 3)
    table.append(4, 5)
    reading = table.read(max_files="1", **({"starting_version": start} if start else {}))
    found = [ids for _ in range(7) if (ids := reading.ids())]
    assert sorted(found) == [[1], [2], [3], [4], [5]]


def test_every_range_gives_the_same_rows_to_another_task_later(table: Table) -> None:
    table.create(partition_by=["name"])
    table.append(1, 2)
    reading = table.read(max_files="1")
    expected = [reading.step(), reading.step()]
    for ids in ((3,), (4,), (5,)):
        table.append(*ids)
        expected.append(reading.step())
    table.append(6, more=pa.array([1]))
    DeltaTable(table.path).optimize.compact()
    another = table.read()
    for (start, end), rows in zip(reading.ranges, expected, strict=True):
        assert another.rows(start, end) == rows


def test_columns_of_all_kinds_are_read_where_they_are_mapped(table: Table) -> None:
    table.sql(
        "CREATE TABLE T (id BIGINT, `a b` STRING, s STRUCT<x: INT>, v VARIANT, "
        "at TIMESTAMP_NTZ, deep ARRAY<STRUCT<t: TIMESTAMP_NTZ>>, p STRING, d DATE) "
        "USING delta PARTITIONED BY (p, d) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'id', "
        "'delta.enableDeletionVectors' = 'true')",
        "INSERT INTO T SELECT /*+ REPARTITION(1) */ id, 'x', struct(1), parse_json('[1]'), "
        "TIMESTAMP_NTZ'2024-01-31 10:00:00', array(struct(TIMESTAMP_NTZ'2024-01-31 11:00:00')),"
        " if(id = 3, NULL, 'a/b=%20 c'), DATE'2024-02-29' FROM range(1, 4)",
        "DELETE FROM T WHERE id = 2",
    )
    reading = table.read(key_fields="id,p")
    rows = sorted(reading.step(), key=lambda row: row["id"])
    assert [(row["id"], row["p"], row["d"], row["s"]) for row in rows] == [
        (1, "a/b=%20 c", date(2024, 2, 29), {"x": 1}),
        (3, None, date(2024, 2, 29), {"x": 1}),
    ]
    frame = reading.task.read(table.spark, *reading.ranges[-1])
    kinds = dict(frame.select("value.*").dtypes)
    assert kinds["at"] == "timestamp_ntz"
    assert kinds["deep"] == "array<struct<t:timestamp_ntz>>"
    shown = frame.where("key.id = 1").selectExpr("key.p", "to_json(value.v)", "hour(value.at)")
    assert shown.collect() == [("a/b=%20 c", "[1]", 10)]


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_table_is_read_from_checkpoints_of_several_parts(table: Table, policy: str) -> None:
    parts = "spark.databricks.delta.checkpoint.partSize"
    table.spark.conf.set(parts, "2")
    try:
        table.sql(
            "CREATE TABLE T (id BIGINT, name STRING) USING delta TBLPROPERTIES "
            f"('delta.checkpointPolicy' = '{policy}', 'delta.checkpointInterval' = '2')",
            *["INSERT INTO T SELECT count(*), '' FROM T"] * 4,
        )
    finally:
        table.spark.conf.unset(parts)
    log = table.path / "_delta_log"
    wanted = "_sidecars/*4.checkpoint*" if policy == "v2" else "*4.checkpoint.*.*.parquet"
    assert len(list(log.glob(wanted))) > 1
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    assert sorted(table.read().ids()) == [0, 1, 2, 3]
    with pytest.raises(DataLostError, match="begins with version 4") as caught:
        table.read(starting_version="2").step()
    assert '{"version": 3}' in caught.value.fix


def test_a_merge_is_read_as_changes(table: Table) -> None:
    table.create(feed=True)
    table.append(1, 2, 3)
    reading = table.read(read_change_feed="true", key_fields="id")
    assert reading.changes() == [("r", None, {"id": n, "name": str(n)}) for n in (1, 2, 3)]
    table.sql(
        "MERGE INTO T AS t USING (SELECT * FROM VALUES (2L, 'new'), (4L, 'four'), (3L, NULL) "
        "AS v(id, name)) AS s ON t.id = s.id WHEN MATCHED AND s.name IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    table.append(5)
    table.sql("UPDATE T SET id = 6 WHERE id = 5")
    assert reading.changes() == [
        ("d", {"id": 3, "name": "3"}, None),
        ("u", {"id": 2, "name": "2"}, {"id": 2, "name": "new"}),
        ("c", None, {"id": 4, "name": "four"}),
        ("c", None, {"id": 5, "name": "5"}),
        # An update of the key itself.
        ("d", {"id": 5, "name": "5"}, None),
        ("c", None, {"id": 6, "name": "5"}),
    ]
    frame = reading.task.read(table.spark, *reading.ranges[-1]).orderBy("position")
    sources = frame.select("key.id", "value.source.version", "value.source.table").collect()
    ids, versions = (3, 2, 4, 5, 5, 6), (2, 2, 2, 3, 4, 4)
    expected = [(*each, str(table.path)) for each in zip(ids, versions, strict=True)]
    assert [tuple(row) for row in sources] == expected
    assert frame.where("timestamp <> value.ts OR timestamp IS NULL").isEmpty()

    unkeyed = table.read(read_change_feed="true", starting_version="4")
    assert unkeyed.changes() == [("u", None, {"id": 6, "name": "5"})]


def test_a_feed_has_the_rows_that_delta_gives(table: Table) -> None:
    table.sql(
        f"CREATE TABLE T (id BIGINT, name STRING) USING delta TBLPROPERTIES ({FEED}, {MAPPED}, "
        "'delta.enableDeletionVectors' = 'true')",
        "INSERT INTO T SELECT id, 'x' FROM range(0, 4, 1, 1)",
        "DELETE FROM T WHERE id = 1",
        "UPDATE T SET name = 'y' WHERE id = 2",
    )
    feed = {"read_change_feed": "true", "change_feed_format": "row"}
    rows = table.read(**feed, starting_version="1").step()
    columns = ("id", "name", "_change_type", "_commit_version", "_commit_timestamp")
    reader = table.spark.read.option("readChangeFeed", "true").option("startingVersion", 1)
    oracle = reader.format("delta").load(str(table.path)).select(*columns).collect()
    found = [tuple(row[name] for name in columns) for row in rows]
    assert sorted(found, key=repr) == sorted((tuple(row) for row in oracle), key=repr)
    assert {row["_change_type"] for row in table.read(**feed).step()} == {"insert"}


def test_added_columns_come_with_the_next_batch(table: Table) -> None:
    table.create()
    table.append(1)
    reading = table.read()
    reading.step()
    table.append(2)
    table.append(3, more=pa.array([30]))
    rows = reading.step()
    assert [(row["id"], row["more"]) for row in rows] == [(2, None), (3, 30)]


def test_a_feed_ends_a_batch_where_columns_are_added(table: Table) -> None:
    table.create(feed=True)
    reading = table.read(read_change_feed="true", change_feed_format="row")
    table.append(1)
    reading.step()
    table.append(2)
    table.append(3, more=pa.array([30]))
    table.append(4, other=pa.array([40]))
    rows = [reading.step() for _ in range(4)]
    assert [[(r["id"], r.get("more"), r.get("other")) for r in each] for each in rows] == [
        [(2, None, None)],
        [(3, 30, None)],
        [(4, None, 40)],
        [],
    ]


def test_columns_that_are_gone_are_an_error_until_the_offset_is_set_behind(
    table: Table,
) -> None:
    table.sql(
        "CREATE TABLE T (id BIGINT, name STRING, s STRUCT<x: INT, z: INT>, "
        f"l ARRAY<STRUCT<x: INT, z: INT>>) USING delta TBLPROPERTIES ({MAPPED})",
        "INSERT INTO T (id) VALUES (0)",
    )
    reading, version = table.read(starting_version="0"), 1
    assert reading.ids() == [0]
    for change, says in (
        ("RENAME COLUMN name TO title", "name was renamed to title"),
        ("DROP COLUMN title", "title was dropped"),
        ("RENAME COLUMN s.x TO y", r"s\.x was renamed to y"),
        ("DROP COLUMN l.element.x", r"l\.x was dropped"),
    ):
        table.sql(f"ALTER TABLE T {change}", "INSERT INTO T (id) SELECT max(id) + 1 FROM T")
        with pytest.raises(SourceError, match=says) as caught:
            reading.step()
        assert f'{{"version": {version + 1}}}' in caught.value.fix
        reading.at = table.offset(version + 1)
        assert reading.ids() == [(version + 1) // 2]
        version += 2


def test_types_may_grow(table: Table) -> None:
    table.sql(
        "CREATE TABLE T (id INT, name STRING) USING delta "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO T VALUES (1, '')",
        "ALTER TABLE T ALTER COLUMN id TYPE BIGINT",
        "INSERT INTO T VALUES (5000000000, '')",
    )
    assert table.read(starting_version="0").ids() == [1, 5_000_000_000]


def test_times_are_those_of_the_commits_where_the_table_keeps_them(table: Table) -> None:
    table.sql(
        "CREATE TABLE T (id BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        *["INSERT INTO T SELECT count(*) + 1 FROM T"] * 3,
    )
    history = table.spark.sql(f"DESCRIBE HISTORY delta.`{table.path}`").where("version = 2")
    ((millis,),) = history.selectExpr("unix_millis(timestamp)").collect()
    for commit in (table.path / "_delta_log").glob("*.json"):
        commit.touch()  # as a copy of the table has it
    at = datetime.fromtimestamp(millis / 1000, UTC).isoformat()
    reading = table.read(starting_timestamp=at)
    assert reading.ids() == [2, 3]
    frame = reading.task.read(table.spark, *reading.ranges[0])
    assert min(row[0] for row in frame.selectExpr("unix_millis(timestamp)").collect()) == millis


def test_a_table_that_is_made_anew_is_read_as_what_it_is_now(table: Table) -> None:
    table.create()
    table.append(1)
    reading = table.read()
    assert reading.ids() == [1]
    for name in table.path.rglob("*"):
        if name.is_file():
            name.unlink()
    columns = pa.schema([("id", pa.int64()), ("other", pa.float64())])
    DeltaTable.create(table.path, columns)
    write_deltalake(table.path, pa.table({"id": [2], "other": [0.5]}), mode="append")
    reading.at = Position()
    assert reading.step() == [{"id": 2, "other": 0.5}]


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_files_outside_of_the_table_are_read(table: Table, tmp_path: Path, form: str) -> None:
    # The names of a shallow clone, and one with what Java and Python quote differently.
    table.create()
    outside = tmp_path / "a b=(é)~'"
    outside.mkdir()
    for version in (1, 2):
        file = outside / f"{version}.parquet"
        pq.write_table(pa.table({"id": [version], "name": ["x"]}, COLUMNS), file)
        add = {
            "path": form.format(quote(str(file))),
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": version,
            "dataChange": True,
        }
        write_commit(Location.of(table.path), version, {"commitInfo": {}}, {"add": add})
    for keys in ({}, {"starting_version": "0"}, {"starting_version": "1"}):
        rows = [row["id"] for row in table.read(**keys).step()]
        assert rows == [1, 2]
