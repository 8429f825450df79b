"""Upserts into Delta tables: by key, with deletions, exactly once."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from tests.integration.plugins.connectors.delta_writing import held
from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    FrameSink,
    Mark,
    RecordError,
    RetriableError,
    SinkBatch,
    SinkError,
    deltalog,
)
from headrace.sdk.delta import mark_properties
from headrace.sdk.deltalog import commit_file
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.delta import commit
from headrace_plugins.connectors.delta.columns import Fit, as_field
from headrace_plugins.connectors.delta.commit import Merge, change_schema
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.delta.table import add_columns

pytestmark = pytest.mark.spark

APP = "sync/0"
KEY = "id BIGINT"
ROW = "id BIGINT, name STRING"
ENGINES = {"worker": "1000000000000", "spark": "0"}
"""The threshold above which Spark merges, chosen so that either engine always does."""
Records = Callable[..., DataFrame]


def sink(path: Path, **texts: str) -> FrameSink:
    props = {"path": str(path), "mode": "upsert"}
    props |= {key.replace("__", "."): text for key, text in texts.items()}
    task = DeltaSink.task(DeltaSink.config_def().parse(props))
    assert isinstance(task, FrameSink)
    return task


def batch_of(frame: DataFrame, number: int, epoch: int = 1) -> SinkBatch:
    schemas = {f.name: f.schema for f in from_spark_json(frame.schema.jsonValue()).fields}
    return SinkBatch(Mark(APP, number, epoch), "t", schemas["value"], schemas.get("key"))


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """Make record frames of ``(key, value)``; a value of None is a tombstone.

    Their order in the list is that of their positions, and not that in Spark.
    """

    def make(
        pairs: Sequence[tuple[Any, Any]], value: str = ROW, key: str = f"STRUCT<{KEY}>"
    ) -> DataFrame:
        rows = [(k, v, number) for number, (k, v) in enumerate(pairs)]
        random.Random(len(rows)).shuffle(rows)  # noqa: S311 - any order will do
        ddl = f"key {key}, value STRUCT<{value}>, number BIGINT"
        return spark.createDataFrame(rows, ddl).selectExpr(
            "key",
            "value",
            "CAST(NULL AS array<struct<key:string,value:string,type:string>>) AS headers",
            "current_timestamp() AS timestamp",
            "'t' AS topic",
            "CAST(NULL AS INT) AS partition",
            "array(7L, number) AS position",
        )

    return make


def pairs(*rows: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    return [((row[0],), row) for row in rows]


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(path).to_pyarrow_table()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def write(task: FrameSink, frame: DataFrame, number: int, epoch: int = 1) -> int:
    batch = batch_of(frame, number, epoch)
    staged = task.write(frame, batch)
    staged.commit(batch.mark.receipt({"batch": number}))
    return staged.rows


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"merge__spark__threshold__bytes": ENGINES[request.param]}


def merge_of(staged: Any, kind: type[Merge]) -> Merge:
    """Return the merge of a staged batch, as it is sent to a worker."""
    return kind(
        table=staged.to.path,
        files=[staged.to.path / file.path for file in staged.files],
        fields=staged._fields(),
        keys=staged.keys,
        mark=staged.mark,
        receipt=staged.mark.receipt({}),
        planned=staged.to.planned,
    )


@contextmanager
def missed_commit(path: Path) -> Iterator[None]:
    """Make two commits, of which a listing of the log has only the later one."""
    version = DeltaTable(path).version()
    for row in ({"id": [3], "name": ["c"]}, {"id": [4], "name": ["d"]}):
        write_deltalake(path, pa.table(row), mode="append")
    file, away = Path(str(commit_file(Location.of(path), version + 1))), path / "_away"
    file.rename(away)
    try:
        yield
    finally:
        away.rename(file)


class TestMerge:
    def test_the_last_record_of_each_key_counts_and_tombstones_delete(
        self, tmp_path: Path, records: Records, engine: dict[str, str]
    ) -> None:
        task = sink(tmp_path / "t", delete__enabled="true", **engine)
        first = [*pairs((1, "a"), (2, "b"), (1, "A"), (3, "c")), ((4,), None)]
        assert write(task, records(first), 1) == 5
        assert rows_of(tmp_path / "t") == [(1, "A"), (2, "b"), (3, "c")]
        second = [*pairs((2, "x")), ((2,), None), ((3,), None), *pairs((3, "back"), (5, "e"))]
        assert write(task, records(second), 2) == 5
        assert rows_of(tmp_path / "t") == [(1, "A"), (3, "back"), (5, "e")]
        assert held(task, Mark(APP, 2, 1)) == {"batch": 2}

    def test_columns_that_the_records_lack_keep_their_values(
        self, tmp_path: Path, records: Records, engine: dict[str, str]
    ) -> None:
        task = sink(tmp_path / "t", **engine)
        write(task, records(pairs((1, "a"), (2, "b"))), 1)
        write(task, records(pairs((1, 10), (3, 30)), "id BIGINT, n INT"), 2)
        assert rows_of(tmp_path / "t") == [(1, "a", 10), (2, "b", None), (3, None, 30)]

    def test_a_batch_that_changes_nothing_keeps_its_mark(
        self, tmp_path: Path, records: Records, engine: dict[str, str]
    ) -> None:
        task = sink(tmp_path / "t", delete__enabled="true", **engine)
        write(task, records(pairs((1, "a"))), 1)
        assert write(task, records([((9,), None)]), 2) == 1
        assert held(task, Mark(APP, 2, 1)) == {"batch": 2}
        assert write(task, records([]), 3) == 0
        assert held(task, Mark(APP, 3, 1)) == {"batch": 3}
        assert rows_of(tmp_path / "t") == [(1, "a")]

    def test_an_old_owner_that_commits_late_changes_nothing_and_is_told(
        self, tmp_path: Path, records: Records, engine: dict[str, str]
    ) -> None:
        first, second = records(pairs((1, "a"))), records(pairs((1, "b")))
        old_owner = sink(tmp_path / "t", **engine).write(first, batch_of(first, 1))
        new_owner = sink(tmp_path / "t", **engine)
        write(new_owner, first, 1, epoch=2)
        with pytest.raises(StaleEpochError):
            old_owner.commit("late")
        assert held(new_owner, Mark(APP, 1, 3)) == {"batch": 1}
        write(new_owner, second, 2, epoch=2)
        with pytest.raises(StaleEpochError):
            old_owner.commit("later")
        assert rows_of(tmp_path / "t") == [(1, "b")]

    def test_names_and_values_of_every_kind_come_through(
        self, tmp_path: Path, records: Records, engine: dict[str, str]
    ) -> None:
        value = (
            "`Order Id` BIGINT, `a.b` DECIMAL(10, 2), `it's` ARRAY<STRUCT<x: INT, y: STRING>>, "
            "M MAP<STRING, INT>, b BINARY, t TIMESTAMP, d DATE, f FLOAT"
        )
        task = sink(tmp_path / "t", key__fields="Order Id", **engine)
        rows = [(1, None, [(1, "y"), (2, None)], {"k": 1}, b"\x00\xff", None, None, 0.5)]
        write(task, records([(None, row) for row in rows], value, "STRING"), 1)
        write(
            task,
            records([(None, (1, None, None, None, None, None, None, 1.5))], value, "STRING"),
            2,
        )
        assert rows_of(tmp_path / "t") == [(1, None, None, None, None, None, None, 1.5)]


class TestKeys:
    def test_a_key_that_the_value_lacks_becomes_a_column(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", delete__enabled="true")
        write(task, records([((1,), ("a",)), ((2,), ("b",))], "name STRING"), 1)
        write(task, records([((1,), None)], "name STRING"), 2)
        assert rows_of(tmp_path / "t") == [(2, "b")]
        assert DeltaTable(tmp_path / "t").schema().to_arrow().names == ["id", "name"]

    def test_a_plain_key_takes_the_configured_name(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", key__fields="sku", delete__enabled="true")
        write(task, records([("x", (1,)), ("y", (2,))], "n INT", "STRING"), 1)
        write(task, records([("x", (3,)), ("y", None)], "n INT", "STRING"), 2)
        assert rows_of(tmp_path / "t") == [("x", 3)]

    def test_several_columns_can_be_the_key(self, tmp_path: Path, records: Records) -> None:
        task = sink(tmp_path / "t", key__fields="id,name")
        value = "id BIGINT, name STRING, n INT"
        write(task, records([(None, (1, "a", 1)), (None, (1, "b", 2))], value, "STRING"), 1)
        write(task, records([(None, (1, "b", 3))], value, "STRING"), 2)
        assert rows_of(tmp_path / "t") == [(1, "a", 1), (1, "b", 3)]

    def test_a_null_in_the_key_is_an_error_and_leaves_no_files(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records([*pairs((1, "a")), ((None,), (2, "b"))])
        with pytest.raises(RecordError, match="null in its key"):
            sink(tmp_path / "t").write(frame, batch_of(frame, 1))
        assert list(tmp_path.rglob("*.parquet")) == []

    def test_tombstones_are_an_error_unless_deletions_are_enabled(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records([*pairs((1, "a")), ((2,), None)])
        with pytest.raises(RecordError, match="tombstone"):
            sink(tmp_path / "t").write(frame, batch_of(frame, 1))

    def test_records_without_a_key_need_key_fields(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records([("k", (1, "a"))], key="STRING")
        with pytest.raises(ConfigError) as raised:
            sink(tmp_path / "t").write(frame, batch_of(frame, 1))
        assert raised.value.field == "key.fields"
        assert "The records of t have no key" in raised.value.problem
        assert "table.mapping" in str(raised.value.fix)
        with pytest.raises(ConfigError, match="sku, store"):
            sink(tmp_path / "t", key__fields="sku,store").write(frame, batch_of(frame, 1))
        frame = records(pairs((1, "a")))
        with pytest.raises(ConfigError, match="nobody"):
            sink(tmp_path / "t", key__fields="id,nobody").write(frame, batch_of(frame, 1))


class TestFailures:
    def test_what_was_staged_is_hidden_and_gone_after_an_abort_or_the_next_attempt(
        self, tmp_path: Path, records: Records
    ) -> None:
        frame = records(pairs((1, "a")))
        sink(tmp_path / "t").write(frame, batch_of(frame, 1)).abort()
        assert list(tmp_path.rglob("*.parquet")) == []
        sink(tmp_path / "t").write(frame, batch_of(frame, 1))  # and then the process died
        write(sink(tmp_path / "t"), frame, 1, epoch=2)
        assert list((tmp_path / "t" / "_headrace").rglob("*.parquet")) == []
        assert rows_of(tmp_path / "t") == [(1, "a")]

    def test_a_merge_that_fails_half_way_changes_nothing_and_can_run_again(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t")
        write(task, records(pairs((1, "a"), (2, "b"))), 1)
        frame = records(pairs((1, "x"), (3, "z")))
        staged = task.write(frame, batch_of(frame, 2))
        (data,) = (Path(uri) for uri in DeltaTable(tmp_path / "t").file_uris())
        away = data.rename(tmp_path / "away")
        with pytest.raises(SinkError):
            staged.commit("receipt 2")
        away.rename(data)
        assert rows_of(tmp_path / "t") == [(1, "a"), (2, "b")]
        assert task.committed(Mark(APP, 2, 1), "t") is None
        write(task, frame, 2)
        assert rows_of(tmp_path / "t") == [(1, "x"), (2, "b"), (3, "z")]

    def test_another_writer_between_reading_and_committing_loses_nothing(
        self, tmp_path: Path, records: Records
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)

        class Racing(Merge):
            """Lets another writer commit while the first try is under way."""

            raced = False

            @override
            def _merge(self, table: DeltaTable) -> dict[str, int]:
                if not Racing.raced:
                    Racing.raced = True
                    write_deltalake(path, pa.table({"id": [2], "name": ["b"]}), mode="append")
                return super()._merge(table)

        frame = records(pairs((1, "x"), (2, "y")))
        staged: Any = sink(path).write(frame, batch_of(frame, 2))
        merge_of(staged, Racing).run()
        assert Racing.raced
        assert rows_of(path) == [(1, "x"), (2, "y")]

    @pytest.mark.parametrize("checkpoint", [False, True])
    def test_a_merge_that_lists_commits_while_they_are_made_is_made_again(
        self, tmp_path: Path, records: Records, checkpoint: bool
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)
        if checkpoint:
            DeltaTable(path).create_checkpoint()

        class Partly(Merge):
            """Lets the first try see the later one only of two commits made meanwhile."""

            tries = 0

            @override
            def _merge(self, table: DeltaTable) -> dict[str, int]:
                Partly.tries += 1
                if Partly.tries > 1:
                    return super()._merge(table)
                with missed_commit(path):
                    return super()._merge(table)

        frame = records(pairs((1, "x"), (2, "y")))
        staged: Any = sink(path).write(frame, batch_of(frame, 2))
        merge_of(staged, Partly).run()
        assert Partly.tries == 2
        assert rows_of(path) == [(1, "x"), (2, "y"), (3, "c"), (4, "d")]

    def test_a_column_that_is_renamed_during_the_merge_stops_it(
        self, tmp_path: Path, records: Records
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)
        renamed = pa.table({"id": pa.array([1], pa.int64()), "title": ["a"]})

        class Renamed(Merge):
            """Lets the owner rename a column while the first try is under way."""

            @override
            def _merge(self, table: DeltaTable) -> dict[str, int]:
                write_deltalake(path, renamed, mode="overwrite", schema_mode="overwrite")
                return super()._merge(table)

        frame = records(pairs((1, "x"), (2, "y")))
        staged: Any = sink(path).write(frame, batch_of(frame, 2))
        merge = merge_of(staged, Renamed)
        with pytest.raises(RetriableError, match="changed the table"):
            merge.run()
        assert rows_of(path) == [(1, "a")]

    def test_a_mark_that_appears_during_the_merge_stops_it(
        self, tmp_path: Path, records: Records
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)
        frame = records(pairs((1, "x")))
        staged: Any = sink(path).write(frame, batch_of(frame, 2))
        newer = mark_properties(Mark(APP, 3, 2), "newer")
        rows = pa.table({"id": [9], "name": ["z"]})
        write_deltalake(path, rows, mode="append", commit_properties=newer)
        with pytest.raises(StaleEpochError):
            staged.commit("late")
        assert rows_of(path) == [(1, "a"), (9, "z")]


class TestTables:
    def test_rows_are_merged_into_a_partitioned_table(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", partition__by="name", delete__enabled="true")
        write(task, records(pairs((1, "a"), (2, "b"))), 1)
        write(task, records([*pairs((1, "c")), ((2,), None)]), 2)
        assert rows_of(tmp_path / "t") == [(1, "c")]

    def test_a_table_with_deletion_vectors_is_merged_by_spark(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        path = tmp_path / "t"
        task = sink(path, table__properties="delta.enableDeletionVectors=true")
        write(task, records(pairs((1, "a"), (2, "b"), (3, "c"))), 1)
        write(task, records(pairs((1, "x"), (4, "d"))), 2)
        rows = spark.read.format("delta").load(str(path)).orderBy("id").collect()
        assert [tuple(row) for row in rows] == [(1, "x"), (2, "b"), (3, "c"), (4, "d")]
        assert held(task, Mark(APP, 2, 1)) == {"batch": 2}

    @pytest.mark.parametrize("checkpoint", [False, True])
    def test_spark_that_lists_commits_while_they_are_made_is_retried(
        self, tmp_path: Path, records: Records, spark: SparkSession, checkpoint: bool
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)
        if checkpoint:
            DeltaTable(path).create_checkpoint()
        schema = {"type": "struct", "fields": [as_field("more", "string")]}
        with missed_commit(path), pytest.raises(RetriableError):
            change_schema(spark, Location.of(path), schema)
        change_schema(spark, Location.of(path), schema)
        assert rows_of(path) == [(1, "a", None), (3, "c", None), (4, "d", None)]

    def test_new_columns_are_flushed_though_an_error_follows_their_commit(
        self, tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)
        before = DeltaTable(path).version()
        flushed: list[tuple[int, int]] = []

        def failing(table: DeltaTable, fit: Fit) -> None:
            add_columns(table, fit)
            raise RetriableError(problem="The connection was lost.")

        def flush(_table: Location, _mark: Mark | None, since: int = -1) -> None:
            flushed.append((since, DeltaTable(path).version()))

        monkeypatch.setattr(commit, "add_columns", failing)
        monkeypatch.setattr(deltalog, "flush_commits", flush)
        wide = records(pairs((1, "x", "more")), value=f"{ROW}, more STRING")
        with pytest.raises(RetriableError, match="lost"):
            write(sink(path), wide, 2)
        assert flushed == [(before, before + 1)]

    def test_a_table_whose_log_is_damaged_is_an_error_with_its_fix(
        self, tmp_path: Path, records: Records
    ) -> None:
        path = tmp_path / "t"
        write(sink(path), records(pairs((1, "a"))), 1)
        with missed_commit(path), pytest.raises(SinkError, match="lacks a commit") as damaged:
            write(sink(path), records(pairs((1, "x"))), 2)
        assert "backup" in damaged.value.fix
        assert damaged.value.__cause__ is not None  # deltalake names the versions
        write(sink(path), records(pairs((1, "x"))), 2)
        assert rows_of(path) == [(1, "x"), (3, "c"), (4, "d")]

    def test_upkeep_between_merges_keeps_rows_and_mark(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", optimize__interval__commits="2")
        for number in range(1, 6):
            write(task, records(pairs((number, "x"), (0, str(number)))), number)
        assert rows_of(tmp_path / "t") == [(0, "5"), *((n, "x") for n in range(1, 6))]
        assert held(task, Mark(APP, 5, 1)) == {"batch": 5}
        assert (tmp_path / "t" / "_delta_log" / "_last_checkpoint").exists()
