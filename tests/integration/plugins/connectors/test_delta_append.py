"""Appending to Delta tables: exactly once, whatever happens between two steps."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from tests.integration.plugins.connectors.delta_writing import (
    batch_of,
    held,
    rows_of,
    sink,
    write,
)

from headrace.sdk import (
    ConfigError,
    Mark,
    RecordError,
    RetriableError,
    SinkBatch,
    SinkError,
)
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.folders import folder_name

pytestmark = pytest.mark.spark

APP = "copy/0"
Records = Callable[..., DataFrame]


def test_the_first_batch_makes_the_table_and_the_next_one_adds_to_it(
    tmp_path: Path, records: Records
) -> None:
    task = sink(tmp_path / "t")
    assert task.committed(Mark(APP, 1, 1), "t") is None
    assert write(task, records([(1, "a"), (2, None)]), 1) == 2
    assert write(task, records([(3, "c")]), 2) == 1
    assert rows_of(tmp_path / "t") == [(1, "a"), (2, None), (3, "c")]


def test_spark_reads_what_was_appended(
    tmp_path: Path, records: Records, spark: SparkSession
) -> None:
    write(sink(tmp_path / "t"), records([(1, "a"), (2, None)]), 1)
    rows = spark.read.format("delta").load(str(tmp_path / "t")).where("id >= 2").collect()
    assert [tuple(row) for row in rows] == [(2, None)]


def test_a_batch_without_records_is_committed_too(tmp_path: Path, records: Records) -> None:
    task = sink(tmp_path / "t")
    assert write(task, records([]), 1) == 0
    assert held(task, Mark(APP, 1, 1)) == {"batch": 1}


@pytest.mark.parametrize(
    "value", ["struct(1 AS a, 2 AS A)", "struct(array(struct(1 AS a, 2 AS A)) AS items)"]
)
def test_names_that_differ_in_case_only_are_a_clear_error(
    tmp_path: Path, spark: SparkSession, value: str
) -> None:
    with pytest.raises(SinkError, match="The fields a and A differ in case only"):
        write(sink(tmp_path / "t"), spark.sql(f"SELECT {value} AS value"), 1)


class TestExactlyOnce:
    def test_after_a_crash_between_commit_and_store_the_receipt_is_found(
        self, tmp_path: Path, records: Records
    ) -> None:
        write(sink(tmp_path / "t"), records([(1, "a")]), 1)
        after_restart = sink(tmp_path / "t")
        assert held(after_restart, Mark(APP, 1, 2)) == {"batch": 1}
        assert after_restart.committed(Mark(APP, 2, 2), "t") is None
        assert after_restart.committed(Mark("other/0", 1, 2), "t") is None

    def test_committing_the_same_batch_again_changes_nothing(
        self, tmp_path: Path, records: Records
    ) -> None:
        write(sink(tmp_path / "t"), records([(1,)], "id BIGINT"), 1)
        task, frame = sink(tmp_path / "t"), records([(2, "b")])  # which adds a column
        batch = batch_of(frame, 2)
        staged = task.write(frame, batch)
        staged.commit(batch.mark.receipt({}))
        staged.commit(batch.mark.receipt({}))
        assert rows_of(tmp_path / "t") == [(1, None), (2, "b")]

    def test_what_was_staged_before_a_crash_is_invisible_and_goes_with_the_next_attempt(
        self, tmp_path: Path, records: Records
    ) -> None:
        task, frame = sink(tmp_path / "t"), records([(1, "a")])
        write(task, records([(0, "z")]), 1)
        task.write(frame, batch_of(frame, 2, epoch=1))  # and then the process died
        assert rows_of(tmp_path / "t") == [(0, "z")]
        write(sink(tmp_path / "t"), frame, 2, epoch=2)
        assert rows_of(tmp_path / "t") == [(0, "z"), (1, "a")]
        staged = tmp_path / "t" / "data" / folder_name(APP)
        attempts = sorted(path.name for path in staged.iterdir())
        assert attempts == ["000000000001-1", "000000000002-2"]

    def test_an_old_owner_that_commits_late_adds_nothing(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records([(1, "a")])
        late = sink(tmp_path / "t").write(frame, batch_of(frame, 1, epoch=1))
        new_owner = sink(tmp_path / "t")
        write(new_owner, frame, 1, epoch=2)
        with pytest.raises(StaleEpochError):
            late.commit("late")
        assert held(new_owner, Mark(APP, 1, 2)) == {"batch": 1}
        write(new_owner, records([(2, "b")]), 2, epoch=2)
        with pytest.raises(StaleEpochError):
            late.commit("later still")
        assert rows_of(tmp_path / "t") == [(1, "a"), (2, "b")]

    def test_an_aborted_batch_leaves_no_files(self, tmp_path: Path, records: Records) -> None:
        task, frame = sink(tmp_path / "t"), records([(1, "a")])
        staged = task.write(frame, batch_of(frame, 1))
        staged.abort()
        staged.abort()
        assert list((tmp_path / "t").rglob("*.parquet")) == []

    def test_two_tasks_that_write_one_table_keep_a_mark_each(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records([(1, "a")])
        one = sink(tmp_path / "t").write(frame, batch_of(frame, 1))
        schema = batch_of(frame, 1).schema
        other = sink(tmp_path / "t").write(frame, SinkBatch(Mark("copy/1", 1, 1), "t", schema))
        other.commit("other")
        one.commit("one")
        assert rows_of(tmp_path / "t") == [(1, "a"), (1, "a")]
        task = sink(tmp_path / "t")
        assert task.committed(Mark(APP, 1, 1), "t") == "one"
        assert task.committed(Mark("copy/1", 1, 1), "t") == "other"


def constrain(path: Path) -> None:
    DeltaTable(path).alter.add_constraint({"positive": "id > 100"})


def retype(path: Path) -> None:
    other = pa.table({"id": ["x"], "name": ["y"]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")


def rename(path: Path) -> None:
    other = pa.table({"id": pa.array([7], pa.int64()), "title": ["y"]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")


def partition(path: Path) -> None:
    shutil.rmtree(path)
    other = pa.table({"id": pa.array([7], pa.int64()), "name": ["y"]})
    write_deltalake(path, other, partition_by=["name"])


def remove(path: Path) -> None:
    shutil.rmtree(path)


@pytest.mark.parametrize("more", [{}, {"mode": "upsert", "key_fields": "id"}])
class TestChangedDefinitions:
    """Nothing of a batch goes into a table that is no longer the one it was planned for."""

    @pytest.mark.parametrize("change", [constrain, retype, rename, partition, remove])
    def test_the_owner_changes_the_table(
        self,
        tmp_path: Path,
        records: Records,
        change: Callable[[Path], None],
        more: dict[str, str],
    ) -> None:
        path, frame = tmp_path / "t", records([(500, "a")])
        write(sink(path, **more), frame, 1)
        later = records([(1, "b")])
        staged = sink(path, **more).write(later, batch_of(later, 2))
        change(path)
        before = rows_of(path) if path.exists() else None
        with pytest.raises(RetriableError, match=f"changed the table {path}"):
            staged.commit(Mark(APP, 2, 1).receipt({}))
        assert (rows_of(path) if path.exists() else None) == before

    @pytest.mark.parametrize("there", [False, True], ids=["no table", "a table"])
    @pytest.mark.parametrize("other", ["extra INT", "name INT"])
    def test_another_task_makes_the_table_or_adds_columns(
        self, tmp_path: Path, records: Records, other: str, there: bool, more: dict[str, str]
    ) -> None:
        path = tmp_path / "t"
        if there:
            write(sink(path, **more), records([(500, "a")], "id BIGINT, first STRING"), 1)
        ours = records([(1, "b")])
        theirs = records([(2, None)], f"id BIGINT, {other}")
        task = sink(path, **more)
        staged = task.write(ours, batch_of(ours, 2))
        rival = SinkBatch(Mark("copy/1", 1, 1), "t", batch_of(theirs, 1).schema)
        sink(path, **more).write(theirs, rival).commit(rival.mark.receipt({}))
        with pytest.raises(RetriableError, match=f"changed the table {path}"):
            staged.commit(Mark(APP, 2, 1).receipt({}))
        assert task.committed(Mark(APP, 2, 1), "t") is None

    def test_the_owner_makes_the_table_with_a_column_that_is_not_null(
        self, tmp_path: Path, records: Records, more: dict[str, str]
    ) -> None:
        task, frame = sink(tmp_path / "t", **more), records([(1, None)])
        staged = task.write(frame, batch_of(frame, 1))
        fields = [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)]
        DeltaTable.create(tmp_path / "t", pa.schema(fields))
        with pytest.raises(RetriableError, match="changed the table"):
            staged.commit(Mark(APP, 1, 1).receipt({}))
        assert rows_of(tmp_path / "t") == []


class TestRefusals:
    def test_a_tombstone_is_an_error_and_leaves_no_files(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records([(1, "a"), None])
        with pytest.raises(RecordError, match="tombstone"):
            sink(tmp_path / "t").write(frame, batch_of(frame, 1))
        assert list(tmp_path.rglob("*.parquet")) == []

    def test_a_null_in_a_required_column_is_an_error(
        self, tmp_path: Path, records: Records
    ) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        DeltaTable.create(tmp_path / "t", schema=schema)
        frame = records([(1, "a"), (None, "b")])
        with pytest.raises(RecordError, match="NOT NULL") as raised:
            sink(tmp_path / "t").write(frame, batch_of(frame, 1))
        assert raised.value.field == "id"
        write(sink(tmp_path / "t"), records([(1, "a")]), 1)
        assert rows_of(tmp_path / "t") == [(1, "a")]

    def test_a_required_column_that_the_records_lack_is_an_error(
        self, tmp_path: Path, records: Records
    ) -> None:
        schema = pa.schema([pa.field("key", pa.int64(), nullable=False), ("name", pa.string())])
        DeltaTable.create(tmp_path / "t", schema=schema)
        frame = records([(1, "a")])
        with pytest.raises(ConfigError, match="NOT NULL"):
            sink(tmp_path / "t").write(frame, batch_of(frame, 1))


class TestPartitions:
    def test_values_of_every_allowed_type_come_back_as_they_were(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        ddl = "id INT, s STRING, d DATE, n DECIMAL(6, 2), b BOOLEAN, l BIGINT"
        given = [
            (1, "a/b=c:d %41é", date(2024, 2, 29), Decimal("1.50"), True, 7),
            (2, None, None, None, None, None),
            (3, "plain", date(1969, 12, 31), Decimal("2.25"), False, -7),
        ]
        task = sink(tmp_path / "t", partition_by="s,d,n,b,l")
        assert write(task, records(given, ddl), 1) == 3
        assert DeltaTable(tmp_path / "t").metadata().partition_columns == list("sdnbl")
        assert rows_of(tmp_path / "t") == given
        read = spark.read.format("delta").load(str(tmp_path / "t")).orderBy("id").collect()
        assert [tuple(row) for row in read] == given

    @pytest.mark.parametrize("more", [{}, {"mode": "upsert", "key_fields": "id"}])
    def test_a_value_that_cannot_name_a_folder_is_refused(
        self, tmp_path: Path, records: Records, more: dict[str, str]
    ) -> None:
        null = "__HIVE_DEFAULT_PARTITION__"  # it would be read as null
        long = "é" * 125
        frame = records([(1, "x" * 250), (2, None), (3, long), (4, f"{long}xx"), (5, null)])
        if more:  # by deltalake, which encodes all signs beyond ASCII
            long = "a *" * 35
            frame = records(
                [(1, "é" * 41), (2, long), (4, f"{long}a *"), (5, "a\0"), (6, null)]
            )
        task = sink(tmp_path / "t", partition_by="name", **more)
        (refusal,) = [e for e in task.refusals(frame, batch_of(frame, 1)) if e.field == "name"]
        refused = frame.where(refusal.condition).selectExpr("value.id").collect()
        assert sorted(row.id for row in refused) == ([4, 5, 6] if more else [4, 5])
        good = frame.where(f"NOT ({refusal.condition})")
        write(task, good, 1)
        assert len(rows_of(tmp_path / "t")) == good.count()
        with pytest.raises(RecordError, match="cannot be the name of a folder"):
            write(task, frame, 2)

    def test_a_record_without_the_partition_column_goes_to_null(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", partition_by="name")
        write(task, records([(1, "a")]), 1)
        write(task, records([(2,)], "id BIGINT"), 2)
        assert rows_of(tmp_path / "t") == [(1, "a"), (2, None)]

    @pytest.mark.parametrize("column", ["missing", "name2", "at"])
    def test_a_column_that_cannot_divide_a_table_is_refused(
        self, tmp_path: Path, records: Records, column: str
    ) -> None:
        frame = records([(1, datetime(2024, 1, 1, tzinfo=UTC))], "id BIGINT, at TIMESTAMP")
        task = sink(tmp_path / "t", partition_by=column)
        with pytest.raises(ConfigError, match=column):
            task.write(frame, batch_of(frame, 1))
        assert not DeltaTable.is_deltatable(str(tmp_path / "t"))

    def test_another_partitioning_than_the_tables_is_refused(
        self, tmp_path: Path, records: Records
    ) -> None:
        write(sink(tmp_path / "t"), records([(1, "a")]), 1)
        frame = records([(1, "a")])
        with pytest.raises(ConfigError, match="partitioned by no column"):
            sink(tmp_path / "t", partition_by="name").write(frame, batch_of(frame, 2))


EXTREMES = """SELECT named_struct('id', id) AS key, array(id) AS position,
named_struct('id', id, 'at', at, 'day', day, 'd', d, 'f', f, 'whole', whole, 'part', part)
AS value FROM VALUES
(1L, TIMESTAMP '9999-12-31 23:59:59.999999Z', DATE '9999-12-31', -0.0D, CAST('-0.0' AS FLOAT),
 CAST(repeat('9', 38) AS DECIMAL(38, 0)), CAST('0.' || repeat('9', 38) AS DECIMAL(38, 38))),
(2L, TIMESTAMP '0001-01-01 00:00:00.000001Z', DATE '0001-01-01', 4.9E-324D,
 CAST('1.4E-45' AS FLOAT), CAST('-' || repeat('9', 38) AS DECIMAL(38, 0)),
 CAST('-0.' || repeat('9', 38) AS DECIMAL(38, 38)))
AS v(id, at, day, d, f, whole, part)"""
SHOWN = ["id", *(f"CAST({n} AS STRING)" for n in ("at", "day", "d", "f", "whole", "part"))]
TYPES = {
    "at": "TIMESTAMP",
    "day": "DATE",
    "d": "DOUBLE",
    "f": "FLOAT",
    "whole": "DECIMAL(38, 0)",
    "part": "DECIMAL(38, 38)",
}
WRITERS = {
    "appended": {},
    "partitioned": {"partition_by": "whole"},
    "merged by a worker": {"mode": "upsert", "merge_spark_threshold_bytes": "1000000000000"},
    "merged by Spark": {"mode": "upsert", "merge_spark_threshold_bytes": "0"},
}


@pytest.mark.parametrize("how", WRITERS)
def test_extreme_values_are_read_back_and_found_by_the_statistics(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    """Bounds that were rounded to floats hid rows from whoever looked for them."""
    task, frame = sink(tmp_path / "t", **WRITERS[how]), spark.sql(EXTREMES)
    again = frame if "mode" in WRITERS[how] else frame.where("key.id = 2")
    write(task, frame.where("key.id = 1"), 1)
    write(task, again, 2)
    table = spark.read.format("delta").load(str(tmp_path / "t"))
    found = sorted(map(tuple, table.selectExpr(*SHOWN).collect()))
    wanted = sorted(map(tuple, frame.selectExpr("value.*").selectExpr(*SHOWN).collect()))
    assert found == wanted
    for number, row in enumerate(wanted):
        for (name, kind), text in zip(TYPES.items(), row[1:], strict=True):
            only = table.where(f"{name} = CAST('{text}' AS {kind})").select("id").collect()
            assert [each.id for each in only] == [number + 1], (name, text)
    if how == "appended":
        rows = DeltaTable(tmp_path / "t").to_pyarrow_table()
        dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
        for name in TYPES:
            for value in rows[name]:
                assert dataset.count_rows(ds.field(name) == value) == 1, (name, value)
